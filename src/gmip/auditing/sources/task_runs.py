"""Sources that need a task: a recorded run, and the released weights of a model of which nothing was recorded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gmip.tasks import Task

__all__ = ["Recorded", "Released"]


@dataclass(frozen=True, eq=False)
class Recorded:
    """A run that `gmip train` or `gmip.record` left in a folder.

    Attributes
    ----------
    path : its folder.
    task : the task, its name, or path/to/file.py:make_task.
    name : what reports call it; None: the folder's name.
    """

    path: str | os.PathLike[str]
    task: str | Task
    name: str | None = None

    def settings(self) -> dict[str, Any]:
        """The run as audit.yaml writes it."""
        return {"path": os.fspath(self.path), "name": self.name}


@dataclass(frozen=True, eq=False)
class Released:
    """Released weights, and who was in.

    Attributes
    ----------
    weights : a file or folder.
    members, non_members : files with records or rows of the task's pool, or rows.
    task, name : as of `Recorded`.
    """

    weights: str | os.PathLike[str]
    members: str | os.PathLike[str] | Sequence[int]
    non_members: str | os.PathLike[str] | Sequence[int]
    task: str | Task
    name: str | None = None

    def settings(self) -> dict[str, Any]:
        """The model as audit.yaml writes it."""
        return {
            "model": os.fspath(self.weights),
            "members": _plain(self.members),
            "non_members": _plain(self.non_members),
            "name": self.name,
        }


def _plain(given: str | os.PathLike[str] | Sequence[int]) -> str | list[int]:
    return os.fspath(given) if isinstance(given, (str, os.PathLike)) else [int(row) for row in given]
