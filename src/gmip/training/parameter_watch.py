"""Sees whether anything but the recorded steps changes the parameters: another optimizer, load_state_dict, a loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import torch
import xxhash
from torch import Tensor, nn
from torch.optim import Optimizer

from gmip.training.models import trainable_parameters

__all__ = ["ParameterWatch", "has_stepped"]

_BITS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes


class ParameterWatch:
    """Compares parameters by their checksums: after a step with those before the next one.

    A loop may go back to what an earlier step left, as those do that keep the best model: that adds nothing to what the
    steps tell, and is no change.

    Parameters
    ----------
    held : the parameters that the recorded steps change, by name. Other trainable ones of the model are compared once,
        when the recording ends, with what they were when it began.
    """

    def __init__(self, model: nn.Module, held: Mapping[str, Tensor]) -> None:
        self._model, self._held = model, dict(held)
        self._last: list[int] | None = None  # None: nobody saw the end of the last step
        self._others: dict[str, int] = {}
        self._left: set[int] = set()  # by each step, and what there was at the start
        self._changed: bool | None = False

    def start(self, *, changed: bool) -> None:
        """`changed` : there was training that no step of the trace tells of."""
        self._changed = changed
        self._others = {name: _checksums([p])[0] for name, p in self._unrecorded()}
        self.stepped()

    def stepped(self) -> None:
        """A step has ended."""
        self._last = _checksums(self._held.values())
        self._left.add(hash(tuple(self._last)))

    def stepping(self) -> None:
        """A step is about to be taken."""
        now = _checksums(self._held.values())
        if self._last is None:
            self._changed = self._changed or None
            self._left.add(hash(tuple(now)))
        elif not self._known(now):
            self._changed = True
        self._last = None

    def take(self) -> bool | None:
        """Whether the parameters were changed between the last step and this one; None if nobody knows."""
        changed, self._changed = self._changed, False
        return changed

    def changed_at_end(self) -> tuple[str, ...] | None:
        """Parameters that are not what the last step left, or that no recorded step changes and that are not what they
        were; None if nobody saw the end of the last step."""
        found = [name for name, p in self._unrecorded() if self._others.get(name) != _checksums([p])[0]]
        if self._last is None:
            return tuple(found) or None
        now = _checksums(self._held.values())
        if not self._known(now):
            found[:0] = [name for name, a, b in zip(self._held, now, self._last, strict=True) if a != b]
        return tuple(found)

    def _known(self, checksums: list[int]) -> bool:
        return checksums == self._last or hash(tuple(checksums)) in self._left

    def _unrecorded(self) -> Iterable[tuple[str, Tensor]]:
        held = {id(p) for p in self._held.values()}
        return ((name, p) for name, p in trainable_parameters(self._model) if id(p) not in held)


def has_stepped(optimizer: Optimizer | None) -> bool:
    """Whether the state of an optimizer shows that it has taken steps. Plain SGD has none, and nobody can tell."""
    for state in () if optimizer is None else optimizer.state.values():
        if "step" in state:  # some make their state before the first step
            if float(state["step"]) > 0.0:
                return True
        elif any(isinstance(value, Tensor) and bool(value.any()) for value in state.values()):
            return True
    return False


def _checksums(tensors: Iterable[Tensor]) -> list[int]:
    """One for each; of a sharded tensor for this rank's part. The same on every call for the same bits."""
    found: list[Any] = []
    for tensor in tensors:
        own: Tensor = getattr(tensor, "_local_tensor", tensor).detach()
        found.append(_of_memory(own) if own.is_cpu else _of_bits(own))
    away = [one for one in found if isinstance(one, Tensor)]
    if away:  # they are waited for together
        told = iter(torch.stack([one.to(away[0].device) for one in away]).tolist())
        found = [next(told) if isinstance(one, Tensor) else one for one in found]
    return found


def _of_memory(tensor: Tensor) -> int:
    array = (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return xxhash.xxh3_64_intdigest(np.ascontiguousarray(array).data)


def _of_bits(tensor: Tensor) -> Tensor:
    """A sum of whole numbers, which is exact in any order; for tensors that are not in the memory of the computer."""
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return real.view(_BITS[real.element_size()]).sum(dtype=torch.int64)
