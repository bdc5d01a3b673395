"""Outcomes of attacks on Gaussian scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from gmip import Gaussian
from gmip.auditing.schema import AttackOutcome
from gmip.auditing.verdict import attack_outcome, verdict
from gmip.stats.intervals import RunScores

__all__ = ["CONFIDENCE", "judge", "measured", "scores"]

CONFIDENCE = 0.95


def scores(mu: float, count: int, seed: int = 0) -> RunScores:
    rng = np.random.default_rng(seed)
    return RunScores(rng.normal(mu, 1.0, count), rng.normal(0.0, 1.0, count))


def measured(mu: float, count: int, claim: float, *, tests: int = 1, seed: int = 0, **changes: Any) -> AttackOutcome:
    return attack_outcome(
        **{
            "attack": "glir",
            "title": "GLiR",
            "needs": ["gradients"],
            "runs": [scores(mu, count, seed)],
            "claimed": Gaussian(claim),
            "fprs": (0.01, 0.1),
            "confidence": CONFIDENCE,
            "tests": tests,
            "delta": 1e-5,
            "seconds": 1.0,
            "facts": {},
            "notes": (),
            "seed": 0,
        }
        | changes
    )


def judge(mu: float, count: int, claim: float, seed: int = 0) -> Any:
    return verdict([measured(mu, count, claim, seed=seed)], Gaussian(claim), fpr=0.01, confidence=CONFIDENCE)
