"""p-values of residuals: uniform for noise, against SciPy and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gmip.stats.record_tests import (
    cosine_p_value,
    cut_off_p_value,
    dependent_noise,
    normal_p_value,
    quadratic_form_p_value,
    shared_noise,
    size_p_value,
)


def test_normal_and_size() -> None:
    assert normal_p_value(-1.96) == pytest.approx(2 * stats.norm.sf(1.96))
    assert float(size_p_value(5.0, 10.0)) == pytest.approx(2 * stats.chi2.cdf(5.0, 10))
    assert float(size_p_value(30.0, 10.0)) == pytest.approx(2 * stats.chi2.sf(30.0, 10))
    assert float(size_p_value(10.0, 10.0)) <= 1.0


def test_cut_off_noise() -> None:
    """A sound one's p-value is uniform, up to the size that is estimated; without what is beyond 3.5 it is small."""
    draws = np.random.default_rng(3).normal(size=(400, 20_000))
    found = np.array([cut_off_p_value(one) for one in draws])
    assert stats.kstest(found, "uniform").pvalue > 0.001
    cut = np.array([cut_off_p_value(np.clip(one, -3.5, 3.5)) for one in draws])
    assert (cut < 1.0e-3).mean() > 0.9
    assert cut_off_p_value(np.zeros(5)) == 1.0


@pytest.mark.parametrize("dimension", [3, 50])
def test_cosine_of_independent_vectors(dimension: int) -> None:
    """Pearson's correlation of d + 1 pairs has the law of a cosine in d dimensions."""
    t = 0.4 * np.sqrt((dimension - 1) / (1 - 0.16))
    assert float(cosine_p_value(0.4, dimension)) == pytest.approx(2 * stats.t.sf(t, dimension - 1), rel=1e-9)
    assert float(cosine_p_value(1.0, dimension)) == 0.0
    assert float(cosine_p_value(0.9, 1)) == 1.0


@pytest.mark.parametrize("weights", [np.ones(8), np.array([5.0, 1.0, 0.5, 0.1]), np.geomspace(1, 1e-4, 40)])
def test_quadratic_form(weights: np.ndarray) -> None:
    """100,000 draws: five standard deviations of a share, and a tenth for the saddle-point formula."""
    draws = np.random.default_rng(1).chisquare(1, (100_000, weights.size)) @ weights
    for share in (0.5, 0.1, 0.01, 0.001):
        found = quadratic_form_p_value(float(np.quantile(draws, 1 - share)), weights)
        assert abs(found - share) < 0.1 * share + 5 * np.sqrt(share / 100_000)
    assert quadratic_form_p_value(0.0, weights) == 1.0


def test_quadratic_form_of_one_weight_is_chi_squared() -> None:
    assert quadratic_form_p_value(12.0, np.array([3.0])) == pytest.approx(stats.chi2.sf(4.0, 1))


def test_shared_noise() -> None:
    rng = np.random.default_rng(2)
    own = [shared_noise(rng.standard_normal((6, 30)))[0] for _ in range(400)]
    assert 0.02 < np.mean(np.array(own) < 0.05) < 0.1
    p, strength = shared_noise(np.tile(rng.standard_normal((1, 300)), (6, 1)))
    assert p < 1e-30 and strength == pytest.approx(1.0, abs=0.3)
    assert shared_noise(np.ones((1, 5))) == (1.0, 0.0)


@pytest.mark.parametrize(("samples", "columns"), [(3, 3), (12, 8), (60, 17)])
def test_dependent_noise(samples: int, columns: int) -> None:
    """Uniform p-values, of noise of any size; a column that follows from the others is seen."""
    rng = np.random.default_rng(3)
    draws = 5.0 * rng.standard_normal((4000, samples, columns))
    found = np.array([dependent_noise(x.T @ x, samples)[0] for x in draws])
    for share in (0.2, 0.05, 0.01):
        assert abs(np.mean(found < share) - share) < 0.1 * share + 4 * np.sqrt(share / 4000)
    x = draws[0]
    x[:, -1] = x[:, :-1].sum(axis=1) / (columns - 1) ** 0.5
    p, least = dependent_noise(x.T @ x, samples)
    assert p < 1e-6 and least < 1e-6


def test_fewer_samples_than_columns_tell_nothing_of_dependence() -> None:
    x = np.random.default_rng(4).standard_normal((5, 6))
    assert dependent_noise(x.T @ x, 5) == (1.0, 1.0)
