"""Gradients of single examples that are never held: what makes them, and their inner products.

A layer whose answer is linear in its weight has gradients that follow from what it saw and the errors that were sent
back to it. `Piece` is the gradient of some parameters in a form that can be multiplied; `Layer` says how a layer of a
model makes one. Nothing here runs a model: `gmip.attacks.gradients` does.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import torch
from torch import Tensor, nn

from gmip.attacks.work import rows_that_fit
from gmip.stats.flat import Flat
from gmip.tasks.inputs import placed

# -- per-example gradients of one layer -------------------------------------------------------------------------------


class Piece(ABC):
    """Gradients g_i of n examples with respect to some entries of the flat vector of length d."""

    @abstractmethod
    def __len__(self) -> int:
        """n."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Memory that the piece holds."""

    @property
    @abstractmethod
    def entries(self) -> int:
        """How many numbers are held of an example."""

    @abstractmethod
    def to(self, dtype: torch.dtype) -> Self:
        """The same gradients in another precision."""

    @abstractmethod
    def scaled(self, factor: Tensor) -> Self:
        """factor_i g_i; factor of shape (n,)."""

    @abstractmethod
    def is_finite(self) -> Tensor:
        """Whether each gradient is free of NaN and infinity, shape (n,)."""

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """|g_i|^2, shape (n,)."""

    @abstractmethod
    def products(self, other: Self) -> Tensor:
        """<g_i, h_j> with the n' gradients of `other` for the same entries, shape (n, n')."""

    @abstractmethod
    def against(self, vectors: Sequence[Flat]) -> Tensor:
        """<g_i, v_j> with the same entries of s flat vectors, shape (n, s)."""

    @abstractmethod
    def add_to(self, flat: Tensor, weights: Tensor) -> None:
        """Adds sum_i w_ki g_i to row k of `flat`, shape (k, d), for weights of shape (k, n)."""

    @abstractmethod
    def apart(self) -> list[Piece]:
        """The gradients of each parameter."""

    @abstractmethod
    def write(self, flat: Tensor) -> None:
        """Puts g_i into its columns of `flat`, shape (n, d)."""

    @abstractmethod
    def joined(self, others: Sequence[Self]) -> Self:
        """The examples of this one and then those of the others, pieces of the same layer."""


@dataclass(frozen=True, eq=False)
class Dense(Piece):
    """The gradients themselves, shape (n, size), and their columns in the flat vector."""

    rows: Tensor
    columns: slice

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def entries(self) -> int:
        return self.rows.shape[1]

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes

    def to(self, dtype: torch.dtype) -> Dense:
        return Dense(self.rows.to(dtype), self.columns)

    def scaled(self, factor: Tensor) -> Dense:
        return Dense(self.rows * factor[:, None], self.columns)

    def is_finite(self) -> Tensor:
        return self.rows.sum(1).isfinite()

    def squared_norms(self) -> Tensor:
        norms: Tensor = torch.linalg.vector_norm(self.rows, dim=1)
        return norms.square()

    def products(self, other: Dense) -> Tensor:
        return _square(self.rows) if other.rows is self.rows else self.rows @ other.rows.T

    def against(self, vectors: Sequence[Flat]) -> Tensor:
        return self.rows @ torch.stack([_part(vector, self.columns, self.rows) for vector in vectors]).T

    def add_to(self, flat: Tensor, weights: Tensor) -> None:
        flat[:, self.columns] += (weights @ self.rows).to(flat)

    def apart(self) -> list[Piece]:
        return [self]

    def write(self, flat: Tensor) -> None:
        flat[:, self.columns] = self.rows

    def joined(self, others: Sequence[Dense]) -> Dense:
        return Dense(torch.cat([self.rows, *(other.rows for other in others)]), self.columns)


def _part(vector: Flat, columns: slice, like: Tensor) -> Tensor:
    """Some entries of the vector, in the precision and on the device of `like`."""
    values = vector.part(columns)
    return torch.from_numpy(values if values.flags.writeable else values.copy()).to(like)


def _square(rows: Tensor) -> Tensor:
    """All inner products of the rows."""
    if rows.device.type != "cpu":
        return rows @ rows.T
    values = rows.numpy()
    return torch.from_numpy(values @ values.T)  # NumPy sees that it is symmetric: half of the work


