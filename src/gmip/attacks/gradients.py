"""Per-example gradients: of one layer, of a model in one pass, and at the parameters of a recorded step."""

from __future__ import annotations

import contextlib
import copy
import math
import sys
import time
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from gmip import _validate as check
from gmip.attacks.work import as_bytes, rows_that_fit
from gmip.errors import InvalidArgument, TraceMismatch, UnsupportedModel, warn
from gmip.tasks import Examples, cross_entropy
from gmip.tasks.inputs import Inputs, arguments, logits, mapped, named, placed, rows_of
from gmip.trace import Header
from gmip.training.models import check_model, trainable_parameters, unwrapped

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
    def against(self, vectors: Tensor) -> Tensor:
        """<g_i, v_j> with the same entries of flat vectors of shape (s, d), shape (n, s)."""

    @abstractmethod
    def write(self, flat: Tensor) -> None:
        """Puts g_i into its columns of `flat`, shape (n, d)."""


@dataclass(frozen=True, eq=False)
class Dense(Piece):
    """The gradients themselves, shape (n, size), and their columns in the flat vector."""

    rows: Tensor
    columns: slice

    def __len__(self) -> int:
        return len(self.rows)

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
        if other.rows is self.rows and self.rows.device.type == "cpu":
            rows = self.rows.numpy()
            return torch.from_numpy(rows @ rows.T)  # NumPy sees that it is symmetric: half of the work
        return self.rows @ other.rows.T

    def against(self, vectors: Tensor) -> Tensor:
        return self.rows @ vectors[:, self.columns].T

    def write(self, flat: Tensor) -> None:
        flat[:, self.columns] = self.rows


@dataclass(frozen=True, eq=False)
class Outer(Piece):
    """Gradients of a linear layer: g_i = sum over positions t of (error_it)(input_it)', of shape (outputs, inputs).

    The gradient of the bias, the sum of the errors, is that of one more input that is always 1: it is the last column
    of `inputs` where `bias` is not None.

    Attributes
    ----------
    inputs : what the layer saw, shape (n, positions, inputs [+ 1]).
    errors : derivative of the loss by what the layer gave, shape (n, positions, outputs).
    weight, bias : their columns in the flat vector; None for one that is not part of the piece.
    """

    inputs: Tensor
    errors: Tensor
    weight: slice | None
    bias: slice | None

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def nbytes(self) -> int:
        return self.inputs.nbytes + self.errors.nbytes

    def to(self, dtype: torch.dtype) -> Outer:
        return Outer(self.inputs.to(dtype), self.errors.to(dtype), self.weight, self.bias)

    def scaled(self, factor: Tensor) -> Outer:
        return Outer(self.inputs, self.errors * factor[:, None, None], self.weight, self.bias)

    def is_finite(self) -> Tensor:
        return self.inputs.sum((1, 2)).isfinite() & self.errors.sum((1, 2)).isfinite()

    def squared_norms(self) -> Tensor:
        inputs, errors = self.inputs, self.errors
        return ((inputs @ inputs.mT) * (errors @ errors.mT)).sum((1, 2))

    def products(self, other: Outer) -> Tensor:
        total = self.inputs.new_zeros(len(self.inputs), len(other.inputs))
        for a, e in zip(self.inputs.unbind(1), self.errors.unbind(1), strict=True):
            for b, f in zip(other.inputs.unbind(1), other.errors.unbind(1), strict=True):
                total += (a @ b.T).mul_(e @ f.T)
        return total

    def against(self, vectors: Tensor) -> Tensor:
        columns = []
        for vector in vectors:
            parts = [vector[part].view(self._outputs, -1) for part in (self.weight, self.bias) if part is not None]
            back = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
            columns.append(((self.errors @ back) * self.inputs).sum((1, 2)))
        return torch.stack(columns, 1)

    def write(self, flat: Tensor) -> None:
        if self.weight is not None:
            inputs = self.inputs if self.bias is None else self.inputs[..., :-1]
            view = flat[:, self.weight].view(len(flat), self._outputs, -1)
            if inputs.shape[1] == 1:  # a plain product: no need of the copy that bmm makes
                torch.mul(self.errors.mT, inputs, out=view)
            else:
                view.copy_(self.errors.mT @ inputs)
        if self.bias is not None:
            flat[:, self.bias] = self.errors.sum(1)

    def multiplied(self) -> list[Dense]:
        """The same gradients, multiplied out: one part for the weight, one for the bias."""
        parts = []
        if self.weight is not None:
            inputs = self.inputs if self.bias is None else self.inputs[..., :-1]
            parts.append(Dense((self.errors.mT @ inputs).flatten(1), self.weight))
        if self.bias is not None:
            parts.append(Dense(self.errors.sum(1), self.bias))
        return parts

    @property
    def _outputs(self) -> int:
        return self.errors.shape[2]


