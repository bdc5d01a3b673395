"""One pass of a model over some examples: the gradients of each example, layer by layer.

A linear layer's gradient is an outer product of what the layer saw and what the loss sends back. Both come out of one
pass in which a zero (a probe) is added to what the layer gives: the derivative by the probe is what is sent back. The
pass is that of a single example, vectorised by torch.func.vmap, so nothing hangs on where the model keeps the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from gmip.attacks._hooks import Discovery, Linear, Probing, evaluating, linears_of
from gmip.attacks._pieces import Dense, Outer, Piece
from gmip.errors import InvalidArgument, UnsupportedModel

__all__ = ["Capture", "Loss", "Plan"]

Loss = Callable[[Tensor, Tensor], Tensor]
# What a model can raise under torch.func; what else it raises is no matter of vectorisation.
_FAILURES: Final = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)


@dataclass(frozen=True)
class Plan:
    """What one example costs, in numbers (not bytes).

    Attributes
    ----------
    kept : entries of the pieces of one example.
    working : entries that the pass needs beside them, roughly.
    """

    linears: Mapping[Linear, tuple[tuple[int, ...], ...]]  # shape of what each call of the layer gives
    dense: tuple[str, ...]
    kept: int
    working: int


class Capture:
    """Per-example gradients of `loss(model(input), target)` for the parameters `names`, as a list of pieces.

    Parameters
    ----------
    columns : name -> columns of the flat vector, for those of the parameters that are part of it.
    names : parameters to differentiate by, those that have no columns among them.
    """

    def __init__(
        self, model: nn.Module, loss: Loss, names: Sequence[str], columns: Mapping[str, slice], dtype: torch.dtype
    ) -> None:
        self._model, self._loss, self._dtype = model, loss, dtype
        self._names, self._columns = tuple(names), dict(columns)
        self._sizes = {name: p.numel() for name, p in model.named_parameters()}

    def plan(self, state: Mapping[str, Tensor], inputs: Tensor, targets: Tensor) -> Plan:
        """Runs the first example alone and sees which layers are called, and how often."""
        linears = linears_of(self._model, self._names)
        inputs, targets = self._prepared(inputs[:1]), self._prepared(targets[:1])
        watch = Discovery(linears)
        leaves = {n: state[n].requires_grad_() for s in linears for n in (s.weight, s.bias) if n is not None}
        try:
            with torch.enable_grad(), evaluating(self._model), watch.attached(self._model):
                losses = self._loss(functional_call(self._model, self._fresh(state), (inputs,)), targets)
            elsewhere = _used(losses.sum(), leaves)
        except _FAILURES as error:
            raise InvalidArgument(
                f"model cannot be run on one example of shape {tuple(inputs.shape[1:])} in {self._dtype}: "
                f"{_reason(error)}; pass examples of its task, or another dtype."
            ) from error
        finally:
            for leaf in leaves.values():
                leaf.requires_grad_(False)
        if losses.shape != (1,):
            raise InvalidArgument(
                f"loss returned shape {tuple(losses.shape)} for 1 example: return one number for each, shape (1,), "
                "such as with reduction='none'."
            )
        chosen = {s: tuple(watch.shapes[s]) for s in linears if not {s.weight, s.bias} & elsewhere}
        factored = {name for s in chosen for name in (s.weight, s.bias)}
        dense = tuple(name for name in self._names if name not in factored)
        kept = sum(self._sizes[name] for name in dense)
        working = 4 * (watch.entries + inputs.numel()) + kept
        for spec, shapes in chosen.items():
            positions = sum(math.prod(shape[:-1]) for shape in shapes)
            factors = positions * (spec.inputs + 1 + spec.outputs)
            factored_is_kept = _stays_factored(positions, spec.inputs + 1, spec.outputs)
            kept += factors if factored_is_kept else (spec.inputs + 1) * spec.outputs
            working += 2 * factors
        return Plan(chosen, dense, kept, working)

    def run(
        self, plan: Plan, state: Mapping[str, Tensor], inputs: Tensor, targets: Tensor
    ) -> tuple[list[Piece], list[Piece]]:
        """(pieces that have columns, the other pieces) of n examples."""
        inputs, targets = self._prepared(inputs), self._prepared(targets)
        watch = Probing(plan.linears, dtype=self._dtype, device=inputs.device)

        def loss_of_one(wanted: Any, x: Tensor, y: Tensor) -> tuple[Tensor, list[Tensor]]:
            dense, probes = wanted
            watch.start(probes)
            outputs = functional_call(self._model, {**self._fresh(state), **dense}, (x[None],))
            return self._loss(outputs, y[None]).sum(), watch.seen()

        wanted = ({name: state[name] for name in plan.dense}, watch.zeros)
        try:
            with evaluating(self._model), watch.attached(self._model):
                (dense, errors), seen = vmap(grad(loss_of_one, has_aux=True), in_dims=(None, 0, 0))(
                    wanted, inputs, targets
                )
        except _FAILURES as error:
            raise UnsupportedModel(
                f"The gradients of single examples cannot be computed together (torch.func.vmap): {_reason(error)}; "
                "take random operations, data-dependent branches and in-place changes out of the model's forward and "
                "loss, and recurrent layers from opacus.layers (DPLSTM, DPGRU, DPRNN)."
            ) from error
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

    def _prepared(self, tensor: Tensor) -> Tensor:
        device = next(self._model.parameters()).device
        return tensor.to(device, self._dtype) if tensor.is_floating_point() else tensor.to(device)


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
    return next((line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()), type(error).__name__)
