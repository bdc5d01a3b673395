"""The writing side of a trace.

`StepFiles` holds the files that grow with the steps: journal, shards, batches. Small rows are written at once, large
ones by another thread while the run goes on. There is at most one step that is not yet in the files: whoever dies loses
no more than that.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gmip import _validate as check
from gmip._io import make_folder, remove_leftovers, sync_folder, writing
from gmip.errors import FileError, InvalidArgument, TraceError, TraceMismatch
from gmip.trace._journal import BATCHES, JOURNAL, BatchFile, JournalFile, Position, ids_bytes, next_line
from gmip.trace._manifest import (
    FINAL,
    MANIFEST,
    MEMBERSHIP,
    Manifest,
    check_indices,
    check_membership,
    read_manifest,
    read_membership,
    write_final,
    write_manifest,
    write_membership,
)
from gmip.trace._remote import as_folder
from gmip.trace._shards import (
    Layout,
    RowMemory,
    ShardFile,
    is_shard,
    remove_shards,
    resize_shard,
    rows_per_shard,
    shard_path,
)
from gmip.trace.reader import load_journal
from gmip.trace.schema import PRECISIONS, Header, StepInfo
from gmip.vocabulary import RANDOM_SIZES

# -- the files of a trace that grow with its steps --------------------------------------------------------------------


BACKGROUND_BYTES = 256 * 2**10  # a smaller row is written before another thread would begin with it
SYNC_BYTES = 256 * 2**20
SYNC_SECONDS = 5.0


class StepFiles:
    """Writes steps where the last one ends. Takes over the journal and closes it."""

    def __init__(self, folder: Path, layout: Layout, journal: JournalFile, position: Position) -> None:
        self._folder, self._layout, self._journal = folder, layout, journal
        self._batches = BatchFile(folder / BATCHES)
        self._position = position
        self._memory: RowMemory | None = None
        self._row: NDArray[Any] | None = None
        self._background = layout.row_bytes >= BACKGROUND_BYTES
        self._pool: ThreadPoolExecutor | None = None
        self._step: tuple[Callable[[], Position], Future[Position]] | None = None  # that is being written
        self._shards: list[ShardFile] = []  # those that are not known to be on disk; the last one is being filled
        self._syncing: Future[int] | None = None
        self._synced = position.synced
        self._last_sync = time.monotonic(), position.num_recorded

    @property
    def position(self) -> Position:
        """The place after the last step that is in the files; `settle` first if that must be all."""
        return self._position

    @property
    def num_steps(self) -> int:
        """The number of steps in the files, and the one on its way there."""
        return self._position.num_steps + (self._step is not None)

    def row(self) -> NDArray[Any]:
        """Where the vectors of the next step go, shape (2, d): free from `settle` until `store`."""
        if self._memory is None:
            self._memory = RowMemory(self._layout, direct=self._background)
        self._row = self._memory.row(self._position.num_recorded % self._layout.rows)
        return self._row

    def store(self, info: StepInfo, ids: bytes | None) -> None:
        """Writes the step after `position`, with the row if it is recorded. `settle` comes first."""
        work = partial(self._write, self._position, info, ids)
        if info.recorded and self._background:
            self._step = work, self._threads().submit(work)
        else:
            self._position = work()

    def settle(self) -> None:
        """Waits for the step that is being written; begins to sync the files when it is time."""
        self._finish_step()
        if self._syncing is not None:
            if self._syncing.done():
                self._finish_sync()
            return
        since, recorded = self._last_sync
        unsynced = (self._position.num_recorded - recorded) * self._layout.row_bytes
        if unsynced > SYNC_BYTES or time.monotonic() - since > SYNC_SECONDS:
            self._last_sync = time.monotonic(), self._position.num_recorded
            self._syncing = self._threads().submit(self._sync, tuple(self._shards), self._position.num_steps)

    def sync(self) -> None:
        """Waits until every step so far is on disk."""
        self._finish_step()
        self._finish_sync()
        self._last_sync = time.monotonic(), self._position.num_recorded
        self._synced = self._sync(tuple(self._shards), self._position.num_steps)

    def trim(self) -> None:
        """Gives the files exactly what the journal names; `sync` comes first."""
        self._close_shards()
        number, filled = divmod(self._position.num_recorded, self._layout.rows)
        if filled:
            resize_shard(shard_path(self._folder, number), self._layout, filled=filled, rows=filled)
        remove_shards(self._folder, first=number + (filled > 0))
        self._batches.truncate(self._position.num_ids)
        self._journal.truncate(self._position.journal_size)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        self._memory = self._row = self._step = self._syncing = None
        self._close_shards()
        self._batches.close()
        self._journal.close()

    # -- private ------------------------------------------------------------------------------------------------------

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:  # one thread for rows, and one that waits for the disk
            self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="gmip-trace")
        return self._pool

    def _write(self, at: Position, info: StepInfo, ids: bytes | None) -> Position:
        """Writes a step, in any thread; returns where the next goes. What an attempt that failed wrote is replaced."""
        row = None
        if info.recorded:
            number, place = divmod(at.num_recorded, self._layout.rows)
            assert self._row is not None
            row = number, place, self._shard(number, place).write(place, self._row)
        batch = None if ids is None else self._batches.write(ids, start=at.num_ids)
        news = self._synced if self._synced > at.synced else None
        line, chain = next_line(at.chain, info, batch=batch, row=row, synced=news)
        self._journal.append(line, at=at.journal_size)
        return Position(
            chain,
            at.journal_size + len(line),
            at.num_steps + 1,
            at.num_recorded + info.recorded,
            at.num_ids + (0 if batch is None else batch.num_ids),
            self._synced,
        )

    def _shard(self, number: int, place: int) -> ShardFile:
        if not self._shards or self._shards[-1].number != number:
            if place:  # it may have been cut to size by a writer that closed the trace
                path = shard_path(self._folder, number)
                resize_shard(path, self._layout, filled=place, rows=self._layout.rows)
            self._shards.append(ShardFile(self._folder, number, self._layout, direct=self._background))
        return self._shards[-1]

    def _finish_step(self) -> None:
        """What failed in the other thread is tried again, and raised, here: to those who can handle it, and nothing is
        lost while they make room on the disk."""
        if self._step is not None:
            work, written = self._step
            self._position = written.result() if written.exception() is None else work()
            self._step = None

    def _finish_sync(self) -> None:
        if self._syncing is not None:
            syncing, self._syncing = self._syncing, None
            self._synced = syncing.result()

    def _sync(self, shards: tuple[ShardFile, ...], num_steps: int) -> int:
        """Waits until the first `num_steps` steps, with rows in these shards, are on disk; returns their number."""
        for shard in shards:
            shard.sync()
        with writing(self._folder):
            sync_folder(self._folder)
        self._batches.sync()
        self._journal.sync()
        for shard in shards[:-1]:  # the last one may still be written to
            shard.close()
            self._shards.remove(shard)
        return num_steps

    def _close_shards(self) -> None:
        while self._shards:
            self._shards.pop().close()


# -- the writing side of a trace --------------------------------------------------------------------------------------


class TraceWriter:
    """Records a training run into a folder, one optimizer step at a time.

        with TraceWriter.create(path, header, members=ids) as writer:
            for ...:
                parameters, gradient = writer.row()  # filled in place
                parameters[:] = ...
                gradient[:] = ...
                writer.commit(batch_size=64)

    A trace names the members and holds the seed that undoes the noise: the folder is as sensitive as the
    data. Keep it where the data are kept.

    Guarantees
    ----------
    The row is written first and its journal line after; the line is the commit. Rows of 256 KiB and more are written by
    another thread while the run goes on, one at a time: `row` waits for the one before. So a process that dies, at
    whatever moment and by whatever signal, loses at most one step, the last that was committed or is being filled in.
    What fails in the other thread is tried again, and raised, by the next call; `sync` and `close` wait for it. Files
    are forced to disk at the end and about every 5 seconds or 256 MiB; a power cut loses at most what the operating
    system had not written, and the checksums in the journal tell which steps those are. Memory is that of one row,
    however many steps there are. A second writer of the same folder is refused where the file system can lock files,
    and so is a copy of the writer in a forked process.
    """

    def __init__(self, folder: Path, manifest: Manifest, journal: JournalFile, position: Position) -> None:
        """Only `create` and `resume` call this."""
        self._manifest = manifest
        self._files = StepFiles(folder, Layout.of(manifest.header, manifest.rows_per_shard), journal, position)
        self._folder, self._process = folder, os.getpid()
        self._open, self._filling = True, False
        self._nominal = float(manifest.header.batch_size)
        self._random_sizes = manifest.header.sampling in RANDOM_SIZES

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        header: Header,
        *,
        members: ArrayLike | None = None,
        non_members: ArrayLike | None = None,
    ) -> Self:
        """A new trace in the folder `path`, which is made if need be and may hold files of others.

        `members` and `non_members`, of shape (n,), are indices into the data: the ground truth for audits.
        """
        given: object = header
        if not isinstance(given, Header):
            raise InvalidArgument(f"must be a Header, not {type(given).__name__}", argument="header")
        membership = check_membership(members, non_members)
        folder = as_folder(path)
        make_folder(folder)
        _refuse_trace(folder)  # before the journal is opened, which would make one that is missing
        journal = JournalFile(folder / JOURNAL, create=True)
        try:
            _refuse_trace(folder)  # and again, now that no one else can make one
            manifest = Manifest.new(header, write_membership(folder, membership), rows_per_shard=rows_per_shard(header))
            write_manifest(folder, manifest)
        except BaseException:
            journal.close()
            raise
        return cls(folder, manifest, journal, Position(manifest.id))

    @classmethod
    def resume(
        cls,
        path: str | os.PathLike[str],
        *,
        at_step: int | None = None,
        header: Header | None = None,
        members: ArrayLike | None = None,
        non_members: ArrayLike | None = None,
    ) -> Self:
        """Continues a trace, interrupted or complete, after its last step.

        With `at_step` the steps from that one on are dropped first: a run that goes on from a checkpoint made before
        that step writes them anew. A complete trace becomes an open one and loses its final state. What is given of
        `header`, `members` and `non_members` must be what the trace has: else `TraceMismatch`, and the trace is not
        changed.
        """
        given = check_membership(members, non_members)
        folder = as_folder(path)
        read_manifest(folder)  # a folder without a trace has its own error
        if at_step is not None:
            at_step = _count_or_zero("at_step", at_step)
        journal = JournalFile(folder / JOURNAL)
        try:
            manifest = read_manifest(folder)  # now that no other writer can complete the trace
            known = read_membership(folder, manifest.files)
            same = all(name in known and np.array_equal(ids, known[name]) for name, ids in given.items())
            if not same or header not in (None, manifest.header):
                raise TraceMismatch(
                    f"{folder} records another run (model, sizes, sampling, data, members or recipe differ)",
                    remedy="resume with what it was begun with, or choose another path",
                )
            steps = load_journal(folder, manifest, limit=at_step, resuming=True)
            if at_step is not None and len(steps.infos) < at_step:
                raise InvalidArgument(
                    f"is beyond the {len(steps.infos)} steps of the trace in {folder}",
                    argument="at_step",
                    value=at_step,
                    remedy=f"resume at {len(steps.infos)} or before",
                )
            if manifest.complete:
                manifest = manifest.reopened()
                write_manifest(folder, manifest)
            with writing(folder / FINAL):
                (folder / FINAL).unlink(missing_ok=True)
            journal.truncate(steps.end.journal_size)
            remove_shards(folder, first=-(-steps.end.num_recorded // manifest.rows_per_shard))
            BatchFile(folder / BATCHES).truncate(steps.end.num_ids)
            remove_leftovers(folder, lambda name: name in (MANIFEST, MEMBERSHIP, FINAL) or is_shard(name))
        except BaseException:
            journal.close()
            raise
        return cls(folder, manifest, journal, steps.end)

    @property
    def path(self) -> Path:
        return self._folder

    @property
    def header(self) -> Header:
        return self._manifest.header

    @property
    def num_steps(self) -> int:
        """Steps committed or skipped so far: the index of the next one."""
        return self._files.num_steps

    def row(self) -> NDArray[Any]:
        """Where the next step goes: parameters before it and mean gradient, shape (2, d), to be filled in place.

        The array is unspecified until filled, must be filled whole, and not be written to after `commit`.
        """
        self._check_open()
        self._files.settle()
        self._filling = True
        return self._files.row()

    def commit(
        self,
        *,
        batch_size: int,
        divisor: float | None = None,
        noise_std: float = 0.0,
        clip_factor: float | None = None,
        precision: str | None = None,
        outside: bool | None = None,
        ids: ArrayLike | None = None,
        recorded: bool = True,
    ) -> None:
        """The row just filled becomes step `num_steps`. See `StepInfo` for the arguments.

        `divisor` is the nominal batch size where records are drawn on their own ("poisson", "balls-in-bins"), else
        batch_size, unless given. Only such a batch may be empty. `ids`, of shape (n,), are the rows of the data that
        were in the batch. A step that is not `recorded` needs no row: it is counted, without its vectors.
        """
        self._check_open()
        if not recorded:
            self._files.settle()
        elif not self._filling:
            raise InvalidArgument("commit needs a row", remedy="call row() and fill it before each commit")
        # Plain numbers pass quickly: this runs in every step of a training loop.
        if type(batch_size) is not int or batch_size < 1:
            batch_size = (_count_or_zero if self._random_sizes else check.count)("batch_size", batch_size)
        if divisor is None:
            divisor = self._nominal if self._random_sizes else float(batch_size)
        elif type(divisor) is not float or not 0.0 < divisor < math.inf:
            divisor = check.positive("divisor", divisor)
        if type(noise_std) is not float or not 0.0 <= noise_std < math.inf:
            noise_std = check.non_negative("noise_std", noise_std)
        if clip_factor is not None:
            clip_factor = check.number("clip_factor", clip_factor)
            if not 0.0 < clip_factor <= 1.0:
                raise InvalidArgument(
                    "must lie in (0, 1]",
                    argument="clip_factor",
                    value=clip_factor,
                    remedy="pass 1 where the gradient was not clipped",
                )
        if precision is not None:
            check.one_of("precision", precision, PRECISIONS)
        info = StepInfo(
            index=self._files.num_steps,
            batch_size=batch_size,
            divisor=divisor,
            noise_std=noise_std,
            recorded=recorded,
            clip_factor=clip_factor,
            precision=precision,
            outside=outside,
        )
        self._files.store(info, None if ids is None else ids_bytes(check_indices("ids", ids)))
        self._filling = False

    def sync(self) -> None:
        """Waits until every step so far is on disk. Worth a call before a checkpoint that relies on them."""
        self._check_open()
        self._files.sync()

    def close(
        self, final_state: Mapping[str, NDArray[Any]] | None = None, *, changed: Sequence[str] | None = None
    ) -> None:
        """Completes the trace, with the final state of the model if given. Closing again does nothing.

        `changed` : parameters that are not what the steps made of them; None if nobody looked.
        """
        if not self._open:
            if final_state is not None:
                raise TraceError(
                    f"The writer of {self._folder} is closed, `final_state` comes too late", remedy="resume the trace"
                )
            return
        self.sync()
        final = {} if final_state is None else write_final(self._folder, final_state)
        self._files.trim()
        end = self._files.position
        done = dataclasses.replace(
            self._manifest,
            num_steps=end.num_steps,
            chain=end.chain,
            files={**self._manifest.files, **final},
            changed=None if changed is None else tuple(changed),
        )
        write_manifest(self._folder, done)
        self._release()

    def abandon(self) -> None:
        """Lets go of the files and leaves the trace open: every step so far can be read, and the run resumed."""
        if self._open and self._process == os.getpid():
            try:
                self.sync()
            finally:
                self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            # The error under way says more than one about a full disk on the way out.
            with contextlib.suppress(FileError):
                self.abandon()

    # -- private ------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if not self._open:
            raise TraceError(f"The writer of {self._folder} is closed", remedy="resume the trace to add steps")
        if self._process != os.getpid():
            raise TraceError(
                f"The writer of {self._folder} belongs to process {self._process}, and this one was forked from it",
                remedy="record in the process that began",
            )

    def _release(self) -> None:
        self._open = self._filling = False
        self._files.close()


def _refuse_trace(folder: Path) -> None:
    journal = folder / JOURNAL
    with writing(folder):
        begun = journal.exists() and journal.stat().st_size > 0
        found = begun or (folder / MANIFEST).exists() or shard_path(folder, 0).exists()
    if found:
        raise TraceError(f"{folder} already holds a trace", remedy="choose another path, or resume it")


def _count_or_zero(name: str, value: Any) -> int:
    return check.count(name, value) if check.number(name, value) != 0.0 else 0
