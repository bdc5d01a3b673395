"""Stochastic composition against the closed form for Gaussian tests (docs/theory/trade-offs.md)."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from gmip.accounting.composition import MAX_GROUPS, group_susceptibilities, stochastic_composition
from gmip.accounting.families import EpsilonDelta, Gaussian
from gmip.errors import InvalidArgument

RATES = np.concatenate([[0.0], ndtr(np.linspace(-5.0, 5.0, 51)), [1.0]])


@pytest.mark.parametrize(
    ("mus", "weights"),
    [([0.5, 2.0], [0.5, 0.5]), ([0.1, 1.0, 3.0], [0.9, 0.09, 0.01]), ([1.0, 1.0001], [0.2, 0.8]), ([4.0], [1.0])],
)
def test_gaussian_tests_by_one_threshold(mus: list[float], weights: list[float]) -> None:
    curve = stochastic_composition([Gaussian(mu) for mu in mus], weights)
    mu, share = np.array(mus), np.array(weights)
    t = np.linspace(-8.0, 12.0, 81)[:, None]
    fpr, tpr = ndtr(-0.5 * mu - t / mu) @ share, ndtr(0.5 * mu - t / mu) @ share
    excess = curve.tpr_at(fpr) - tpr
    assert np.all(excess >= -1.0e-9)
    assert np.all(excess <= 1.5 * curve.tpr_error + 1.0e-6)


def test_lies_between_the_worst_and_the_best_record() -> None:
    curves = [Gaussian(0.3), Gaussian(1.5).subsample(0.4), Gaussian(1.0)]
    pooled = stochastic_composition(curves)(RATES)
    each = np.array([curve(RATES) for curve in curves])
    assert np.all(pooled >= each.min(axis=0) - 1.0e-4)
    assert np.all(pooled <= each.max(axis=0) + 1.0e-9)
    # and an attacker who spreads false positives evenly does no better than the one who spends them well
    assert np.all(pooled <= each.mean(axis=0) + 1.0e-9)


def test_one_curve_is_itself() -> None:
    curve = Gaussian(1.2)
    np.testing.assert_allclose(stochastic_composition([curve])(RATES), curve(RATES), rtol=0.0, atol=1.0e-5)
    thrice = stochastic_composition([curve] * 3)
    np.testing.assert_allclose(thrice(RATES), stochastic_composition([curve])(RATES), rtol=0.0, atol=1.0e-12)


def test_weights_are_shares() -> None:
    curves = [Gaussian(0.3), Gaussian(2.0)]
    np.testing.assert_allclose(
        stochastic_composition(curves, [3, 1])(RATES), stochastic_composition(curves, [0.75, 0.25])(RATES), rtol=1.0e-12
    )
    np.testing.assert_allclose(
        stochastic_composition(curves)(RATES), stochastic_composition(curves, [1, 1])(RATES), rtol=1.0e-12
    )


def test_a_lost_record_is_a_share_of_the_tpr() -> None:
    curve = stochastic_composition([EpsilonDelta(0.0), Gaussian(float("inf"))], [0.99, 0.01])
    # No false positive need be spent on the lost record: the other 99% get them all.
    np.testing.assert_allclose(curve(RATES), np.maximum(0.99 - RATES, 0.0), atol=1.0e-9)


def test_composes_further() -> None:
    step = stochastic_composition([Gaussian(0.2), Gaussian(0.6)])
    twice = step.compose(2)
    worst = Gaussian(0.6).compose(2)
    assert twice.is_at_least(worst, tolerance=1.0e-4)
    assert step.is_at_least(twice, tolerance=1.0e-9)


def test_arguments() -> None:
    with pytest.raises(InvalidArgument, match="empty"):
        stochastic_composition([])
    with pytest.raises(InvalidArgument, match="weights"):
        stochastic_composition([Gaussian(1.0)], [0.5, 0.5])
    for wrong in ([0.0], [-1.0], [float("nan")], ["x"]):
        with pytest.raises(InvalidArgument, match="weights"):
            stochastic_composition([Gaussian(1.0)], wrong)


class TestGroups:
    def test_few_values_are_kept(self) -> None:
        values, shares = group_susceptibilities(np.array([3.0, 1.0, 3.0, 2.0]))
        np.testing.assert_array_equal(values, [1.0, 2.0, 3.0])
        np.testing.assert_allclose(shares, [0.25, 0.25, 0.5])

    def test_many_values_are_rounded_up(self) -> None:
        rng = np.random.default_rng(5)
        given = np.exp(rng.normal(3.0, 1.5, 20_000))
        values, shares = group_susceptibilities(given)
        assert values.size <= MAX_GROUPS
        assert shares.sum() == pytest.approx(1.0)
        assert values[-1] == given.max()
        assert np.all(np.isin(values, given)) and np.all(np.diff(values) > 0.0)
        # every share of the largest values is at least as large as before: rounded up, and by little
        for value in np.quantile(given, [0.1, 0.5, 0.9, 0.999]):
            before, after = np.mean(given > value), shares[values > value].sum()
            assert before <= after + 1.0e-12
        assert (shares @ values) / given.mean() < (given.max() / given.min()) ** (1.0 / MAX_GROUPS)
        assert shares @ values >= given.mean()
