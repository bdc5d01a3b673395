"""Who was in each batch: batches.bin, the ids of one step after the other as little-endian int64.

The journal says how many ids a step has and their checksum. The file names members: it is as private as they are.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from gmip import _io
from gmip.trace._manifest import damaged, reading

__all__ = ["BATCHES", "Batch", "BatchFile", "check_size", "read_batch"]

BATCHES: Final = "batches.bin"

_ID: Final = np.dtype("<i8")


class Batch(NamedTuple):
    """Where the ids of a step lie: `num_ids` after the first `start` of the file; and their XXH3 (hex, 128 bits)."""

    start: int
    num_ids: int
    digest: str


class BatchFile:
    """The file as its one writer holds it; made when there is something to write."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def _open(self) -> int:
        if self._descriptor is None:
            self._descriptor = _io.open_file(self._path, os.O_RDWR | os.O_CREAT)
        return self._descriptor

    def write(self, ids: NDArray[np.int64], *, start: int) -> Batch:
        """Puts the ids of a step after the first `start` of the file."""
        content = ids.astype(_ID).tobytes()
        with _io.writing(self._path):
            _io.write_at(self._open(), content, start * _ID.itemsize)
        return Batch(start, ids.size, xxhash.xxh3_128_hexdigest(content))

    def truncate(self, num_ids: int) -> None:
        """Drops what follows the first `num_ids`; without any there is no file."""
        with _io.writing(self._path):
            if num_ids:
                os.ftruncate(self._open(), num_ids * _ID.itemsize)
            else:
                self.close()
                self._path.unlink(missing_ok=True)

    def sync(self) -> None:
        if self._descriptor is not None:
            with _io.writing(self._path):
                os.fsync(self._descriptor)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def read_batch(folder: Path, batch: Batch) -> NDArray[np.int64]:
    """The ids of a step, read-only."""
    path, content = folder / BATCHES, b""
    if batch.num_ids:
        with reading(path) as file:
            file.seek(batch.start * _ID.itemsize)
            content = file.read(batch.num_ids * _ID.itemsize)
    if xxhash.xxh3_128_hexdigest(content) != batch.digest:
        raise damaged(path, f"the {batch.num_ids} ids after the first {batch.start} are not what was written")
    ids = np.frombuffer(content, _ID).astype(np.int64)
    ids.flags.writeable = False
    return ids


def check_size(folder: Path, num_ids: int) -> None:
    """Of the file in a complete trace."""
    path = folder / BATCHES
    if num_ids:
        with reading(path) as file:
            size = os.fstat(file.fileno()).st_size
        if size != num_ids * _ID.itemsize:
            raise damaged(path, f"its {size} bytes are not those of {num_ids} ids")
