"""From scores to results: all about one run, whether it was recorded or only its scores are known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from gmip._io import Lock, make_folder
from gmip._progress import Progress
from gmip.accounting.tradeoff import TradeOff
from gmip.auditing.advice_schema import Advice
from gmip.auditing.attacker_answers import attacker_answers, leading_attack, with_groups
from gmip.auditing.check_schema import RunCheck
from gmip.auditing.groups import Groups, group_outcomes
from gmip.auditing.individual_promises import OwnMu, summarised
from gmip.auditing.outcomes import attack_outcome
from gmip.auditing.schema import (
    AttackerAnswer,
    AttackOutcome,
    AuditResult,
    Exposed,
    Promise,
    RunAudit,
    RunFacts,
    Sees,
    Verdict,
)
from gmip.auditing.suspicion import suspicion
from gmip.auditing.verdict import doubtful, gate, tpr_lower_bounds, unmatched, unverified, verdict
from gmip.errors import FileError, InvalidArgument
from gmip.stats import RunScores, ScoreSet, pool
from gmip.vocabulary import Rate

__all__ = [
    "Attacked",
    "Audited",
    "Candidate",
    "Candidates",
    "Criteria",
    "Labels",
    "Scored",
    "assemble",
    "hold_folder",
    "merged",
]

_MOST_EXPOSED: Final = 20


@dataclass(frozen=True, kw_only=True)
class Criteria:
    """By what an audit judges.

    Attributes
    ----------
    confidence, delta, fprs : of intervals and bounds; for epsilon; at which members found are reported.
    goal : what the advice aims at.
    limit : of the gate, or None.
    seed : of resampling.
    """

    confidence: float
    delta: float
    fprs: tuple[float, ...]
    goal: Rate
    limit: Rate | None
    seed: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Scored:
    """What one attack found in one run, how long it took, and of what it warned."""

    scores: ScoreSet
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()


NameOf = Callable[[NDArray[Any]], list[Any]]


class Candidate(NamedTuple):
    """A record that was attacked: who it is, what the strongest attack says about it, and the truth."""

    id: int | str
    member: bool
    score: float
    p_value: float | None = None
    posterior: float | None = None  # at even prior odds
    susceptibility: float | None = None
    group: str | None = None
    own_mu: float | None = None  # by its own gradients along the run


@dataclass(frozen=True, kw_only=True, eq=False)
class Attacked:
    """An attack (`needs` in words) and what it found in each repetition of a run.

    `knows` : the share of the members on a list that its attacker holds; more than 0: it is judged by the promise for
    such an attacker.
    """

    name: str
    title: str
    needs: tuple[str, ...]
    found: tuple[Scored, ...]
    sees: Sees = "gradients"
    knows: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Labels:
    """The truth about the candidates of one set of scores, in its order: who was in, and who belongs to which group.

    inside : array of shape (c,).
    """

    inside: NDArray[np.bool_]
    groups: Groups | None = None


@dataclass(frozen=True)
class Candidates(Sequence[Candidate]):
    """Candidates as a table, the most exposed first; `columns` are fields of `Candidate`, None where not known."""

    columns: Mapping[str, list[Any] | None]

    def __len__(self) -> int:
        return len(self.columns["score"] or ())

    @overload
    def __getitem__(self, row: int) -> Candidate: ...
    @overload
    def __getitem__(self, row: slice) -> list[Candidate]: ...
    def __getitem__(self, row: int | slice) -> Candidate | list[Candidate]:
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(len(self)))]
        known: dict[str, Any] = {name: values and values[row] for name, values in self.columns.items()}
        return Candidate(**known)


def hold_folder(folder: str | PathLike[str]) -> Lock:
    """Made if need be, and held for one audit at a time: another one is refused, with the process that holds it."""
    path = Path(folder)
    try:
        make_folder(path)
    except FileError as error:
        why = getattr(error.__cause__, "strerror", None) or "it cannot be written"
        raise InvalidArgument(
            f"cannot be made a folder ({why})", argument="out", value=str(folder), remedy="name another"
        ) from None
    return Lock(path / ".lock", wait=False, signed=True)


@dataclass(frozen=True, eq=False)
class Audited:
    """The result, and for each run all candidates with their scores, the most exposed first (for a CSV)."""

    result: AuditResult
    candidates: dict[str, Candidates]


def assemble(
    *,
    name: str,
    attacks: Sequence[Attacked],
    label: Callable[[int, ScoreSet], Labels],
    claimed: TradeOff | None,
    promises: tuple[Promise, ...],
    advise: Callable[[Verdict, Sequence[AttackOutcome], AttackerAnswer | None], tuple[Advice, ...]],
    criteria: Criteria,
    progress: Progress,
    task: str = "",
    path: str | None = None,
    facts: RunFacts | None = None,
    grouped_by: str | None = None,
    same_scale: bool = True,
    listed: TradeOff | None = None,
    own: OwnMu | None = None,
    check: RunCheck | None = None,
    name_of: NameOf | None = None,
) -> tuple[RunAudit, Candidates]:
    """All about one run, and its candidates with their scores by the attack that the first answer rests on, the most
    exposed first.

    Parameters
    ----------
    label : the truth about the candidates of some scores, which are of the repetition of that number.
    claimed : the curve that the verdict is about, the first of `promises`; None: nothing was promised.
    facts : what is known about the run.
    grouped_by : what the groups are, where `label` knows any.
    same_scale : whether scores of different repetitions can be compared.
    listed : what is promised to attackers who hold a list of members, by which alone they are judged.
    own : the mu of each candidate by its own gradients.
    check : of the record, where there is one.
    name_of : what candidates with these ids are called by those who know them.
    """
    labels = {one.name: [label(i, found.scores) for i, found in enumerate(one.found)] for one in attacks}
    pooled = {
        one.name: pool(
            [_split(found, known) for found, known in zip(one.found, labels[one.name], strict=True)],
            same_scale=same_scale,
        )
        for one in attacks
    }
    outcomes: list[AttackOutcome] = []
    for done, attack in enumerate(attacks):
        outcomes.append(
            attack_outcome(
                attack=attack.name,
                title=attack.title,
                needs=attack.needs,
                runs=pooled[attack.name],
                claimed=listed if attack.knows else claimed,
                sees=attack.sees,
                attacker_knows=attack.knows,
                fprs=criteria.fprs,
                confidence=criteria.confidence,
                tests=len(attacks),
                delta=criteria.delta,
                seconds=sum(one.seconds for one in attack.found),
                facts=attack.found[0].scores.facts,
                notes=_once(words for one in attack.found for words in one.warnings),
                seed=criteria.seed,
            )
        )
        progress(done + 1, len(attacks) + 1)
    # Whom the claimed promise is about, then those who hold a list.
    outcomes.sort(key=lambda one: (one.attacker_knows > 0.0, one.blind, -one.mu_lower, -one.auc.value, one.attack))
    judged = verdict(outcomes, claimed, listed=listed, fpr=criteria.goal.fpr, confidence=criteria.confidence)
    sound = check is None or check.passed
    if check is not None and check.noise_unchecked:
        judged = unverified(judged)
    doubt = suspicion(facts or RunFacts(), outcomes)
    doubted = doubt is not None and doubt.blinding
    if doubt is not None and doubted:
        judged = doubtful(judged, doubt.words)
    if check is not None and not check.passed:
        judged = unmatched(judged, check)
    limit = criteria.limit
    goal = criteria.goal
    answers = attacker_answers(
        outcomes,
        promises,
        goal=goal,
        lower=tpr_lower_bounds(pooled, fpr=goal.fpr, confidence=criteria.confidence, seed=criteria.seed),
        confidence=criteria.confidence,
        sound_record=sound,
        checked=check is None or not check.bound_unchecked,
        doubted=doubted,
    )
    leaks = any(one.mu_lower > 0.0 for one in outcomes)
    # Records and groups are told by the attack that the answer rests on.
    first = leading_attack(outcomes, answers) or outcomes[0]
    strongest = next(attack for attack in attacks if attack.name == first.attack)
    known = labels[strongest.name]
    inside = strongest.found[0].scores.ids[known[0].inside]
    candidates = _candidates(strongest.found[0].scores, known[0], own, _susceptibilities(attacks), name_of)
    groups = group_outcomes(
        [(found.scores.scores, each.inside, each.groups) for found, each in zip(strongest.found, known, strict=True)],
        fprs=tuple(sorted({*criteria.fprs, goal.fpr, *(() if limit is None else (limit.fpr,))})),
        confidence=criteria.confidence,
        tests=len(attacks),
        seed=criteria.seed,
        same_scale=same_scale,
    )
    answers = with_groups(answers, groups, first, goal)
    audited = RunAudit(
        name=name,
        path=path,
        task=task,
        facts=facts or RunFacts(),
        promises=promises,
        attacks=tuple(outcomes),
        verdict=judged,
        goal=goal,
        answers=answers,
        advice=advise(judged, outcomes, next(iter(answers), None)),
        exposed=_exposed(candidates),
        exposed_by=first.attack,
        groups=groups,
        grouped_by=grouped_by,
        check=check,
        individual=None if own is None else summarised(own, inside, promises),
        gate=None
        if limit is None
        else gate(
            pooled,
            limit=limit.tpr,
            fpr=limit.fpr,
            confidence=criteria.confidence,
            seed=criteria.seed,
            doubted=doubted and not leaks,
            groups=groups,
        ),
        suspect=None if doubt is None or leaks else doubt.words,
        warnings=_once(
            [
                *(() if doubt is None else (doubt.words,)),
                *(words for attack in attacks for one in attack.found for words in one.warnings),
            ]
        ),
    )
    progress(len(attacks) + 1, len(attacks) + 1)
    return audited, candidates


def _once(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))


def _split(found: Scored, known: Labels) -> RunScores:
    return RunScores(found.scores.scores[known.inside], found.scores.scores[~known.inside])


def _susceptibilities(attacks: Sequence[Attacked]) -> dict[Any, float]:
    """By id, of the first run, from whichever attack measured them."""
    measured = next((a.found[0].scores for a in attacks if a.found[0].scores.susceptibility is not None), None)
    if measured is None or measured.susceptibility is None:
        return {}
    return dict(zip(measured.ids.tolist(), measured.susceptibility.tolist(), strict=True))


def _candidates(
    one: ScoreSet, known: Labels, own: OwnMu | None, susceptibility: Mapping[Any, float], name_of: NameOf | None
) -> Candidates:
    order = np.argsort(-one.scores, kind="stable")
    optional = {
        "p_value": one.p_values,
        "posterior": None if one.calibration is None else one.posterior(0.5),
    }
    ids = one.ids[order].tolist()
    columns: dict[str, list[Any] | None] = {
        "id": ids if name_of is None else name_of(one.ids[order]),
        "member": known.inside[order].tolist(),
        "score": one.scores[order].tolist(),
        **{name: None if values is None else values[order].tolist() for name, values in optional.items()},
        "susceptibility": [susceptibility.get(id_) for id_ in ids] if susceptibility else None,
    }
    if known.groups is not None:
        columns["group"] = known.groups.of(order)
    if own is not None:
        columns["own_mu"] = own.of(one.ids[order]).tolist()
    return Candidates(columns)


def _exposed(candidates: Candidates) -> tuple[Exposed, ...]:
    some = [candidates[int(i)] for i in np.flatnonzero(candidates.columns["member"] or [])[:_MOST_EXPOSED]]
    return tuple(
        Exposed(
            id=one.id,
            score=one.score,
            p_value=one.p_value,
            posterior=one.posterior,
            susceptibility=one.susceptibility,
            group=one.group,
            own_mu=one.own_mu if one.own_mu is not None and math.isfinite(one.own_mu) else None,
        )
        for one in some
    )


def merged(first: AuditResult, second: AuditResult) -> AuditResult:
    """The runs of both; a name that both have gets a number. Confidence and delta must agree, or nothing compares."""
    for name in ("confidence", "delta"):
        ours, theirs = getattr(first, name), getattr(second, name)
        if ours != theirs:
            raise InvalidArgument(
                f"The audits differ in {name}, {ours:g} and {theirs:g}", remedy=f"audit again with the same `{name}`"
            )
    taken = [run.name for run in first.runs]
    added = []
    for run in second.runs:
        name, count = run.name, 1
        while name in taken:
            count += 1
            name = f"{run.name} ({count})"
        taken.append(name)
        added.append(run.model_copy(update={"name": name}))
    provenance = first.provenance.model_copy(
        update={
            "command": f"{first.provenance.command}; {second.provenance.command}",
            "fingerprints": first.provenance.fingerprints | second.provenance.fingerprints,
            "config": {},
        }
    )
    title = first.title if first.title == second.title else f"{first.title} and {second.title}"
    return first.model_copy(update={"title": title, "runs": (*first.runs, *added), "provenance": provenance})
