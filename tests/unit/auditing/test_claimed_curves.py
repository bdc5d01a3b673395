from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from gmip import Gaussian, NoisySGD, account
from gmip.auditing.curves import GRID, all_claims, claimed_curve, given_curve, listed_curve, predicted, stacked_run
from gmip.auditing.schema import GivenClaim
from gmip.stats import ExpectedRoc, ScoreSet


def test_claims_are_points_of_the_curve() -> None:
    made = claimed_curve("claimed", Gaussian(1.0), standing="approximation", fprs=(0.01,))
    np.testing.assert_allclose(made.curve.fpr, GRID)
    inner = slice(1, -1)
    np.testing.assert_allclose(made.curve.tpr[inner], norm.sf(norm.isf(GRID[inner]) - 1.0), atol=1e-9)
    assert made.tpr_at == {"0.01": pytest.approx(norm.sf(norm.isf(0.01) - 1.0))}
    assert made.mu == pytest.approx(1.0)
    assert made.auc == pytest.approx(norm.cdf(1.0 / np.sqrt(2.0)))


def test_claims() -> None:
    run = NoisySGD(dataset_size=500, batch_size=500, num_steps=1, num_params=100, sampling="full")
    assert given_curve(None) is None
    mu = given_curve(0.7)
    assert mu is not None and mu.equivalent_mu() == pytest.approx(0.7) and mu.kind == "bound"  # somebody's own word
    claimed_dp = given_curve((1.0, 0.01))
    assert claimed_dp is not None and claimed_dp.tpr_at(0.01) == pytest.approx(np.e * 0.01 + 0.01)
    # Differential privacy is about attackers with a list, too; a mu is not.
    assert listed_curve([run], 0.5, claimed_dp) is claimed_dp is listed_curve([], 0.5, claimed_dp)
    known = listed_curve([run], 0.5, mu)
    assert known is not None and known.tpr_at(0.01) == account(run, attacker_knows=0.5).tpr_at(0.01)
    assert listed_curve([], 0.5, mu) is None
    for claim, numbers in ((mu, GivenClaim(mu=0.7)), (claimed_dp, GivenClaim(epsilon=1.0, delta=0.01))):
        first, told = all_claims([run], claim, (), given=True, fprs=(0.01,), listed=claimed_dp, knows=0.5)
        assert (first.origin, first.given, first.knows) == ("given", numbers, None)
        assert told.knows == 0.5 and told.origin == ("given" if claim is claimed_dp else "accountant")


def test_stacked_run() -> None:
    run = NoisySGD(
        dataset_size=500, batch_size=500, num_steps=4, num_params=100, clip_norm=1.0, noise_std=0.01, sampling="full"
    )
    stacked = stacked_run(run)
    assert (stacked.num_steps, stacked.num_params, stacked.clip_norm) == (1, 400, 2.0)
    # noise alone: one step of norm sqrt(T) C is what T steps of norm C are together
    assert account(stacked, notion="gdp").tpr_at(0.01) == pytest.approx(
        account(run, notion="gdp").tpr_at(0.01), rel=1e-4
    )


def test_prediction() -> None:
    roc = ExpectedRoc(fpr=np.array([0.0, 0.005, 0.02, 1.0]), tpr=np.array([0.0, 0.2, 0.4, 1.0]), auc=0.8)
    made = predicted(roc, (0.01, 0.02))
    assert made.tpr_at == {"0.01": 0.2, "0.02": 0.4}
    assert made.key == "prediction" and made.standing == "measured"


FULL = NoisySGD(dataset_size=100, batch_size=100, num_steps=3, num_params=50, clip_norm=1.0, sampling="full")


def scored(**changes: Any) -> ScoreSet:
    return ScoreSet(**{"ids": np.arange(20), "scores": np.arange(20.0), "attack": "some"} | changes)


def claimed(*found: ScoreSet, run: NoisySGD = FULL) -> dict[str, Any]:
    made = all_claims([run], Gaussian(1.0), found, fprs=(0.01,))
    assert made[0].key == "claimed"
    return {one.key: one for one in made}


def test_any_attack_may_measure_susceptibilities_and_expect_something() -> None:
    roc = ExpectedRoc(fpr=np.array([0.0, 1.0]), tpr=np.array([0.0, 1.0]), auc=0.5)
    assert set(claimed(scored())) == {"claimed"}
    assert set(claimed(scored(), scored(prediction=roc))) == {"claimed", "prediction"}
    measured = scored(susceptibility=np.full(20, 30.0), susceptibility_of="step")
    assert set(claimed(scored(), measured)) == {"claimed", "susceptibility"}
    noisy = FULL.replace(noise_std=0.1)
    assert set(claimed(measured, run=noisy)) == {"claimed", "susceptibility", "gdp"}


def test_susceptibilities_of_a_step_compose_and_those_of_the_run_do_not() -> None:
    values = np.full(20, 30.0)
    of_step = claimed(scored(susceptibility=values, susceptibility_of="step"))["susceptibility"]
    of_run = claimed(scored(susceptibility=values, susceptibility_of="run"))["susceptibility"]
    assert of_step.auc == pytest.approx(account(FULL, susceptibility=values).auc())
    assert of_run.auc == pytest.approx(account(stacked_run(FULL), susceptibility=values).auc())
    assert of_run.auc < of_step.auc - 0.02


def test_susceptibilities_of_another_run_claim_nothing() -> None:
    assert set(claimed(scored(susceptibility=np.full(20, 30.0)))) == {"claimed"}


def test_a_claim_says_what_it_is_and_for_whom() -> None:
    noisy = FULL.replace(noise_std=0.1)
    made = {one.key: one for one in all_claims([noisy], account(noisy), (), fprs=(0.01,))}
    assert (made["claimed"].kind, made["claimed"].is_bound) == ("forecast", False)
    assert made["claimed"].for_whom == account(noisy).for_whom
    assert (made["gdp"].kind, made["gdp"].adjacency, made["gdp"].standing) == ("bound", "replace-one", "proved")


def test_differential_privacy_of_shuffled_epochs_is_no_bound() -> None:
    run = NoisySGD(
        dataset_size=100, batch_size=10, num_steps=30, num_params=5, clip_norm=1.0, noise_std=0.1, sampling="shuffled"
    )
    gdp = claimed(run=run)["gdp"]
    assert (gdp.kind, gdp.standing, gdp.adjacency) == ("forecast", "approximation", "zero-out-one")
    assert gdp.caveat is not None


def test_phases_of_different_neighbours_claim_no_differential_privacy() -> None:
    run = NoisySGD(dataset_size=100, batch_size=10, num_steps=3, num_params=5, clip_norm=1.0, noise_std=0.1)
    made = all_claims([run, run.replace(sampling="poisson")], Gaussian(1.0), (), fprs=(0.01,))
    assert [one.key for one in made] == ["claimed"]
