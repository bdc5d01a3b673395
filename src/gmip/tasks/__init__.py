"""Tasks: model + loss + data that can be trained and audited; built-in ones and the user's own."""

from __future__ import annotations

from gmip._extras import needs

needs("gmip.tasks", "torch")

from gmip.tasks.catalog import load, names
from gmip.tasks.person_records import by_person
from gmip.tasks.records import read_column, read_records
from gmip.tasks.task import Examples, Split, Task, cross_entropy

__all__ = ["Examples", "Split", "Task", "by_person", "cross_entropy", "load", "names", "read_column", "read_records"]
