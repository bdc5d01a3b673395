"""What is kept between runs: downloaded files and computed tensors, in the folder that GMIP_CACHE names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from gmip import _io
from gmip.errors import DataUnavailable, FileError

__all__ = ["folder", "key", "read_tensors", "write_bytes", "write_tensors"]


def folder() -> Path:
    """GMIP_CACHE where it is set, else the operating system's folder for caches. Not created here."""
    if named := os.environ.get("GMIP_CACHE"):
        return Path(named).expanduser()
    import pooch

    return Path(pooch.os_cache("gmip"))


def key(*parts: str) -> str:
    """A short name (16 hex digits) for all that a cached result depends on."""
    return _io.sha256("\n".join(parts))[:16]


def write_bytes(path: Path, content: bytes) -> None:
    """Write the file whole or not at all: readers never see a part of it, even if the writer is interrupted."""
    try:
        _io.make_folder(path.parent, shared=True)
        _io.write(path, content, shared=True)
    except FileError as error:
        raise DataUnavailable(error.problem, remedy="set GMIP_CACHE to a folder that can be written") from error


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors as safetensors, atomically."""
    import safetensors.torch

    write_bytes(path, safetensors.torch.save({name: tensor.contiguous() for name, tensor in tensors.items()}))


def read_tensors(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor] | None:
    """The tensors of a file if it holds just those that `shapes` names, in these shapes (-1: any size); else None.

    A missing or damaged file is no error: what is cached can be computed again.
    """
    import safetensors
    import safetensors.torch

    try:
        tensors = safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError):
        return None
    if tensors.keys() != shapes.keys():
        return None
    fits = (
        len(tensor.shape) == len(shapes[name])
        and all(want in (-1, size) for want, size in zip(shapes[name], tensor.shape, strict=True))
        for name, tensor in tensors.items()
    )
    return tensors if all(fits) else None
