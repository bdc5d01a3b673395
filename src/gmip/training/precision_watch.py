"""Sees in which precision a model computes: float16 or bfloat16 under autocast, or because its parameters are."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from gmip.training.quiet_hook import QuietHook

__all__ = ["PrecisionWatch"]

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
        own: Tensor = next(layer.parameters(recurse=False))
        kind = own.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else own.dtype
        self._found = _REDUCED.get(dtype, self._found)
