"""The vectors of a recorded step: which parameters of a model make them up, and how they are copied.

Weights that a run takes over and does not train, those of a base model under adapters (peft), are public and large: a
trace holds a fingerprint of them, and the task's `make_model` brings them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from gmip import _validate as check
from gmip.errors import InvalidArgument, TraceMismatch
from gmip.tasks.task import Examples, Task
from gmip.trace import ModelRecord, fingerprint
from gmip.training.models import trainable_parameters, unwrapped
from gmip.training.ranks import Ranks

__all__ = [
    "base_fingerprint",
    "check_kinds",
    "chosen",
    "fill",
    "fingerprints",
    "is_finite",
    "numpy_of",
    "published",
    "released_state",
    "with_base_weights",
]


def check_kinds(model: object, path: object, parameters: object, data: object) -> None:
    """Raise for what is of another kind than `gmip.record` takes."""
    if not isinstance(model, nn.Module):
        raise InvalidArgument(f"must be a torch.nn.Module, not {type(model).__name__}", argument="model")
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path) or "\0" in str(path):
        raise InvalidArgument("must name a folder", argument="path", value=path, remedy="pass one such as 'runs/a'")
    listed = [parameters] if isinstance(parameters, str) else parameters
    odd = isinstance(listed, (list, tuple, set)) and not all(isinstance(name, str) for name in listed)
    if odd or (listed is not None and not isinstance(listed, Iterable)):
        raise InvalidArgument("must be names of parameters", argument="parameters", value=parameters)
    pair = isinstance(data, tuple) and len(data) == 2
    if data is not None and not pair and not isinstance(data, (Task, Examples)):
        raise InvalidArgument(
            f"must be a Task, Examples or (inputs, targets), not {type(data).__name__}", argument="data"
        )


def is_finite(vector: NDArray[Any]) -> bool:
    """Whether no entry is NaN or infinite."""
    # A product is quick and spoilt by any NaN or infinity; a large one may overflow by itself.
    with np.errstate(over="ignore", invalid="ignore"):
        return math.isfinite(float(np.dot(vector, vector))) or bool(np.isfinite(vector).all())


def published(model: nn.Module, optimizer: Optimizer | None) -> dict[str, nn.Parameter]:
    """Trainable parameters that this optimizer changes; without one, all."""
    if optimizer is None:
        return dict(trainable_parameters(model))
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    found = {name: p for name, p in trainable_parameters(model) if id(p) in held}
    if not found:
        raise InvalidArgument(
            "holds no trainable parameter of `model`",
            argument="optimizer",
            remedy="make it from model.parameters(), after any wrapping",
        )
    return found


def chosen(trained: dict[str, nn.Parameter], names: Iterable[str] | None) -> dict[str, nn.Parameter]:
    """The parameters of these names, or with names that begin with one of them; None: all."""
    if names is None:
        return trained
    kept: set[str] = set()
    for wanted in [names] if isinstance(names, str) else names:
        found = {name for name in trained if name == wanted or name.startswith(wanted + ".")}
        if not found:
            modules = {name.rpartition(".")[0] for name in trained}
            raise InvalidArgument(
                f"has {wanted!r}, which is not a trainable parameter"
                f"{check.did_you_mean(wanted, [*trained, *sorted(modules)])}",
                argument="parameters",
                remedy="pass names of model.named_parameters(), or of modules",
            )
        kept |= found
    if not kept:
        raise InvalidArgument(
            "is empty", argument="parameters", remedy="name at least one, or leave it out to record all"
        )
    return {name: p for name, p in trained.items() if name in kept}


def fingerprints(data: Task | Examples | tuple[Any, ...] | None) -> dict[str, str]:
    """The fingerprint of each part of the data, by its name."""
    if data is None:
        return {}
    if isinstance(data, Task):
        return data.fingerprints
    if isinstance(data, Examples):
        return {"pool": data.fingerprint}
    return {"pool": fingerprint(*(numpy_of(a) if isinstance(a, Tensor) else a for a in data))}


def fill(row: NDArray[Any], tensors: Sequence[Tensor]) -> None:
    """Copy the tensors, flat and one after the other, into a row of a trace."""
    target = torch.from_numpy(row)
    flat = [Ranks.whole(t.to_dense() if t.is_sparse else t).detach().reshape(-1) for t in tensors]
    if all(t.is_cpu for t in flat):
        torch.cat(flat, out=target)  # in the row's dtype, whatever theirs
    else:  # a model may be spread over several devices
        for place, t in zip(target.split([t.numel() for t in flat]), flat, strict=True):
            place.copy_(t)


def numpy_of(tensor: Tensor) -> NDArray[Any]:
    """A tensor from anywhere as an array."""
    tensor = tensor.detach().cpu()
    return np.asarray((tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy())


# -- weights that a run takes over and does not train -----------------------------------------------------------------


def base_fingerprint(model: nn.Module) -> str | None:
    """What a trace remembers of the base weights; None for a model without adapters."""
    base = _base(model)
    return fingerprint(*(numpy_of(p) for _, p in sorted(base.items()))) if base else None


def released_state(model: nn.Module) -> dict[str, Tensor]:
    """The model's state, but for the base weights under adapters."""
    base = _base(model)
    state: dict[str, Any] = unwrapped(model).state_dict()
    return {name: t for name, t in state.items() if isinstance(t, Tensor) and name not in base}


def with_base_weights(model: nn.Module, state: Mapping[str, Tensor], target: ModelRecord) -> dict[str, Tensor]:
    """The state of a trained model, completed by the base weights of the model; a TraceMismatch if the run had others.

    Without a trained model (`state` is empty) it is only the base weights that are compared.
    """
    known = target.header.base_weights
    if known is None:
        return dict(state)
    if base_fingerprint(model) != known:
        raise TraceMismatch(
            f"{target.path} was trained on other base weights than those of the model that the task makes",
            remedy="let make_model load the weights that the run began with, or fix the seed of those that it draws",
        )
    return {**_base(model), **state}


def _base(model: nn.Module) -> dict[str, Tensor]:
    inner = unwrapped(model)
    if not hasattr(inner, "peft_config"):
        return {}
    return {name: p.detach() for name, p in inner.named_parameters(remove_duplicate=False) if not p.requires_grad}
