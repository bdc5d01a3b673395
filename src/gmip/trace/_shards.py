"""Shards: the vectors of a trace, in safetensors files of fixed layout.

A shard holds one tensor "steps" of shape (rows, 2, d), parameters before the step, then the mean gradient. Its header
is a function of the number of rows, d and the dtype alone, so that a reader compares it byte by byte instead of
trusting it.

A shard that is being written has its full length at once but takes room on the disk only as rows are written (a sparse
file): so it is a sound safetensors file at every moment, and a full disk is an error of the write, not a signal.

Where the operating system can (O_DIRECT), large rows go from the memory of the process to the disk, not through the
cache of files: that would cost more time than all the rest, and drive the user's data out of it.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import re
import struct
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from gmip import _io
from gmip.trace._journal import RowDigest
from gmip.trace._manifest import MAX_ROWS, damaged, reading
from gmip.trace._remote import AnyPath, RemotePath
from gmip.trace.schema import Dtype, Header

SHARD_BYTES = 32 * 2**20
_PIECE: Final = 64 * 2**20  # bytes that are asked for at once
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
    return folder / shard_name(number)


def shard_name(number: int) -> str:
    return f"shard-{number:05d}.safetensors"


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


def map_shard(path: Path, layout: Layout, *, rows: range) -> NDArray[Any]:
    """A shard, shape (rows, 2, d), read-only and mapped as long as there is a view of it; anything that its layout does
    not foresee is damage."""
    with reading(path) as file:
        found = rows_found(path, file.seek(0, os.SEEK_END), layout, rows=rows)
        file.seek(0)
        check_header(path, file.read(DATA_OFFSET), layout, found)
        memory = mmap.mmap(file.fileno(), layout.size(found), access=mmap.ACCESS_READ)
    values = np.frombuffer(memory, _DTYPES[layout.dtype][1], offset=DATA_OFFSET)
    return values.reshape(found, 2, layout.width)


def rows_found(path: AnyPath, size: int, layout: Layout, *, rows: range) -> int:
    """The number of rows of a shard of so many bytes, which must be in `rows`; any other size is damage."""
    found, rest = divmod(size - DATA_OFFSET, layout.row_bytes)
    if rest or found not in rows:
        wanted = str(rows[0]) if len(rows) == 1 else f"{rows[0]} to {rows[-1]}"
        raise damaged(path, f"its {size} bytes are not those of {wanted} rows")
    return found


def check_header(path: AnyPath, header: bytes, layout: Layout, rows: int) -> None:
    """Raises unless a shard of so many rows begins like this."""
    if header != layout.header(rows):
        raise damaged(path, "its header is not that of this trace")


# -- the rows of a trace ----------------------------------------------------------------------------------------------


class Rows:
    """The rows of a trace, each of shape (2, d) and checked when it is first read.

    Those of a folder of this machine are mapped, one shard at a time: a map takes a file that is open. Those that lie
    elsewhere are read once each, as they are asked for, and kept in a file without a name in the folder for temporary
    files.
    """

    def __init__(self, folder: AnyPath, layout: Layout, digests: Sequence[RowDigest], *, complete: bool) -> None:
        self._folder, self._layout, self._digests, self._complete = folder, layout, digests, complete
        self._verified = np.zeros(len(digests), dtype=bool)
        self._mapped: tuple[int, NDArray[Any]] | None = None
        self._checked: set[int] = set()  # shards elsewhere
        self._kept: _Kept | None = None

    def read(self, position: int) -> NDArray[Any]:
        """The row, read-only."""
        number, row = divmod(position, self._layout.rows)
        values = self._shard(number)[row] if isinstance(self._folder, Path) else self._from_elsewhere(position)
        if not self._verified[position]:
            _check_row(self._folder / shard_name(number), row, values, self._digests[position])
            self._verified[position] = True
        return values

    def check(self, number: int) -> None:
        """Raises unless the shard is as it should be, but for its rows."""
        if isinstance(self._folder, Path):
            self._shard(number)
        elif number not in self._checked:
            path = self._folder / shard_name(number)
            assert isinstance(path, RemotePath)
            found = rows_found(path, path.size(), self._layout, rows=self._expected(number))
            check_header(path, path.read(0, DATA_OFFSET), self._layout, found)
            self._checked.add(number)

    def stored(self, position: int) -> StoredRow:
        """A row that is read when it is needed."""
        return StoredRow(self, position)

    def reference(self, position: int) -> RowElsewhere | None:
        """Where other processes find the row; None if they do not."""
        if isinstance(self._folder, Path) or not self._folder.everywhere:
            return None
        number, row = divmod(position, self._layout.rows)
        return RowElsewhere(self._folder / shard_name(number), self._layout, row, self._digests[position])

    def _expected(self, number: int) -> range:
        return rows_of_shard(number, recorded=len(self._digests), layout=self._layout, complete=self._complete)

    def _shard(self, number: int) -> NDArray[Any]:
        assert isinstance(self._folder, Path)
        if self._mapped is None or self._mapped[0] != number:
            path = shard_path(self._folder, number)
            self._mapped = number, map_shard(path, self._layout, rows=self._expected(number))
        return self._mapped[1]

    def _from_elsewhere(self, position: int) -> NDArray[Any]:
        if self._kept is None:
            self._kept = _Kept(len(self._digests), self._layout.row_bytes)
        if not self._verified[position]:
            number, row = divmod(position, self._layout.rows)
            self.check(number)
            path = self._folder / shard_name(number)
            assert isinstance(path, RemotePath)
            self._kept.put(position, _pieces(path, self._layout, row))
        return self._layout.row(self._kept.row(position))


class StoredRow(NamedTuple):
    """A row of a trace. It travels to other processes as the place where they find it, or else as what it holds."""

    rows: Rows
    position: int

    def read(self) -> NDArray[Any]:
        """The values, shape (2, d)."""
        return self.rows.read(self.position)

    def __reduce__(self) -> tuple[Any, ...]:
        found = self.rows.reference(self.position)
        return (_HeldRow, (self.read(),)) if found is None else (RowElsewhere, tuple(found))


class _HeldRow(NamedTuple):
    values: NDArray[Any]

    def read(self) -> NDArray[Any]:
        return self.values


class RowElsewhere(NamedTuple):
    """A row in a shard that is not on this machine, for whoever has not opened the trace."""

    path: RemotePath
    layout: Layout
    row: int
    digest: RowDigest

    def read(self) -> NDArray[Any]:
        """The values, shape (2, d), checked and read-only."""
        return _row_elsewhere(self)


@lru_cache(maxsize=1)  # whoever asks for the parameters of a step asks for its gradient next
def _row_elsewhere(row: RowElsewhere) -> NDArray[Any]:
    memory = np.empty(row.layout.row_bytes, np.uint8)
    for place, content in _pieces(row.path, row.layout, row.row):
        memory[place : place + len(content)] = np.frombuffer(content, np.uint8)
    values = row.layout.row(memory)
    _check_row(row.path, row.row, values, row.digest)
    values.flags.writeable = False
    return values


def _check_row(path: AnyPath, row: int, values: NDArray[Any], digest: RowDigest) -> None:
    content, found = values.reshape(-1).view(np.uint8), xxhash.xxh3_128()
    for first in range(0, content.size, SHARD_BYTES):
        found.update(content[first : first + SHARD_BYTES].data)
        if content.size > SHARD_BYTES:  # it would stay in memory although it is in the file
            _io.give_back(content)
    if found.digest() != digest:
        raise damaged(path, f"row {row} is not what was written")


def _pieces(path: RemotePath, layout: Layout, row: int) -> Iterator[tuple[int, bytes]]:
    """The bytes of a row, a part at a time, and where in the row each part begins."""
    first = layout.size(row)
    for place in range(0, layout.row_bytes, _PIECE):
        yield place, path.read(first + place, first + min(place + _PIECE, layout.row_bytes))


class _Kept:
    """Rows in a file that nobody else can open, mapped; it takes room on the disk only for rows that are there."""

    def __init__(self, rows: int, row_bytes: int) -> None:
        self._row_bytes, self._place = row_bytes, Path(tempfile.gettempdir())
        with _io.writing(self._place):
            self._file = tempfile.TemporaryFile()  # noqa: SIM115, it lives as long as this
            weakref.finalize(self, self._file.close)
            self._file.truncate(rows * row_bytes)
            self._memory = mmap.mmap(self._file.fileno(), rows * row_bytes, access=mmap.ACCESS_READ)

    def put(self, row: int, pieces: Iterator[tuple[int, bytes]]) -> None:
        for place, content in pieces:
            with _io.writing(self._place):
                _io.write_at(self._file.fileno(), content, row * self._row_bytes + place)

    def row(self, row: int) -> NDArray[np.uint8]:
        return np.frombuffer(self._memory, np.uint8, self._row_bytes, row * self._row_bytes)


# -- a shard that is written again, or for the first time -------------------------------------------------------------


def resize_shard(path: Path, layout: Layout, *, filled: int, rows: int) -> None:
    """Gives a shard, of which the first `filled` rows are in use, room for exactly `rows`."""
    shard = map_shard(path, layout, rows=range(filled, layout.rows + 1))
    if len(shard) != rows:
        content = shard[:filled].copy()
        del shard  # Windows does not replace a file that is mapped
        with _io.replacing(path) as file:
            file.write(layout.header(rows))
            file.write(content.data)
            file.truncate(layout.size(rows))


_BLOCK: Final = 4096  # what goes around the cache begins and ends at a multiple of it, in memory and on disk
_O_DIRECT: Final[int | None] = getattr(os, "O_DIRECT", None)
_NOT_DIRECT: Final = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}


class RowMemory:
    """Memory for one row at a time; where rows are written around the cache (`direct`), as far from the beginning of a
    block as the row's place in its shard is."""

    def __init__(self, layout: Layout, *, direct: bool) -> None:
        self._layout, self._direct = layout, direct
        memory = np.zeros(layout.row_bytes + 2 * _BLOCK, np.uint8)
        self._memory = memory[-memory.ctypes.data % _BLOCK :]
        self._first = layout.row(self._memory[: layout.row_bytes])

    def row(self, place: int) -> NDArray[Any]:
        """The row of number `place` in a shard, shape (2, d)."""
        if not self._direct:
            return self._first
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
        content, offset = values.data.cast("B"), self._layout.size(place)
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
        try:
            _io.write_at(descriptor, content[first:last], offset + first)
        except OSError as error:
            if error.errno not in _NOT_DIRECT:
                raise
            self._close_direct()
            return 0, 0
        return first, last

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
