"""Hooks on the linear layers of a model, for the length of one pass; afterwards the model is as it was."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

__all__ = ["Discovery", "Linear", "Probing", "evaluating", "linears_of"]


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
        """For one pass with these probes, one list for each layer."""
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
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        for module, mode in modes:
            module.training = mode
        torch.backends.mha.set_fastpath_enabled(fused)
