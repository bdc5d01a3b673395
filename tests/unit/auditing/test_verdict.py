from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from gmip import Gaussian, NoisySGD, account
from gmip.auditing import advise, attack_outcome, claimed_curve, gate, joint_run, merged, predicted, promise, verdict
from gmip.auditing.curves import GRID, measured_curve
from gmip.auditing.schema import AttackOutcome
from gmip.stats.intervals import RunScores
from tests.unit.report import sample

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
            "notes": (),
            "seed": 0,
        }
        | changes
    )


def judge(mu: float, count: int, claim: float, seed: int = 0) -> Any:
    return verdict([measured(mu, count, claim, seed=seed)], Gaussian(claim), fpr=0.01, confidence=CONFIDENCE)


def test_measurement() -> None:
    one = measured(1.0, 2000, 1.5)
    truth = norm.cdf(1.0 / np.sqrt(2.0))
    assert one.auc.lower < truth < one.auc.upper
    assert one.tpr_at["0.1"].lower < norm.sf(norm.isf(0.1) - 1.0) < one.tpr_at["0.1"].upper
    assert 0.75 < one.mu_lower <= 1.05
    assert {bound.method for bound in one.mu_bounds} == {"auto", "gaussian-sum", "levels", "threshold", "one-run"}
    assert one.claim_p_value > 0.5 and not one.exceeds_claim
    assert (one.members, one.non_members, one.repeats) == (2000, 2000, 1)
    assert (np.array(one.band.lower) <= np.array(one.band.upper)).all()


def test_more_than_claimed_is_exposed() -> None:
    found = judge(1.5, 1000, 0.5)
    assert found.kind == "exposed"
    assert found.headline.startswith("More exposed than claimed: GLiR")


@pytest.mark.parametrize("claim", [0.3, 1.0, 2.0])
def test_as_claimed_is_not_exposed(claim: float) -> None:
    kinds = [judge(claim, 300, claim, seed).kind for seed in range(12)]
    assert kinds.count("exposed") <= 2  # 0.6 expected, and the seeds are fixed; tests/statistical has the coverage
    assert kinds.count("consistent") >= 10


def test_the_error_is_shared_among_attacks() -> None:
    p_values = np.array([measured(1.0, 300, 0.8, seed=seed).claim_p_value for seed in range(10)])
    between = int(np.flatnonzero((p_values > 0.001) & (p_values < 0.05))[0])
    assert measured(1.0, 300, 0.8, seed=between).exceeds_claim
    assert not measured(1.0, 300, 0.8, seed=between, tests=1000).exceeds_claim


def test_too_few_candidates_are_inconclusive_and_say_how_many_are_needed() -> None:
    found = judge(0.2, 20, 0.2)
    assert found.kind == "inconclusive"
    assert found.candidates_needed is not None
    per_kind = found.candidates_needed // 2
    assert f"{per_kind:,}" in found.headline
    assert judge(0.2, per_kind, 0.2).kind == "consistent"
    # and with so many, the excess that it speaks of is noticed with a chance of about 80%
    noticed = [judge(0.7, per_kind, 0.2, seed).kind == "exposed" for seed in range(25)]
    assert 15 <= sum(noticed) <= 24


def test_a_promise_that_excludes_nothing_says_so() -> None:
    found = judge(1.0, 100, 8.0)
    assert found.kind == "inconclusive" and found.candidates_needed is None
    assert "too weak to test" in found.headline and "up to 100% of the members" in found.headline


def test_the_headline_has_the_rate_of_the_table() -> None:
    """One false alarm of 100 is 1%: it must not be lost to rounding."""
    one = measured(2.0, 100, 2.5)
    words = verdict([one], Gaussian(2.5), fpr=0.01, confidence=CONFIDENCE).headline
    assert f"finds {100 * one.tpr_at['0.01'].value:.3g}%" in words


def test_gate() -> None:
    strong, weak = [scores(2.0, 2000)], [scores(0.0, 2000, seed=1)]
    held = gate([("loss", weak)], limit=0.05, fpr=0.01, confidence=CONFIDENCE, seed=0)
    assert held.passed and held.tpr_lower < 0.05
    broken = gate([("loss", weak), ("glir", strong)], limit=0.05, fpr=0.01, confidence=CONFIDENCE, seed=0)
    assert not broken.passed and broken.attack == "glir"
    assert broken.tpr_lower < norm.sf(norm.isf(0.01) - 2.0)


# -- curves -----------------------------------------------------------------------------------------------------------


