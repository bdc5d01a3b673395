"""The state of a run between two steps, in one safetensors file that is replaced atomically."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.optim import Optimizer

from gmip import _io
from gmip.errors import TraceError
from gmip.training.models import load_state, plain_name

__all__ = ["load_checkpoint", "save_checkpoint"]

_FORMAT: Final = "gmip-checkpoint-1"
_CPU_STATE, _NOISE_STATE = "random.torch", "random.noise"


def save_checkpoint(
    path: Path, *, step: int, model: nn.Module, optimizer: Optimizer, noise: torch.Generator | None
) -> None:
    """Write all that step `step` (not yet taken) depends on."""
    tensors = {f"model.{plain_name(name)}": value for name, value in model.state_dict().items()}
    plain: dict[str, Any] = {}
    for index, state in optimizer.state_dict()["state"].items():
        for key, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{index}.{key}"] = value
            else:
                plain[f"{index}.{key}"] = value
    tensors[_CPU_STATE] = torch.get_rng_state()
    if noise is not None:
        tensors[_NOISE_STATE] = noise.get_state()
    metadata = {"format": _FORMAT, "step": str(step), "optimizer": json.dumps(plain)}
    content = save({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, metadata=metadata)
    _io.remove_leftovers(path.parent, path.name.__eq__)
    _io.write(path, content, private=True)  # the state of the noise's generator undoes the noise


def load_checkpoint(
    path: Path, *, model: nn.Module, optimizer: Optimizer, noise: torch.Generator | None, at_most: int
) -> int:
    """Put the state back, global random state of torch included; returns the step to take next.

    That is step 0, and nothing is changed, where there is no checkpoint or it is of a step beyond `at_most`.
    """
    if not path.exists():
        return 0
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if metadata["format"] != _FORMAT or int(metadata["step"]) > at_most:
            return 0
        state: dict[int, dict[str, Any]] = {}
        for name, tensor in tensors.items():
            if name.startswith("optimizer."):
                _, index, key = name.split(".", 2)
                state.setdefault(int(index), {})[key] = tensor
        for name, value in json.loads(metadata["optimizer"]).items():
            index, key = name.split(".", 1)
            state.setdefault(int(index), {})[key] = value
        load_state(model, {n.removeprefix("model."): t for n, t in tensors.items() if n.startswith("model.")})
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
        torch.set_rng_state(tensors[_CPU_STATE])
        if noise is not None:
            noise.set_state(tensors[_NOISE_STATE])
        return int(metadata["step"])
    except (SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise TraceError(
            f"{path} is damaged or of another run ({error})", remedy="remove it to start the run again"
        ) from error
