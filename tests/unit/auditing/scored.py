"""Outcomes of attacks on Gaussian scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from gmip import Gaussian
from gmip.accounting.tradeoff import TradeOff
from gmip.auditing.judge import AttackEvidence, AttackScores, Groups, JudgeSettings, Labels, attack_outcome
from gmip.auditing.schema import AttackOutcome, Gate
from gmip.auditing.verdict import gate, tpr_lower_bounds, verdict
from gmip.stats import RunScores, ScoreSet, pool

__all__ = ["CONFIDENCE", "evidence", "gated", "judge", "measured", "outcome", "scores"]

CONFIDENCE = 0.95


def scores(mu: float, count: int, seed: int = 0) -> RunScores:
    rng = np.random.default_rng(seed)
    return RunScores(rng.normal(mu, 1.0, count), rng.normal(0.0, 1.0, count))


def evidence(run: RunScores, name: str = "glir", groups: Groups | None = None, **changes: Any) -> AttackEvidence:
    """An attack that gave these scores."""
    values = np.concatenate([run.members, run.non_members])
    inside = np.arange(values.size) < run.members.size
    found = AttackScores(scores=ScoreSet(ids=np.arange(values.size), scores=values, attack=name))
    known: dict[str, Any] = {"title": "GLiR", "needs": ("gradients",)} | changes
    return AttackEvidence(name=name, found=(found,), labels=(Labels(inside=inside, groups=groups),), **known)


def outcome(
    run: RunScores,
    claimed: TradeOff | None,
    *,
    tests: int = 1,
    fprs: tuple[float, ...] = (0.01, 0.1),
    guessed_seed: int | None = None,
    **changes: Any,
) -> AttackOutcome:
    attack, settings = evidence(run, **changes), JudgeSettings(fprs=fprs, confidence=CONFIDENCE)
    found = attack_outcome(attack, attack.pooled(True), claimed, settings, tests)
    return found.model_copy(update={"guessed_seed": guessed_seed})


def measured(mu: float, count: int, claim: float, *, seed: int = 0, **changes: Any) -> AttackOutcome:
    return outcome(scores(mu, count, seed), Gaussian(claim), **changes)


def judge(mu: float, count: int, claim: float, seed: int = 0) -> Any:
    return verdict([measured(mu, count, claim, seed=seed)], Gaussian(claim), fpr=0.01, confidence=CONFIDENCE)


def gated(limit: float, **runs: RunScores) -> Gate:
    """The gate of attacks with these scores, at 1% false alarms."""
    pooled = {name: pool(one) for name, one in runs.items()}
    lower = tpr_lower_bounds(pooled, fpr=0.01, confidence=CONFIDENCE, seed=0)
    return gate(pooled, lower, limit=limit, fpr=0.01, confidence=CONFIDENCE)
