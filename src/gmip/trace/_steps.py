"""The steps of a trace on disk: a line each in steps.jsonl, and rows of vectors in shards.

Each line is chained to the one before it. A shard is a safetensors file of fixed layout, filled row by row through a
memory map: one tensor "steps" of shape (rows, 2, d), parameters before the step, then the mean gradient. Its header is
a function of the number of rows, d and the dtype alone, so that a reader compares it byte by byte instead of trusting
it.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import re
import struct
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gmip import _io
from gmip.errors import GmipWarning, TraceError
from gmip.trace._batches import BATCHES, Batch, check_size, first_bad_batch
from gmip.trace._manifest import MAX_ROWS, Manifest, damaged, reading
from gmip.trace.schema import Dtype, Header, StepInfo

__all__ = [
    "JOURNAL",
    "Journal",
    "JournalFile",
    "Layout",
    "Shard",
    "is_shard",
    "load_journal",
    "map_shard",
    "next_line",
    "read_journal",
    "remove_shards",
    "rows_of_shard",
    "rows_per_shard",
    "shard_path",
    "write_shard",
]

JOURNAL: Final = "steps.jsonl"
SHARD_BYTES = 32 * 2**20
DATA_OFFSET: Final = 128  # a multiple of 64, and room enough for the header of any shape below 2**63 bytes

_MAX_LINE: Final = 4096
_TAIL: Final = re.compile(rb',"chain":"([0-9a-f]{16})"}\n')
_TAIL_LENGTH: Final = len(',"chain":"0123456789abcdef"}\n')
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_XXH3: Final = re.compile(r"[0-9a-f]{32}")
_DTYPES: Final[dict[Dtype, tuple[str, np.dtype[Any]]]] = {
    "float32": ("F32", np.dtype("<f4")),
    "float64": ("F64", np.dtype("<f8")),
}
_SHARD_NAME: Final = re.compile(r"shard-(\d{5,})\.safetensors")


# -- lines ----------------------------------------------------------------------------------------------------------


@dataclass
class Journal:
    """The steps read: what they say, the SHA-256 of each recorded row, and where the file stands after them."""

    chain: str
    size: int = 0
    infos: list[StepInfo] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    batches: dict[int, Batch] = field(default_factory=dict)  # by step
    num_ids: int = 0


def _link(chain: str, body: bytes) -> str:
    return _io.sha256(chain.encode("ascii") + body)[:16]


def next_line(
    chain: str,
    *,
    index: int,
    batch_size: int,
    divisor: float,
    noise_std: float,
    clip_factor: float | None,
    batch: Batch | None,
    row: tuple[int, int, str] | None,
) -> tuple[bytes, str]:
    """The line of a step and its chain value. `row` is (shard, row, SHA-256) of a recorded step."""
    # Text put together by hand costs a third of json.dumps, and each of these values is its own JSON.
    text = f'{{"index":{index},"batch_size":{batch_size},"divisor":{divisor!r},"noise_std":{noise_std!r}'
    if clip_factor is not None:
        text += f',"clip_factor":{clip_factor!r}'
    if batch is not None:
        text += f',"ids":{batch.num_ids},"ids_xxh3":"{batch.digest}"'
    if row is None:
        text += ',"recorded":false'
    else:
        text += f',"recorded":true,"shard":{row[0]},"row":{row[1]},"sha256":"{row[2]}"'
    body = text.encode("ascii")
    chain = _link(chain, body + b"}")
    return body + b',"chain":"%s"}\n' % chain.encode("ascii"), chain


def read_journal(path: Path, manifest: Manifest, *, limit: int | None = None) -> Journal:
    """The first `limit` steps, or all.

    A last line that was cut short is left out while the trace is open. Whatever else does not follow from the line
    before it is damage.
    """
    journal = Journal(chain=manifest.id)
    smallest = 0 if manifest.header.sampling == "poisson" else 1
    with reading(path), path.open("rb") as file:
        while limit is None or len(journal.infos) < limit:
            line = file.readline(_MAX_LINE)
            if not line.endswith(b"\n"):
                # What follows the last line end is the step in flight when the writer died, or the zeros that some file
                # systems put there after a power cut.
                if line and (manifest.complete or b"\n" in file.read()):
                    raise _damaged_line(path, journal, "is cut short")
                break
            tail = _TAIL.fullmatch(line, len(line) - _TAIL_LENGTH) if len(line) > _TAIL_LENGTH else None
            body = line[:-_TAIL_LENGTH] + b"}"
            if tail is None or tail[1].decode("ascii") != _link(journal.chain, body):
                raise _damaged_line(path, journal, "does not follow from the one before it")
            try:
                _parse(json.loads(body), journal, smallest, manifest.rows_per_shard)
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                raise _damaged_line(path, journal, f"does not describe a step, {error}") from None
            journal.chain = tail[1].decode("ascii")
            journal.size += len(line)
        else:
            return journal
    if manifest.complete and (len(journal.infos), journal.chain) != (manifest.num_steps, manifest.chain):
        raise damaged(path, f"it ends after {len(journal.infos)} steps, not after {manifest.num_steps} as it should")
    return journal


def _damaged_line(path: Path, journal: Journal, what: str) -> TraceError:
    number = len(journal.infos)
    return TraceError(
        f"{path} is damaged (line {number + 1} {what})",
        remedy=f"restore the folder from a copy, or resume the run at step {number} or before",
    )


def _parse(fields: Any, journal: Journal, smallest: int, rows: int) -> None:
    """Adds a step to the journal; TypeError, ValueError or KeyError if the fields are not those of the next step."""
    if not isinstance(fields, dict):
        raise TypeError("it is not a JSON object")
    recorded = fields["recorded"]
    position = divmod(len(journal.digests), rows) if recorded is True else (None, None)
    batch_size, divisor, noise_std = fields["batch_size"], fields["divisor"], fields["noise_std"]
    _expect("recorded", recorded, type(recorded) is bool)
    _expect("index", fields["index"], fields["index"] == len(journal.infos))
    _expect("batch_size", batch_size, type(batch_size) is int and batch_size >= smallest)
    _expect("divisor", divisor, type(divisor) is float and 0.0 < divisor < math.inf)
    _expect("noise_std", noise_std, type(noise_std) is float and 0.0 <= noise_std < math.inf)
    clip_factor = fields.get("clip_factor")
    if clip_factor is not None:
        _expect("clip_factor", clip_factor, type(clip_factor) is float and 0.0 < clip_factor <= 1.0)
    if "ids" in fields:
        count, digest = fields["ids"], fields["ids_xxh3"]
        _expect("ids", count, type(count) is int and count >= 0)
        _expect("ids_xxh3", digest, isinstance(digest, str) and _XXH3.fullmatch(digest) is not None)
        journal.batches[len(journal.infos)] = Batch(journal.num_ids, count, digest)
        journal.num_ids += count
    _expect("shard and row", fields, (fields.get("shard"), fields.get("row")) == position)
    if recorded:
        digest = fields["sha256"]
        _expect("sha256", digest, isinstance(digest, str) and _SHA256.fullmatch(digest) is not None)
        journal.digests.append(bytes.fromhex(digest))
    journal.infos.append(
        StepInfo(
            index=len(journal.infos),
            batch_size=batch_size,
            divisor=divisor,
            noise_std=noise_std,
            recorded=recorded,
            clip_factor=clip_factor,
        )
    )


def _expect(name: str, value: object, sound: bool) -> None:
    if not sound:
        raise ValueError(f"{name} = {value!r}")


class JournalFile:
    """steps.jsonl as its one writer holds it: only appended to, and locked against other writers."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self._path = path
        if not create:
            with reading(path):
                path.stat()
        # Where locks keep readers out too, another file than the one they read.
        self._lock = _io.Lock(path.with_name(".lock") if os.name == "nt" else path, wait=False)
        try:
            with _io.writing(path):
                flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0)
                self._file = open(_io.open_file(path, flags), "ab", buffering=0)  # noqa: PTH123, SIM115
                self.size = os.fstat(self._file.fileno()).st_size
        except BaseException:
            self._lock.release()
            raise

    def append(self, line: bytes) -> None:
        """One write. If the disk takes only a part of the line, that part is taken back."""
        with _io.writing(self._path):
            written = self._file.write(line)
        if written != len(line):
            self.truncate(self.size)
            raise _io.unwritable(self._path, "the disk is full")
        self.size += len(line)

    def truncate(self, size: int) -> None:
        with _io.writing(self._path):
            os.ftruncate(self._file.fileno(), size)
            os.fsync(self._file.fileno())
        self.size = size

    def sync(self) -> None:
        with _io.writing(self._path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()
        self._lock.release()


# -- shards ---------------------------------------------------------------------------------------------------------


def rows_per_shard(header: Header) -> int:
    """Rows of a full shard in a new trace."""
    return min(max(SHARD_BYTES // Layout.of(header, 0).row_bytes, 1), MAX_ROWS)


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
    with _io.replacing(path) as file:
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


# -- both -----------------------------------------------------------------------------------------------------------


def rows_of_shard(number: int, *, recorded: int, layout: Layout, complete: bool) -> range:
    """The numbers of rows that shard `number` may have in a trace of `recorded` rows."""
    filled = min(recorded - number * layout.rows, layout.rows)
    # The last shard of an open trace has room for rows to come, unless the writer died just before it was done.
    return range(filled, (filled if complete else layout.rows) + 1)


def load_journal(folder: Path, manifest: Manifest, *, limit: int | None = None, resuming: bool = False) -> Journal:
    """The journal (its first `limit` steps), the layout of every file that it names checked.

    The rows of the last shard and the ids are checked too if the trace is open or to be resumed. A power cut may have
    left any of them unwritten: steps of an open trace from the first bad one on are left out, with a warning. All
    earlier shards were on disk before the last began.
    """
    journal = read_journal(folder / JOURNAL, manifest, limit=limit)
    layout = Layout.of(manifest.header, manifest.rows_per_shard)
    recorded = len(journal.digests)
    num_shards = -(-recorded // layout.rows)
    done = manifest.complete and not resuming
    for number in range(num_shards):
        rows = rows_of_shard(number, recorded=recorded, layout=layout, complete=done)
        shard = map_shard(shard_path(folder, number), layout, rows=rows)
    if done:
        check_size(folder, journal.num_ids)
        return journal
    bad: dict[int, Path] = {}
    step = first_bad_batch(folder, journal.batches)
    if step is not None:
        bad[step] = folder / BATCHES
    first = max(num_shards - 1, 0) * layout.rows
    for position in range(first, recorded):
        if shard.digest(position - first) != journal.digests[position]:
            path = shard_path(folder, num_shards - 1)
            if manifest.complete:
                raise damaged(path, f"row {position - first} is not what was written")
            bad[[info.index for info in journal.infos if info.recorded][position]] = path
            break
    return _cut(folder, manifest, journal, min(bad), bad[min(bad)]) if bad else journal


def _cut(folder: Path, manifest: Manifest, journal: Journal, step: int, path: Path) -> Journal:
    if manifest.complete:
        raise damaged(path, f"the ids of step {step} are not what was written")
    warnings.warn(
        f"{path} was not written in full (a power cut?) or was altered: the trace is read up to step {step}, and the "
        f"{len(journal.infos) - step} steps from there on are left out.",
        GmipWarning,
        stacklevel=4,
    )
    return read_journal(folder / JOURNAL, manifest, limit=step)