@dataclass(frozen=True, eq=False)
class Use(ABC):
    """What one use of a weight, a matrix, adds to the gradients of n examples, n matrices.

    Attributes
    ----------
    saw : what the layer was given, shape (n, ...).
    errors : derivative of the loss by what the layer gave, shape (n, positions, outputs).
    """

    saw: Tensor
    errors: Tensor

    @abstractmethod
    def ready(self) -> Outers | Lookups:
        """The same in a form that can be multiplied."""

    @property
    def entries(self) -> int:
        """How many numbers are held of an example."""
        return self.saw[0].numel() + self.errors[0].numel()

    @property
    def working(self) -> int:
        """How many it has in that form."""
        return self.entries


@dataclass(frozen=True, eq=False)
class Outers(Use):
    """The use in a linear layer: a sum over positions of (error)(input)' or, where the weight has a row for each input,
    of (input)(error)' (`turned`).

    `saw` has shape (n, positions, inputs).
    """

    turned: bool = False

    def ready(self) -> Outers:
        return self

    def strip(self, low: int, high: int) -> Tensor:
        """Rows of the matrices, shape (n, high - low, columns)."""
        left, right = self._sides
        rows = left[:, :, low:high].mT
        return rows * right if left.shape[1] == 1 else rows @ right

    def dot(self, matrix: Tensor) -> Tensor:
        """Inner products with one matrix, shape (n,)."""
        left, right = self._sides
        return ((left @ matrix) * right).sum((1, 2))

    def add_to(self, matrix: Tensor, weights: Tensor) -> None:
        """Adds the sum of the examples' matrices, times their weights, shape (n,)."""
        left, right = self._sides
        matrix += ((left * weights[:, None, None]).flatten(0, 1).T @ right.flatten(0, 1)).to(matrix)

    def along(self, other: Outers | Lookups) -> Tensor:
        """<g_i, h_i> with what another use of the weight adds, shape (n,)."""
        if isinstance(other, Lookups):
            return other.along(self)
        (ours, us), (theirs, them) = self._sides, other._sides
        return ((ours @ theirs.mT) * (us @ them.mT)).sum((1, 2))

    def products(self, other: Outers | Lookups) -> Tensor:
        """Inner products, pair by pair of positions; shape (n, n')."""
        if isinstance(other, Lookups):
            return other.products(self).T
        (n, ours), (others, theirs) = self.saw.shape[:2], other.saw.shape[:2]
        found = self.saw.new_empty(n, others)
        (left, right), (a, b) = self._sides, (side.flatten(0, 1).T for side in other._sides)
        for rows in slices(n, max(1, _PAIRS // (ours * others * theirs))):
            pairs = (left[rows].flatten(0, 1) @ a).mul_(right[rows].flatten(0, 1) @ b)
            found[rows] = pairs if ours == theirs == 1 else pairs.view(-1, ours, others, theirs).sum((1, 3))
        return found

    @property
    def _sides(self) -> tuple[Tensor, Tensor]:
        """What makes the rows of the matrix, and its columns."""
        return (self.saw, self.errors) if self.turned else (self.errors, self.saw)


@dataclass(frozen=True, eq=False)
class Lookups(Use):
    """The use in an embedding: each error is for the row whose number is in `saw`, shape (n, positions)."""

    def ready(self) -> Lookups:
        return self

    def strip(self, low: int, high: int) -> Tensor:
        """Rows of the matrices, shape (n, high - low, columns)."""
        rows = self.errors.new_zeros(len(self.saw), high - low, self.errors.shape[2])
        example, place = ((self.saw >= low) & (self.saw < high)).nonzero(as_tuple=True)
        number = self.saw[example, place] - low
        return rows.index_put_((example, number), self.errors[example, place], accumulate=True)

    def dot(self, matrix: Tensor) -> Tensor:
        """Inner products with one matrix, shape (n,)."""
        return (matrix[self.saw] * self.errors).sum((1, 2))

    def add_to(self, matrix: Tensor, weights: Tensor) -> None:
        """Adds the sum of the examples' matrices, times their weights, shape (n,)."""
        errors = (self.errors * weights[:, None, None]).flatten(0, 1)
        matrix.index_add_(0, self.saw.flatten().to(matrix.device), errors.to(matrix))

    def along(self, other: Outers | Lookups) -> Tensor:
        """<g_i, h_i> with what another use of the weight adds, shape (n,)."""
        if isinstance(other, Outers):
            left, right = other._sides
            seen = left.gather(2, self.saw[:, None, :].expand(-1, left.shape[1], -1))
            return (seen * (right @ self.errors.mT)).sum((1, 2))
        same = self.saw[:, :, None] == other.saw[:, None, :]
        return ((self.errors @ other.errors.mT) * same).sum((1, 2))

    def products(self, other: Outers | Lookups) -> Tensor:
        """Inner products; with other lookups number by number that both have looked up; shape (n, n')."""
        if isinstance(other, Outers):
            return self._with_outers(other)
        found = self.errors.new_zeros(len(self.saw), len(other.saw))
        ours = self._by_number()
        theirs = ours if other is self else other._by_number()
        for number in ours.keys() & theirs.keys():
            (example, a), (others, b) = ours[number], theirs[number]
            found[example[:, None], others] += a @ b.T
        return found

    def _with_outers(self, other: Outers) -> Tensor:
        """Inner products with the use of the same weight in a linear layer, pair by pair of positions."""
        (n, ours), (others, theirs) = self.saw.shape, other.saw.shape[:2]
        found = self.errors.new_empty(n, others)
        left, right = (side.flatten(0, 1) for side in other._sides)
        for rows in slices(n, max(1, _PAIRS // (ours * others * theirs))):
            pairs = (right @ self.errors[rows].flatten(0, 1).T).mul_(left[:, self.saw[rows].flatten()])
            found[rows] = pairs.view(others, theirs, -1, ours).sum((1, 3)).T
        return found

    def _by_number(self) -> dict[int, tuple[Tensor, Tensor]]:
        """Number -> (examples that have looked it up, the sum of the errors of each)."""
        n = len(self.saw)
        keys, place = (self.saw * n + torch.arange(n, device=self.saw.device)[:, None]).unique(return_inverse=True)
        sums = self.errors.new_zeros(len(keys), self.errors.shape[2])
        sums.index_add_(0, place.flatten(), self.errors.flatten(0, 1))
        numbers, counts = (keys // n).unique_consecutive(return_counts=True)
        sizes = counts.tolist()
        return dict(zip(numbers.tolist(), zip((keys % n).split(sizes), sums.split(sizes), strict=True), strict=True))


@dataclass(frozen=True, eq=False)
class Windows(Use):
    """The use in a convolution: `saw` are images, shape (n, images, channels, height, width)."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    def ready(self) -> Outers:
        """The use of a linear layer on each window of the images."""
        images = self.saw.flatten(0, 1)
        windows = nn.functional.unfold(images, self.kernel, self.dilation, self.padding, self.stride).mT
        return Outers(windows.reshape(*self.errors.shape[:2], -1), self.errors)

    @property
    def working(self) -> int:
        positions, outputs = self.errors.shape[1:]
        return int(positions * (self.saw.shape[2] * math.prod(self.kernel) + outputs))


def slices(count: int, step: int) -> Iterator[slice]:
    """So many at a time."""
    return (slice(first, min(first + step, count)) for first in range(0, count, step))


_PAIRS: Final = 2**22  # pairs of positions that are multiplied at a time
_PER_PAIR: Final = 32  # multiplications that take as long as what a pair needs beside its own
_STRIP: Final = 2**23  # numbers that are multiplied out at a time
_READY: Final = 2**25  # and of what they are multiplied from
_MOST_READY: Final = 512  # examples
_WORTH_IT: Final = 3  # times as many numbers in a gradient as in what makes it


@dataclass(frozen=True, eq=False)
class Outer(Piece):
    """Gradients of a weight, and of a bias beside it, as the sum of what its uses add; they are never held.

    Attributes
    ----------
    shape : of the weight as a matrix.
    weight, bias : their columns in the flat vector. A bias is the last column of the matrix, of an input that is
        always 1; None: there is none, or it has a piece of its own.
    """

    uses: tuple[Use, ...]
    shape: tuple[int, int]
    weight: slice
    bias: slice | None = None

    def __len__(self) -> int:
        return len(self.uses[0].errors)

    @property
    def entries(self) -> int:
        return sum(use.entries for use in self.uses)

    @property
    def nbytes(self) -> int:
        return sum(use.saw.nbytes + use.errors.nbytes for use in self.uses)

    def to(self, dtype: torch.dtype) -> Outer:
        return self._with(
            replace(u, saw=placed(u.saw, u.saw.device, dtype), errors=u.errors.to(dtype)) for u in self.uses
        )

    def scaled(self, factor: Tensor) -> Outer:
        return self._with(replace(use, errors=use.errors * factor[:, None, None]) for use in self.uses)

    def joined(self, others: Sequence[Outer]) -> Outer:
        same = zip(self.uses, *(other.uses for other in others), strict=True)
        return self._with(
            replace(use[0], saw=torch.cat([u.saw for u in use]), errors=torch.cat([u.errors for u in use]))
            for use in same
        )

    def is_finite(self) -> Tensor:
        parts = [part.flatten(1).sum(1).isfinite() for use in self.uses for part in (use.saw, use.errors)]
        return torch.stack(parts).all(0)

    def squared_norms(self) -> Tensor:
        found = self.uses[0].errors.new_zeros(len(self))
        for rows, part in self._blocks():
            uses = [use.ready() for use in part.uses]
            if len(uses) == 1 or self._few_pairs():
                for i, use in enumerate(uses):
                    found[rows] += use.along(use) + 2.0 * sum(use.along(other) for other in uses[:i])
            else:
                for _, _, strip in part._strips():
                    found[rows] += strip.square().sum((1, 2))
        return found

    def products(self, other: Outer) -> Tensor:
        if all(isinstance(use, Lookups) for use in self.uses) or self._by_pairs(other):
            return self._products_of_uses(other)
        found = self.uses[0].errors.new_zeros(len(self), len(other))
        for rows, ours in self._blocks():
            for columns, others in other._blocks():
                if other is self and columns.start <= rows.start:
                    if columns == rows:
                        for _, _, strip in ours._strips():
                            found[rows, columns] += _square(strip.flatten(1))
                    continue
                for low, high, strip in ours._strips(len(others)):
                    found[rows, columns] += strip.flatten(1) @ others._strip(low, high).flatten(1).T
                if other is self:
                    found[columns, rows] = found[rows, columns].T
        return found

    def against(self, vectors: Sequence[Flat]) -> Tensor:
        errors = self.uses[0].errors
        found = errors.new_zeros(len(self), len(vectors))
        for column, vector in enumerate(vectors):
            matrix = _part(vector, self.weight, errors).view(self.shape)
            if self.bias is not None:
                matrix = torch.cat([matrix, _part(vector, self.bias, errors)[:, None]], 1)
            for rows, part in self._blocks():
                for use in part.uses:
                    found[rows, column] += use.ready().dot(matrix)
        return found

    def write(self, flat: Tensor) -> None:
        weight = flat[:, self.weight].view(len(flat), *self.shape)
        for rows, part in self._blocks():
            for low, high, strip in part._strips():
                weight[rows, low:high] = strip[:, :, : self.shape[1]]
                if self.bias is not None:
                    flat[rows, self.bias][:, low:high] = strip[:, :, -1]

    def add_to(self, flat: Tensor, weights: Tensor) -> None:
        target = flat[:, self.weight].view(len(flat), *self.shape)
        for rows, part in self._blocks():
            for use in part.uses:
                made = use.ready()
                for row, some in zip(target, weights[:, rows], strict=True):
                    made.add_to(row, some)

    def apart(self) -> list[Piece]:
        """The weight's and the bias's, where one piece is of both."""
        if self.bias is None:
            return [self]
        uses = tuple(replace(use, saw=use.saw[..., :-1]) for use in self.uses)
        shift = torch.stack([use.errors.sum(1) for use in self.uses]).sum(0)
        return [replace(self, uses=uses, bias=None), Dense(shift, self.bias)]

    def multiplied(self) -> list[Dense]:
        """The same gradients, multiplied out: one part for the weight, one for the bias."""
        size, more = math.prod(self.shape), 0 if self.bias is None else self.shape[0]
        flat = self.uses[0].errors.new_empty(len(self), size + more)
        replace(self, weight=slice(0, size), bias=None if self.bias is None else slice(size, size + more)).write(flat)
        parts = [Dense(flat[:, :size], self.weight)]
        return parts if self.bias is None else [*parts, Dense(flat[:, size:], self.bias)]

    def stays(self) -> bool:
        """Whether it is kept as it is: multiplying out takes time each time, and must be worth it."""
        one = len(self.uses) == 1 and isinstance(self.uses[0], Outers) and self.uses[0].errors.shape[1] == 1
        return one or _WORTH_IT * self.entries <= math.prod(self.shape)

    @property
    def working(self) -> int:
        """Numbers that multiplying out holds of an example."""
        return sum(use.working for use in self.uses)

    def _with(self, uses: Iterable[Use]) -> Outer:
        return replace(self, uses=tuple(uses))

    def _products_of_uses(self, other: Outer) -> Tensor:
        """Inner products, use by use."""
        total: Tensor | None = None
        for mine in self.uses:
            for theirs in other.uses:
                found = mine.ready().products(mine.ready() if theirs is mine else theirs.ready())
                total = found if total is None else total.add_(found)
        assert total is not None
        return total

    def _few_pairs(self) -> bool:
        """Whether pairs of an example's own positions are fewer multiplications than multiplying it out."""
        positions = sum(use.errors.shape[1] for use in self.uses)
        known = all(isinstance(use, Outers | Lookups) for use in self.uses)
        return known and positions * sum(self.shape) <= math.prod(self.shape)

    def _by_pairs(self, other: Outer) -> bool:
        """Whether pairs of positions are fewer multiplications than multiplying out."""
        if not all(isinstance(use, Outers | Lookups) for use in self.uses):
            return False
        n, others = len(self), len(other)
        ours, theirs = (sum(use.errors.shape[1] for use in one.uses) for one in (self, other))
        outputs, inputs = self.shape[0], self.shape[1] + (self.bias is not None)
        by_pairs = ours * theirs * (inputs + outputs + (_PER_PAIR if ours * theirs > 1 else 0))
        made = ours / n if other is self else ours / others + theirs / n
        return by_pairs <= inputs * outputs * ((0.5 if other is self else 1.0) + made)

    def _blocks(self) -> Iterator[tuple[slice, Outer]]:
        """Some examples at a time, in a form that can be multiplied."""
        for rows in slices(len(self), rows_that_fit(self.working, _READY, at_most=_MOST_READY)):
            yield rows, self._with(replace(u, saw=u.saw[rows], errors=u.errors[rows]).ready() for u in self.uses)

    def _strips(self, others: int = 0) -> Iterator[tuple[int, int, Tensor]]:
        """(first row, the one after the last, these rows of the matrices), a part at a time."""
        height, width = self.shape
        width += self.bias is not None
        for rows in slices(height, rows_that_fit(max(len(self), others) * width, _STRIP, at_most=height)):
            yield rows.start, rows.stop, self._strip(rows.start, rows.stop)

    def _strip(self, low: int, high: int) -> Tensor:
        first, *rest = (use.ready().strip(low, high) for use in self.uses)
        for more in rest:
            first += more
        return first


# -- layers that make them --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layer(ABC):
    """A layer whose answer is linear in its weight, so that gradients follow from what it saw and the errors sent back.

    Attributes
    ----------
    path : its place in the model.
    weight, bias : names of its parameters; None for one that is not differentiated, or that it has not.
    shape : of the weight as a matrix.
    """

    path: str
    weight: str | None
    bias: str | None
    shape: tuple[int, int]

    @abstractmethod
    def answer(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """What the layer gives, by other parameters."""

    @abstractmethod
    def uses(self, saw: Sequence[Tensor], sent: Sequence[Tensor]) -> list[Use]:
        """Uses of the weight in calls that saw the one, shapes (n, ...), and were sent the other, shapes (n, ...)."""

    def errors(self, sent: Sequence[Tensor]) -> Tensor:
        """The errors of all calls, shape (n, positions, outputs)."""
        return torch.cat([part.reshape(len(part), -1, part.shape[-1]) for part in sent], 1)


@dataclass(frozen=True)
class Linear(Layer):
    """An nn.Linear, or a Conv1D of transformers, whose weight is `turned`: it has a row for each input."""

    turned: bool

    def answer(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return nn.functional.linear(x, weight.T if self.turned else weight, bias)

    def uses(self, saw: Sequence[Tensor], sent: Sequence[Tensor]) -> list[Use]:
        inputs = torch.cat([x.reshape(len(x), -1, x.shape[-1]) for x in saw], 1)
        return [Outers(inputs, self.errors(sent), self.turned)]


@dataclass(frozen=True)
class Embedding(Layer):
    """An nn.Embedding; errors at the number `without` do not count."""

    without: int | None

    def answer(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return nn.functional.embedding(x, weight, self.without)

    def uses(self, saw: Sequence[Tensor], sent: Sequence[Tensor]) -> list[Use]:
        numbers, errors = torch.cat([x.flatten(1) for x in saw], 1).long(), self.errors(sent)
        return [Lookups(numbers, errors if self.without is None else errors * (numbers != self.without)[..., None])]


@dataclass(frozen=True)
class Convolution(Layer):
    """An nn.Conv1d or nn.Conv2d, padded with zeros, of one group."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    def answer(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        call = nn.functional.conv1d if len(self.kernel) == 1 else nn.functional.conv2d
        return call(x, weight, bias, self.stride, self.padding, self.dilation)

    def uses(self, saw: Sequence[Tensor], sent: Sequence[Tensor]) -> list[Use]:
        flat = len(self.kernel) == 1  # images of height 1
        one = {name: (0 if name == "padding" else 1,) * flat for name in _GEOMETRY}
        how = {name: (*one[name], *getattr(self, name)) for name in _GEOMETRY}
        found: list[Use] = []
        for x, errors in zip(saw, sent, strict=True):
            images, back = (t.unflatten(-1, (1, -1)) if flat else t for t in (x, errors))
            n, size = len(x), images.shape[-3:]
            back = back.reshape(n, -1, back.shape[-3], back.shape[-2] * back.shape[-1]).mT.flatten(1, 2)
            found.append(Windows(images.reshape(n, -1, *size), back, **how))
        return found


_GEOMETRY: Final = ("kernel", "stride", "padding", "dilation")


def layers_of(model: nn.Module, names: Sequence[str]) -> list[Layer]:
    """Layers that have some of the parameters `names` to themselves, or share a weight with such layers alone."""
    known = {id(p): name for name, p in model.named_parameters()}  # what is shared has the first of its names
    owners = Counter(id(p) for module in model.modules() for p in module.parameters(recurse=False))
    found: list[tuple[Layer, int]] = []
    for path, module in model.named_modules():
        # Not a subclass, which may compute something else; not one whose weight another module computes.
        make = _LAYERS.get(f"{type(module).__module__}.{type(module).__name__}")
        own = module._parameters
        if make is None or not {"weight"} <= set(own) <= {"weight", "bias"}:
            continue
        bias = own.get("bias")
        weight, shift = (
            name if p is not None and (name := known.get(id(p))) in names else None for p in (own["weight"], bias)
        )
        layer = make(module, path, weight, shift) if bias is None or owners[id(bias)] == 1 else None
        if layer is not None and (weight or shift):
            found.append((layer, id(own["weight"])))
    alike = Counter(place for _, place in found)
    return [layer for layer, place in found if alike[place] == owners[place]]


def _linear(module: Any, path: str, weight: str | None, bias: str | None) -> Layer:
    return Linear(path, weight, bias, tuple(module.weight.shape), type(module) is not nn.Linear)


def _embedding(module: Any, path: str, weight: str | None, bias: str | None) -> Layer | None:
    if module.max_norm is not None:  # it changes its weight
        return None
    return Embedding(path, weight, bias, tuple(module.weight.shape), module.padding_idx)


def _convolution(module: Any, path: str, weight: str | None, bias: str | None) -> Layer | None:
    if module.groups != 1 or module.padding_mode != "zeros" or isinstance(module.padding, str):
        return None
    shape = len(module.weight), math.prod(module.weight.shape[1:])
    return Convolution(path, weight, bias, shape, module.kernel_size, module.stride, module.padding, module.dilation)


_LAYERS: Final[dict[str, Callable[[Any, str, str | None, str | None], Layer | None]]] = {
    "torch.nn.modules.linear.Linear": _linear,
    "transformers.pytorch_utils.Conv1D": _linear,
    "torch.nn.modules.sparse.Embedding": _embedding,
    "torch.nn.modules.conv.Conv1d": _convolution,
    "torch.nn.modules.conv.Conv2d": _convolution,
}
