"""The two small safetensors files of a trace: who was a member, and the final state of the model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from gmip.errors import InvalidArgument
from gmip.trace._files import FINAL, MEMBERSHIP, damaged, reading, replacing, sha256_of_file

__all__ = ["check_membership", "read_final", "read_membership", "write_final", "write_membership"]

Members = NDArray[np.int64]


def check_membership(members: ArrayLike | None, non_members: ArrayLike | None) -> dict[str, Members]:
    """Those given, as int64 arrays of shape (n,): indices into the data, none twice, none both in and out."""
    given = {"members": members, "non_members": non_members}
    found = {name: _indices(name, value) for name, value in given.items() if value is not None}
    if len(found) == 2:
        both = np.intersect1d(found["members"], found["non_members"])
        if both.size:
            raise InvalidArgument(
                f"members and non_members share {both.size} indices, the first is {both[0]}: a record is in or out; "
                "list it once."
            )
    return found


def _indices(name: str, value: ArrayLike) -> Members:
    array = np.asarray(value)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InvalidArgument(
            f"{name} must be a one-dimensional array of integers (indices, not a mask), not {array.dtype} of shape "
            f"{array.shape}."
        )
    if array.size and (array.min() < 0 or array.max() > np.iinfo(np.int64).max):
        raise InvalidArgument(f"{name} holds the index {min(array.min(), 0) or array.max()}: pass indices from 0 up.")
    result = array.astype(np.int64)
    unique, counts = np.unique(result, return_counts=True)
    if unique.size < result.size:
        raise InvalidArgument(f"{name} holds the index {unique[counts > 1][0]} more than once: list each record once.")
    return result


def write_membership(folder: Path, arrays: Mapping[str, Members]) -> dict[str, str]:
    """Writes the file, if there is something to say; returns its checksum by its name."""
    return _write(folder / MEMBERSHIP, arrays) if arrays else {}


def write_final(folder: Path, state: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    """Writes the final state; returns the checksum by the name of the file."""
    given: object = state
    if not isinstance(given, Mapping):
        raise InvalidArgument(f"final_state must map names to NumPy arrays, not be {type(given).__name__}.")
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, np.ndarray):
            raise InvalidArgument(
                f"final_state[{name!r}] must be a NumPy array under a string, not {type(value).__name__}."
            )
    return _write(folder / FINAL, {name: np.array(value, order="C", copy=None) for name, value in state.items()})


def _write(path: Path, arrays: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    with replacing(path) as temporary:
        try:
            save_file(dict(arrays), temporary)
        except (SafetensorError, KeyError, ValueError, TypeError) as error:
            raise InvalidArgument(f"final_state holds an array that safetensors cannot store: {error}.") from None
        checksum = sha256_of_file(temporary)
    return {path.name: checksum}


def read_membership(folder: Path, files: Mapping[str, str]) -> dict[str, Members]:
    """The arrays of the file, read-only; none if the trace has no such file."""
    if MEMBERSHIP not in files:
        return {}
    path = folder / MEMBERSHIP
    arrays = _read(path, files)
    try:
        found = check_membership(arrays.pop("members", None), arrays.pop("non_members", None))
    except InvalidArgument as error:
        raise damaged(path, str(error)) from None
    if arrays:
        raise damaged(path, f"unknown tensor {next(iter(arrays))!r}")
    for array in found.values():
        array.flags.writeable = False
    return found


def read_final(folder: Path, files: Mapping[str, str]) -> dict[str, NDArray[Any]] | None:
    """The final state; None if the trace has none."""
    return _read(folder / FINAL, files) if FINAL in files else None


def _read(path: Path, files: Mapping[str, str]) -> dict[str, NDArray[Any]]:
    if sha256_of_file(path) != files[path.name]:
        raise damaged(path, "its checksum is not the one in trace.json")
    try:
        with reading(path):
            return load_file(path)
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise damaged(path, f"not a safetensors file, {error}") from None
