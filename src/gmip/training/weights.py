"""Weights of a released model: safetensors, torch's own files (never unpickled), folders of Hugging Face."""

from __future__ import annotations

import json
import pickle
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from gmip._io import reading
from gmip.errors import FileError, InvalidArgument
from gmip.training.models import plain_name

__all__ = ["load_weights", "read_weights"]

_TORCH: Final = (".pt", ".pth", ".bin", ".ckpt")
_NESTED: Final = ("state_dict", "model_state_dict", "model")  # under which checkpoints keep the weights
_INDEX: Final = "model.safetensors.index.json"
_FOLDER: Final = ("model.safetensors", "pytorch_model.bin")
_PARALLEL: Final = "module."


def read_weights(path: Path) -> dict[str, Tensor]:
    """Name -> tensor, on the CPU. What is wrong is one sentence that names the file; nothing is unpickled but tensors.

    A folder is one of Hugging Face's `save_pretrained`: model.safetensors (or its parts), else pytorch_model.bin.
    """
    with reading(path):
        if path.is_dir():
            return _folder(path)
        if path.suffix.lower() == ".safetensors":
            try:
                return dict(load_file(path))
            except (SafetensorError, ValueError) as error:
                raise _damaged(path, error) from None
        if path.suffix.lower() in _TORCH:
            return _torch_file(path)
    raise InvalidArgument(
        f"{path} is not a known kind of weights",
        remedy=f"pass .safetensors, {', '.join(_TORCH)}, or a folder of save_pretrained",
    )


def _folder(path: Path) -> dict[str, Tensor]:
    index = path / _INDEX
    if index.is_file():
        try:
            parts = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise _damaged(index, error) from None
        found: dict[str, Tensor] = {}
        for part in parts:
            if not isinstance(part, str) or Path(part).name != part:
                raise _damaged(index, f"it names {part!r}")
            found |= read_weights(path / part)
        return found
    file = next((path / name for name in _FOLDER if (path / name).is_file()), None)
    if file is None:
        if (path / "adapter_model.safetensors").is_file():
            raise InvalidArgument(
                f"{path} holds an adapter alone", remedy="merge it into its model (merge_and_unload) and save that"
            )
        raise InvalidArgument(f"{path} holds no weights", remedy=f"save {' or '.join(_FOLDER)} there")
    return read_weights(file)


def _torch_file(path: Path) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given: Any = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:  # what torch says advises to switch the protection off
        raise InvalidArgument(
            f"{path} holds more than tensors (a whole model, perhaps), which would have to be executed",
            remedy="save model.state_dict(), better with safetensors.torch.save_file",
        ) from None
    except OSError:
        raise
    except Exception as error:  # what torch raises for a damaged file has no common class
        raise _damaged(path, error) from None
    for name in _NESTED:
        if isinstance(given, Mapping) and isinstance(given.get(name), Mapping):
            given = given[name]
            break
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise InvalidArgument(f"{path} holds no weights by name", remedy="save model.state_dict()")
    wrong = next((name for name, value in given.items() if not isinstance(value, Tensor)), None)
    if wrong is not None:
        raise InvalidArgument(f"{path} holds {wrong!r}, which is no tensor", remedy="save model.state_dict() alone")
    return {name: value.detach() for name, value in given.items()}


def _damaged(path: Path, error: object) -> FileError:
    return FileError(f"{path} cannot be read as weights ({_reason(error)})", remedy="save them again")


def _reason(error: object) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    """Loads them into the model, names without what wrappers put before them. Weights that the file leaves out must be
    ones that the model shares between layers, as Hugging Face's files do."""
    own = model.state_dict()
    given = {plain_name(name): value for name, value in weights.items()}
    if given and not set(given) & set(own) and all(name.startswith(_PARALLEL) for name in given):
        given = {name.removeprefix(_PARALLEL): value for name, value in given.items()}
    said = f"{path} is of another model than the task makes"
    remedy = "return the released model's own architecture in make_model"
    unknown = next((name for name in given if name not in own), None)
    if unknown is not None:
        raise InvalidArgument(f"{said}: it has {unknown[:80]!r}, the model has {_some(own)}", remedy=remedy)
    for name, value in given.items():
        if value.shape != own[name].shape:
            raise InvalidArgument(
                f"{said}: {name!r} has shape {tuple(value.shape)}, and {tuple(own[name].shape)} in the model",
                remedy=remedy,
            )
        if value.is_complex() and not own[name].is_complex():
            raise InvalidArgument(
                f"{path} has complex numbers in {name!r}, and the model has real ones",
                remedy="save the weights that the model was trained to",
            )
    filled = {own[name].data_ptr() for name in given if own[name].numel()}
    missing = next((n for n, t in own.items() if n not in given and t.numel() and t.data_ptr() not in filled), None)
    if missing is not None:
        raise InvalidArgument(f"{said}: it lacks {missing!r}", remedy=remedy)
    model.load_state_dict(given, strict=False)


def _some(names: Mapping[str, object]) -> str:
    listed = list(names)
    return ", ".join(listed[:4]) + (", ..." if len(listed) > 4 else "") or "none"
