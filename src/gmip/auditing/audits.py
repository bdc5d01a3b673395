"""The one verb: `gmip.audit` of a task's runs, or of sources that need no task."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from gmip._progress import Watch, silent
from gmip._validate import did_you_mean
from gmip.auditing.schema import AuditResult
from gmip.auditing.score_audit import Source, Standards, audit_sources
from gmip.auditing.sources.task_runs import Recorded, Released
from gmip.errors import InvalidArgument

if TYPE_CHECKING:
    from gmip.tasks import Task

__all__ = ["audit"]


def audit(
    source: str | Task | Source | Recorded | Released | Sequence[Source | Recorded | Released] = "digits",
    *,
    runs: Sequence[str | os.PathLike[str] | Mapping[str, Any]] | None = None,
    attacks: Sequence[str | Mapping[str, Any]] | None = None,
    watch: Watch | None = None,
    **settings: Any,
) -> AuditResult:
    """Does this model leak who was in it? Attack runs and compare with what was claimed.

    Parameters
    ----------
    source : `gmip.Recorded` or `gmip.Released`, or several of them, of one task; a task, its name, or
        path/to/file.py:make_task; or `gmip.Scores`, `gmip.Predictions` or `gmip.Estimator`, or several of these, which
        need no task and take the settings of `gmip.audit_scores`.
    runs : folders of recorded runs, or mappings with the settings of a run to train (name, recipe, target_mu, ...), or
        with a released `model` (weights, a file or folder), its `members` and `non_members` (files, or rows of the
        task's pool); None trains the task's own recipe.
    attacks : names, or mappings with name and options; None: see `gmip init`.
    watch : called with the name of each stage, returns a function of (done, total).
    settings : the others of `gmip init`: candidates, repeats, budget, seed, out, confidence, delta, fprs, claim_mu,
        claim_epsilon, group_by, target_tpr, attacker, try_advice, fail_above_tpr, shadows, device, title. With `out`,
        work is kept there and an interrupted audit goes on when repeated; without it nothing is kept. No report is
        written: `gmip.report.write_report(result, folder)` does.
    """
    sources = _sources(source)
    if sources:
        given = {"runs": runs, "attacks": attacks}
        wrong = next((name for name, value in given.items() if value is not None), None)
        if wrong is not None:
            raise InvalidArgument("is for runs of a task", argument=wrong, remedy="leave it out")
        title = settings.pop("title", None)
        return audit_sources(
            sources, _standards(settings), title=title, command="gmip.audit(...)", watch=watch or silent
        )
    from gmip.auditing.run_audits import audit_task

    of_task = _task_runs(source)
    if of_task:
        if runs is not None:
            raise InvalidArgument("are named by the sources already", argument="runs", remedy="leave it out")
        tasks = [one.task for one in of_task]
        if any(task != tasks[0] for task in tasks):
            raise InvalidArgument("are of several tasks", argument="source", remedy="audit those of one task together")
        source, runs = tasks[0], [one.settings() for one in of_task]
    return audit_task(source, runs=runs, attacks=attacks, watch=watch, **settings)  # type: ignore[arg-type]


def _sources(given: Any) -> list[Source]:
    """The sources among what can be audited; none: it is a task."""
    several = list(given) if isinstance(given, (list, tuple)) else [given]
    return several if all(hasattr(one, "evidence") for one in several) else []


def _task_runs(given: Any) -> list[Recorded | Released]:
    """The runs of a task among what can be audited; none: it is the task itself."""
    several = list(given) if isinstance(given, (list, tuple)) else [given]
    if not any(isinstance(one, (Recorded, Released)) for one in several):
        return []
    wrong = next((one for one in several if not isinstance(one, (Recorded, Released))), None)
    if wrong is not None:
        raise InvalidArgument(
            f"holds a {type(wrong).__name__} beside runs of a task", argument="source", remedy="audit it by itself"
        )
    return several


def _standards(settings: Mapping[str, Any]) -> Standards:
    known = [field.name for field in fields(Standards)]
    for name in settings:
        if name not in known:
            raise InvalidArgument(
                f"is not a setting{did_you_mean(name, known)}",
                argument=name,
                remedy=f"the settings are {', '.join([*known, 'title'])}",
            )
    return Standards(**settings)