# -- one pass of a model over some examples ---------------------------------------------------------------------------


LossFunction = Callable[[Tensor, Tensor], Tensor]
# What a model can raise under torch.func; what else it raises is no matter of vectorisation.
_FAILURES: Final = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)


@dataclass(frozen=True)
class Linear:
    """An nn.Linear whose gradients are taken as outer products: its place in the model and its parameters' names (None
    for one that is not differentiated)."""

    path: str
    inputs: int
    outputs: int
    weight: str | None
    bias: str | None


def linears_of(model: nn.Module, names: Sequence[str]) -> list[Linear]:
    """Plain linear layers that have some of the parameters `names` to themselves."""
    owners = Counter(id(p) for module in model.modules() for p in module.parameters(recurse=False))
    found = []
    for path, module in model.named_modules():
        # Not a subclass, which may compute something else; not one whose weight another module computes.
        if type(module) is not nn.Linear or set(module._parameters) != {"weight", "bias"}:
            continue
        prefix = f"{path}." if path else ""
        weight, bias = (f"{prefix}{name}" if f"{prefix}{name}" in names else None for name in ("weight", "bias"))
        alone = all(owners[id(p)] == 1 for p in module.parameters(recurse=False))
        if alone and (weight or bias):
            found.append(Linear(path, module.in_features, module.out_features, weight, bias))
    return found


class Discovery:
    """Hooks that note the shape of what each call of a linear layer gives, and how much all layers give.

    What a linear layer gives is cut off from its own parameters, so that a derivative by them can only come from a use
    of them elsewhere.
    """

    def __init__(self, linears: Sequence[Linear]) -> None:
        self.shapes: dict[Linear, list[tuple[int, ...]]] = {spec: [] for spec in linears}
        self.entries = 0

    @contextlib.contextmanager
    def attached(self, model: nn.Module) -> Iterator[None]:
        leaves = [m for m in model.modules() if not any(True for _ in m.children())]
        with _hooks(model, self.shapes, self._cut_off), contextlib.ExitStack() as stack:
            for leaf in leaves:
                stack.callback(leaf.register_forward_hook(self._count).remove)
            yield

    def _cut_off(self, spec: Linear, layer: nn.Linear, x: Tensor, given: Tensor) -> Tensor:
        self.shapes[spec].append(tuple(given.shape))
        bias: Tensor | None = layer.bias
        return nn.functional.linear(x, layer.weight.detach(), None if bias is None else bias.detach())

    def _count(self, module: nn.Module, args: tuple[Any, ...], given: Any) -> None:
        parts = given if isinstance(given, tuple) else (given,)
        self.entries += sum(part.numel() for part in parts if isinstance(part, Tensor))


