"""What of a result can be passed on: no record, no file, no seed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Final

from gmip.auditing.schema import AttackOutcome, AuditResult, GroupOutcome, LeftOut, NotTried, RunAudit, automatic_title

__all__ = ["shareable", "unnamed"]

_PRIVATE_FACTS: Final = frozenset({"folder"})
_FEWEST: Final = 10  # members, and non-members: smaller groups are not named
_PATH: Final = re.compile(r"""'[^']*[/\\][^']*'|"[^"]*[/\\][^"]*"|[^\s'"(,;]*[/\\][^\s'"),;]*""")
_REDACTED: Final = "(a path)"


def shareable(result: AuditResult) -> AuditResult:
    """The result without identifiers of records, paths, seeds, commands and settings.

    Guarantees
    ----------
    Removed are the exposed records, all paths, the seed, the command, the settings and the fingerprints of the data,
    and names that were taken from files and folders (`unnamed`). Warnings stay, without the paths in them. Names of
    tasks and groups, and names and titles that somebody gave, stay: whoever chose them must know whether they can be
    shown. Groups with fewer than 10 members or non-members become one row without names. How many members were
    found, and by which attack, is what a report is for.
    """
    provenance = result.provenance.model_copy(
        update={"command": "", "seed": 0, "fingerprints": {}, "config": {}, "platform": ""}
    )
    result = unnamed(result)
    return result.model_copy(update={"runs": tuple(map(_run, result.runs)), "provenance": provenance})


def unnamed(result: AuditResult) -> AuditResult:
    """The result with neutral names for runs that are called like their file or folder, in the title, too."""
    runs = []
    for number, run in enumerate(result.runs):
        if _is_from_path(run):
            run = run.model_copy(update={"name": "the run" if len(result.runs) == 1 else f"run {number + 1}"})
        runs.append(run)
    title = result.title
    if title == automatic_title(result.runs):
        title = automatic_title(result.runs, [run.name for run in result.runs if not run.task and _is_from_path(run)])
    return result.model_copy(update={"title": title, "runs": tuple(runs)})


def _is_from_path(run: RunAudit) -> bool:
    """Whether nobody gave the name: audits take that of a file or folder."""
    if run.path is None:
        return False
    path = PurePath(run.path.replace("\\", "/"))
    return re.sub(r" \(\d+\)$", "", run.name) in (path.stem, path.name)


def _run(run: RunAudit) -> RunAudit:
    def kept(words: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_without_paths(one, run.path) for one in words)

    def attack(one: AttackOutcome) -> AttackOutcome:
        facts = {name: value for name, value in one.facts.items() if name not in _PRIVATE_FACTS}
        return one.model_copy(update={"facts": facts, "guessed_seed": None, "notes": kept(one.notes)})

    def not_tried(one: NotTried) -> NotTried:
        return one if one.problem is None else one.model_copy(update={"problem": kept((one.problem,))[0]})

    return run.model_copy(
        update={
            "path": None,
            "exposed": (),
            "exposed_by": None,
            "attacks": tuple(map(attack, run.attacks)),
            "warnings": kept(run.warnings),
            "left_out": tuple(one.model_copy(update={"value": None, **_hidden(one, kept)}) for one in run.left_out),
            "groups": _folded(run.groups),
            "commands": None,
            "tried_left_out": tuple(map(not_tried, run.tried_left_out)),
        }
    )


def _hidden(one: LeftOut, kept: Callable[[tuple[str, ...]], tuple[str, ...]]) -> dict[str, str]:
    return {
        name: kept((words,))[0]
        for name, words in (("problem", one.problem), ("remedy", one.remedy))
        if words is not None
    }


def _without_paths(words: str, path: str | None) -> str:
    for name in () if path is None else (path, PurePath(path).name):
        if PurePath(name).suffix or "/" in name or "\\" in name:
            words = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", _REDACTED, words)
    return _PATH.sub(lambda found: _REDACTED + "".join(re.findall(r"[.:]+$", found[0])), words)


def _folded(groups: Sequence[GroupOutcome]) -> tuple[GroupOutcome, ...]:
    """The small groups, in which counts are about persons, become one row at the end."""
    small = [one for one in groups if min(one.members, one.non_members) < _FEWEST]
    if not small:
        return tuple(groups)
    rest = GroupOutcome(
        group="smaller groups",
        members=sum(one.members for one in small),
        non_members=sum(one.non_members for one in small),
        folded=sum(one.folded or 1 for one in small),
    )
    return (*(one for one in groups if one not in small), rest)
