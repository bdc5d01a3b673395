"""What of a result can be passed on: no record, no file, no seed."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Final

from gmip.auditing.schema import AttackOutcome, AuditResult, RunAudit

__all__ = ["shareable", "unnamed"]

_TITLE: Final = "Membership audit"
_PRIVATE_FACTS: Final = frozenset({"folder", "guessed_seed"})


def shareable(result: AuditResult) -> AuditResult:
    """The result without identifiers of records, paths, seeds, commands and settings.

    Guarantees
    ----------
    Removed are the exposed records, all paths, the seed, the command, the settings and the fingerprints of the data,
    sentences of attacks that name the folder of the run, and names that were taken from files and folders (`unnamed`).
    Names of tasks and groups, and names and titles that somebody gave, stay: whoever chose them must know whether they
    can be shown. How many members were found, and by which attack, is what a report is for.
    """
    provenance = result.provenance.model_copy(
        update={"command": "", "seed": 0, "fingerprints": {}, "config": {}, "platform": ""}
    )
    result = unnamed(result)
    return result.model_copy(update={"runs": tuple(map(_run, result.runs)), "provenance": provenance})


def unnamed(result: AuditResult) -> AuditResult:
    """The result with neutral names for runs that are called like their file or folder, in the title, too."""
    title, runs = result.title, []
    for number, run in enumerate(result.runs):
        if _is_from_path(run):
            title = title.replace(f"{_TITLE} of {run.name}", _TITLE)
            run = run.model_copy(update={"name": "the run" if len(result.runs) == 1 else f"run {number + 1}"})
        runs.append(run)
    title = title.replace(f"{_TITLE} and {_TITLE}", f"{_TITLE}s")
    return result.model_copy(update={"title": title, "runs": tuple(runs)})


def _is_from_path(run: RunAudit) -> bool:
    """Whether nobody gave the name: `gmip audit` and `gmip.audit_scores` take that of a file or folder."""
    if run.path is None:
        return False
    path = PurePath(run.path.replace("\\", "/"))
    return re.sub(r" \(\d+\)$", "", run.name) in (path.stem, path.name)


def _run(run: RunAudit) -> RunAudit:
    def kept(words: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(one for one in words if "/" not in one and "\\" not in one)

    def attack(one: AttackOutcome) -> AttackOutcome:
        facts = {name: value for name, value in one.facts.items() if name not in _PRIVATE_FACTS}
        return one.model_copy(update={"facts": facts, "notes": kept(one.notes)})

    return run.model_copy(
        update={
            "path": None,
            "exposed": (),
            "exposed_by": None,
            "attacks": tuple(map(attack, run.attacks)),
            "warnings": kept(run.warnings),
            "advice": tuple(one.model_copy(update={"command": None}) for one in run.advice),
        }
    )
