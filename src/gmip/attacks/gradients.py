"""Per-example gradients of a model: in one pass, and at the parameters of a recorded step."""

from __future__ import annotations

import contextlib
import copy
import math
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from gmip import _validate as check
from gmip._io import give_back
from gmip.attacks.ghost import Dense, Layer, Linear, Outer, Piece, layers_of, slices
from gmip.attacks.work import as_bytes, rows_that_fit
from gmip.errors import InvalidArgument, TraceMismatch, UnsupportedModel, warn
from gmip.tasks import Examples, cross_entropy
from gmip.tasks.inputs import Inputs, arguments, logits, mapped, named, placed, rows_of
from gmip.trace import Header
from gmip.training.models import check_model, trainable_parameters, unwrapped

# -- one pass of a model over some examples ---------------------------------------------------------------------------


LossFunction = Callable[[Tensor, Tensor], Tensor]
# What a model can raise under torch.func; what else it raises is no matter of vectorisation.
_FAILURES: Final = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)


class Discovery:
    """Hooks that note the shape of what each call of a layer sees and gives, and how much all layers give.

    What one of the `layers` gives is cut off from its own parameters, so that a derivative by them can only come from a
    use of them elsewhere.
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.shapes: dict[Layer, list[_Call]] = {spec: [] for spec in layers}
        self.entries = 0

    @contextlib.contextmanager
    def attached(self, model: nn.Module) -> Iterator[None]:
        leaves = [m for m in model.modules() if not any(True for _ in m.children())]
        with _hooks(model, self.shapes, self._cut_off), contextlib.ExitStack() as stack:
            for leaf in leaves:
                stack.callback(leaf.register_forward_hook(self._count).remove)
            yield

    def _cut_off(self, spec: Layer, layer: Any, x: Tensor, given: Tensor) -> Tensor:
        self.shapes[spec].append(_Call(tuple(x.shape), tuple(given.shape)))
        bias: Tensor | None = getattr(layer, "bias", None)
        return spec.answer(x, layer.weight.detach(), None if bias is None else bias.detach())

    def _count(self, module: nn.Module, args: tuple[Any, ...], given: Any) -> None:
        parts = given if isinstance(given, tuple) else (given,)
        self.entries += sum(part.numel() for part in parts if isinstance(part, Tensor))


class _Call(NamedTuple):
    """Shapes of what a layer saw in a call, and of what it gave."""

    saw: tuple[int, ...]
    gave: tuple[int, ...]


class Probing:
    """Hooks that note what each call of a layer saw, and add a probe to what it gives."""

    def __init__(self, calls: Mapping[Layer, Sequence[_Call]], *, dtype: torch.dtype, device: torch.device) -> None:
        self._layers = tuple(calls)
        self.zeros = [[torch.zeros(c.gave, dtype=dtype, device=device) for c in every] for every in calls.values()]
        self.start(self.zeros)

    def start(self, probes: Sequence[Sequence[Tensor]]) -> None:
        """Begins one pass with these probes, one list for each layer."""
        self._probes = dict(zip(self._layers, probes, strict=True))
        self._seen: dict[Layer, list[Tensor]] = {spec: [] for spec in self._layers}

    def seen(self) -> list[list[Tensor]]:
        """What each layer saw in each of its calls of this pass."""
        for spec, saw in self._seen.items():
            if len(saw) != len(self._probes[spec]):
                raise RuntimeError(f"layer {spec.path} was called {len(saw)} times, not {len(self._probes[spec])}")
        return list(self._seen.values())

    def attached(self, model: nn.Module) -> contextlib.AbstractContextManager[None]:
        return _hooks(model, self._layers, self._add)

    def _add(self, spec: Layer, layer: Any, x: Tensor, given: Tensor) -> Tensor:
        probe = self._probes[spec][len(self._seen[spec])]
        self._seen[spec].append(x)
        return given + probe


@contextlib.contextmanager
def _hooks(
    model: nn.Module, layers: Iterable[Layer], call: Callable[[Layer, Any, Tensor, Tensor], Tensor]
) -> Iterator[None]:
    """In the block, what a layer gives is replaced by call(spec, layer, what it saw, what it gives)."""

    def hook_of(spec: Layer) -> Callable[..., Tensor]:
        def hook(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: Tensor) -> Tensor:
            return call(spec, layer, args[0] if args else next(iter(kwargs.values())), given)

        return hook

    with contextlib.ExitStack() as stack:
        for spec in layers:
            layer: Any = model.get_submodule(spec.path)
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

    layers: Mapping[Layer, Sequence[_Call]]  # whose gradients are not computed, only what makes them
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
        layers = layers_of(self._model, self._names)
        inputs, targets = self._prepared(inputs), self._prepared(targets)
        watch = Discovery(layers)
        leaves = {n: state[n].requires_grad_() for s in layers for n in (s.weight, s.bias) if n is not None}
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
        return self._costed(watch, elsewhere, sum(t.numel() for t in named(inputs).values()))

    def _costed(self, watch: Discovery, elsewhere: set[str | None], inputs: int) -> GradientPlan:
        """Which gradients are computed, and what an example of so many inputs costs."""
        lost = elsewhere | {s.weight for s in watch.shapes if s.bias in elsewhere} - {None}
        layers = {s: tuple(calls) for s, calls in watch.shapes.items() if calls and not {s.weight, s.bias} & lost}
        factored = {name for s in layers for name in (s.weight, s.bias)}
        dense = tuple(name for name in self._names if name not in factored)
        kept = sum(self._sizes[name] for name in dense)
        working = 4 * (watch.entries + inputs) + kept
        seen = [[torch.empty(1, *c.saw, device="meta") for c in calls] for calls in layers.values()]
        sent = [[torch.empty(1, *c.gave, device="meta") for c in calls] for calls in layers.values()]
        for _, piece in self._factored(layers, seen, sent):
            if isinstance(piece, Dense) or piece.stays():
                kept, working = kept + piece.entries, working + 2 * piece.entries
            else:
                kept += math.prod(piece.shape) + max(piece.shape)
                working += piece.working
        return GradientPlan(layers, dense, kept, working)

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
        watch = Probing(plan.layers, dtype=self._dtype, device=targets.device)

        def loss_of_one(wanted: Any, x: Inputs, y: Tensor) -> tuple[Tensor, list[list[Tensor]]]:
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
        seen, errors = ([[t.detach() for t in calls] for calls in side] for side in (seen, errors))
        for recorded, piece in self._factored(plan.layers, seen, errors):
            target = mine if recorded else rest
            target.extend([piece] if isinstance(piece, Dense) or piece.stays() else piece.multiplied())
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

    def _factored(
        self, layers: Iterable[Layer], seen: Sequence[Sequence[Tensor]], errors: Sequence[Sequence[Tensor]]
    ) -> Iterator[tuple[bool, Dense | Outer]]:
        """(whether the parameters have columns, the piece) from what the layers saw and were sent, call by call."""
        shared = Counter(spec.weight for spec in layers)
        found: dict[str, Outer] = {}
        for spec, saw, sent in zip(layers, seen, errors, strict=True):
            uses = tuple(spec.uses(saw, sent))
            both = spec.weight is not None and spec.bias is not None and shared[spec.weight] == 1
            both = both and (spec.weight in self._columns) == (spec.bias in self._columns)
            if both := both and isinstance(spec, Linear) and not spec.turned:
                uses = tuple(replace(u, saw=torch.cat([u.saw, torch.ones_like(u.saw[..., :1])], -1)) for u in uses)
            weight, bias = (self._columns.get(name or "", slice(0)) for name in (spec.weight, spec.bias))
            if spec.bias is not None and not both:
                yield spec.bias in self._columns, Dense(torch.stack([u.errors.sum(1) for u in uses]).sum(0), bias)
            if spec.weight is not None:
                before = found[spec.weight].uses if spec.weight in found else ()
                found[spec.weight] = Outer((*before, *uses), spec.shape, weight, bias if both else None)
        for name, piece in found.items():
            yield name in self._columns, piece

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


def _reason(error: Exception) -> str:
    text = str(error)
    if "data-dependent control flow" in text:
        return "its forward branches on the values of its inputs"
    return next((line.strip().rstrip(".") for line in text.splitlines() if line.strip()), type(error).__name__)


# -- the gradient of each example at the parameters of a recorded step ------------------------------------------------


_MOST_ROWS: Final = 4096  # more examples at a time are not faster
_WORKING_BYTES: Final = 2**29  # nor is more memory
_MOST_SECONDS: Final = 5.0  # of a chunk, where examples go through the model one after the other
_MAPPED: Final = 2**25  # bytes of a vector that is not kept in memory twice
_DTYPES: Final = (torch.float32, torch.float64)
_LARGE: Final = 1_000_000  # parameters from which on gradients are in single precision, as they were in the training


def precision_for(num_params: int) -> torch.dtype:
    """The precision of gradients of a model of that size where nothing else calls for one."""
    return torch.float32 if num_params > _LARGE else torch.float64


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
        of what is free), and into half of what is free on a GPU.

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
        self.memory_limit = _limit_on(self.device, as_bytes("memory_limit", memory_limit))
        self._chunk = None if chunk is None else check.count("chunk", chunk)
        ends = np.cumsum(sizes)
        self._columns = {n: slice(int(e) - s, int(e)) for n, e, s in zip(self.names, ends, sizes, strict=True)}
        wanted = self.names if self.clip_norm is None else tuple(trainable)
        self._capture = Capture(self._model, loss, wanted, self._columns, dtype)
        self._plans: dict[tuple[Any, ...], GradientPlan] = {}
        self._heard: Callable[[int], None] | None = None
        self._moved: dict[str, Tensor] | None = None

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
        other._moved = self._full_state(named)
        return other

    @property
    def _state(self) -> dict[str, Tensor]:
        """All parameters and buffers; a copy of the model's is made only if it is asked for."""
        if self._moved is None:
            self._moved = self._full_state({})
        return self._moved

    @property
    def values(self) -> dict[str, Tensor]:
        """The parameters of the flat vector where the model stands, for `at`."""
        return {name: self._state[name] for name in self.names}

    def within(self, memory_limit: float | str | None) -> Self:
        """The same under another limit of memory."""
        other = copy.copy(self)
        other.memory_limit = _limit_on(self.device, as_bytes("memory_limit", memory_limit))
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
        for rows in slices(len(examples), step):
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


def _limit_on(device: torch.device, limit: int) -> int:
    """The limit, or half of what is free on a GPU if that is less."""
    return min(limit, torch.cuda.mem_get_info(device)[0] // 2) if device.type == "cuda" else limit


def _tensor(values: ArrayLike | Tensor) -> Tensor:
    if isinstance(values, Tensor):
        return values
    copy = np.array(values)  # for torch warns of arrays that are read-only, as those of a trace are
    if copy.nbytes > _MAPPED:
        give_back(values)
    return torch.from_numpy(copy)


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
