"""The writing side of a trace."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gmip import _validate as check
from gmip._io import make_folder, remove_leftovers, writing
from gmip.errors import FileError, InvalidArgument, TraceError, TraceMismatch
from gmip.trace._batches import BATCHES, BatchFile
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
from gmip.trace._steps import (
    JOURNAL,
    JournalFile,
    Layout,
    Shard,
    is_shard,
    load_journal,
    map_shard,
    next_line,
    remove_shards,
    rows_per_shard,
    shard_path,
    write_shard,
)
from gmip.trace.schema import Header

__all__ = ["TraceWriter"]

_SYNC_SECONDS = 5.0


class TraceWriter:
    """Records a training run into a folder, one optimizer step at a time.

        with TraceWriter.create(path, header, members=ids) as writer:
            for ...:
                parameters, gradient = writer.row()  # filled in place
                parameters[:] = ...
                gradient[:] = ...
                writer.commit(batch_size=64)

    A trace names the members and its recipe holds the seed that undoes the noise: the folder is as sensitive as the
    data. Keep it where the data are kept.

    Guarantees
    ----------
    The row is filled first and its journal line written after; the line is the commit. A process that dies, at whatever
    moment and by whatever signal, loses at most the step in flight. Files are forced to disk when a shard is full, at
    the end, and in between about every 5 seconds; a power cut loses at most what the operating system had not written,
    and the checksums in the journal tell which steps those are. Memory does not grow with the number of steps. A second
    writer of the same folder is refused where the file system can lock files.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        journal: JournalFile,
        *,
        chain: str,
        num_steps: int = 0,
        num_recorded: int = 0,
        num_ids: int = 0,
    ) -> None:
        """For `create` and `resume`."""
        self._folder = folder
        self._manifest = manifest
        self._journal: JournalFile | None = journal
        self._layout = Layout.of(manifest.header, manifest.rows_per_shard)
        self._batches = BatchFile(folder / BATCHES, num_ids=num_ids)
        self._chain = chain
        self._num_steps = num_steps
        self._shard_number, self._row = divmod(num_recorded, manifest.rows_per_shard)
        self._shard: Shard | None = None
        self._pending = False
        self._last_sync = time.monotonic()
        self._nominal = float(manifest.header.batch_size)
        self._poisson = manifest.header.sampling == "poisson"

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
        folder = Path(path)
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
        return cls(folder, manifest, journal, chain=manifest.id)

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
        that step writes them anew. A complete trace becomes an open one and loses its final state. Those of `header`,
        `members` and `non_members` that are given must be those of the trace: else `TraceMismatch`, and the trace stays
        as it is.
        """
        given = check_membership(members, non_members)
        folder = Path(path)
        read_manifest(folder)  # a folder without a trace is best told as such
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
            if manifest != manifest.reopened():  # complete, or of an older version of the format
                manifest = manifest.reopened()
                write_manifest(folder, manifest)
            with writing(folder / FINAL):
                (folder / FINAL).unlink(missing_ok=True)
            journal.truncate(steps.size)
            num_recorded = len(steps.digests)
            remove_shards(folder, first=-(-num_recorded // manifest.rows_per_shard))
            remove_leftovers(folder, lambda name: name in (MANIFEST, MEMBERSHIP, FINAL) or is_shard(name))
        except BaseException:
            journal.close()
            raise
        return cls(
            folder,
            manifest,
            journal,
            chain=steps.chain,
            num_steps=len(steps.infos),
            num_recorded=num_recorded,
            num_ids=steps.num_ids,
        )

    @property
    def path(self) -> Path:
        return self._folder

    @property
    def header(self) -> Header:
        return self._manifest.header

    @property
    def num_steps(self) -> int:
        """Steps committed or skipped so far: the index of the next one."""
        return self._num_steps

    def row(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Where the next step goes: (parameters before it, mean gradient), each of shape (d,), to be filled in place.

        The arrays are the file itself. They are unspecified until filled, must be filled whole, and not be written to
        after `commit`.
        """
        self._opened()
        if self._row == self._layout.rows:  # the disk refused to sync when the shard became full: once more
            self._next_shard()
        shard = self._shard or self._open_shard()
        self._pending = True
        return shard.values[self._row, 0], shard.values[self._row, 1]

    def commit(
        self,
        *,
        batch_size: int,
        divisor: float | None = None,
        noise_std: float = 0.0,
        clip_factor: float | None = None,
        ids: ArrayLike | None = None,
    ) -> None:
        """The row just filled becomes step `num_steps`. See `StepInfo` for the arguments.

        `divisor` is the nominal batch size under "poisson", else batch_size, unless given. Only a "poisson" batch may
        be empty. `ids`, of shape (n,), are the rows of the data that were in the batch.
        """
        if not self._pending or self._shard is None:
            self._opened()
            raise InvalidArgument("commit needs a row", remedy="call row() and fill it before each commit")
        digest = self._shard.digest(self._row).hex()
        self._append(batch_size, divisor, noise_std, clip_factor, ids, (self._shard_number, self._row, digest))
        self._row += 1
        if self._row == self._layout.rows:
            self._next_shard()
        else:
            self._sync_if_due()

    def skip(
        self,
        *,
        batch_size: int,
        divisor: float | None = None,
        noise_std: float = 0.0,
        clip_factor: float | None = None,
        ids: ArrayLike | None = None,
    ) -> None:
        """Counts a step without storing it; the arguments are those of `commit`."""
        self._append(batch_size, divisor, noise_std, clip_factor, ids, None)
        self._sync_if_due()

    def sync(self) -> None:
        """Waits until every step so far is on disk. Worth a call before a checkpoint that relies on them."""
        journal = self._opened()
        if self._shard is not None:
            with writing(shard_path(self._folder, self._shard_number)):
                self._shard.sync()
        self._batches.sync()
        journal.sync()
        self._last_sync = time.monotonic()

    def close(self, final_state: Mapping[str, NDArray[Any]] | None = None) -> None:
        """Completes the trace, with the final state of the model if given. Closing again does nothing."""
        if self._journal is None:
            if final_state is not None:
                raise TraceError(
                    f"The writer of {self._folder} is closed, `final_state` comes too late", remedy="resume the trace"
                )
            return
        self.sync()
        files = {name: checksum for name, checksum in self._manifest.files.items() if name != FINAL}
        if final_state is not None:
            files |= write_final(self._folder, final_state)
        self._trim_shard()
        manifest = self._manifest.completed(num_steps=self._num_steps, chain=self._chain, files=files)
        write_manifest(self._folder, manifest)
        self._release()

    def abandon(self) -> None:
        """Lets go of the files and leaves the trace open: every step so far can be read, and the run resumed."""
        if self._journal is not None:
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

    def _opened(self) -> JournalFile:
        if self._journal is None:
            raise TraceError(f"The writer of {self._folder} is closed", remedy="resume the trace to add steps")
        return self._journal

    def _release(self) -> None:
        journal, self._journal = self._opened(), None
        self._shard, self._pending = None, False
        self._batches.close()
        journal.close()

    def _append(
        self,
        batch_size: Any,
        divisor: Any,
        noise_std: Any,
        clip_factor: Any,
        ids: ArrayLike | None,
        row: tuple[int, int, str] | None,
    ) -> None:
        journal = self._opened()
        # Plain numbers pass quickly: this runs in every step of a training loop.
        if type(batch_size) is not int or batch_size < 1:
            batch_size = (_count_or_zero if self._poisson else check.count)("batch_size", batch_size)
        if divisor is None:
            divisor = self._nominal if self._poisson else float(batch_size)
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
        batch = None if ids is None else self._batches.place(check_indices("ids", ids))
        line, chain = next_line(
            self._chain,
            index=self._num_steps,
            batch_size=batch_size,
            divisor=divisor,
            noise_std=noise_std,
            clip_factor=clip_factor,
            batch=batch,
            row=row,
        )
        journal.append(line)
        if batch is not None:
            self._batches.accept(batch)
        self._chain = chain
        self._num_steps += 1
        self._pending = False

    def _sync_if_due(self) -> None:
        if time.monotonic() - self._last_sync > _SYNC_SECONDS:
            self.sync()

    def _next_shard(self) -> None:
        self.sync()
        self._shard, self._shard_number, self._row = None, self._shard_number + 1, 0

    def _open_shard(self) -> Shard:
        path, layout = shard_path(self._folder, self._shard_number), self._layout
        if self._row:
            self._resize_shard(path, layout.rows)  # if it was cut to size by a writer that closed the trace
        else:
            write_shard(path, layout, layout.rows)
        self._shard = map_shard(path, layout, rows=range(layout.rows, layout.rows + 1), writable=True)
        return self._shard

    def _trim_shard(self) -> None:
        """Gives the last shard exactly its rows."""
        path, row = shard_path(self._folder, self._shard_number), self._row
        self._shard, self._pending = None, False
        if row:
            self._resize_shard(path, row)
        else:
            with writing(path):
                path.unlink(missing_ok=True)

    def _resize_shard(self, path: Path, rows: int) -> None:
        found = map_shard(path, self._layout, rows=range(self._row, self._layout.rows + 1))
        if found.rows != rows:
            filled = found.raw[: self._row].copy()
            del found  # Windows does not replace a file that is mapped
            write_shard(path, self._layout, rows, filled)


def _refuse_trace(folder: Path) -> None:
    journal = folder / JOURNAL
    with writing(folder):
        begun = journal.exists() and journal.stat().st_size > 0
        found = begun or (folder / MANIFEST).exists() or shard_path(folder, 0).exists()
    if found:
        raise TraceError(f"{folder} already holds a trace", remedy="choose another path, or resume it")


def _count_or_zero(name: str, value: Any) -> int:
    return check.count(name, value) if check.number(name, value) != 0.0 else 0
