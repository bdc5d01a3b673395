"""What a recorder watches while a loop trains.

`ParameterWatch` sees whether anything but the recorded steps changes the parameters: another optimizer,
load_state_dict, a loop. `ClipWatch` sees by which factor `torch.nn.utils.clip_grad_norm_` scaled the whole gradient of
a batch down. `PrecisionWatch` sees in which precision a model computes: float16 or bfloat16 under autocast, or because
its parameters are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from threading import Lock
from typing import Any, Final

import numpy as np
import torch
import xxhash
from torch import Tensor, nn
from torch.nn.utils import clip_grad
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from gmip.training.models import trainable_parameters
from gmip.training.ranks import Ranks

_Views = dict[int, tuple[int, torch.Size, memoryview]]  # by the id of a tensor: its address, its shape, what is there
_BITS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes


class ParameterWatch:
    """Compares parameters by their checksums: after a step with those before the next one.

    A loop may go back to what an earlier step left, as those do that keep the best model: that adds nothing to what the
    steps tell, and is no change.

    Parameters
    ----------
    held : the parameters that the recorded steps change, by name. Other trainable ones of the model are compared once,
        when the recording ends, with what they were when it began.
    optimizer : whose state (momentum) is compared, too; None: nobody's. Once something else has changed that, later
        steps are not seen to end: they have to follow from the recorded gradients.
    """

    def __init__(self, model: nn.Module, held: Mapping[str, Tensor], optimizer: Optimizer | None = None) -> None:
        self._model, self._held, self._optimizer = model, dict(held), optimizer
        self._state_views: _Views = {}
        self._states: set[int] = set()  # that each step left, and what there was at the start
        self.state_changed = False
        self._views: _Views = {}
        self._last: list[int] | None = None  # None: nobody saw the end of the last step
        self._others: dict[str, int] = {}
        self._left: set[int] = set()  # by each step, and what there was at the start
        self._changed: bool | None = False

    def start(self, *, changed: bool) -> None:
        """`changed` : there was training that no step of the trace tells of."""
        self._changed = changed
        self._others = {name: _checksums([p])[0] for name, p in self._unrecorded()}
        self.stepped()

    def stepped(self, *, alone: bool = True) -> None:
        """A step has ended. `alone` : nothing came between what was recorded of it and the step."""
        self._states.add(self._state())
        if not alone or self.state_changed:
            return
        self._last = _checksums(self._held.values(), self._views)
        self._left.add(hash(tuple(self._last)))

    def stepping(self) -> None:
        """A step is about to be taken."""
        self.state_changed = self.state_changed or self._state() not in self._states
        now = _checksums(self._held.values(), self._views)
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

    def now(self) -> list[int]:
        """What the parameters and their gradients are."""
        gradients = [p.grad for p in self._held.values() if p.grad is not None]
        return _checksums([*self._held.values(), *(g.to_dense() if g.is_sparse else g for g in gradients)])

    def _state(self) -> int:
        """A checksum of the state of the optimizer."""
        optimizer, tensors, rest = self._optimizer, list[Tensor](), list[Any]()
        if optimizer is None:
            return 0
        for group in optimizer.param_groups:
            for p in group["params"]:
                for name, value in sorted(optimizer.state.get(p, {}).items()):
                    tensors += [value] if isinstance(value, Tensor) else []
                    rest.append((name, None if isinstance(value, Tensor) else repr(value)))
                rest.append(None)
        if len(self._state_views) > len(tensors):  # others have taken the place of some
            self._state_views.clear()
        return hash((*rest, *_checksums(tensors, self._state_views)))

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


def _checksums(tensors: Iterable[Tensor], views: _Views | None = None) -> list[int]:
    """One for each; of a sharded tensor for this rank's part. The same on every call for the same bits.

    `views` remembers where tensors lie, for the next call: to ask torch takes ten times as long as the checksum of a
    small one.
    """
    found: list[Any] = []
    views = {} if views is None else views
    for tensor in tensors:
        known = views.get(id(tensor))
        if known is not None:
            at, shape, memory = known
            if tensor.data_ptr() == at and tensor.shape == shape and tensor.is_contiguous():
                found.append(xxhash.xxh3_64_intdigest(memory))
                continue
        own: Tensor = getattr(tensor, "_local_tensor", tensor).detach()
        if own.is_cpu:
            memory = _memory(own)
            if type(tensor) in (Tensor, nn.Parameter) and tensor.is_contiguous():  # no copy, and no shard
                views[id(tensor)] = tensor.data_ptr(), tensor.shape, memory
            found.append(xxhash.xxh3_64_intdigest(memory))
        else:
            found.append(_of_bits(own))
    away = [one for one in found if type(one) is not int]
    if away:  # they are waited for together
        values = iter(torch.stack([one.to(away[0].device) for one in away]).tolist())
        found = [next(values) if isinstance(one, Tensor) else one for one in found]
    return found


def _memory(tensor: Tensor) -> memoryview:
    array = (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return (array if array.flags.c_contiguous else np.ascontiguousarray(array)).data


def _of_bits(tensor: Tensor) -> Tensor:
    """A sum of whole numbers, which is exact in any order; for tensors that are not in the memory of the computer."""
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return real.view(_BITS[real.element_size()]).sum(dtype=torch.int64)


# -- clips of the whole gradient ----------------------------------------------------------------------------------


_NAME = "_clip_grads_with_norm_"  # what clip_grad_norm_ calls, however the loop has imported that
_EPSILON = 1.0e-6  # torch's: the factor is max_norm/(norm + 1e-6)
_watching: list[ClipWatch] = []
_lock = Lock()
_original: list[Callable[..., Any]] = []


class ClipWatch:
    """Between `start` and `stop`: the product of all factors since the last `take`.

    Calls pass through unchanged. Clips of other parameters are not counted; a clip of some of them only is seen as
    `partial`, since it has no one factor.
    """

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self._own = {id(p) for p in parameters}
        self._factor: Tensor | None = None
        self.partial = False

    @staticmethod
    def possible() -> bool:
        """Whether this torch can be listened to."""
        return hasattr(clip_grad, _NAME)

    def start(self) -> None:
        with _lock:
            if not self.possible():
                return
            if not _watching:
                _original.append(getattr(clip_grad, _NAME))
                setattr(clip_grad, _NAME, _listening)
            _watching.append(self)

    def stop(self) -> None:
        with _lock:
            if self in _watching:
                _watching.remove(self)
                if not _watching:
                    setattr(clip_grad, _NAME, _original.pop())

    def take(self) -> float | None:
        """The factor, at most 1, of the clips since the last call; None if there was none, or only of a part."""
        factor, partial = self._factor, self.partial
        self._factor, self.partial = None, False
        if factor is None or partial:
            return None
        value = float(factor)
        return value if 0.0 < value <= 1.0 else None

    def saw(self, parameters: list[Tensor], max_norm: float, total_norm: Tensor) -> None:
        clipped = {id(p) for p in parameters}
        if not clipped & self._own:
            return
        if not self._own <= clipped:
            self.partial = True
            return
        factor = torch.clamp(float(max_norm) / (Ranks.whole(total_norm).detach() + _EPSILON), max=1.0)
        self._factor = factor if self._factor is None else self._factor * factor


def _listening(parameters: Any, max_norm: float, total_norm: Tensor, *rest: Any, **more: Any) -> Any:
    several = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    for one in list(_watching):
        one.saw(several, max_norm, total_norm)
    return _original[0](several, max_norm, total_norm, *rest, **more)


# -- precision --------------------------------------------------------------------------------------------------------


_REDUCED: Final = {torch.float16: "float16", torch.bfloat16: "bfloat16"}


class PrecisionWatch:
    """Between `start` and `stop`: the reduced precision, if any, of what ran with gradients since the last `take`.

    Libraries switch autocast on within the model's own forward, so a layer is watched: the first that runs.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._handles: dict[nn.Module, RemovableHandle] = {}
        self._found: str | None = None

    def start(self) -> None:
        """Listen; before the first batch to every layer that has parameters of its own."""
        for layer in self._model.modules():
            if next(layer.parameters(recurse=False), None) is not None:
                self._handles[layer] = layer.register_forward_pre_hook(QuietHook(self._see))

    def stop(self) -> None:
        for handle in self._handles.values():
            handle.remove()
        self._handles = {}

    def take(self) -> str | None:
        """ "float16", "bfloat16" or None, and forget it."""
        found, self._found = self._found, None
        return found

    def _see(self, layer: nn.Module, args: Any) -> None:
        if not torch.is_grad_enabled():
            return
        if len(self._handles) > 1:
            kept = self._handles.pop(layer)
            self.stop()
            self._handles = {layer: kept}
        own: Tensor = next(p for p in layer._parameters.values() if p is not None)  # quicker than parameters()
        kind = own.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else own.dtype
        self._found = _REDUCED.get(dtype, self._found)


# -- hooks that copies of a model do not take along -------------------------------------------------------------------


class QuietHook:
    """Calls `listen`; a deep copy of it does nothing, and neither does what comes out of a pickle.

    copy.deepcopy(model) and torch.save(model) copy the hooks of a model: what `listen` belongs to (open files, threads)
    cannot be copied, and must not hear what a copy of the model does. The stand-in is a function of Python's own
    library that takes anything and returns None, so that a saved model can be loaded where gmip is not installed.
    """

    def __init__(self, listen: Callable[..., Any]) -> None:
        self._listen = listen

    def __call__(self, *args: Any) -> Any:
        return self._listen(*args)

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., None]:
        return nullcontext.__exit__

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext, "__exit__")
