"""A model as the search sees it: points of a space in, margins between its own classes and their gradients out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from gmip import _validate as check
from gmip.errors import InvalidArgument

__all__ = ["Classifier", "Region", "frozen"]

_ROUNDINGS: Final = 8.0  # of a point's last digit
_BUDGET: Final = 2**29  # bytes of a chunk. Not what is free: the size of chunks enters the last digits of distances


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """The model in eval mode and without gradients of parameters; every part is left as it was."""
    modes = [(module, module.training) for module in model.modules()]
    wanted = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        model.eval()
        for parameter in wanted:
            parameter.requires_grad_(False)
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        for parameter in wanted:
            parameter.requires_grad_(True)


class Classifier:
    """A frozen model whose class follows from a point: the input itself, or the output of the submodule `space`."""

    def __init__(self, model: nn.Module, space: str | None) -> None:
        self._model, self._space = model, space
        self._part = None if space is None else _submodule(model, space)
        self._like = next((p for p in (*model.parameters(), *model.buffers()) if p.is_floating_point()), None)

    def region(self, inputs: Tensor) -> Region:
        """The points of the inputs (shape (n, ...)), and the classes that the model gives them."""
        return Region(self, self._placed(inputs), self.origin(inputs))

    def origin(self, inputs: Tensor) -> Tensor:
        """The points of the inputs, shape (n, ...)."""
        inputs = self._placed(inputs)
        return inputs if self._part is None else self._feature(inputs)

    def chunk_size(self, inputs: Tensor, *, rows: int, vectors: int) -> int:
        """How many inputs to work on at once: each has so many rows, a row so many vectors of the space and what the
        layers put out."""
        sizes: list[int] = []

        def measure(_: nn.Module, __: Any, output: Any) -> None:
            sizes.append(output.numel() if isinstance(output, Tensor) else 0)

        handles = [module.register_forward_hook(measure) for module in self._model.modules()]
        try:
            origin = self.region(inputs[:1]).origin
        finally:
            for handle in handles:
                handle.remove()
        numbers = rows * (vectors * origin.numel() + sum(sizes))
        return max(1, int(_BUDGET // (origin.element_size() * numbers)))

    def logits(self, inputs: Tensor, points: Tensor) -> Tensor:
        """Outputs at points of the space, shape (n, classes); a single logit becomes two classes."""
        if self._part is None:
            outputs = self._model(points)
        else:
            handle = self._part.register_forward_hook(lambda *_: points)
            try:
                outputs = self._model(inputs)
            finally:
                handle.remove()
        return _two_classes_at_least(outputs, len(points))

    def _placed(self, inputs: Tensor) -> Tensor:
        inputs = inputs.detach()
        if self._like is None:
            return inputs
        return inputs.to(self._like if inputs.is_floating_point() else self._like.device)

    def _feature(self, inputs: Tensor) -> Tensor:
        seen: list[Any] = []
        assert self._part is not None
        # A copy: the next layer may work in place.
        handle: RemovableHandle = self._part.register_forward_hook(
            lambda _, __, output: seen.append(output.clone() if isinstance(output, Tensor) else output)
        )
        try:
            with torch.no_grad():
                self._model(inputs.clone())
        finally:
            handle.remove()
        if len(seen) != 1:
            raise InvalidArgument(
                f"is called {len(seen)} times in the model",
                argument="space",
                value=self._space,
                remedy="choose a submodule called once",
            )
        found = seen[0]
        if not isinstance(found, Tensor) or not found.is_floating_point() or found.shape[:1] != inputs.shape[:1]:
            what = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise InvalidArgument(
                f"puts out {what} for {len(inputs)} inputs",
                argument="space",
                value=self._space,
                remedy="choose a submodule whose output is one tensor of real numbers, a row for each input",
            )
        return found


class Region:
    """n inputs in a space of D dimensions, each in the region of its own class; moves are flat, shape (rows, D).

    Attributes
    ----------
    origin : tensor of shape (n, D).
    shape : of a point.
    scores : tensor of shape (n, classes), outputs at the inputs.
    own, own_gap : tensors of shape (n,), the class there and its margin.
    resolution : tensor of shape (n,), a length that is lost in rounding.
    """

    def __init__(self, classifier: Classifier, inputs: Tensor, origin: Tensor) -> None:
        self._classifier, self._inputs, self.shape = classifier, inputs, origin.shape[1:]
        self.origin = origin.reshape(len(origin), -1)
        with torch.no_grad():
            self.scores = classifier.logits(inputs.clone(), origin.clone())  # the first layer may work in place
        self.own = self.scores.argmax(1)
        self.resolution = _ROUNDINGS * torch.finfo(origin.dtype).eps * self.origin.norm(dim=1)
        self.own_gap = self._gap(self.scores, torch.arange(len(origin), device=origin.device), None)

    def __len__(self) -> int:
        return len(self.origin)

    def gap(self, rows: Tensor, moves: Tensor) -> Tensor:
        """Own logit minus the largest other, shape (rows,): the class has changed where this is below 0."""
        with torch.no_grad():
            return self._gap(self._logits(rows, moves), rows, None)

    def changed(self, rows: Tensor, moves: Tensor) -> tuple[Tensor, Tensor]:
        """(gap, the class there)."""
        with torch.no_grad():
            logits = self._logits(rows, moves)
            return self._gap(logits, rows, None), logits.argmax(1)

    def slope(self, rows: Tensor, moves: Tensor, rivals: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """(gap, gap against the rival, its gradient of shape (rows, D)); rival None: the strongest other class."""
        with torch.enable_grad():
            moves = moves.detach().requires_grad_(True)
            logits = self._logits(rows, moves)
            against = self._gap(logits, rows, rivals)
            gradient = None  # of a model that does not look at the point
            if against.requires_grad:
                (gradient,) = torch.autograd.grad(against.sum(), moves, allow_unused=True)
        with torch.no_grad():
            gap = against if rivals is None else self._gap(logits, rows, None)
        return gap.detach(), against.detach(), torch.zeros_like(moves) if gradient is None else gradient.detach()

    def _logits(self, rows: Tensor, moves: Tensor) -> Tensor:
        if len(rows) == 0:
            return self.scores[:0]  # there are models that cannot take an empty batch
        points = (self.origin[rows] + moves).unflatten(1, self.shape)
        return self._classifier.logits(self._inputs[rows], points).to(self.origin.dtype)

    def _gap(self, logits: Tensor, rows: Tensor, rivals: Tensor | None) -> Tensor:
        own = self.own[rows][:, None]
        mine = logits.gather(1, own)[:, 0]
        if rivals is None:
            return mine - logits.scatter(1, own, -torch.inf).amax(1)
        return mine - logits.gather(1, rivals[:, None])[:, 0]


def _two_classes_at_least(outputs: Any, rows: int) -> Tensor:
    shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
    if isinstance(outputs, Tensor) and outputs.shape in ((rows,), (rows, 1)):
        logit = outputs.reshape(rows, 1)
        return torch.cat([torch.zeros_like(logit), logit], dim=1)  # class 1 where the logit is above 0
    if not isinstance(outputs, Tensor) or outputs.ndim != 2 or len(outputs) != rows:
        raise InvalidArgument(
            f"puts out {shape} for {rows} inputs, and counterfactuals need one row of class scores for each",
            argument="model",
        )
    return outputs


def _submodule(model: nn.Module, name: str) -> nn.Module:
    modules: dict[str, nn.Module] = {known: module for known, module in model.named_modules() if known}
    if name not in modules:
        raise InvalidArgument(
            f"is not a submodule of the model{check.did_you_mean(name, modules)}",
            argument="space",
            value=name,
            remedy=f"pass one of {', '.join(map(repr, list(modules)[:8]))}" if modules else "leave it out",
        )
    return modules[name]
