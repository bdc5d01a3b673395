"""Tasks, loaded once in a process: cells of one experiment share their data."""

from __future__ import annotations

from functools import lru_cache

from gmip.tasks import Task, load

__all__ = ["load_task"]


@lru_cache(maxsize=2)
def load_task(name: str) -> Task:
    """`gmip.tasks.load`, remembered."""
    return load(name)
