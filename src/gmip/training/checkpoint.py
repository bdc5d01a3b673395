"""The state of a run between two steps, in one safetensors file that is replaced atomically.

It is as private as the trace: the state of the noise's generator undoes the noise.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import torch
import xxhash
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.optim import Optimizer

from gmip import _io
from gmip.errors import TraceError
from gmip.training.models import load_state, plain_name

__all__ = ["load_checkpoint", "save_checkpoint"]

_FORMAT: Final = "gmip-checkpoint-2"  # one of another format is not used: the run starts again
_NO_CHECKSUM: Final = "?" * 32  # stands in the file while the checksum is computed
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
    metadata = {"format": _FORMAT, "step": str(step), "optimizer": json.dumps(plain), "xxh3": _NO_CHECKSUM}
    content = save({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, metadata=metadata)
    checksum = xxhash.xxh3_128_hexdigest(content)
    _io.remove_leftovers(path.parent, path.name.__eq__)
    _io.write(path, content.replace(_NO_CHECKSUM.encode(), checksum.encode(), 1))


def load_checkpoint(
    path: Path, *, model: nn.Module, optimizer: Optimizer, noise: torch.Generator | None, at_most: int
) -> int:
    """Put the state back, global random state of torch included; returns the step to take next.

    That is step 0, and nothing is changed, where there is no checkpoint or it is of a step beyond `at_most`.
    """
    content = _io.read_if_there(path)
    if content is None:
        return 0
    try:
        metadata = _io.safetensors_metadata(content)
        if metadata["format"] != _FORMAT:
            return 0
        checksum = metadata["xxh3"]
        if xxhash.xxh3_128_hexdigest(content.replace(checksum.encode(), _NO_CHECKSUM.encode(), 1)) != checksum:
            raise ValueError("its checksum does not fit its contents")
        if int(metadata["step"]) > at_most:
            return 0
        tensors = load(content)
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
    except (SafetensorError, AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise TraceError(
            f"{path} is damaged or of another run ({error})", remedy="remove it to start the run again"
        ) from error
