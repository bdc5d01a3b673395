"""One pass of a model over some examples: the gradients of each example, layer by layer.

A linear layer's gradient is an outer product of what the layer saw and what the loss sends back. Both come out of one
pass in which a zero (a probe) is added to what the layer gives: the derivative by the probe is what is sent back. The
pass is that of a single example, vectorised by torch.func.vmap, so nothing hangs on where the model keeps the batch.
What vmap cannot take (recurrent layers, branches that depend on the data) goes through one example after the other.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from gmip.attacks.layer_gradients import Dense, Outer, Piece
from gmip.errors import InvalidArgument, UnsupportedModel
from gmip.tasks.inputs import Inputs, arguments, logits, mapped, named, placed, rows_of

__all__ = ["Capture", "LossFunction", "Plan", "evaluating"]

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
class Plan:
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

    def plan(self, state: Mapping[str, Tensor], inputs: Inputs, targets: Tensor) -> Plan:
        """Runs the first example alone and sees which layers are called, and how often; then two together."""
        together = self._plan(state, rows_of(inputs, slice(1)), targets[:1])
        some = rows_of(inputs, slice(2)), targets[:2]
        try:
            self._together(together, state, *some)
        except _FAILURES as error:
            kept = sum(self._sizes[name] for name in self._names)
            plan = Plan({}, self._names, kept, together.working, alone=f"torch.func.vmap: {_reason(error)}")
            start = time.perf_counter()
            self._one_by_one(plan, state, *some)
            return replace(plan, seconds=(time.perf_counter() - start) / len(some[1]))
        return together

    def _plan(self, state: Mapping[str, Tensor], inputs: Inputs, targets: Tensor) -> Plan:
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
        return Plan(chosen, dense, kept, working)

    def run(
        self, plan: Plan, state: Mapping[str, Tensor], inputs: Inputs, targets: Tensor
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
        self, plan: Plan, state: Mapping[str, Tensor], inputs: Inputs, targets: Tensor
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
        self, plan: Plan, state: Mapping[str, Tensor], inputs: Inputs, targets: Tensor
    ) -> tuple[list[Piece], list[Piece]]:
        """By plain autograd, which takes any model: what an example's pass does may depend on the example."""
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
        """With buffers copied: a model that counts its calls must not count these."""
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
