"""The steps of a trace as they are found on disk: which of them can be trusted."""

from __future__ import annotations

import bisect
import warnings
from pathlib import Path

from gmip.errors import GmipWarning, TraceError
from gmip.trace._batches import check_size, read_batch
from gmip.trace._journal import JOURNAL, Journal, read_journal
from gmip.trace._manifest import Manifest, damaged
from gmip.trace._shards import Layout, map_shard, rows_of_shard, shard_path

__all__ = ["load_journal"]


def load_journal(folder: Path, manifest: Manifest, *, limit: int | None = None, resuming: bool = False) -> Journal:
    """The journal (its first `limit` steps), the layout of every file that it names checked.

    In a trace that is open or to be resumed, rows and ids are checked too, but for the steps of which the journal says
    that they were on disk. A power cut may have left any other unwritten: steps of an open trace from the first bad one
    on are left out, with a warning.
    """
    journal = read_journal(folder / JOURNAL, manifest, limit=limit)
    done = manifest.complete and not resuming
    if done:
        check_size(folder, journal.num_ids)
    bad = [found for check in (_bad_row, _bad_batch) if (found := check(folder, manifest, journal, done)) is not None]
    if not bad:
        return journal
    step, error = min(bad, key=lambda found: found[0])
    if manifest.complete or step < journal.synced:
        raise error
    warnings.warn(
        f"{error.problem}, perhaps by a power cut: the trace is read up to step {step}, and the "
        f"{len(journal.infos) - step} steps from there on are left out.",
        GmipWarning,
        stacklevel=3,
    )
    return read_journal(folder / JOURNAL, manifest, limit=step)


def _bad_row(folder: Path, manifest: Manifest, journal: Journal, done: bool) -> tuple[int, TraceError] | None:
    """The first step whose row is not what was written, and what is wrong."""
    layout, recorded = Layout.of(manifest.header, manifest.rows_per_shard), journal.recorded
    unsynced = len(recorded) if done else bisect.bisect_left(recorded, journal.synced)
    for number in range(-(-len(recorded) // layout.rows)):
        path, first = shard_path(folder, number), number * layout.rows
        position = first
        try:
            rows = rows_of_shard(number, recorded=len(recorded), layout=layout, complete=done)
            shard = map_shard(path, layout, rows=rows)
            for position in range(max(first, unsynced), min(first + layout.rows, len(recorded))):
                if not shard.has(position - first, journal.digests[position]):
                    raise damaged(path, f"row {position - first} is not what was written")
        except TraceError as error:
            return recorded[position], error
    return None


def _bad_batch(folder: Path, manifest: Manifest, journal: Journal, done: bool) -> tuple[int, TraceError] | None:
    """`_bad_row` for the ids."""
    for step, batch in journal.batches.items():
        if step >= journal.synced and not done:
            try:
                read_batch(folder, batch)
            except TraceError as error:
                return step, error
    return None
