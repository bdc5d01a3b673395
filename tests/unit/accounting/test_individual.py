"""Individual mus against optimal attackers, simulated."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from gmip import Gaussian, NoisySGD, account
from gmip.accounting.individual import GradientNorms, mu_by_noise, mu_by_susceptibility
from tests.statistical.games import assert_bound

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
    assert mu is not None and mu.kind == "bound"
    for value, shift in zip(mu.values, shifts, strict=True):
        expected = norm.cdf(norm.ppf(FPRS) + value)
        np.testing.assert_allclose(best_tpr(shift, 1.0), expected, atol=5 / np.sqrt(GAMES))
    assert mu.values[1] == pytest.approx(account(own, notion="gdp").equivalent_mu(), rel=1e-3)


@pytest.mark.parametrize("largest", [1.0, 0.3])
def test_poisson_batches_are_bounded_by_the_largest_norm(largest: float) -> None:
    own = run("poisson")
    mus = mu_by_noise([own], GradientNorms(np.array([largest]), np.array([9.0])))
    assert mus is not None and mus.kind == "bound"
    claimed = np.asarray(Gaussian(float(mus.values[0])).tpr_at(FPRS))
    scale = 1.0 / (20 * own.noise_std)
    found = best_tpr(np.full(6, largest * scale), 0.2)
    assert (found <= claimed + 5 / np.sqrt(GAMES)).all() and found[1] > 0.6 * claimed[1]  # mu covers all rates
    falling = best_tpr(largest * scale * np.linspace(1.0, 0.2, 6), 0.2)
    assert (falling <= claimed + 5 / np.sqrt(GAMES)).all()


def test_shuffled_epochs_hold_for_chosen_data() -> None:
    """All others have the gradient -x: the batch without the record's gradient x stands out by C, with it by 2C.

    The run is three epochs of 20 batches with the noise multiplier 1; the best test knows all this, not the order.
    """
    rng = np.random.default_rng(25)
    epochs, batches = 3, 20
    own = NoisySGD(
        dataset_size=2000, batch_size=100, num_steps=60, num_params=5, clip_norm=1.0, sampling="shuffled"
    ).with_noise_multiplier(1.0)
    mus = mu_by_noise([own], GradientNorms(np.array([1.0, 0.5]), np.array([9.0, 9.0])))
    assert mus is not None and mus.kind == "bound"
    assert mus.values == pytest.approx([np.sqrt(3.0), 0.5 * np.sqrt(3.0)])

    def losses(shift: float) -> np.ndarray:
        total = np.zeros(GAMES)
        for _ in range(epochs):
            sums = rng.standard_normal((GAMES, batches))
            sums[:, 0] += shift  # by symmetry the record may be in the first batch
            total += np.log(np.exp(2.0 * sums - 2.0).mean(axis=1)) - np.log(np.exp(sums - 0.5).mean(axis=1))
        return total

    null, member = losses(1.0), losses(2.0)
    assert_bound(Gaussian(float(mus.values[0])), null, member)
    assert np.mean(member > np.quantile(null, 0.99)) > 0.12  # four times what the curve of balls in bins allows


def test_kind_is_that_of_the_curves() -> None:
    epoch = NoisySGD(dataset_size=40, batch_size=20, num_steps=2, num_params=5, sampling="shuffled")
    assert mu_by_susceptibility([epoch], np.array([5.0, 9.0])).kind == "bound"
    assert mu_by_susceptibility([epoch.replace(num_steps=4)], np.array([5.0, 9.0])).kind == "forecast"


def test_fixed_batches_count_the_record_that_takes_the_place() -> None:
    own = run("fixed")
    norms = np.array([0.0, 0.2, 1.0])
    mu = mu_by_noise([own], GradientNorms(norms, norms))
    assert mu is not None
    assert mu.values[0] == pytest.approx(account(own.replace(clip_norm=0.5), notion="gdp").equivalent_mu(), rel=1e-6)
    assert mu.values[2] == pytest.approx(account(own, notion="gdp").equivalent_mu(), rel=1e-6)
    exact = account(own.replace(clip_norm=0.6), notion="gdp").equivalent_mu()
    assert exact - 1e-9 <= mu.values[1] <= 1.1 * exact


def test_rounding_is_up() -> None:
    own = run("poisson")
    norms = np.random.default_rng(1).uniform(0.05, 1.0, 200)
    mu = mu_by_noise([own], GradientNorms(norms, norms))
    assert mu is not None
    for i in (0, 50, 199):
        exact = account(own.replace(clip_norm=norms[i]), notion="gdp").equivalent_mu()
        assert exact - 1e-9 <= mu.values[i] <= 1.25 * exact
    assert mu.values.max() == pytest.approx(account(own.replace(clip_norm=norms.max()), notion="gdp").equivalent_mu())


def test_susceptibilities() -> None:
    own = run("fixed", noise_std=0.0)
    values = np.array([10.0, 50.0, 200.0])
    mu = mu_by_susceptibility([own], values).values
    exact = [account(own, susceptibility=float(k)).equivalent_mu() for k in values]
    assert (mu >= np.array(exact) - 1e-9).all() and mu[2] == exact[2] and mu[0] == exact[0]


def test_no_noise_no_claim() -> None:
    some = GradientNorms(np.ones(2), np.ones(2))
    assert mu_by_noise([run("full", noise_std=0.0)], some) is None and mu_by_noise([], some) is None
    assert mu_by_noise([run("poisson"), run("fixed")], some) is None
