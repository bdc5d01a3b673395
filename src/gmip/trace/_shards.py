"""Shards: the vectors of a trace, in safetensors files of fixed layout.

A shard holds one tensor "steps" of shape (rows, 2, d), parameters before the step, then the mean gradient. Its header
is a function of the number of rows, d and the dtype alone, so that a reader compares it byte by byte instead of
trusting it.

A shard that is being written has its full length at once but takes room on the disk only as rows are written (a sparse
file): so it is a sound safetensors file at every moment, and a full disk is an error of the write, not a signal.

Where the operating system can (O_DIRECT), large rows go from the memory of the process to the disk, not through the
cache of files: that would cost more time than all the rest, and drive the user's data out of it. A disk that is slow to
take them is written through the cache for a while, which evens out what comes in bursts.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import re
import struct
import time
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
        """Whether the row is what was written."""
        return xxhash.xxh3_128_digest(self.values[row]) == digest


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


# -- a shard while it is written --------------------------------------------------------------------------------------


_BLOCK: Final = 4096  # what goes around the cache begins and ends at a multiple of it, in memory and on disk
_SLOW: Final = 100e6  # bytes a second
_O_DIRECT: Final[int | None] = getattr(os, "O_DIRECT", None)
_NOT_DIRECT: Final = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}


class RowMemory:
    """Memory for one row at a time, as far from the beginning of a block as the row's place in its shard is."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        memory = np.zeros(layout.row_bytes + 2 * _BLOCK, np.uint8)
        self._memory = memory[-memory.ctypes.data % _BLOCK :]

    def row(self, place: int) -> NDArray[Any]:
        """The row of number `place` in a shard, shape (2, d)."""
        start = self._layout.size(place) % _BLOCK
        return self._layout.row(self._memory[start : start + self._layout.row_bytes])


class ShardFile:
    """A shard as its one writer holds it; made if it is not there.

    direct : write around the cache, if the file system lets us.
    """

    def __init__(self, folder: Path, number: int, layout: Layout, *, direct: bool) -> None:
        self.number = number
        self._path, self._layout = shard_path(folder, number), layout
        self._direct: int | None = None
        self._bytes, self._seconds = 0, 0.0
        with _io.writing(self._path):
            self._descriptor: int | None = _io.open_file(self._path, os.O_RDWR | os.O_CREAT)
            if os.fstat(self._descriptor).st_size != layout.size(layout.rows):
                os.ftruncate(self._descriptor, 0)  # what a writer left behind that failed right here
                _io.write_at(self._descriptor, layout.header(layout.rows), 0)
                os.ftruncate(self._descriptor, layout.size(layout.rows))
            if direct and _O_DIRECT is not None:
                try:
                    self._direct = _io.open_file(self._path, os.O_WRONLY | _O_DIRECT)
                except OSError as error:
                    if error.errno not in _NOT_DIRECT:
                        raise

    def write(self, place: int, values: NDArray[Any]) -> str:
        """Puts a row of `RowMemory` into its place; returns its XXH3 (hex, 128 bits)."""
        assert self._descriptor is not None
        content, offset = values.reshape(-1).view(np.uint8).data, self._layout.size(place)
        with _io.writing(self._path):
            first, last = (0, 0) if self._direct is None else self._write_blocks(self._direct, content, offset)
            if first:
                _io.write_at(self._descriptor, content[:first], offset)
            _io.write_at(self._descriptor, content[last:], offset + last)
        return xxhash.xxh3_128_hexdigest(content)

    def _write_blocks(self, descriptor: int, content: memoryview, offset: int) -> tuple[int, int]:
        """Writes the whole blocks in the middle of a row around the cache; returns where they begin and end."""
        first = -offset % _BLOCK
        last = max(first, len(content) - (offset + len(content)) % _BLOCK)
        start = time.perf_counter()
        try:
            _io.write_at(descriptor, content[first:last], offset + first)
        except OSError as error:
            if error.errno not in _NOT_DIRECT:
                raise
            self._close_direct()
            return 0, 0
        self._bytes, self._seconds = self._bytes + last - first, self._seconds + time.perf_counter() - start
        return first, last

    @property
    def slow(self) -> bool:
        """Whether the disk was slow to take what went around the cache."""
        return self._bytes < _SLOW * self._seconds

    def sync(self) -> None:
        if self._descriptor is not None:
            with _io.writing(self._path):
                os.fsync(self._descriptor)

    def close(self) -> None:
        self._close_direct()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _close_direct(self) -> None:
        if self._direct is not None:
            os.close(self._direct)
            self._direct = None
