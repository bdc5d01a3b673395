"""Verdicts against the truth: simulated audits whose truth is known, and for each of the five verdicts how often it is
said. The target is 5% of the members at 1% false alarms, which is a mu of 0.68."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import numpy as np
import pytest

from gmip import Gaussian
from gmip.auditing.curves import claimed_curve
from gmip.auditing.judge import AttackEvidence, AttackScores, JudgeSettings, Labels, attack_outcome
from gmip.auditing.schema import ClaimedCurve, Conclusion, ConclusionKind
from gmip.auditing.verdict import attacker_answers, conclude, tpr_lower_bounds
from gmip.stats import ScoreSet
from gmip.vocabulary import Claim, Rate

GOAL = Rate(0.05, 0.01)


def audit(
    mu: float, size: int, bound: float | None, seed: int, *, attacks: int = 1, sound: bool = True, untried: bool = False
) -> Conclusion:
    """`attacks` of the same strength; `bound` is the mu that the accountant guarantees."""
    rng = np.random.default_rng(seed)
    evidence = []
    for i in range(attacks):
        scores = np.concatenate([rng.normal(mu, 1.0, size), rng.normal(0.0, 1.0, size)])
        found = AttackScores(scores=ScoreSet(ids=np.arange(2 * size), scores=scores, attack=f"a{i}"))
        labels = Labels(inside=np.arange(2 * size) < size)
        evidence.append(AttackEvidence(name=f"a{i}", title=f"a{i}", needs=(), found=(found,), labels=(labels,)))
    pooled = {one.name: one.pooled(True) for one in evidence}
    lower = tpr_lower_bounds(pooled, fpr=GOAL.fpr, confidence=0.95, seed=0)
    settings = JudgeSettings(fprs=(0.01,))
    curves: tuple[ClaimedCurve, ...] = ()
    if bound is not None:
        curve = Gaussian(bound)
        curve.claim = Claim("bound", "anybody")
        curves = (claimed_curve("claimed", curve, standing="proved", fprs=(0.01,)),)
    outcomes = [attack_outcome(one, pooled[one.name], None, settings, attacks, lower[one.name]) for one in evidence]
    answers = attacker_answers(outcomes, curves, goal=GOAL, lower=lower, confidence=0.95, sound_record=sound)
    measurable = any(one.measurable(GOAL.fpr) for one in outcomes)
    return conclude(answers, goal=GOAL, sound_record=sound, measurable=measurable, untried=untried)


# truth: (audits, mu, records of each kind, mu of a bound, attacks, sound record), the verdict and how often at least
TABLE: dict[str, tuple[int, float, int, float | None, int, bool, ConclusionKind, int]] = {
    "far above the limit": (8, 2.0, 300, None, 1, True, "fails", 8),
    "far above, three attacks": (4, 2.0, 300, None, 3, True, "fails", 4),
    "above, few records": (8, 1.3, 100, None, 1, True, "probably-fails", 4),
    "nothing leaks": (8, 0.0, 300, None, 1, True, "passes", 7),
    "nothing leaks, three attacks": (4, 0.0, 300, None, 3, True, "passes", 3),
    "nothing leaks, ten records": (4, 0.0, 10, None, 1, True, "inconclusive", 4),
    "above, too few for one false alarm": (4, 1.3, 50, None, 1, True, "inconclusive", 2),
    "leaks below the limit": (3, 0.3, 2500, None, 1, True, "passes", 3),
    "leaks below the limit, few records": (3, 0.5, 200, None, 1, True, "inconclusive", 2),
    "bound below the limit": (7, 0.4, 200, 0.5, 1, True, "guaranteed", 7),
    "bound, record fails": (7, 0.4, 200, 0.5, 1, False, "inconclusive", 7),
}


def test_there_are_sixty_audits_and_all_five_verdicts() -> None:
    assert sum(row[0] for row in TABLE.values()) == 60
    assert {row[6] for row in TABLE.values()} == set(get_args(ConclusionKind))


@pytest.mark.parametrize("truth", TABLE)
def test_verdict_against_truth(truth: str) -> None:
    """A few of each, on fixed seeds; benchmarks/verdicts.py counts hundreds."""
    audits, mu, size, bound, attacks, sound, kind, least = TABLE[truth]
    said = Counter(audit(mu, size, bound, seed, attacks=attacks, sound=sound).kind for seed in range(audits))
    assert said[kind] >= least, said
    if mu < 0.68:  # the limit is kept
        assert not said["fails"], said
    if mu == 0.0:  # nothing leaks
        assert said["probably-fails"] <= 1, said
    if bound is None or not sound:
        assert not said["guaranteed"], said


@pytest.mark.parametrize("truth", TABLE)
def test_no_doubt_hides_that_a_strong_attack_was_left_out(truth: str) -> None:
    """Only what was proved stands: a leak, and a bound."""
    audits, mu, size, bound, attacks, sound, _, _ = TABLE[truth]
    for seed in range(min(audits, 3)):
        said = audit(mu, size, bound, seed, attacks=attacks, sound=sound)
        left = audit(mu, size, bound, seed, attacks=attacks, sound=sound, untried=True)
        if said.kind in ("fails", "probably-fails", "guaranteed") or said.why == "record":
            assert left == said
        else:
            assert (left.kind, left.why) == ("inconclusive", "left-out")
