"""The gradient of each example at the parameters of a recorded step."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from gmip import _validate as check
from gmip.attacks.layer_gradients import Piece
from gmip.attacks.memory import as_bytes, rows_that_fit
from gmip.attacks.model_pass import Capture, LossFunction, Plan, evaluating
from gmip.errors import GmipWarning, InvalidArgument, TraceMismatch
from gmip.tasks import Examples, cross_entropy
from gmip.tasks.inputs import named, rows_of
from gmip.trace import Header
from gmip.training.models import check_model, trainable_parameters, unwrapped

__all__ = ["PerExampleGradients"]

_MOST_ROWS: Final = 4096  # more examples at a time are not faster
_WORKING_BYTES: Final = 2**29  # nor is more memory
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
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self._state = self._full_state({})

    @classmethod
    def for_trace(cls, model: nn.Module, loss: LossFunction, header: Header, **options: Any) -> Self:
        """With the parameters and the clip norm of a trace; a TraceMismatch if the model is not the one it recorded."""
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

    def within(self, memory_limit: float | str | None) -> Self:
        """The same under another limit of memory."""
        other = copy.copy(self)
        other.memory_limit = as_bytes("memory_limit", memory_limit)
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
        step = self._chunk or rows_that_fit(bytes_per_row, budget, at_most=_MOST_ROWS)
        for first in range(0, len(examples), step):
            rows = slice(first, min(first + step, len(examples)))
            yield rows, self._pieces(plan, examples, rows)

    def plan(self, examples: Examples) -> Plan:
        """What one of these examples costs."""
        inputs, targets = examples.inputs, examples.targets
        parts = (*named(inputs).items(), ("targets", targets))
        key = tuple((name, t.shape[1:], t.dtype) for name, t in parts)
        if key not in self._plans:
            plan = self._plans[key] = self._capture.plan(self._state, inputs, targets)
            if plan.alone is not None and plan.alone not in {p.alone for k, p in self._plans.items() if k != key}:
                warnings.warn(
                    f"The model cannot take several examples at once ({plan.alone}), so gradients are computed for one "
                    f"after the other: as exact, but about {len(examples)} x {1000 * plan.seconds:.2g} ms for each "
                    "step.",
                    GmipWarning,
                    stacklevel=2,
                )
        return self._plans[key]

    def _pieces(self, plan: Plan, examples: Examples, rows: slice) -> list[Piece]:
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
        """Of the model; gradients are computed there."""
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
