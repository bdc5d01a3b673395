"""The files of a trace that grow with its steps, as their one writer holds them: journal, shards, batches.

Small rows are written at once, large ones by another thread while the run goes on. There is at most one step that is
not yet in the files: whoever dies loses no more than that.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gmip._io import sync_folder, writing
from gmip.trace._background import Job
from gmip.trace._batches import BATCHES, BatchFile
from gmip.trace._journal import JournalFile, next_line
from gmip.trace._shard_file import RowMemory, ShardFile
from gmip.trace._shards import Layout, remove_shards, resize_shard, shard_path
from gmip.trace.schema import StepInfo

__all__ = ["Position", "StepFiles"]

BACKGROUND_BYTES = 256 * 2**10  # a smaller row is written before another thread would begin with it
CACHED_SHARDS = 8  # after one that the disk was slow to take
SYNC_BYTES = 256 * 2**20
SYNC_SECONDS = 5.0


class Position(NamedTuple):
    """What the files hold: where the next step goes."""

    chain: str
    journal_size: int = 0
    num_steps: int = 0
    num_recorded: int = 0
    num_ids: int = 0
    synced: int = 0  # steps that were on disk, as the journal says


class StepFiles:
    """Writes steps where the last one ends. Takes over the journal and closes it."""

    def __init__(self, folder: Path, layout: Layout, journal: JournalFile, position: Position) -> None:
        self._folder, self._layout, self._journal = folder, layout, journal
        self._batches = BatchFile(folder / BATCHES)
        self._position = position
        self._memory: RowMemory | None = None
        self._row: NDArray[Any] | None = None
        self._background = layout.row_bytes >= BACKGROUND_BYTES
        self._cached = 0  # shards to be written through the cache
        self._pool: ThreadPoolExecutor | None = None
        self._job: Job[Position] | None = None  # the step that is being written
        self._shards: list[ShardFile] = []  # those that are not known to be on disk; the last one is being filled
        self._syncing: Future[int] | None = None
        self._synced = position.synced
        self._last_sync = time.monotonic(), position.num_recorded

    @property
    def position(self) -> Position:
        """After the last step that is in the files; `settle` first if that must be all."""
        return self._position

    @property
    def num_steps(self) -> int:
        """Those in the files, and the one on its way there."""
        return self._position.num_steps + (self._job is not None)

    def row(self) -> NDArray[Any]:
        """Where the vectors of the next step go, shape (2, d): free from `settle` until `store`."""
        if self._memory is None:
            self._memory = RowMemory(self._layout)
        self._row = self._memory.row(self._position.num_recorded % self._layout.rows)
        return self._row

    def store(self, info: StepInfo, ids: NDArray[np.int64] | None) -> None:
        """Writes the step after `position`, with the row if it is recorded. `settle` comes first."""
        work = partial(self._write, self._position, info, ids)
        if info.recorded and self._background:
            self._job = Job(work)
            self._threads().submit(self._job.attempt)
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
        self._memory = self._row = self._job = self._syncing = None
        self._close_shards()
        self._batches.close()
        self._journal.close()

    # -- private ------------------------------------------------------------------------------------------------------

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:  # one thread for rows, and one that waits for the disk
            self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="gmip-trace")
        return self._pool

    def _write(self, at: Position, info: StepInfo, ids: NDArray[np.int64] | None) -> Position:
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
            self._cached = CACHED_SHARDS if self._shards and self._shards[-1].slow else max(self._cached - 1, 0)
            direct = self._background and not self._cached
            self._shards.append(ShardFile(self._folder, number, self._layout, direct=direct))
        return self._shards[-1]

    def _finish_step(self) -> None:
        if self._job is not None:
            self._position = self._job.result()
            self._job = None

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
