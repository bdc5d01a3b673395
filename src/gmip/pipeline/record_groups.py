"""To which group a record belongs: by the task, by its class, or by a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gmip import _validate as check
from gmip.auditing import SUFFIXES, Groups, read_columns
from gmip.errors import InvalidArgument
from gmip.tasks import Task

__all__ = ["RecordGroups", "record_groups"]

CLASS: Final = "class"
_MOST: Final = 1000
_UNKNOWN: Final = "(not known)"


@dataclass(frozen=True, eq=False)
class RecordGroups:
    """What the groups are, and of each record of the pool, shape (n,), the place of its group in `names`."""

    name: str
    codes: NDArray[np.intp]
    names: tuple[str, ...]

    def of(self, ids: NDArray[Any]) -> Groups:
        """The groups of the records with these ids; only those that they belong to."""
        found, codes = np.unique(self.codes[ids], return_inverse=True)
        return Groups(codes.astype(np.intp), tuple(self.names[code] for code in found.tolist()))


def record_groups(task: Task, wanted: str | None) -> RecordGroups | None:
    """By a name in `task.groups`, "class", or a file with columns id and group; None: the first of the task's groups,
    else its classes, else there are none."""
    if wanted is None:
        first = next(iter(task.groups), None)
        return _classes(task) if first is None else _coded(first, [str(cell) for cell in task.groups[first]])
    if wanted in task.groups:
        return _coded(wanted, [str(cell) for cell in task.groups[wanted]])
    if wanted == CLASS:
        found = _classes(task)
        if found is None:
            raise InvalidArgument(
                f"needs classes, and the targets of task {task.name!r} are none", argument="group_by", value=wanted
            )
        return found
    if Path(wanted).suffix.lower() in SUFFIXES:
        return _from_file(task, Path(wanted).expanduser())
    known = [*task.groups, CLASS]
    raise InvalidArgument(
        f"is not among the groups of task {task.name!r}{check.did_you_mean(wanted, known)}",
        argument="group_by",
        value=wanted,
        remedy=f"pass {' or '.join(map(repr, known))}, or a file with columns id and group",
    )


def _classes(task: Task) -> RecordGroups | None:
    """The class of each record, where the task has classes."""
    targets = task.pool.targets.detach().cpu().numpy()
    if targets.ndim != 1 or targets.dtype.kind not in "iub":
        return None
    names, codes = np.unique(targets, return_inverse=True)
    if not 2 <= names.size <= _MOST:
        return None
    return RecordGroups(CLASS, codes.astype(np.intp), tuple(map(str, names.tolist())))


def _coded(name: str, texts: Sequence[str]) -> RecordGroups:
    names, codes = np.unique(np.array(texts, dtype=np.str_), return_inverse=True)
    if names.size > _MOST:
        raise InvalidArgument(
            f"has {names.size:,} different groups under {name!r}",
            argument="groups",
            remedy=f"name at most {_MOST:,} groups, not records",
        )
    return RecordGroups(name, codes.astype(np.intp), tuple(text or "(empty)" for text in names.tolist()))


def _from_file(task: Task, path: Path) -> RecordGroups:
    table = read_columns(path)
    lower = {name.strip().lower(): name for name in table}
    if "id" not in lower or len(table) < 2:
        raise InvalidArgument(
            f"{path} needs columns id (row of the pool) and group; it has {check.listed(list(table)[:12])}",
            argument="group_by",
        )
    column = lower.get("group") or next(name for name in table if name != lower["id"])
    texts = [_UNKNOWN] * len(task.pool)
    for cell, text in zip(table[lower["id"]], table[column], strict=True):
        try:
            row = int(str(cell))
        except ValueError:
            row = -1
        if not 0 <= row < len(texts):
            raise InvalidArgument(
                f"{path} has the id {str(cell)[:40]!r}, and the pool has rows 0 to {len(texts) - 1}",
                argument="group_by",
                remedy="write rows of the task's pool",
            )
        texts[row] = str(text)
    return _coded(column, texts)
