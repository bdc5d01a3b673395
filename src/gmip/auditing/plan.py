"""What an audit of recorded runs is going to do: pieces, memory, bytes that travel and time, before anything runs."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmip.attacks.work import WorkPlan
from gmip.auditing.attack_runs import (
    Workplace,
    attack_background,
    choose_candidates,
    lacking_steps,
    opened_runs,
)
from gmip.auditing.settings import AuditConfig
from gmip.auditing.sources import TaskSource
from gmip.auditing.sources.recorded import Recorded
from gmip.errors import GmipError, GmipWarning, InvalidArgument, UnsupportedModel
from gmip.training.models import usable_device

if TYPE_CHECKING:
    from gmip.tasks import Task


@dataclass(frozen=True)
class PlannedAttack:
    """An attack on a run, and what it is going to do.

    work : None where the attack does not say, or cannot run: `error` says why.
    """

    run: str
    attack: str
    work: WorkPlan | None = None
    error: str | None = None

    def as_json(self, workers: int | None) -> dict[str, Any]:
        """Fields for programs; without the sums where nobody knows how many workers there are."""
        found: dict[str, Any] = {"run": self.run, "attack": self.attack, "error": self.error, "work": None}
        if self.work is not None:
            found["work"] = dataclasses.asdict(self.work)
            if workers is not None:
                sums = {"seconds": self.work.seconds(workers), "bytes_moved": self.work.bytes_moved(workers)}
                found["work"] |= sums
        return found


def plan_audit(config: AuditConfig, sources: Sequence[TaskSource], task: Task | None = None) -> list[PlannedAttack]:
    """What the attacks of an audit of recorded runs are going to do, without what an earlier attempt has finished.

    A piece of each is measured; nothing is trained, attacked or written.
    """
    if config.repeats > 1 or not all(isinstance(one, Recorded) for one in sources):
        raise InvalidArgument(
            "A plan is made for recorded runs, and this audit would train or read others first",
            remedy="pass recorded runs, and `repeats` = 1",
        )
    settings = config.model_copy(update={"device": usable_device(config.device)})
    work = Workplace(settings=settings, folder=Path(config.out), seed=config.seed or 0)
    runs, attacks = opened_runs(sources, work)
    found = []
    for run in runs:
        ids = choose_candidates(run.target, settings.candidates, work.seed)
        share = None if settings.budget is None else settings.budget / len(attacks)
        for attack in attacks:
            error: GmipError | None = lacking_steps(run, attack)
            plan = None
            if error is None:
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", GmipWarning)  # the audit says them
                        others = attack_background(run.task, run.target, attack, ids)
                        plan = attack.planned(run.task, run.target, ids, others, budget=share)
                except (InvalidArgument, UnsupportedModel) as problem:
                    error = problem
            found.append(PlannedAttack(run.name, attack.name, plan, None if error is None else str(error)))
    return found
