"""From today's results to frozen quantities: one function for each kind of result, and the only place that knows the
fields of results. Where a refactoring renames a field, the change is made here; the names on the left stay.

A quantity is a number, a truth value, None, the key of a verdict, or a list of these. Sentences, titles, paths, times
and versions are no quantities. Long lists are frozen by some of their entries and by sums.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gmip.accounting.account import mu_per_step

if TYPE_CHECKING:  # what is renamed or moved matters to readers and type checkers alone
    from gmip import NoisySGD, Recipe, TradeOff
    from gmip.accounting.alternatives import Ways
    from gmip.auditing.schema import (
        AttackerAnswer,
        AttackOutcome,
        AuditResult,
        Band,
        ClaimedCurve,
        Curve,
        Estimate,
        ExposedRecord,
        Gate,
        GroupOutcome,
        NoiseCurve,
        RunAudit,
        RunCheck,
        RunFacts,
        TriedAccuracy,
    )
    from gmip.tuning.recipe_search import FrontierPoint, Quality, TuneResult

__all__ = ["Named", "Value", "project_account", "project_audit", "project_rows", "project_tuned", "project_ways"]

Value = Any  # plain JSON
Named = dict[str, Value]

RATES: Final = (0.001, 0.01, 0.1, 0.5)
_SHOWN: Final = 3  # entries of a long list that are frozen
_PLACES: Final = frozenset({"folder"})  # facts of attacks that are places, not quantities


# -- audits -----------------------------------------------------------------------------------------------------------


def project_audit(result: AuditResult) -> Named:
    """All that result.json says in numbers and kinds, and the table of candidates beside it."""
    named: Named = {
        "confidence": result.confidence,
        "delta": result.delta,
        "seed": result.provenance.seed,
        "number of runs": len(result.runs),
        "threat model": result.threat_model,
    }
    for number, run in enumerate(result.runs, start=1):
        named |= _under(f"run {number}", _run(run) | _under("candidates", _candidates(result.candidates[run.name])))
    return named


def _run(run: RunAudit) -> Named:
    named = {
        "conclusion/kind": run.conclusion.kind,
        "conclusion/why": run.conclusion.why,
        "verdict/kind": run.verdict.kind,
        "verdict/candidates needed": run.verdict.candidates_needed,
        "verdict/reason": run.verdict.reason,
        "verdict/attack": run.verdict.attack,
        "verdict/judged by": run.verdict.judged_by,
        "verdict/allowed tpr": run.verdict.allowed,
        "verdict/allowed auc": run.verdict.allowed_auc,
        "verdict/allowed kind": run.verdict.allowed_kind,
        "verdict/auc that would have been noticed": run.verdict.noticeable_auc,
        "verdict/candidates": run.verdict.candidates,
        "verdict/doubts": list(run.verdict.doubts),
        "source": run.source,
        "verdict/list leaks": run.verdict.list_leak is not None,
        "verdict/record does not match": run.verdict.unmatched,
        "suspected to look at the wrong thing": run.suspect,
        "goal/tpr": run.goal.tpr,
        "goal/fpr": run.goal.fpr,
        "attacks, strongest first": [one.attack for one in run.attacks],
        "attacks left out": [one.attack for one in run.left_out],
        "guarantees and forecasts": [one.key for one in run.claims],
        "groups/by": run.grouped_by,
        "groups/names": [one.group for one in run.groups],
        "most exposed/by attack": run.exposed_by,
    }
    if run.suspicion is not None:
        sign = run.suspicion
        named |= {"suspicion/kind": sign.kind, "suspicion/blinding": sign.blinding, "suspicion/attack": sign.attack}
        named |= {"suspicion/accuracy": sign.accuracy, "suspicion/guessing": sign.guessing}
    named |= _under("facts", _facts(run.facts))
    for claim in run.claims:
        named |= _under(f"guarantee or forecast {claim.key}", _claim(claim))
    for attack in run.attacks:
        named |= _under(f"attack {attack.attack}", _attack(attack))
    for answer in run.answers:
        named |= _under(f"attacker {answer.sees}{' and list' if answer.knows else ''}", _answer(answer))
    for group in run.groups:
        named |= _under(f"groups/{group.group}", _group(group))
    named |= _under("most exposed", _exposed(run.exposed))
    named |= _under("gate", _gate(run.gate))
    named |= _under("run check", _check(run.check))
    named |= _under("advice", _advice(run))
    named |= _under("noise curve", _noise_curve(run.noise_curve))
    if run.individual is None:
        return named | {"individual": None}
    own = run.individual
    return named | _under(
        "individual",
        {
            "members": own.members,
            "mu of the whole run": own.claimed_mu,
            "share beyond it": own.beyond,
            "median mu": own.median_mu,
            "largest mu": own.largest_mu,
            "kind": own.kind,
        },
    )


def _facts(facts: RunFacts) -> Named:
    return {
        "dataset size": facts.dataset_size,
        "batch size": facts.batch_size,
        "steps": facts.num_steps,
        "parameters": facts.num_params,
        "recorded parameters": facts.recorded_params,
        "sampling": facts.sampling,
        "clip norm": facts.clip_norm,
        "noise std": facts.noise_std,
        "noise multiplier": facts.noise_multiplier,
        "optimizer": facts.optimizer,
        "learning rate": facts.learning_rate,
        "training accuracy": facts.train_accuracy,
        "test accuracy": facts.test_accuracy,
        "accuracy of guessing": facts.chance_accuracy,
        "complete": facts.complete,
    }


def _claim(claim: ClaimedCurve) -> Named:
    named: Named = {
        "kind": "bound" if claim.is_bound else "forecast",
        "standing": claim.standing,
        "mu": claim.mu,
        "auc": claim.auc,
        "neighbours": claim.adjacency,
    }
    return named | _under("tpr at fpr", dict(claim.tpr_at)) | _under("curve", _curve(claim.curve))


def _attack(attack: AttackOutcome) -> Named:
    named: Named = {
        "sees": attack.sees,
        "share of members on its list": attack.attacker_knows,
        "members": attack.members,
        "non-members": attack.non_members,
        "runs": attack.repeats,
        "lower bound on mu": attack.mu_lower,
        "lower bound on epsilon": attack.epsilon_lower,
        "p-value of the claim": attack.claim_p_value,
        "refutes the claim": attack.exceeds_claim,
        "members score lower": attack.turned,
        "blind": attack.blind,
        "largest tie": attack.largest_tie,
        "ties": math.fsum(end for tie in attack.ties for end in tie),
    }
    named |= _under("auc", _estimate(attack.auc))
    named |= _under("balanced accuracy", _estimate(attack.balanced_accuracy))
    named |= _under("advantage", _estimate(attack.advantage))
    for rate, tpr in attack.tpr_at.items():
        named |= _under(f"tpr at fpr/{rate}", _estimate(tpr))
    named |= {f"lower bound on mu by {one.method}": one.mu for one in attack.mu_bounds}
    named |= _under("roc", _curve(attack.roc)) | _under("band", _band(attack.band))
    facts: Named = {name: fact for name, fact in attack.facts.items() if name not in _PLACES}
    if attack.guessed_seed is not None:
        facts["guessed_seed"] = attack.guessed_seed
    return named | _under("fact", facts)


def _answer(answer: AttackerAnswer) -> Named:
    named: Named = {
        "share of members on its list": answer.knows,
        "leak": answer.leak,
        "leak within groups alone": answer.within_groups,
        "tpr that would have been noticed": answer.noticed,
        "candidates needed": answer.needed,
        "target": answer.target,
        "why": answer.why,
        "guaranteed or forecast tpr": answer.claimed,
        "lower bound on tpr": answer.tpr_lower,
        "evidence": None if answer.evidence is None else answer.evidence.attack,
    }
    if answer.evidence is None:
        return named
    return named | _under("evidence/tpr", _estimate(answer.evidence.tpr))


def _group(group: GroupOutcome) -> Named:
    named: Named = {
        "members": group.members,
        "non-members": group.non_members,
        "groups in this row": group.folded,
        "lower bound on mu": group.mu_lower,
    }
    named |= {"auc": None} if group.auc is None else _under("auc", _estimate(group.auc))
    for rate, tpr in group.tpr_at.items():
        named |= _under(f"tpr at fpr/{rate}", _estimate(tpr))
    return named


def _exposed(members: Sequence[ExposedRecord]) -> Named:
    columns: dict[str, list[Value]] = {
        "id": [one.id for one in members],
        "score": [one.score for one in members],
        "p-value": [one.p_value for one in members],
        "posterior": [one.posterior for one in members],
        "susceptibility": [one.susceptibility for one in members],
        "group": [one.group for one in members],
        "own mu": [one.own_mu for one in members],
    }
    return {"number": len(members)} | _columns(columns)


def _candidates(table: Sequence[Any]) -> Named:
    columns: dict[str, list[Value]] = {
        "id": [one.id for one in table],
        "member": [one.member for one in table],
        "score": [one.score for one in table],
        "p-value": [one.p_value for one in table],
        "posterior": [one.posterior for one in table],
        "susceptibility": [one.susceptibility for one in table],
        "group": [one.group for one in table],
        "own mu": [one.own_mu for one in table],
    }
    return {"number": len(table)} | _columns(columns)


def _gate(gate: Gate | None) -> Named:
    if gate is None:
        return {"fpr": None}
    return {
        "fpr": gate.fpr,
        "limit": gate.limit,
        "lower bound on tpr": gate.tpr_lower,
        "attack": gate.attack,
        "passed": gate.passed,
        "within a group": gate.within_group,
        "blind": gate.blind,
        "tpr that would have been noticed": gate.noticeable_tpr,
        "doubted": gate.doubted,
    }


def _check(check: RunCheck | None) -> Named:
    if check is None:
        return {"passed": None}
    named: Named = {
        "passed": check.passed,
        "noise could not be checked": check.noise_unchecked,
        "unchecked, and bounds rest on it": [one.check for one in check.bound_unchecked],
        "beyond reach": [one.fault for one in check.beyond_reach],
        "beyond reach, up to": [one.up_to for one in check.beyond_reach],
        "steps computed again": list(check.steps),
        "level": check.level,
        "checks": [one.check for one in check.outcomes],
    }
    for one in check.outcomes:
        numbers = {"status": one.status, "value": one.value, "expected": one.expected, "p-value": one.p_value}
        named |= _under(one.check, numbers)
    return named


def _advice(run: RunAudit) -> Named:
    ways = [one.way for one in run.advice if one.way is not None]
    named: Named = {"ways": [way.change for way in ways]} | _under("as it is", _tried(run.tried))
    for way in ways:
        named |= _under(way.change, {"tpr": way.tpr, "kind": way.kind} | _tried(way.accuracy))
        named |= _under(f"{way.change}/set", way.changes(run.declared))
    return named


def _tried(tried: TriedAccuracy | None) -> Named:
    if tried is None:
        return {"accuracy": None}
    return {"accuracy": tried.mean, "accuracy/error": tried.error, "accuracy/trainings": tried.seeds}


def _noise_curve(curve: NoiseCurve | None) -> Named:
    if curve is None:
        return {"kind": None}
    known = {"kind": curve.kind, "noise std": list(curve.noise_std), "tpr": list(curve.tpr)}
    return {**known, "place of the run": curve.own}


def _estimate(found: Estimate) -> Named:
    return {"value": found.value, "lower": found.lower, "upper": found.upper}


def _curve(curve: Curve) -> Named:
    named: Named = {"points": len(curve.fpr), "sums": [math.fsum(curve.fpr), math.fsum(curve.tpr)]}
    for rate in RATES:
        named[f"tpr at {rate:g}"] = max(t for f, t in zip(curve.fpr, curve.tpr, strict=True) if f <= rate)
    return named


def _band(band: Band) -> Named:
    return {"points": len(band.fpr), "sums": [math.fsum(part) for part in (band.fpr, band.lower, band.upper)]}


# -- accounts and calibrations ----------------------------------------------------------------------------------------


def project_account(curve: TradeOff) -> Named:
    """What `gmip account` says of a run in numbers and kinds."""
    named: Named = {
        "kind": curve.kind,
        "neighbours": curve.claim.adjacency,
        "mu": curve.equivalent_mu(),
        "mu at every fpr": curve.gdp_mu,
        "advantage": curve.advantage(),
        "auc": curve.auc(),
        "epsilon at delta 1e-5": curve.epsilon(1.0e-5),
        "error of tpr": curve.tpr_error,
    }
    named |= {f"tpr at fpr/{rate:g}": curve.tpr_at(rate) for rate in RATES}
    return {name: _plain(value) for name, value in named.items()}


def project_step(run: NoisySGD, **options: Any) -> Named:
    """The mu of one step."""
    return {"mu of one step": _plain(mu_per_step(run, **options))}


def project_runs(runs: Iterable[NoisySGD]) -> Named:
    """What is to run, phase by phase."""
    named: Named = {}
    for number, run in enumerate(runs, start=1):
        settings = {
            "dataset size": run.dataset_size,
            "batch size": run.batch_size,
            "steps": run.num_steps,
            "parameters": run.num_params,
            "sampling": run.sampling,
            "clip norm": run.clip_norm,
            "noise std": run.noise_std,
            "noise multiplier": run.noise_multiplier,
        }
        named |= _under(f"phase {number}", settings)
    return named


def project_ways(ways: Ways) -> Named:
    """All ways to a target."""
    named: Named = {
        "as it is": ways.now,
        "met": ways.met,
        "open": [way.change for way in ways.open],
        "closed": [way.change for way in ways.closed],
    }
    for way in ways.open:
        found = {"value": way.value, "kind": way.curve.kind, "notion": way.notion} | project_runs(way.runs)
        named |= _under(way.change, found)
    return named


# -- recipes and reproductions ----------------------------------------------------------------------------------------


def project_tuned(result: TuneResult) -> Named:
    """What `gmip tune` found and tried."""
    named: Named = {
        "kind": result.claim.kind,
        "neighbours": result.claim.adjacency,
        "metric": result.metric,
        "exposure": result.exposure,
        "target": result.target.value,
        "parameters": result.num_params,
        "trainings": result.trainings,
        "trained on": result.trained_on,
        "members by": result.split_seed,
        "seed": result.seed,
        "frontier": [point.name for point in result.frontier],
    }
    named |= _under("recipe", _recipe(result.recipe)) | _under("quality", _quality(result.quality))
    for point in result.frontier:
        named |= _under(f"frontier/{point.name}", _point(point))
    named |= {"own": None} if result.own is None else _under("own", _point(result.own))
    tried: dict[str, list[Value]] = {
        "exposure": [one.exposure for one in result.tried],
        "metric": [one.outcome.metric for one in result.tried],
        "ended early": [one.outcome.stopped for one in result.tried],
        "noise std": [one.recipe.noise_std for one in result.tried],
        "batch size": [one.recipe.batch_size for one in result.tried],
        "steps": [one.recipe.num_steps for one in result.tried],
        "learning rate": [one.recipe.learning_rate for one in result.tried],
        "clip norm": [one.recipe.clip_norm for one in result.tried],
    }
    return named | _under("tried", {"number": len(result.tried)} | _columns(tried))


def _point(point: FrontierPoint) -> Named:
    return {"exposure": point.exposure} | _under("recipe", _recipe(point.recipe)) | _quality(point.quality)


def _quality(quality: Quality) -> Named:
    return {"mean": quality.mean, "error": quality.error, "values": list(quality.values)}


def _recipe(recipe: Recipe) -> Named:
    return {
        "dataset size": recipe.dataset_size,
        "batch size": recipe.batch_size,
        "steps": recipe.num_steps,
        "sampling": recipe.sampling,
        "clip norm": recipe.clip_norm,
        "noise std": recipe.noise_std,
        "optimizer": recipe.optimizer,
        "learning rate": recipe.learning_rate,
    }


def project_rows(rows: Sequence[Mapping[str, Any]], agreements: Sequence[str]) -> Named:
    """Rows of a reproduced table, and whether its claims agree with the paper's."""
    named: Named = {"rows": len(rows), "claims agree": list(agreements)}
    for number, row in enumerate(rows, start=1):
        named |= _under(f"row {number}", dict(row))
    return named


# -- quantities -------------------------------------------------------------------------------------------------------


def _under(name: str, named: Mapping[str, Value]) -> Named:
    return {f"{name}/{key}": value for key, value in named.items()}


def _plain(value: Any) -> Value:
    return value.item() if isinstance(value, np.generic) else value


def _columns(columns: Mapping[str, Sequence[Value]]) -> Named:
    """For each column that has anything in it: how many are known, the first entries, and sums of numbers."""
    named: Named = {}
    for name, column in columns.items():
        values = [_plain(value) for value in column]
        known = [value for value in values if value is not None]
        named[name] = [len(known), *values[:_SHOWN]] if known else None
        if known and all(isinstance(value, int | float) for value in known):
            # The second sum knows the order.
            named[f"{name}/sums"] = [math.fsum(known), math.fsum(n * value for n, value in enumerate(known))]
            named[f"{name}/least, median, largest"] = [min(known), statistics.median(known), max(known)]
    return named
