"""Tasks: model + loss + data that can be trained and audited; built-in ones and the user's own."""

from __future__ import annotations

from gmip.tasks.base import Examples, Recipe, Split, Task, cross_entropy
from gmip.tasks.registry import load, names

__all__ = ["Examples", "Recipe", "Split", "Task", "cross_entropy", "load", "names"]
