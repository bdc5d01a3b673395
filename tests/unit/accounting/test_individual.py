"""Individual promises against optimal attackers, simulated."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from gmip import Gaussian, NoisySGD, account
from gmip.accounting.individual import GradientNorms, mu_by_noise, mu_by_susceptibility

GAMES = 200_000
FPRS = np.array([0.01, 0.1, 0.5])
RUN = NoisySGD(dataset_size=100, batch_size=20, num_steps=6, num_params=50, clip_norm=1.0, noise_std=0.05)


def run(sampling: str, **changes: float) -> NoisySGD:
    size = {"batch_size": 100} if sampling == "full" else {}
    return RUN.replace(sampling=sampling, **size, **changes)


def best_tpr(shifts: np.ndarray, rate: float) -> np.ndarray:
    """TPR at FPRS of the best test for a record that moves step t by shifts[t] (noise 1) with chance `rate`."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((2, GAMES, len(shifts)))
    taken = rng.random((GAMES, len(shifts))) < rate
    noise[1] += taken * shifts
    loss = np.log1p(rate * np.expm1(noise * shifts - 0.5 * shifts**2)).sum(axis=2)
    out, ins = np.sort(loss[0]), loss[1]
    thresholds = np.quantile(out, 1 - FPRS)
    return (ins[:, None] > thresholds).mean(axis=0)


def test_full_batches_are_exact() -> None:
    norms = np.array([[0.1, 1.0, 0.4, 0.2, 0.9, 0.0], [1.0] * 6])  # of two records, at each step
    own = run("full")
    shifts = (norms + 1.0) / (100 * own.noise_std)  # the worst replacement points the other way
    mu = mu_by_noise([own], GradientNorms(norms.max(axis=1), np.sqrt((shifts**2).sum(axis=1))))
    assert mu is not None
    for value, shift in zip(mu, shifts, strict=True):
        expected = norm.cdf(norm.ppf(FPRS) + value)
        np.testing.assert_allclose(best_tpr(shift, 1.0), expected, atol=5 / np.sqrt(GAMES))
    assert mu[1] == pytest.approx(account(own, notion="gdp").equivalent_mu(), rel=1e-3)


@pytest.mark.parametrize("largest", [1.0, 0.3])
def test_poisson_batches_are_bounded_by_the_largest_norm(largest: float) -> None:
    own = run("poisson")
    (mu,) = mu_by_noise([own], GradientNorms(np.array([largest]), np.array([9.0]))) or [0.0]
    promised = np.asarray(Gaussian(float(mu)).tpr_at(FPRS))
    scale = 1.0 / (20 * own.noise_std)
    found = best_tpr(np.full(6, largest * scale), 0.2)
    assert (found <= promised + 5 / np.sqrt(GAMES)).all() and found[1] > 0.6 * promised[1]  # mu covers all rates
    falling = best_tpr(largest * scale * np.linspace(1.0, 0.2, 6), 0.2)
    assert (falling <= promised + 5 / np.sqrt(GAMES)).all()


def test_fixed_batches_count_the_record_that_takes_the_place() -> None:
    own = run("fixed")
    norms = np.array([0.0, 0.2, 1.0])
    mu = mu_by_noise([own], GradientNorms(norms, norms))
    assert mu is not None
    assert mu[0] == pytest.approx(account(own.replace(clip_norm=0.5), notion="gdp").equivalent_mu(), rel=1e-6)
    assert mu[2] == pytest.approx(account(own, notion="gdp").equivalent_mu(), rel=1e-6)
    exact = account(own.replace(clip_norm=0.6), notion="gdp").equivalent_mu()
    assert exact - 1e-9 <= mu[1] <= 1.1 * exact


def test_rounding_is_up() -> None:
    own = run("poisson")
    norms = np.random.default_rng(1).uniform(0.05, 1.0, 200)
    mu = mu_by_noise([own], GradientNorms(norms, norms))
    assert mu is not None
    for i in (0, 50, 199):
        exact = account(own.replace(clip_norm=norms[i]), notion="gdp").equivalent_mu()
        assert exact - 1e-9 <= mu[i] <= 1.25 * exact
    assert mu.max() == pytest.approx(account(own.replace(clip_norm=norms.max()), notion="gdp").equivalent_mu())


def test_susceptibilities() -> None:
    own = run("fixed", noise_std=0.0)
    values = np.array([10.0, 50.0, 200.0])
    mu = mu_by_susceptibility([own], values)
    exact = [account(own, susceptibility=float(k)).equivalent_mu() for k in values]
    assert (mu >= np.array(exact) - 1e-9).all() and mu[2] == exact[2] and mu[0] == exact[0]


def test_no_noise_no_promise() -> None:
    some = GradientNorms(np.ones(2), np.ones(2))
    assert mu_by_noise([run("full", noise_std=0.0)], some) is None and mu_by_noise([], some) is None
    assert mu_by_noise([run("poisson"), run("fixed")], some) is None
