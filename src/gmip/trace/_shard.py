"""Shards: safetensors files of fixed layout, filled row by row through a memory map.

A shard holds one tensor "steps" of shape (rows, 2, d): parameters before the step, then the mean gradient. Its header
is a function of the number of rows, d and the dtype alone, so that a reader compares it byte by byte instead of
trusting it.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gmip.trace._files import damaged, reading, replacing, writing
from gmip.trace.schema import Dtype, Header

__all__ = ["MAX_ROWS", "Layout", "Shard", "map_shard", "remove_shards", "rows_per_shard", "shard_path", "write_shard"]

SHARD_BYTES = 32 * 2**20
MAX_ROWS = 4096
DATA_OFFSET = 128  # a multiple of 64, and room enough for the header of any shape below 2**63 bytes

_DTYPES: dict[Dtype, tuple[str, np.dtype[Any]]] = {
    "float32": ("F32", np.dtype("<f4")),
    "float64": ("F64", np.dtype("<f8")),
}
_NAME = re.compile(r"shard-(\d{5,})\.safetensors")


def rows_per_shard(recorded_params: int, dtype: Dtype) -> int:
    row_bytes = 2 * recorded_params * _DTYPES[dtype][1].itemsize
    return min(max(SHARD_BYTES // row_bytes, 1), MAX_ROWS)


def shard_path(folder: Path, number: int) -> Path:
    return folder / f"shard-{number:05d}.safetensors"


def remove_shards(folder: Path, *, first: int) -> None:
    """Removes the shards numbered `first` and above."""
    with writing(folder):
        for path in list(folder.iterdir()):
            match = _NAME.fullmatch(path.name)
            if match and int(match[1]) >= first:
                path.unlink()


@dataclass(frozen=True)
class Layout:
    """How the rows of a trace lie in its shards."""

    rows: int  # of a full shard
    width: int  # d
    dtype: Dtype

    @classmethod
    def of(cls, header: Header, rows: int) -> Layout:
        return cls(rows, header.recorded_params, header.dtype)

    @property
    def row_bytes(self) -> int:
        return 2 * self.width * _DTYPES[self.dtype][1].itemsize

    def header(self, rows: int) -> bytes:
        """The first DATA_OFFSET bytes of a shard with that many rows."""
        tensor = {
            "dtype": _DTYPES[self.dtype][0],
            "shape": [rows, 2, self.width],
            "data_offsets": [0, rows * self.row_bytes],
        }
        text = json.dumps({"steps": tensor}, separators=(",", ":")).encode("ascii")
        return struct.pack("<Q", DATA_OFFSET - 8) + text.ljust(DATA_OFFSET - 8)


class Shard:
    """A mapped shard.

    `values` has shape (rows, 2, d) and `raw`, the same memory as bytes, (rows, row_bytes). The map lives as long as a
    view of it does.
    """

    def __init__(self, memory: mmap.mmap, layout: Layout, rows: int) -> None:
        self._memory = memory
        dtype = _DTYPES[layout.dtype][1]
        self.rows = rows
        self.values: NDArray[Any] = np.frombuffer(
            memory, dtype=dtype, offset=DATA_OFFSET, count=rows * 2 * layout.width
        ).reshape(rows, 2, layout.width)
        self.raw: NDArray[np.uint8] = self.values.reshape(rows, -1).view(np.uint8)

    def digest(self, row: int) -> bytes:
        """SHA-256 of a row."""
        return hashlib.sha256(self.raw[row]).digest()

    def sync(self) -> None:
        """Waits until what was filled in is on disk."""
        self._memory.flush()


def write_shard(path: Path, layout: Layout, rows: int, filled: NDArray[np.uint8] | None = None) -> None:
    """Puts a shard of `rows` rows in place of `path`, the first of them from `filled`, of shape (k, row_bytes)."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(layout.header(rows))
        if filled is not None:
            file.write(filled.data)
        file.flush()
        size = DATA_OFFSET + rows * layout.row_bytes
        if file.tell() < size:
            if hasattr(os, "posix_fallocate"):
                # A full disk is an error here; in a sparse file it would be a SIGBUS in the middle of a step.
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)


def map_shard(path: Path, layout: Layout, *, rows: range, writable: bool = False) -> Shard:
    """Maps a shard whose number of rows must be in `rows`; anything that its layout does not foresee is damage."""
    with reading(path), path.open("r+b" if writable else "rb") as file:
        size = os.fstat(file.fileno()).st_size
        found, rest = divmod(size - DATA_OFFSET, layout.row_bytes)
        if rest or found not in rows:
            wanted = str(rows[0]) if len(rows) == 1 else f"{rows[0]} to {rows[-1]}"
            raise damaged(path, f"its {size} bytes are not those of {wanted} rows")
        if file.read(DATA_OFFSET) != layout.header(found):
            raise damaged(path, "its header is not that of this trace")
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        return Shard(mmap.mmap(file.fileno(), size, access=access), layout, found)
