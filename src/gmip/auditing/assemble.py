"""From scores to results: all about one run, and two audits as one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gmip._progress import Progress
from gmip.accounting.mechanism import NoisySGD
from gmip.auditing.advice import advise
from gmip.auditing.outcomes import attack_outcome
from gmip.auditing.promises import all_promises, claimed_curve
from gmip.auditing.schema import AttackOutcome, AuditResult, Exposed, RunAudit, RunFacts
from gmip.auditing.verdict import gate, verdict
from gmip.errors import InvalidArgument
from gmip.stats import RunScores, ScoreSet
from gmip.trace import Trace

__all__ = ["Attacked", "Candidate", "Criteria", "RateLimit", "Scored", "assemble", "merged"]

_MOST_EXPOSED: Final = 20


class RateLimit(NamedTuple):
    """A TPR at an FPR."""

    tpr: float
    fpr: float


@dataclass(frozen=True, kw_only=True)
class Criteria:
    """By what an audit judges.

    Attributes
    ----------
    confidence, delta, fprs : of intervals and bounds; for epsilon; at which members found are reported.
    claim_mu : what was promised, as mu-GMIP; None: what the accountant says about the run.
    goal : what the advice aims at.
    limit : of the gate, or None.
    seed : of resampling.
    """

    confidence: float
    delta: float
    fprs: tuple[float, ...]
    claim_mu: float | None
    goal: RateLimit
    limit: RateLimit | None
    seed: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Scored:
    """What one attack found in one run, how long it took, and of what it warned."""

    scores: ScoreSet
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()


class Candidate(NamedTuple):
    """A record that was attacked: who it is, what the strongest attack says about it, and the truth."""

    id: int | str
    member: bool
    score: float
    p_value: float | None = None
    posterior: float | None = None  # at even prior odds
    susceptibility: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Attacked:
    """An attack (`needs` in words) and what it found in each repetition of a run."""

    name: str
    title: str
    needs: tuple[str, ...]
    found: tuple[Scored, ...]


def assemble(
    *,
    name: str,
    task: str,
    path: str | None,
    traces: Sequence[Trace],
    attacks: Sequence[Attacked],
    accuracies: Mapping[str, float | None],
    criteria: Criteria,
    progress: Progress,
) -> tuple[RunAudit, list[Candidate]]:
    """All about one run, and its candidates with their scores by the strongest attack, the most exposed first.

    `traces` : the run and its repetitions, each with members; `accuracies` : train_accuracy and test_accuracy.
    """
    trace = traces[0]
    runs = trace.runs()
    if not runs:
        raise InvalidArgument(f"{trace.path} has no steps, so there is nothing to audit", remedy="train at least one")
    largest = max(runs, key=lambda run: run.num_steps)
    claimed = claimed_curve(runs, criteria.claim_mu)
    split = {one.name: [_split(*pair) for pair in zip(traces, one.found, strict=True)] for one in attacks}
    outcomes: list[AttackOutcome] = []
    for done, attack in enumerate(attacks):
        outcomes.append(
            attack_outcome(
                attack=attack.name,
                title=attack.title,
                needs=attack.needs,
                runs=split[attack.name],
                claimed=claimed,
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
    outcomes.sort(key=lambda one: (one.blind, -one.mu_lower, -one.auc.value, one.attack))
    judged = verdict(outcomes, claimed, fpr=criteria.goal.fpr, confidence=criteria.confidence)
    promises = all_promises(
        runs,
        claimed,
        [attack.found[0].scores for attack in attacks],
        claim_mu=criteria.claim_mu,
        fprs=criteria.fprs,
    )
    strongest = next(attack for attack in attacks if attack.name == outcomes[0].attack)
    candidates = _candidates(trace, strongest.found[0].scores)
    limit = criteria.limit
    audited = RunAudit(
        name=name,
        path=path,
        task=task,
        facts=_facts(trace, largest, accuracies),
        promises=promises,
        attacks=tuple(outcomes),
        verdict=judged,
        advice=advise(
            largest,
            judged,
            outcomes,
            tpr=criteria.goal.tpr,
            fpr=criteria.goal.fpr,
            schedule=len(runs) > 1,
        ),
        exposed=tuple(
            Exposed(
                id=one.id,
                score=one.score,
                p_value=one.p_value,
                posterior=one.posterior,
                susceptibility=one.susceptibility,
            )
            for one in [one for one in candidates if one.member][:_MOST_EXPOSED]
        ),
        exposed_by=outcomes[0].attack,
        gate=None
        if limit is None
        else gate(
            list(split.items()), limit=limit.tpr, fpr=limit.fpr, confidence=criteria.confidence, seed=criteria.seed
        ),
        warnings=_once(words for attack in attacks for one in attack.found for words in one.warnings),
    )
    progress(len(attacks) + 1, len(attacks) + 1)
    return audited, candidates


def _once(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))


def _split(trace: Trace, found: Scored) -> RunScores:
    inside = _inside(trace, found.scores)
    return RunScores(found.scores.scores[inside], found.scores.scores[~inside])


def _inside(trace: Trace, scores: ScoreSet) -> NDArray[np.bool_]:
    if trace.members is None:
        raise InvalidArgument(f"{trace.path} does not name its members, by which an audit judges an attack")
    return np.isin(scores.ids, trace.members)


def _candidates(trace: Trace, one: ScoreSet) -> list[Candidate]:
    """The highest score first."""
    inside = _inside(trace, one)
    known = (one.p_values, None if one.calibration is None else one.posterior(0.5), one.susceptibility)
    return [
        Candidate(
            one.ids[i].item(),
            bool(inside[i]),
            float(one.scores[i]),
            *(None if values is None else float(values[i]) for values in known),
        )
        for i in np.argsort(-one.scores, kind="stable")
    ]


def _facts(trace: Trace, run: NoisySGD, accuracies: Mapping[str, float | None]) -> RunFacts:
    header, known = trace.header, trace.header.recipe
    rate = known.get("learning_rate")
    return RunFacts(
        dataset_size=header.dataset_size,
        batch_size=header.batch_size,
        num_steps=trace.num_steps,
        num_params=header.num_params,
        sampling=header.sampling,
        clip_norm=header.clip_norm,
        noise_std=run.noise_std,
        noise_multiplier=run.noise_multiplier if run.noise_std > 0.0 else None,
        optimizer=known.get("optimizer") if isinstance(known.get("optimizer"), str) else None,
        learning_rate=float(rate) if isinstance(rate, (int, float)) else None,
        complete=trace.complete,
        recorded_params=header.recorded_params if header.recorded_params < header.num_params else None,
        **accuracies,
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
