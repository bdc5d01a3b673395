"""What of a result can be passed on: no record, no file, no seed."""

from __future__ import annotations

from typing import Final

from gmip.auditing.schema import AttackOutcome, AuditResult, RunAudit

__all__ = ["shareable"]

_PRIVATE_FACTS: Final = frozenset({"folder", "guessed_seed"})


def shareable(result: AuditResult) -> AuditResult:
    """The result without identifiers of records, paths, seeds, commands and settings.

    Guarantees
    ----------
    Removed are the exposed records, all paths, the seed, the command, the settings and the fingerprints of the data,
    and sentences of attacks that name the folder of the run. Names of runs, tasks and groups stay: whoever chose them
    must know whether they can be shown. How many members were found, and by which attack, is what a report is for.
    """
    provenance = result.provenance.model_copy(
        update={"command": "", "seed": 0, "fingerprints": {}, "config": {}, "platform": ""}
    )
    return result.model_copy(update={"runs": tuple(map(_run, result.runs)), "provenance": provenance})


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
