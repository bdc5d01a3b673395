"""From the scores of one attack to what it found, with intervals and bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gmip._numbers import rate_key
from gmip.accounting.tradeoff import TradeOff
from gmip.auditing.promises import GRID, roc_points
from gmip.auditing.schema import AttackOutcome, Band, Curve, Estimate, MuBound
from gmip.stats import bounds, intervals, roc_curve
from gmip.stats.intervals import RunScores
from gmip.stats.scores import Fact

__all__ = ["attack_outcome", "measured_curve"]

Array = NDArray[np.float64]


def attack_outcome(
    *,
    attack: str,
    title: str,
    needs: Sequence[str],
    runs: Sequence[RunScores],
    claimed: TradeOff,
    fprs: Sequence[float],
    confidence: float,
    tests: int,
    delta: float,
    seconds: float,
    facts: Mapping[str, Fact],
    notes: Sequence[str],
    seed: int,
) -> AttackOutcome:
    """What an attack found in the runs of one recipe.

    `tests` is the number of attacks that are held against the claim: each gets its share of the error, so that a sound
    run is called exposed with a chance of at most 1 - confidence, however many attacks are tried.
    """
    found = intervals.summary(runs, confidence=confidence, fprs=tuple(fprs), seed=seed)
    grid = GRID[(GRID > 0.0) & (GRID < 1.0)]
    band = intervals.roc_band(runs, grid, confidence=confidence)
    all_bounds = [
        bounds.mu_lower_bound(runs, confidence=confidence, method=method, seed=seed) for method in bounds.METHODS
    ]
    epsilon = bounds.epsilon_lower_bound(runs, delta=delta, confidence=confidence, seed=seed)
    members = np.concatenate([run.members for run in runs])
    non_members = np.concatenate([run.non_members for run in runs])
    p_value = bounds.claim_p_value(runs, claimed, seed=seed)
    return AttackOutcome(
        attack=attack,
        title=title,
        needs=tuple(needs),
        members=members.size,
        non_members=non_members.size,
        repeats=len(runs),
        seconds=seconds,
        roc=measured_curve(members, non_members),
        band=Band(
            fpr=tuple(map(float, grid)),
            lower=tuple(map(float, np.clip(band.lower, 0.0, 1.0))),
            upper=tuple(map(float, np.clip(band.upper, 0.0, 1.0))),
        ),
        auc=_estimate(found.auc),
        tpr_at={rate_key(fpr): _estimate(found.tpr[fpr]) for fpr in fprs},
        balanced_accuracy=_estimate(found.balanced_accuracy),
        advantage=_estimate(found.advantage),
        mu_lower=all_bounds[0].mu,
        mu_bounds=tuple(MuBound(method=bound.method, mu=bound.mu) for bound in all_bounds),
        epsilon_lower=epsilon.epsilon,
        claim_p_value=p_value,
        exceeds_claim=p_value < (1.0 - confidence) / tests,
        facts=dict(facts),
        notes=tuple(notes),
    )


def measured_curve(members: Array, non_members: Array) -> Curve:
    """The ROC over every distinct score: its corners, which are all of it, or as many as a report can use."""
    roc = roc_curve(members, non_members)
    fpr, tpr = roc.fpr, roc.tpr
    inner = np.ones(fpr.size, dtype=bool)
    inner[1:-1] = ~(
        ((fpr[:-2] == fpr[1:-1]) & (fpr[1:-1] == fpr[2:])) | ((tpr[:-2] == tpr[1:-1]) & (tpr[1:-1] == tpr[2:]))
    )
    return roc_points(fpr[inner], tpr[inner])


def _estimate(found: intervals.Estimate) -> Estimate:
    return Estimate(value=found.value, lower=found.lower, upper=found.upper)
