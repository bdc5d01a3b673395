"""What can be audited: every source yields the same `Evidence`."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from gmip._progress import Watch, silent

if TYPE_CHECKING:
    from gmip.auditing.attack_runs import AuditedRun, Workplace
    from gmip.auditing.judge import Evidence
    from gmip.tasks import Task

__all__ = ["Source", "TaskSource"]


class Source(Protocol):
    """Something that can be audited."""

    def evidence(self, seed: int = 0, watch: Watch = silent) -> Evidence:
        """All that is known about it; `seed` is of whatever is drawn for that."""


class TaskSource(ABC):
    """A source that needs a task: a recorded run, released weights, or a run to train.

    Attributes
    ----------
    task : the task, its name, or path/to/file.py:make_task.
    several_models : the attacks see models of several moments.
    """

    task: str | Task
    several_models: ClassVar[bool] = False

    def evidence(self, seed: int = 0, watch: Watch = silent) -> Evidence:
        """What is known about the run, and what attacks find."""
        from gmip.auditing.attack_runs import Workplace, evidence_of
        from gmip.auditing.settings import AttackSettings

        with tempfile.TemporaryDirectory(prefix="gmip-audit-") as folder:
            work = Workplace(settings=AttackSettings(), folder=Path(folder), seed=seed, watch=watch)
            return next(evidence_of([self], work))[1]

    @property
    def task_name(self) -> str | None:
        """The task as the command line names it; None: it has no name there."""
        return self.task if isinstance(self.task, str) else None

    @abstractmethod
    def called(self) -> str:
        """What reports call the run, if no other run is called so."""

    @abstractmethod
    def plain(self) -> dict[str, Any]:
        """The run as audit.yaml writes it."""

    @abstractmethod
    def opened(self, task: Task, name: str, number: int, work: Workplace) -> AuditedRun:
        """The run, number `number` of the audit, after a check that it can be audited; trained if it has to be."""
