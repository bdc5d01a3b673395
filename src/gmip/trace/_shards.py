"""Shards: the vectors of a trace, in safetensors files of fixed layout.

A shard holds one tensor "steps" of shape (rows, 2, d), parameters before the step, then the mean gradient. Its header
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
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from gmip import _io
from gmip.trace._journal import RowDigest
from gmip.trace._manifest import MAX_ROWS, damaged, reading
from gmip.trace.schema import Dtype, Header

__all__ = [
    "Layout",
    "Shard",
    "is_shard",
    "map_shard",
    "remove_shards",
    "resize_shard",
    "rows_of_shard",
    "rows_per_shard",
    "shard_path",
]

SHARD_BYTES = 32 * 2**20
DATA_OFFSET: Final = 128  # a multiple of 64, and room enough for the header of any shape below 2**63 bytes

_DTYPES: Final[dict[Dtype, tuple[str, np.dtype[Any]]]] = {
    "float32": ("F32", np.dtype("<f4")),
    "float64": ("F64", np.dtype("<f8")),
}
_SHARD_NAME: Final = re.compile(r"shard-(\d{5,})\.safetensors")


def rows_per_shard(header: Header) -> int:
    """Rows of a full shard in a new trace."""
    return min(max(SHARD_BYTES // header.row_bytes, 1), MAX_ROWS)


def shard_path(folder: Path, number: int) -> Path:
    return folder / f"shard-{number:05d}.safetensors"


def is_shard(name: str) -> bool:
    return _SHARD_NAME.fullmatch(name) is not None


def remove_shards(folder: Path, *, first: int) -> None:
    """Removes the shards numbered `first` and above."""
    with _io.writing(folder):
        for path in list(folder.iterdir()):
            match = _SHARD_NAME.fullmatch(path.name)
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

    @cached_property
    def row_bytes(self) -> int:
        return 2 * self.width * _DTYPES[self.dtype][1].itemsize

    def size(self, rows: int) -> int:
        """Bytes of a shard with that many rows: where the next one begins."""
        return DATA_OFFSET + rows * self.row_bytes

    def header(self, rows: int) -> bytes:
        """The first DATA_OFFSET bytes of a shard with that many rows."""
        tensor = {
            "dtype": _DTYPES[self.dtype][0],
            "shape": [rows, 2, self.width],
            "data_offsets": [0, rows * self.row_bytes],
        }
        text = json.dumps({"steps": tensor}, separators=(",", ":")).encode("ascii")
        return struct.pack("<Q", DATA_OFFSET - 8) + text.ljust(DATA_OFFSET - 8)

    def row(self, memory: NDArray[np.uint8]) -> NDArray[Any]:
        """The bytes of a row as vectors, shape (2, d)."""
        return memory.view(_DTYPES[self.dtype][1]).reshape(2, self.width)


def rows_of_shard(number: int, *, recorded: int, layout: Layout, complete: bool) -> range:
    """The numbers of rows that shard `number` may have in a trace of `recorded` rows."""
    filled = min(recorded - number * layout.rows, layout.rows)
    # The last shard of an open trace has room for rows to come, unless the writer died just before it was done.
    return range(filled, (filled if complete else layout.rows) + 1)


class Shard:
    """A mapped shard, to be read: `values` has shape (rows, 2, d). The map lives as long as a view of it does."""

    def __init__(self, memory: mmap.mmap, layout: Layout, rows: int) -> None:
        self.rows = rows
        self.values: NDArray[Any] = np.frombuffer(
            memory, dtype=_DTYPES[layout.dtype][1], offset=DATA_OFFSET, count=rows * 2 * layout.width
        ).reshape(rows, 2, layout.width)

    def has(self, row: int, digest: RowDigest) -> bool:
        """Whether the row is what was written. Rows of version 1 have a SHA-256, of 32 bytes."""
        values = self.values[row]
        return (hashlib.sha256(values) if len(digest) == 32 else xxhash.xxh3_128(values)).digest() == digest


def map_shard(path: Path, layout: Layout, *, rows: range) -> Shard:
    """Maps a shard whose number of rows must be in `rows`; anything that its layout does not foresee is damage."""
    with reading(path) as file:
        size = os.fstat(file.fileno()).st_size
        found, rest = divmod(size - DATA_OFFSET, layout.row_bytes)
        if rest or found not in rows:
            wanted = str(rows[0]) if len(rows) == 1 else f"{rows[0]} to {rows[-1]}"
            raise damaged(path, f"its {size} bytes are not those of {wanted} rows")
        if file.read(DATA_OFFSET) != layout.header(found):
            raise damaged(path, "its header is not that of this trace")
        return Shard(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ), layout, found)


def resize_shard(path: Path, layout: Layout, *, filled: int, rows: int) -> None:
    """Gives a shard, of which the first `filled` rows are in use, room for exactly `rows`."""
    shard = map_shard(path, layout, rows=range(filled, layout.rows + 1))
    if shard.rows != rows:
        content = shard.values[:filled].copy()
        del shard  # Windows does not replace a file that is mapped
        with _io.replacing(path) as file:
            file.write(layout.header(rows))
            file.write(content.data)
            file.truncate(layout.size(rows))
