"""What grows with each step but its vectors: steps.jsonl, one line for each step, chained to the one before it; and
batches.bin, who was in each batch, the ids of one step after the other as little-endian int64.

The journal says how many ids a step has and their checksum. batches.bin names members: it is as private as they are.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from gmip import _io
from gmip.errors import TraceError
from gmip.trace._manifest import Manifest, damaged, reading
from gmip.trace._remote import AnyPath
from gmip.trace.schema import PRECISIONS, StepInfo
from gmip.vocabulary import RANDOM_SIZES

# -- who was in each batch --------------------------------------------------------------------------------------------


BATCHES: Final = "batches.bin"

_ID: Final = np.dtype("<i8")


class Batch(NamedTuple):
    """Where the ids of a step lie: `num_ids` after the first `start` of the file; and their XXH3 (hex, 128 bits)."""

    start: int
    num_ids: int
    digest: str


def ids_bytes(ids: NDArray[np.int64]) -> bytes:
    """The ids as the file has them."""
    return ids.astype(_ID, copy=False).tobytes()


class BatchFile:
    """The file as its one writer holds it; made when there is something to write."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def _open(self) -> int:
        if self._descriptor is None:
            self._descriptor = _io.open_file(self._path, os.O_RDWR | os.O_CREAT)
        return self._descriptor

    def write(self, content: bytes, *, start: int) -> Batch:
        """Puts the ids of a step (`ids_bytes`) after the first `start` of the file."""
        with _io.writing(self._path):
            _io.write_at(self._open(), content, start * _ID.itemsize)
        return Batch(start, len(content) // _ID.itemsize, xxhash.xxh3_128_hexdigest(content))

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


def read_batch(folder: AnyPath, batch: Batch, opened: BinaryIO | None = None) -> NDArray[np.int64]:
    """The ids of a step, read-only. opened : the file, if it is."""
    path, content = folder / BATCHES, b""
    if batch.num_ids:
        with reading(path) if opened is None else contextlib.nullcontext(opened) as file:
            file.seek(batch.start * _ID.itemsize)
            content = file.read(batch.num_ids * _ID.itemsize)
    if xxhash.xxh3_128_hexdigest(content) != batch.digest:
        raise damaged(path, f"the {batch.num_ids} ids after the first {batch.start} are not what was written")
    ids = np.frombuffer(content, _ID).astype(np.int64)
    ids.flags.writeable = False
    return ids


def check_size(folder: AnyPath, num_ids: int) -> None:
    """Raises unless the file of a complete trace has its size."""
    path = folder / BATCHES
    if num_ids:
        with reading(path) as file:
            size = file.seek(0, os.SEEK_END)
        if size != num_ids * _ID.itemsize:
            raise damaged(path, f"its {size} bytes are not those of {num_ids} ids")


# -- steps.jsonl ------------------------------------------------------------------------------------------------------


JOURNAL: Final = "steps.jsonl"

_MAX_LINE: Final = 4096
_TAIL: Final = re.compile(rb',"chain":"([0-9a-f]{16})"}\n')
_TAIL_LENGTH: Final = len(',"chain":"0123456789abcdef"}\n')
_DIGEST: Final = re.compile(r"[0-9a-f]{32}")  # XXH3

RowDigest = bytes  # 16 of XXH3


@dataclass(slots=True)
class Position:
    """What the files hold: where the next step goes."""

    chain: str
    journal_size: int = 0
    num_steps: int = 0
    num_recorded: int = 0
    num_ids: int = 0
    synced: int = 0  # steps that were on disk, as the journal says


@dataclass
class Journal:
    """The steps read: what they say, the checksum of each recorded row, and where the files stand after them."""

    end: Position
    infos: list[StepInfo] = field(default_factory=list)
    digests: list[RowDigest] = field(default_factory=list)
    batches: dict[int, Batch] = field(default_factory=dict)  # by step

    @property
    def recorded(self) -> list[int]:
        """Indices of the recorded steps."""
        return [info.index for info in self.infos if info.recorded]


def _link(chain: str, body: str) -> str:
    return _io.sha256(chain + body)[:16]


def next_line(
    chain: str, info: StepInfo, *, batch: Batch | None, row: tuple[int, int, str] | None, synced: int | None
) -> tuple[bytes, str]:
    """The line of a step and its chain value.

    `row` is (shard, row, XXH3) of a recorded step; `synced` how many steps are known to be on disk, if that is news.
    """
    # Text put together by hand costs a third of json.dumps, and each of these values is its own JSON.
    body = (
        f'{{"index":{info.index},"batch_size":{info.batch_size},"divisor":{info.divisor!r},"noise_std":{info.noise_std!r}'
        + ("" if info.clip_factor is None else f',"clip_factor":{info.clip_factor!r}')
        + ("" if info.precision is None else f',"precision":"{info.precision}"')
        + ("" if info.outside is None else ',"outside":true' if info.outside else ',"outside":false')
        + ("" if batch is None else f',"ids":{batch.num_ids},"ids_xxh3":"{batch.digest}"')
        + (
            ',"recorded":false'
            if row is None
            else f',"recorded":true,"shard":{row[0]},"row":{row[1]},"xxh3":"{row[2]}"'
        )
        + ("" if synced is None else f',"synced":{synced}')
    )
    chain = _link(chain, f"{body}}}")
    return f'{body},"chain":"{chain}"}}\n'.encode("ascii"), chain


def read_journal(path: AnyPath, manifest: Manifest, *, limit: int | None = None) -> Journal:
    """The first `limit` steps, or all.

    A last line that was cut short is left out while the trace is open. Whatever else does not follow from the line
    before it is damage.
    """
    journal = Journal(Position(manifest.id))
    end = journal.end
    smallest = 0 if manifest.header.sampling in RANDOM_SIZES else 1
    with reading(path) as file:
        while limit is None or end.num_steps < limit:
            line = file.readline(_MAX_LINE)
            if not line.endswith(b"\n"):
                # What follows the last line end is the step in flight when the writer died, or the zeros that some file
                # systems put there after a power cut.
                if line and (manifest.complete or b"\n" in file.read()):
                    raise _damaged_line(path, journal, "is cut short")
                break
            tail = _TAIL.fullmatch(line, len(line) - _TAIL_LENGTH) if len(line) > _TAIL_LENGTH else None
            body = line[:-_TAIL_LENGTH].decode("ascii", "replace") + "}"
            if tail is None or tail[1].decode("ascii") != _link(end.chain, body):
                raise _damaged_line(path, journal, "does not follow from the one before it")
            try:
                _parse(json.loads(body), journal, smallest, manifest.rows_per_shard)
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                raise _damaged_line(path, journal, f"does not describe a step, {error}") from None
            end.chain = tail[1].decode("ascii")
            end.journal_size += len(line)
        else:
            return journal
    if manifest.complete and (end.num_steps, end.chain) != (manifest.num_steps, manifest.chain):
        raise damaged(path, f"it ends after {end.num_steps} steps, not after {manifest.num_steps} as it should")
    return journal


def _damaged_line(path: AnyPath, journal: Journal, what: str) -> TraceError:
    number = journal.end.num_steps
    return TraceError(
        f"{path} is damaged (line {number + 1} {what})",
        remedy=f"restore the folder from a copy, or resume the run at step {number} or before",
    )


def _parse(fields: Any, journal: Journal, smallest: int, rows: int) -> None:
    """Adds a step to the journal; TypeError, ValueError or KeyError if the fields are not those of the next step."""
    if not isinstance(fields, dict):
        raise TypeError("it is not a JSON object")
    end, recorded = journal.end, fields["recorded"]
    index = end.num_steps
    batch_size, divisor, noise_std = fields["batch_size"], fields["divisor"], fields["noise_std"]
    clip_factor, precision, outside = fields.get("clip_factor"), fields.get("precision"), fields.get("outside")
    synced = fields.get("synced", end.synced)
    _expect("recorded", recorded, type(recorded) is bool)
    _expect("index", fields["index"], fields["index"] == index)
    _expect("batch_size", batch_size, type(batch_size) is int and batch_size >= smallest)
    _expect("divisor", divisor, type(divisor) is float and 0.0 < divisor < math.inf)
    _expect("noise_std", noise_std, type(noise_std) is float and 0.0 <= noise_std < math.inf)
    _expect("synced", synced, type(synced) is int and end.synced <= synced <= index)
    if clip_factor is not None:
        _expect("clip_factor", clip_factor, type(clip_factor) is float and 0.0 < clip_factor <= 1.0)
    _expect("precision", precision, precision in (None, *PRECISIONS))
    _expect("outside", outside, outside is None or type(outside) is bool)
    if "ids" in fields:
        num_ids, digest = fields["ids"], fields["ids_xxh3"]
        _expect("ids", num_ids, type(num_ids) is int and num_ids >= 0)
        _expect("ids_xxh3", digest, _is_digest(digest))
        journal.batches[index] = Batch(end.num_ids, num_ids, digest)
        end.num_ids += num_ids
    position = divmod(end.num_recorded, rows) if recorded else (None, None)
    _expect("shard and row", fields, (fields.get("shard"), fields.get("row")) == position)
    if recorded:
        _expect("xxh3", fields["xxh3"], _is_digest(fields["xxh3"]))
        journal.digests.append(bytes.fromhex(fields["xxh3"]))
    end.num_steps, end.num_recorded, end.synced = index + 1, end.num_recorded + recorded, synced
    journal.infos.append(
        StepInfo(
            index=index,
            batch_size=batch_size,
            divisor=divisor,
            noise_std=noise_std,
            recorded=recorded,
            clip_factor=clip_factor,
            precision=precision,
            outside=outside,
        )
    )


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def _expect(name: str, value: object, sound: bool) -> None:
    if not sound:
        raise ValueError(f"{name} = {value!r}")


class JournalFile:
    """steps.jsonl as its one writer holds it, locked against other writers."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self._path = path
        self._size: int | None = None  # None: not known since something went wrong, or yet
        if not create:
            with reading(path):
                pass
        # Where locks keep readers out too, another file than the one they read.
        self._lock = _io.Lock(path.with_name(".lock") if os.name == "nt" else path, wait=False)
        try:
            with _io.writing(path):
                flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0)
                self._descriptor = _io.open_file(path, flags)
        except BaseException:
            self._lock.release()
            raise

    def append(self, line: bytes, *, at: int) -> None:
        """One write. What a write that failed or was interrupted left behind byte `at` is taken back first."""
        with _io.writing(self._path):
            if self._size != at and os.fstat(self._descriptor).st_size != at:
                self.truncate(at)
            self._size = None
            if os.write(self._descriptor, line) != len(line):
                self.truncate(at)
                raise _io.unwritable(self._path, "the disk is full")
            self._size = at + len(line)

    def truncate(self, size: int) -> None:
        self._size = None
        with _io.writing(self._path):
            os.ftruncate(self._descriptor, size)
            os.fsync(self._descriptor)

    def sync(self) -> None:
        with _io.writing(self._path):
            os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)
        self._lock.release()
