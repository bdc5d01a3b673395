"""What the reader and a writer that resumes both do first: the small files, and whether the last rows are whole."""

from __future__ import annotations

import warnings
from pathlib import Path

from gmip.errors import GmipWarning
from gmip.trace._files import JOURNAL, damaged
from gmip.trace._journal import Journal, read_journal
from gmip.trace._manifest import Manifest
from gmip.trace._shard import Layout, map_shard, shard_path

__all__ = ["load_journal", "rows_of_shard"]


def rows_of_shard(number: int, *, recorded: int, layout: Layout, complete: bool) -> range:
    """The numbers of rows that shard `number` may have in a trace of `recorded` rows."""
    filled = min(recorded - number * layout.rows, layout.rows)
    # The last shard of an open trace has room for rows to come, unless the writer died just before it was done.
    return range(filled, (filled if complete else layout.rows) + 1)


def load_journal(folder: Path, manifest: Manifest, *, limit: int | None = None, resuming: bool = False) -> Journal:
    """The journal (its first `limit` steps), the layout of every shard that it names checked.

    The rows of the last shard are checked too if the trace is open or to be resumed. A power cut may have left any of
    them unwritten: steps of an open trace from the first bad row on are left out, with a warning. All earlier shards
    were on disk before the last began.
    """
    journal = read_journal(folder / JOURNAL, manifest, limit=limit)
    layout = Layout.of(manifest.header, manifest.rows_per_shard)
    recorded = len(journal.digests)
    num_shards = -(-recorded // layout.rows)
    for number in range(num_shards):
        rows = rows_of_shard(number, recorded=recorded, layout=layout, complete=manifest.complete and not resuming)
        shard = map_shard(shard_path(folder, number), layout, rows=rows)
    if not recorded or (manifest.complete and not resuming):
        return journal
    path, first = shard_path(folder, num_shards - 1), (num_shards - 1) * layout.rows
    for position in range(first, recorded):
        if shard.digest(position - first) != journal.digests[position]:
            if manifest.complete:
                raise damaged(path, f"row {position - first} is not what was written")
            return _cut(folder, manifest, journal, position, path)
    return journal


def _cut(folder: Path, manifest: Manifest, journal: Journal, position: int, shard: Path) -> Journal:
    step = [info.index for info in journal.infos if info.recorded][position]
    warnings.warn(
        f"{shard} was not written in full (a power cut?) or was altered: the trace is read up to step {step}, and the "
        f"{len(journal.infos) - step} steps from there on are left out.",
        GmipWarning,
        stacklevel=4,
    )
    return read_journal(folder / JOURNAL, manifest, limit=step)
