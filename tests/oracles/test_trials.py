"""What choosing the best of a random number of runs costs: reference values, and the worst score that we know."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gmip import Gaussian, InvalidArgument, NoisySGD, account

MU = 0.2367  # epsilon 1 at delta 1e-6


def test_reference_values():
    one = Gaussian(MU)
    best = one.best_of(10.0)
    assert one.epsilon(1e-6) == pytest.approx(1.0, abs=2e-3)
    assert best.epsilon(1e-6) == pytest.approx(1.54, abs=6e-3)
    assert (one.tpr_at(0.01), best.tpr_at(0.01)) == pytest.approx((0.0183, 0.0322), abs=2e-4)
    assert best.epsilon(1e-6) < one.compose(10).epsilon(1e-6) == pytest.approx(3.52, abs=0.02)
    assert one.best_of(1) is one


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_choosing_by_the_loss_itself_does_not_exceed_it(sign):
    """Each run publishes N(0, 1) or N(mu, 1) and is scored by it; the attacker sees the best (or the worst) of K."""
    mu, trials, games, rng = 1.0, 5.0, 40_000, np.random.default_rng(1)
    seen = []
    for shift in (0.0, mu):
        counts = rng.geometric(1.0 / trials, games)
        runs = rng.standard_normal(int(counts.sum())) + shift
        seen.append(sign * np.maximum.reduceat(sign * runs, np.append(0, np.cumsum(counts)[:-1])))
    best, error = Gaussian(mu).best_of(trials), 4.0 * math.sqrt(0.25 / games)
    for fpr in (0.01, 0.1, 0.5):
        found = float(np.mean(seen[1] > np.quantile(seen[0], 1.0 - fpr)))
        mirrored = float(np.mean(seen[0] < np.quantile(seen[1], fpr)))
        assert max(found, mirrored) <= best.tpr_at(fpr) + error
        if sign < 0 and fpr == 0.1:
            assert max(found, mirrored) > Gaussian(mu).tpr_at(fpr) + error  # one run's guarantee is exceeded


def test_it_is_for_differential_privacy():
    run = NoisySGD(dataset_size=1000, batch_size=100, num_steps=20, num_params=5, clip_norm=1.0, sampling="poisson")
    run = run.with_noise_multiplier(2.0)
    curve = account(run, notion="gdp")
    best = curve.best_of(4)
    assert best.kind == "bound" and best.for_whom == curve.for_whom
    assert "Only the best of several runs is published" in best.assumptions[-1]
    assert curve.epsilon(1e-5) < best.epsilon(1e-5) < curve.compose(4).epsilon(1e-5)
    with pytest.raises(InvalidArgument, match="for differential privacy only"):
        account(run).best_of(4)
    with pytest.raises(InvalidArgument, match="must be at least 1"):
        curve.best_of(0.5)
