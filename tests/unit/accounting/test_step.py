from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import hypergeom, norm

from gmip import NoisySGD, account
from gmip.accounting.gaussian_pair import ChiSquared
from gmip.accounting.step import Crowd, _unknown_in_batch, noise_on_sum, tight_step

RATES = np.array([0.001, 0.01, 0.1, 0.5])


def test_weights_of_batches_by_their_unknown_members() -> None:
    others, unknown, n = 99, 60, 8  # few enough for groups of one size each
    groups = _unknown_in_batch(n, others, unknown)
    for size in range(1, n + 1):
        null = hypergeom.pmf(size, others, unknown, n)
        if size == 1:  # batches without anybody unknown are in the same place
            null += hypergeom.pmf(0, others, unknown, n)
        assert sum(g[0] for g in groups if g[2] == size) == pytest.approx(null)
        assert sum(g[1] for g in groups if g[2] == size) == pytest.approx(
            hypergeom.pmf(size - 1, others, unknown, n - 1)
        )


@pytest.mark.parametrize("n", [20, 50, 80])
def test_a_group_of_batches_hides_no_better_than_its_members(n: int) -> None:
    others, unknown = 99, 60
    groups = _unknown_in_batch(n, others, unknown)
    assert sum(g[0] for g in groups) == pytest.approx(1.0) and sum(g[1] for g in groups) == pytest.approx(1.0)
    for _, _, size, more in groups:
        spread = Crowd.drawn(size, unknown - more).spread
        assert all(spread <= Crowd.drawn(j, unknown).spread + 1e-12 for j in range(size, size + more + 1))


def test_the_noise_of_stacked_steps_averages_out() -> None:
    """Equal gradients in all steps, of rank one and length C: the mean of T noisy steps has T times less noise."""
    steps, n, k = 25, 40, 3.9
    run = NoisySGD(
        dataset_size=n, batch_size=n, num_steps=steps, num_params=1, clip_norm=1.0, sampling="full"
    ).with_noise_multiplier(8.0)
    truth = Crowd.new(n).test(k, 1.0, noise_on_sum(run) / steps)
    claimed = account(run, susceptibility=k / steps)
    assert np.all(claimed(RATES) <= truth(RATES) + 1e-9)


def test_a_fixed_batch_of_all_records_is_a_full_batch() -> None:
    fixed = NoisySGD(dataset_size=50, batch_size=50, num_steps=5, num_params=8)
    full = fixed.replace(sampling="full")
    assert account(fixed)(RATES) == pytest.approx(account(full)(RATES))
    assert account(fixed).for_whom == account(full).for_whom
    assert any("another record" in words for words in account(fixed).assumptions)


def test_reuse_is_fresh_data_for_many_others() -> None:
    run = NoisySGD(dataset_size=10**9, batch_size=30, num_steps=1, num_params=20, clip_norm=1.0, noise_std=0.02)
    fresh = Crowd.new(30).test(20.0, 20.0, noise_on_sum(run))
    assert tight_step(run, 20.0)(RATES) == pytest.approx(fresh(RATES), rel=1e-6)
    assert math.isfinite(tight_step(run, 20.0).divergence)


def test_shaped_noise_is_the_papers_with_data_dependent_noise() -> None:
    """Its appendix: the chi-squared curve with n_eff = n + n^2 t^2, for K at most, without clipping."""
    run = NoisySGD(dataset_size=40, batch_size=40, num_steps=1, num_params=7, sampling="full", shaped_noise=0.2)
    truth = ChiSquared(dimension=7, susceptibility=12.0, batch_size=40 + 40**2 * 0.2**2)
    assert run.effective_batch_size == pytest.approx(truth.batch_size) == 104.0
    curve = account(run, susceptibility=12.0)
    np.testing.assert_allclose(curve.tpr_at(RATES), truth.tpr_at(RATES), rtol=1e-9)
    assert curve.kind == "bound" and account(run, susceptibility=12.0, attacker_knows=0.5).kind == "forecast"
    for none in (account(run, attacker_knows=1.0), account(run, notion="gdp")):
        assert none.tpr_at(0.01) == 1.0 and "shaped like the gradients is not counted" in " ".join(none.assumptions)
    # Equal gradients in four steps, whose noises average out: the stacked step has n + n^2 t^2/4, and four times K.
    four = account(run.replace(num_steps=4), susceptibility=12.0)
    equal = ChiSquared(dimension=7, susceptibility=12.0, batch_size=40 + 40**2 * 0.2**2 / 4)
    assert np.all(four.tpr_at(RATES) >= equal.tpr_at(RATES))


def test_shaped_noise_in_an_incomplete_batch_is_as_large_on_the_sum() -> None:
    run = NoisySGD(dataset_size=50, batch_size=40, num_steps=2, num_params=7, sampling="shuffled", shaped_noise=0.2)
    alone = account(run.replace(shaped_noise=0.0), susceptibility=12.0)
    with_noise = account(run, susceptibility=12.0)
    assert with_noise.kind == alone.kind == "bound"
    assert np.all(with_noise.tpr_at(RATES) < alone.tpr_at(RATES))
    any_record = account(run.replace(sampling="fixed"), susceptibility="any-constant")
    assert np.all(any_record.tpr_at(RATES) >= account(run.replace(sampling="fixed")).tpr_at(RATES))


@pytest.mark.parametrize(("size", "steps", "k", "d"), [(2, 3, 0.5, 1), (7, 3, 3.0, 1), (100, 5, 20.0, 10)])
def test_a_little_noise_does_not_expose_a_record(size: int, steps: int, k: float, d: int) -> None:
    run = NoisySGD(dataset_size=size, batch_size=size, num_steps=steps, num_params=d, clip_norm=1.0, sampling="full")
    found = [account(run.with_noise_multiplier(s), susceptibility=k).tpr_at([0.001, 0.1]) for s in (0.0, 0.01, 0.3, 3)]
    assert np.all(np.diff(found, axis=0) <= 1e-9)


@pytest.mark.parametrize("shaped", [False, True])
@pytest.mark.parametrize("noise", [1.0e6, 1.0e9, 1.0e12, 1.0e16, 1.0e30])
def test_a_full_batch_in_very_much_noise_tells_next_to_nothing(noise: float, *, shaped: bool) -> None:
    sizes = {"dataset_size": 10, "batch_size": 10, "num_steps": 1, "num_params": 100, "sampling": "full"}
    run = NoisySGD(**sizes, shaped_noise=noise / 10) if shaped else NoisySGD(**sizes, clip_norm=1, noise_std=noise / 10)
    curve, limit = account(run, susceptibility=0.005), math.sqrt(0.005) / noise
    tpr = curve.tpr_at(RATES)
    # Of the change of the variance nothing is left, and the rest is a Gaussian shift.
    np.testing.assert_allclose(tpr - RATES, limit * norm.pdf(norm.ppf(RATES)), rtol=0.02, atol=1.0e-9)
    assert curve.equivalent_mu() == pytest.approx(limit, rel=0.05, abs=1.0e-7)
