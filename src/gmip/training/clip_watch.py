"""Sees `torch.nn.utils.clip_grad_norm_` at work: by which factor the whole gradient of a batch was scaled down."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad

from gmip.training.ranks import Ranks

__all__ = ["ClipWatch"]

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

    def forget(self) -> None:
        """The gradients were computed anew."""
        self._factor, self.partial = None, False

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