class Probing:
    """Hooks that note what each call of a linear layer saw, and add a probe to what it gives."""

    def __init__(
        self, calls: Mapping[Linear, tuple[tuple[int, ...], ...]], *, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._linears = tuple(calls)
        self.zeros = [[torch.zeros(s, dtype=dtype, device=device) for s in shapes] for shapes in calls.values()]
        self._empty = torch.zeros((), dtype=dtype, device=device)
        self.start(self.zeros)

    def start(self, probes: Sequence[Sequence[Tensor]]) -> None:
        """Begins one pass with these probes, one list for each layer."""
        self._probes = dict(zip(self._linears, probes, strict=True))
        self._seen: dict[Linear, list[Tensor]] = {spec: [] for spec in self._linears}

    def seen(self) -> list[Tensor]:
        """What each layer saw in all its calls of this pass, each of shape (positions, inputs)."""
        for spec, saw in self._seen.items():
            if len(saw) != len(self._probes[spec]):
                raise RuntimeError(f"layer {spec.path} was called {len(saw)} times, not {len(self._probes[spec])}")
        return [
            torch.cat([x.reshape(-1, spec.inputs) for x in saw]) if saw else self._empty.new_zeros(0, spec.inputs)
            for spec, saw in self._seen.items()
        ]

    def attached(self, model: nn.Module) -> contextlib.AbstractContextManager[None]:
        return _hooks(model, self._linears, self._add)

    def _add(self, spec: Linear, layer: nn.Linear, x: Tensor, given: Tensor) -> Tensor:
        probe = self._probes[spec][len(self._seen[spec])]
        self._seen[spec].append(x)
        return given + probe


@contextlib.contextmanager
def _hooks(
    model: nn.Module, linears: Iterable[Linear], call: Callable[[Linear, nn.Linear, Tensor, Tensor], Tensor]
) -> Iterator[None]:
    """In the block, what a layer gives is replaced by call(spec, layer, what it saw, what it gives)."""

    def hook_of(spec: Linear) -> Callable[..., Tensor]:
        def hook(layer: nn.Linear, args: tuple[Any, ...], kwargs: dict[str, Any], given: Tensor) -> Tensor:
            return call(spec, layer, args[0] if args else kwargs["input"], given)

        return hook

    with contextlib.ExitStack() as stack:
        for spec in linears:
            layer = model.get_submodule(spec.path)
            # First among the hooks, for those of the user may change what the layer gives.
            handle = layer.register_forward_hook(hook_of(spec), prepend=True, with_kwargs=True)
            stack.callback(handle.remove)
        yield


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in eval mode, with attention in plain operations, since torch.func does not know the fused ones;
    afterwards each module is in the mode in which it was."""
    modes = [(module, module.training) for module in model.modules()]
    fused = torch.backends.mha.get_fastpath_enabled()
    try:
        model.eval()
        torch.backends.mha.set_fastpath_enabled(False)
        with sdpa_kernel(SDPBackend.MATH), _unread_masks():
            yield
    finally:
        for module, mode in modes:
            module.training = mode
        torch.backends.mha.set_fastpath_enabled(fused)


@contextlib.contextmanager
def _unread_masks() -> Iterator[None]:
    """In the block, transformers' models apply every attention mask and do not look at its values first.

    They look whether a mask hides anything, and leave out one that does not: the result is the same, but vmap cannot
    take the branch. While something is traced they do not look.
    """
    module: Any = sys.modules.get("transformers.utils.import_utils")
    looks = getattr(module, "is_jit_tracing", None)
    if looks is None:
        yield
        return
    module.is_jit_tracing = lambda: True
    try:
        yield
    finally:
        module.is_jit_tracing = looks


@dataclass(frozen=True)
class GradientPlan:
    """How the gradients of an example are computed, and what one costs.

    Attributes
    ----------
    kept : entries (not bytes) of the pieces of one example.
    working : entries that the pass needs beside them, roughly.
    alone : why examples go through the model one after the other; None if they go together.
    seconds : how long one example takes then.
    """

    linears: Mapping[Linear, tuple[tuple[int, ...], ...]]  # shape of what each call of the layer gives
    dense: tuple[str, ...]
    kept: int
    working: int
    alone: str | None = None
    seconds: float = 0.0


class Capture:
    """Per-example gradients of `loss(model(input), target)` for the parameters `names`, as a list of pieces.

    Parameters
    ----------
    columns : name -> columns of the flat vector, for those of the parameters that are part of it.
    names : parameters to differentiate by, those that have no columns among them.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: LossFunction,
        names: Sequence[str],
        columns: Mapping[str, slice],
        dtype: torch.dtype,
    ) -> None:
        self._model, self._loss, self._dtype = model, loss, dtype
        self._names, self._columns = tuple(names), dict(columns)
        self._sizes = {name: p.numel() for name, p in model.named_parameters()}

    def plan(self, state: Mapping[str, Tensor], inputs: Inputs, targets: Tensor) -> GradientPlan:
        """Runs the first example alone and sees which layers are called, and how often; then two together."""
        together = self._plan(state, rows_of(inputs, slice(1)), targets[:1])
        some = rows_of(inputs, slice(2)), targets[:2]
        try:
            self._together(together, state, *some)
        except _FAILURES as error:
            kept = sum(self._sizes[name] for name in self._names)
            plan = GradientPlan({}, self._names, kept, together.working, alone=f"torch.func.vmap: {_reason(error)}")
            start = time.perf_counter()
            self._one_by_one(plan, state, *some)
            return replace(plan, seconds=(time.perf_counter() - start) / len(some[1]))
        return together

    def _plan(self, state: Mapping[str, Tensor], inputs: Inputs, targets: Tensor) -> GradientPlan:
        linears = linears_of(self._model, self._names)
        inputs, targets = self._prepared(inputs), self._prepared(targets)
        watch = Discovery(linears)
        leaves = {n: state[n].requires_grad_() for s in linears for n in (s.weight, s.bias) if n is not None}
        try:
            with torch.enable_grad(), evaluating(self._model), watch.attached(self._model):
                losses = self._losses(self._fresh(state), inputs, targets)
            elsewhere = _used(losses.sum(), leaves)
        except _FAILURES as error:
            sizes = ", ".join(f"{name or 'shape'} {tuple(t.shape[1:])}" for name, t in named(inputs).items())
            raise InvalidArgument(
                f"cannot be run on one example of {sizes} in {self._dtype} ({_reason(error)})",
                argument="model",
                remedy="pass examples of its task, or another `dtype`",
            ) from error
        finally:
            for leaf in leaves.values():
                leaf.requires_grad_(False)
        if losses.shape != (1,):
            raise InvalidArgument(
                f"returned shape {tuple(losses.shape)} for 1 example",
                argument="loss",
                remedy="return one number for each, shape (1,), such as with reduction='none'",
            )
        chosen = {s: tuple(watch.shapes[s]) for s in linears if not {s.weight, s.bias} & elsewhere}
        factored = {name for s in chosen for name in (s.weight, s.bias)}
        dense = tuple(name for name in self._names if name not in factored)
        kept = sum(self._sizes[name] for name in dense)
        working = 4 * (watch.entries + sum(t.numel() for t in named(inputs).values())) + kept
        for spec, shapes in chosen.items():
            positions = sum(math.prod(shape[:-1]) for shape in shapes)
            factors = positions * (spec.inputs + 1 + spec.outputs)
            factored_is_kept = _stays_factored(positions, spec.inputs + 1, spec.outputs)
            kept += factors if factored_is_kept else (spec.inputs + 1) * spec.outputs
            working += 2 * factors
        return GradientPlan(chosen, dense, kept, working)

    def run(
        self, plan: GradientPlan, state: Mapping[str, Tensor], inputs: Inputs, targets: Tensor
    ) -> tuple[list[Piece], list[Piece]]:
        """(pieces that have columns, the other pieces) of n examples."""
        if plan.alone is not None:
            return self._one_by_one(plan, state, inputs, targets)
        try:
            return self._together(plan, state, inputs, targets)
        except _FAILURES as error:
            raise UnsupportedModel(
                f"The gradients of single examples cannot be computed together (torch.func.vmap: {_reason(error)})",
                remedy="lower `memory_limit` if memory ran out; the first examples could be computed together",
            ) from error

    def _together(
        self, plan: GradientPlan, state: Mapping[str, Tensor], inputs: Inputs, targets: Tensor
    ) -> tuple[list[Piece], list[Piece]]:
        inputs, targets = self._prepared(inputs), self._prepared(targets)
        watch = Probing(plan.linears, dtype=self._dtype, device=targets.device)

        def loss_of_one(wanted: Any, x: Inputs, y: Tensor) -> tuple[Tensor, list[Tensor]]:
            dense, probes = wanted
            watch.start(probes)
            one = mapped(lambda t: t[None], x)
            return self._losses({**self._fresh(state), **dense}, one, y[None]).sum(), watch.seen()

        wanted = ({name: state[name] for name in plan.dense}, watch.zeros)
        with evaluating(self._model), watch.attached(self._model), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is a performance drop")  # torch, of operations it loops over
            (dense, errors), seen = vmap(grad(loss_of_one, has_aux=True), in_dims=(None, 0, 0))(wanted, inputs, targets)
        mine: list[Piece] = []
        rest: list[Piece] = []
        for name, rows in dense.items():
            target = mine if name in self._columns else rest
            target.append(Dense(rows.detach().flatten(1), self._columns.get(name, slice(0))))
        for spec, saw, sent in zip(plan.linears, seen, errors, strict=True):
            for group, target in ((True, mine), (False, rest)):
                piece = self._outer(spec, saw.detach(), [e.detach() for e in sent], recorded=group)
                if piece is not None:
                    target += [piece] if _stays_factored(*_shape(piece)) else piece.multiplied()
        return mine, rest

    def _one_by_one(
        self, plan: GradientPlan, state: Mapping[str, Tensor], inputs: Inputs, targets: Tensor
    ) -> tuple[list[Piece], list[Piece]]:
        """Gradients by plain autograd, which takes any model: what an example's pass does may depend on the example."""
        inputs, targets = self._prepared(inputs), self._prepared(targets)
        leaves = {name: state[name].detach().requires_grad_() for name in plan.dense}
        found = {name: leaf.new_zeros(len(targets), leaf.numel()) for name, leaf in leaves.items()}
        random = torch.get_rng_state()
        try:
            with evaluating(self._model), torch.enable_grad():
                for i in range(len(targets)):
                    one = slice(i, i + 1)
                    loss = self._losses({**self._fresh(state), **leaves}, rows_of(inputs, one), targets[one]).sum()
                    if loss.requires_grad:
                        slopes = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
                        for rows, slope in zip(found.values(), slopes, strict=True):
                            if slope is not None:
                                rows[i] = slope.reshape(-1)
        except _FAILURES as error:
            raise UnsupportedModel(
                f"The gradient of a single example cannot be computed ({_reason(error)})",
                remedy="pass a model that can be differentiated for one example at a time",
            ) from error
        if not torch.equal(random, torch.get_rng_state()):
            raise UnsupportedModel(
                "The model draws random numbers in eval mode, so the gradient of an example differs each time",
                remedy="take random operations out of the model's forward and loss",
            )
        pieces = {name: Dense(rows, self._columns.get(name, slice(0))) for name, rows in found.items()}
        mine: list[Piece] = [piece for name, piece in pieces.items() if name in self._columns]
        return mine, [piece for name, piece in pieces.items() if name not in self._columns]

    def _losses(self, state: Mapping[str, Tensor], inputs: Inputs, targets: Tensor) -> Tensor:
        args, kwargs = arguments(inputs)
        return self._loss(logits(functional_call(self._model, dict(state), args, kwargs)), targets)

    def _outer(self, spec: Linear, saw: Tensor, sent: Sequence[Tensor], *, recorded: bool) -> Outer | None:
        """The piece of the layer's parameters that have columns, or of those that have none."""
        weight, bias = (name is not None and (name in self._columns) == recorded for name in (spec.weight, spec.bias))
        if not weight and not bias:
            return None
        n = len(saw)
        parts = [e.reshape(n, -1, spec.outputs) for e in sent]
        errors = torch.cat(parts, 1) if parts else saw.new_zeros(n, 0, spec.outputs)
        ones = saw.new_ones(n, saw.shape[1], 1)
        inputs = torch.cat([saw, ones], 2) if weight and bias else saw if weight else ones
        return Outer(
            inputs,
            errors,
            self._columns.get(str(spec.weight), slice(0)) if weight else None,
            self._columns.get(str(spec.bias), slice(0)) if bias else None,
        )

    def _fresh(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The state with its buffers copied: a model that counts its calls must not count these."""
        return {name: t if name in self._sizes else t.clone() for name, t in state.items()}

    def _prepared(self, inputs: Inputs) -> Inputs:
        return placed(inputs, next(self._model.parameters()).device, self._dtype)


def _used(loss: Tensor, leaves: Mapping[str, Tensor]) -> set[str | None]:
    """Names of the leaves on which the loss depends."""
    if not loss.requires_grad or not leaves:
        return set()
    grads: Sequence[Tensor | None] = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return {name for name, g in zip(leaves, grads, strict=True) if g is not None}


def _shape(piece: Outer) -> tuple[int, int, int]:
    return piece.inputs.shape[1], piece.inputs.shape[2], piece.errors.shape[2]


def _stays_factored(positions: int, inputs: int, outputs: int) -> bool:
    """Whether inner products cost less from the factors: positions^2 (inputs + outputs) against inputs * outputs."""
    return positions <= 1 or positions**2 * (inputs + outputs) <= inputs * outputs


def _reason(error: Exception) -> str:
    text = str(error)
    if "data-dependent control flow" in text:
        return "its forward branches on the values of its inputs"
    return next((line.strip().rstrip(".") for line in text.splitlines() if line.strip()), type(error).__name__)


# -- the gradient of each example at the parameters of a recorded step ------------------------------------------------


_MOST_ROWS: Final = 4096  # more examples at a time are not faster
_WORKING_BYTES: Final = 2**29  # nor is more memory
_MOST_SECONDS: Final = 5.0  # of a chunk, where examples go through the model one after the other
_DTYPES: Final = (torch.float32, torch.float64)


class PerExampleGradients:
    """Gradients of the loss of single examples, clipped as the run clipped them, on the model's device.

    Parameters
    ----------
    model : in any mode. Gradients are those of eval mode.
    loss : (outputs, targets) -> loss of each example, shape (n,).
    parameters : names of the trainable parameters that make up the flat vector, in its order; None: all.
    clip_norm : C: every gradient is scaled by min(1, C/norm), its norm taken over ALL trainable parameters.
    dtype : precision of the computation, float64 by default: attacks invert covariances, which float32 spoils.
    chunk : examples computed at a time; None: what fits into memory_limit (a number of bytes, "3 GiB", or None for half
        of what is free).

    Attributes
    ----------
    names, shapes : of the parameters in the flat vector.
    num_params : d, length of the flat vector.

    Guarantees
    ----------
    The model is the same afterwards: parameters, buffers, modes, gradients, hooks. Parameters that are not in the flat
    vector, and buffers, have the values of `model`. A model that torch.func.vmap cannot take goes through one example
    after the other, as exactly, and a GmipWarning says how long that takes.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: LossFunction = cross_entropy,
        *,
        parameters: Iterable[str] | None = None,
        clip_norm: float | None = None,
        dtype: torch.dtype = torch.float64,
        chunk: int | None = None,
        memory_limit: float | str | None = None,
    ) -> None:
        if dtype not in _DTYPES:
            raise InvalidArgument(
                f"is {dtype}, which is not supported", argument="dtype", remedy="pass torch.float64 or torch.float32"
            )
        self._model = unwrapped(model)
        with evaluating(self._model):
            check_model(self._model)
        trainable = dict(trainable_parameters(model))
        self.names = _names(trainable, parameters)
        self.shapes = tuple(tuple(trainable[name].shape) for name in self.names)
        sizes = [trainable[name].numel() for name in self.names]
        self.num_params = sum(sizes)
        self.clip_norm = None if clip_norm is None else check.positive("clip_norm", clip_norm)
        self.dtype = dtype
        self.memory_limit = as_bytes("memory_limit", memory_limit)
        self._chunk = None if chunk is None else check.count("chunk", chunk)
        ends = np.cumsum(sizes)
        self._columns = {n: slice(int(e) - s, int(e)) for n, e, s in zip(self.names, ends, sizes, strict=True)}
        wanted = self.names if self.clip_norm is None else tuple(trainable)
        self._capture = Capture(self._model, loss, wanted, self._columns, dtype)
        self._plans: dict[tuple[Any, ...], GradientPlan] = {}
        self._heard: Callable[[int], None] | None = None
        self._state = self._full_state({})

    @classmethod
    def for_trace(cls, model: nn.Module, loss: LossFunction, header: Header, **options: Any) -> Self:
        """Takes parameters and clip norm from a trace; raises TraceMismatch if the model is not the one it recorded."""
        trainable = dict(trainable_parameters(model))
        for spec in header.parameters:
            if spec.name not in trainable:
                raise TraceMismatch(
                    f"The trace records parameter {spec.name}, which is not a trainable parameter of the model",
                    remedy="pass the model of the run",
                )
            if tuple(trainable[spec.name].shape) != spec.shape:
                raise TraceMismatch(
                    f"The trace records parameter {spec.name} with shape {spec.shape}, the model has it with "
                    f"{tuple(trainable[spec.name].shape)}",
                    remedy="pass the model of the run",
                )
        total = sum(p.numel() for p in trainable.values())
        if total != header.num_params:
            raise TraceMismatch(
                f"The run trained {header.num_params} parameters, the model has {total} trainable ones",
                remedy="pass the model of the run, and freeze what its optimizer did not hold by requires_grad_(False)",
            )
        names = [spec.name for spec in header.parameters]
        return cls(model, loss, parameters=names, clip_norm=header.clip_norm, **options)

    def at(self, values: ArrayLike | Tensor | Mapping[str, Any]) -> Self:
        """The same at other parameters: a flat vector of shape (d,), or name -> values for the names in it."""
        named = values if isinstance(values, Mapping) else self._named(values)
        if set(named) != set(self.names):
            odd = sorted(set(named) ^ set(self.names))[0]
            raise InvalidArgument(
                f"and the flat vector differ in parameter {odd!r}",
                argument="values",
                remedy=f"give values for {self.names}",
            )
        other = copy.copy(self)
        other._state = self._full_state(named)
        return other

    @property
    def values(self) -> dict[str, Tensor]:
        """The parameters of the flat vector where the model stands, for `at`."""
        return {name: self._state[name] for name in self.names}

    def within(self, memory_limit: float | str | None) -> Self:
        """The same under another limit of memory."""
        other = copy.copy(self)
        other.memory_limit = as_bytes("memory_limit", memory_limit)
        return other

    def heard(self, by: Callable[[int], None]) -> Self:
        """The same, and `by` is called with how many more records are ready."""
        other = copy.copy(self)
        other._heard = by
        return other

    def chunks(self, examples: Examples) -> Iterator[Tensor]:
        """Flat gradients of shape (k, d), some examples at a time and in their order."""
        for _, pieces in self.pieces(examples, extra=self.num_params):
            yield self._flat(pieces)

    def rows(self, examples: Examples, out: Tensor | None = None) -> Tensor:
        """All flat gradients, shape (n, d); with `out`, a tensor of that shape to be filled."""
        if out is None:
            out = torch.empty(len(examples), self.num_params, dtype=self.dtype)
        if out.shape != (len(examples), self.num_params):
            raise InvalidArgument(
                f"has shape {tuple(out.shape)}",
                argument="out",
                remedy=f"pass one of shape ({len(examples)}, {self.num_params})",
            )
        direct = out.dtype == self.dtype and out.device == self.device
        for rows, pieces in self.pieces(examples, extra=0 if direct else self.num_params):
            if direct:
                for piece in pieces:
                    piece.write(out[rows])
            else:
                out[rows] = self._flat(pieces)
        return out

    def pieces(self, examples: Examples, *, extra: int = 0) -> Iterator[tuple[slice, list[Piece]]]:
        """(which examples, their clipped gradients layer by layer), some examples at a time and in their order.

        `extra` is how many numbers for each example the caller will need beside the pieces.
        """
        if len(examples) == 0:
            return
        plan = self.plan(examples)
        bytes_per_row = self.dtype.itemsize * (plan.kept + plan.working + extra)
        budget = min(self.memory_limit, _WORKING_BYTES)
        most = _MOST_ROWS if plan.seconds <= 0.0 else max(1, min(_MOST_ROWS, int(_MOST_SECONDS / plan.seconds)))
        step = self._chunk or rows_that_fit(bytes_per_row, budget, at_most=most)
        for first in range(0, len(examples), step):
            rows = slice(first, min(first + step, len(examples)))
            yield rows, self._pieces(plan, examples, rows)
            if self._heard is not None:
                self._heard(rows.stop - rows.start)

    def plan(self, examples: Examples) -> GradientPlan:
        """What one of these examples costs."""
        inputs, targets = examples.inputs, examples.targets
        parts = (*named(inputs).items(), ("targets", targets))
        key = tuple((name, t.shape[1:], t.dtype) for name, t in parts)
        if key not in self._plans:
            plan = self._plans[key] = self._capture.plan(self._state, inputs, targets)
            if plan.alone is not None and plan.alone not in {p.alone for k, p in self._plans.items() if k != key}:
                warn(
                    f"The model cannot take several examples at once ({plan.alone}), so gradients are computed for one "
                    f"after the other: as exact, but about {len(examples)} x {1000 * plan.seconds:.2g} ms for each "
                    "step."
                )
        return self._plans[key]

    def _pieces(self, plan: GradientPlan, examples: Examples, rows: slice) -> list[Piece]:
        mine, rest = self._capture.run(plan, self._state, rows_of(examples.inputs, rows), examples.targets[rows])
        finite = torch.stack([piece.is_finite() for piece in (*mine, *rest)]).all(0)
        if not bool(finite.all()):
            bad = rows.start + int(finite.logical_not().nonzero()[0, 0])
            raise InvalidArgument(
                f"The gradient of example {bad} of {len(examples)} is not finite",
                remedy="leave the record out, or the step at which the model diverged",
            )
        if self.clip_norm is None:
            return mine
        norms = torch.stack([piece.squared_norms() for piece in (*mine, *rest)]).sum(0).sqrt()
        factor = (self.clip_norm / norms).clamp(max=1.0)
        return [piece.scaled(factor) for piece in mine]

    def _flat(self, pieces: list[Piece]) -> Tensor:
        flat = torch.empty(len(pieces[0]), self.num_params, dtype=self.dtype, device=self.device)
        for piece in pieces:
            piece.write(flat)
        return flat

    def _named(self, values: ArrayLike | Tensor) -> dict[str, Any]:
        flat = _tensor(values)
        if flat.shape != (self.num_params,):
            raise InvalidArgument(
                f"has shape {tuple(flat.shape)}",
                argument="values",
                remedy=f"pass a flat vector of shape ({self.num_params},), such as the parameters of a step",
            )
        return {n: flat[c].view(s) for (n, c), s in zip(self._columns.items(), self.shapes, strict=True)}

    def _full_state(self, named: Mapping[str, Any]) -> dict[str, Tensor]:
        """All parameters and buffers in the precision of the computation, those in `named` with their new values."""
        state = {}
        for name, tensor in (*self._model.named_parameters(), *self._model.named_buffers()):
            value = _tensor(named[name]) if name in named else tensor
            if value.shape != tensor.shape:
                raise InvalidArgument(
                    f"of parameter {name} have shape {tuple(value.shape)}, not {tuple(tensor.shape)}", argument="values"
                )
            dtype = self.dtype if tensor.is_floating_point() else tensor.dtype
            state[name] = value.detach().to(device=tensor.device, dtype=dtype)
        return state

    @property
    def device(self) -> torch.device:
        """The device of the model; gradients are computed there."""
        return next(self._model.parameters()).device


def _tensor(values: ArrayLike | Tensor) -> Tensor:
    # A copy, for torch warns of arrays that are read-only, as those of a trace are.
    return values if isinstance(values, Tensor) else torch.from_numpy(np.array(values))


def _names(trainable: Mapping[str, nn.Parameter], wanted: Iterable[str] | None) -> tuple[str, ...]:
    names = tuple(trainable) if wanted is None else (wanted,) if isinstance(wanted, str) else tuple(wanted)
    for name in names:
        if name not in trainable:
            raise InvalidArgument(
                f"has {name!r}, which is not a trainable parameter{check.did_you_mean(name, trainable)}",
                argument="parameters",
                remedy=f"pass some of {', '.join(list(trainable)[:8])}" if trainable else None,
            )
    if not names or len(set(names)) < len(names):
        raise InvalidArgument("must name at least one parameter, and each once", argument="parameters", value=names)
    return names
