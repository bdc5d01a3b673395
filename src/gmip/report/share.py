"""What of a result can be passed on: no record, no file, no seed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any, Final

from gmip.auditing.schema import (
    AttackOutcome,
    AuditResult,
    GroupOutcome,
    Histogram,
    ModelLimit,
    OmittedAttack,
    RunAudit,
    UntriedWay,
    automatic_title,
)

_PRIVATE_FACTS: Final = frozenset({"folder"})
FEWEST: Final = 10  # members, and non-members: smaller groups are not named
_PATH: Final = re.compile(r"""'[^']*[/\\][^']*'|"[^"]*[/\\][^"]*"|[^\s'"(,;]*[/\\][^\s'"),;]*""")
_REDACTED: Final = "(a path)"


def shareable(result: AuditResult, *, fewest: int = FEWEST) -> AuditResult:
    """The result without identifiers of records, paths, seeds, commands and settings.

    Guarantees
    ----------
    Removed are the exposed records, all paths, the seed, the command, the settings and the fingerprints of the data,
    and names that were taken from files and folders (`unnamed`). Warnings stay, without the paths in them. Names of
    tasks and groups, and names and titles that somebody gave, stay: whoever chose them must know whether they can be
    shown. Groups with fewer than `fewest` members or non-members become one row without names, together with the next
    larger ones until that row has as many; bars of the histogram are joined until each counts as many or nobody. How
    many members were found, and by which attack, is what a report is for: curves have a step for each candidate.
    """
    provenance = result.provenance.model_copy(
        update={"command": "", "seed": 0, "fingerprints": {}, "config": {}, "platform": ""}
    )
    result = unnamed(result)
    runs = tuple(_run(run, fewest) for run in result.runs)
    return result.model_copy(update={"runs": runs, "provenance": provenance})


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


def _run(run: RunAudit, fewest: int) -> RunAudit:
    def kept(words: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_without_paths(one, run.path) for one in words)

    def attack(one: AttackOutcome) -> AttackOutcome:
        facts = {name: value for name, value in one.facts.items() if name not in _PRIVATE_FACTS}
        return one.model_copy(update={"facts": facts, "guessed_seed": None, "notes": kept(one.notes)})

    def hidden(one: UntriedWay | ModelLimit) -> Any:
        return one if one.problem is None else one.model_copy(update={"problem": kept((one.problem,))[0]})

    return run.model_copy(
        update={
            "path": None,
            "exposed": (),
            "exposed_by": None,
            "attacks": tuple(map(attack, run.attacks)),
            "warnings": kept(run.warnings),
            "left_out": tuple(one.model_copy(update={"value": None, **_hidden(one, kept)}) for one in run.left_out),
            "groups": _folded(run.groups, fewest),
            "histogram": _joined(run.histogram, fewest),
            "commands": None,
            "tried_left_out": tuple(map(hidden, run.tried_left_out)),
            "limits": tuple(map(hidden, run.limits)),
        }
    )


def _hidden(one: OmittedAttack, kept: Callable[[tuple[str, ...]], tuple[str, ...]]) -> dict[str, str]:
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


def _folded(groups: Sequence[GroupOutcome], fewest: int) -> tuple[GroupOutcome, ...]:
    """The small groups, in which counts are about persons, become one row at the end. Where they are together still too
    few, the next larger ones join them: totals minus the groups that are shown would tell the rest."""
    by_size = sorted(groups, key=_smaller_side)
    small: list[GroupOutcome] = []
    while by_size and (_smaller_side(by_size[0]) < fewest or (small and min(_sums(small)) < fewest)):
        small.append(by_size.pop(0))
    if not small:
        return tuple(groups)
    members, non_members = _sums(small)
    rest = GroupOutcome(
        group="smaller groups",
        members=members,
        non_members=non_members,
        folded=sum(one.folded or 1 for one in small),
    )
    return (*(one for one in groups if one not in small), rest)


def _smaller_side(one: GroupOutcome) -> int:
    return min(one.members, one.non_members)


def _sums(groups: Sequence[GroupOutcome]) -> tuple[int, int]:
    return sum(one.members for one in groups), sum(one.non_members for one in groups)


def _joined(found: Histogram | None, fewest: int) -> Histogram | None:
    """The histogram with neighbouring bars joined until each counts nobody, or `fewest` or more, of either side; None
    where not even all of them together do."""
    if found is None:
        return None
    bars: list[tuple[float, int, int]] = []  # right edge, members, others
    open_ = False
    for bar in zip(found.edges[1:], found.members, found.non_members, strict=True):
        bars.append(_both(bars.pop(), bar) if open_ else bar)
        open_ = _small(bars[-1], fewest)
    while _small(bars[-1], fewest) and len(bars) > 1:  # what is left over goes to those before it
        last = bars.pop()
        bars.append(_both(bars.pop(), last))
    if _small(bars[-1], fewest):
        return None
    edges, members, others = zip(*bars, strict=True)
    return Histogram(edges=(found.edges[0], *edges), members=members, non_members=others)


def _both(left: tuple[float, int, int], right: tuple[float, int, int]) -> tuple[float, int, int]:
    return right[0], left[1] + right[1], left[2] + right[2]


def _small(bar: tuple[float, int, int], fewest: int) -> bool:
    return any(0 < one < fewest for one in bar[1:])
