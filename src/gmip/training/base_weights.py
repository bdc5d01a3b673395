"""Weights that a run takes over and does not train: those of a base model under adapters (peft).

They are public and large: a trace holds a fingerprint of them, and the task's `make_model` brings them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from gmip.errors import TraceMismatch
from gmip.trace import Trace, fingerprint
from gmip.training.models import unwrapped
from gmip.training.recorded_vectors import numpy_of

__all__ = ["base_fingerprint", "released_state", "with_base_weights"]


def base_fingerprint(model: nn.Module) -> str | None:
    """What a trace remembers of them; None for a model without adapters."""
    base = _base(model)
    return fingerprint(*(numpy_of(p) for _, p in sorted(base.items()))) if base else None


def released_state(model: nn.Module) -> dict[str, Tensor]:
    """The model's state, but for the base weights under adapters."""
    base = _base(model)
    state: dict[str, Any] = unwrapped(model).state_dict()
    return {name: t for name, t in state.items() if isinstance(t, Tensor) and name not in base}


def with_base_weights(model: nn.Module, state: Mapping[str, Tensor], trace: Trace) -> dict[str, Tensor]:
    """The state that a trace holds, completed by the base weights of the model; a TraceMismatch if the run had others.

    Without a trained model in the trace (`state` is empty) it is only the base weights that are compared.
    """
    known = trace.header.base_weights
    if known is None:
        return dict(state)
    if base_fingerprint(model) != known:
        raise TraceMismatch(
            f"{trace.path} was trained on other base weights than those of the model that the task makes",
            remedy="let make_model load the weights that the run began with, or fix the seed of those that it draws",
        )
    return {**_base(model), **state}


def _base(model: nn.Module) -> dict[str, Tensor]:
    inner = unwrapped(model)
    if not hasattr(inner, "peft_config"):
        return {}
    return {name: p.detach() for name, p in inner.named_parameters(remove_duplicate=False) if not p.requires_grad}