def test_promises_are_points_of_the_curve() -> None:
    made = promise("claimed", "x", Gaussian(1.0), standing="approximation", fprs=(0.01,))
    np.testing.assert_allclose(made.curve.fpr, GRID)
    inner = slice(1, -1)
    np.testing.assert_allclose(made.curve.tpr[inner], norm.sf(norm.isf(GRID[inner]) - 1.0), atol=1e-9)
    assert made.tpr_at == {"0.01": pytest.approx(norm.sf(norm.isf(0.01) - 1.0))}
    assert made.mu == pytest.approx(1.0)
    assert made.auc == pytest.approx(norm.cdf(1.0 / np.sqrt(2.0)))


def test_claims() -> None:
    run = NoisySGD(dataset_size=500, batch_size=500, num_steps=1, num_params=100, sampling="full")
    assert claimed_curve([run], None).tpr_at(0.01) == account(run).tpr_at(0.01)
    assert claimed_curve([run], 0.7).equivalent_mu() == pytest.approx(0.7)


def test_joint_run() -> None:
    run = NoisySGD(
        dataset_size=500, batch_size=500, num_steps=4, num_params=100, clip_norm=1.0, noise_std=0.01, sampling="full"
    )
    joint = joint_run(run)
    assert (joint.num_steps, joint.num_params, joint.clip_norm) == (1, 400, 2.0)
    # noise alone: one step of norm sqrt(T) C is what T steps of norm C are together
    assert account(joint, notion="gdp").tpr_at(0.01) == pytest.approx(account(run, notion="gdp").tpr_at(0.01), rel=1e-4)


def test_a_measured_curve_is_its_corners() -> None:
    curve = measured_curve(np.array([3.0, 2.0, 1.0]), np.array([2.0, 0.0, -1.0, -2.0]))
    assert list(zip(curve.fpr, curve.tpr, strict=True)) == [
        (0.0, 0.0),
        (0.0, pytest.approx(1 / 3)),
        (0.25, pytest.approx(2 / 3)),
        (0.25, 1.0),
        (1.0, 1.0),
    ]


def test_a_long_curve_is_thinned_and_stays_below_itself() -> None:
    run = scores(0.5, 40_000)
    curve = measured_curve(run.members, run.non_members)
    assert len(curve.fpr) <= 1600
    fpr, tpr = np.array(curve.fpr), np.array(curve.tpr)
    assert (np.diff(fpr) >= 0).all() and (np.diff(tpr) >= 0).all()
    at = np.searchsorted(fpr, 0.01, side="right") - 1
    assert tpr[at] == pytest.approx(np.mean(run.members > np.quantile(run.non_members, 0.99)), abs=0.005)


def test_prediction() -> None:
    made = predicted(np.array([0.0, 0.005, 0.02, 1.0]), np.array([0.0, 0.2, 0.4, 1.0]), 0.8, (0.01, 0.02))
    assert made.tpr_at == {"0.01": 0.2, "0.02": 0.4}
    assert made.key == "prediction" and made.standing == "measured"


# -- advice -----------------------------------------------------------------------------------------------------------

RUN = NoisySGD(dataset_size=2000, batch_size=200, num_steps=50, num_params=650, clip_norm=1.0, noise_std=0.0)


def advice(run: NoisySGD, kind: str = "consistent", **changes: Any) -> list[str]:
    one = measured(0.5, 200, 1.0, **changes)
    judged = verdict([one], Gaussian(1.0), fpr=0.01, confidence=CONFIDENCE).model_copy(update={"kind": kind})
    return [said.text for said in advise(run, judged, [one], tpr=0.05, fpr=0.01, schedule=False)]


def test_advice_meets_its_target() -> None:
    (noise, *rest) = advice(RUN)
    value = float(noise.partition("noise_std = ")[2].split()[0])
    assert account(RUN.replace(noise_std=value * 1.001)).tpr_at(0.01) <= 0.05
    assert account(RUN.replace(noise_std=value * 0.98)).tpr_at(0.01) > 0.05
    assert all("batches of" in text for text in rest)


def test_advice_where_nothing_is_needed() -> None:
    assert advice(RUN.replace(noise_std=1.0)) == [
        "The run already promises at most 5% of the members at 1% false alarms: that needs no more noise."
    ]


def test_advice_without_clipping() -> None:
    run = NoisySGD(dataset_size=2000, batch_size=200, num_steps=50, num_params=650)
    assert any("Clip the gradients" in text for text in advice(run))


def test_advice_about_exposure_and_seeds() -> None:
    assert any("Do not rely on the promise" in text for text in advice(RUN, "exposed"))
    assert any("seed can be guessed" in text for text in advice(RUN, attack="seed"))


def test_merging_needs_equal_confidence() -> None:
    audit = sample.consistent()
    (name,) = (run.name for run in audit.runs)
    assert [run.name for run in merged(audit, audit).runs] == [name, f"{name} (2)"]
    with pytest.raises(ValueError, match=r"differ in confidence, 0\.95 and 0\.9"):
        merged(audit, audit.model_copy(update={"confidence": 0.9}))
