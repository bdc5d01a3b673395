"""A shard while it is written.

It has its full length at once but takes room on the disk only as rows are written (a sparse file): so it is a sound
safetensors file at every moment, and a full disk is an error of the write, not a signal.

Where the operating system can (O_DIRECT), large rows go from the memory of the process to the disk, not through the
cache of files: that would cost more time than all the rest, and drive the user's data out of it. A disk that is slow to
take them is written through the cache for a while, which evens out what comes in bursts.
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from gmip import _io
from gmip.trace._shards import Layout, shard_path

__all__ = ["RowMemory", "ShardFile"]

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
        """For row number `place` of a shard, shape (2, d)."""
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
