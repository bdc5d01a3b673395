"""What every trade-off function must do, whatever its family: subclass `TradeOffContract`, give it a `curve` fixture.

The rates at which curves are looked at are evenly spaced in their normal score, so both ends are seen. Where an answer
is a supremum, it is found again by brute force: on a grid, then on ever finer grids around the best point.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from gmip.accounting.families import Gaussian
from gmip.accounting.tradeoff import DEFAULT_FPR_RANGE, Inverse, TradeOff
from gmip.errors import InvalidArgument

SCORES = np.linspace(-8.0, 8.0, 129)
RATES = np.concatenate([[0.0, 1.0e-30], ndtr(SCORES), [1.0]])
EPSILONS = np.array([-9.0, -3.0, -1.0, -0.25, -1.0e-3, 0.0, 1.0e-3, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0])

# Rounding, and the quadratures behind the one-step curves (1e-8 in the log of an error rate).
CLOSE = 1.0e-9
# Two polygons meet where false negatives fall below 1e-8 in a composed curve; duality is kept up to that.
DUAL = 3.0e-8


def slack(curve: TradeOff) -> float:
    """How far apart two answers about one composed curve may be that were each found on a grid of their own."""
    inner = getattr(curve, "_curve", curve)
    return 4.0 * float(getattr(inner, "tpr_error", 0.0))


def largest(gain: Callable[[np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray, *, first: int) -> np.ndarray:
    """The maxima of functions that rise and then fall: a grid, then finer ones between the best point's neighbours.

    low, high : arrays of shape (k,), the ends; gain takes points of shape (k, n) and returns values of that shape.
    """
    rows = np.arange(low.size)
    size = first
    for _ in range(25):
        grid = np.linspace(low, high, size, axis=1)
        values = gain(grid)
        top = np.argmax(values, axis=1)
        left, right = np.maximum(top - 1, 0), np.minimum(top + 1, size - 1)
        best = values[rows, top]
        if np.all(best - np.minimum(values[rows, left], values[rows, right]) < 0.1 * DUAL):
            break  # a concave function cannot rise by more than that between the three
        low, high = grid[rows, left], grid[rows, right]
        size = 9
    return best


def brute_best(curve: TradeOff, price: np.ndarray) -> np.ndarray:
    """sup_a TPR(a) - price a from the curve alone, for prices of shape (k,)."""

    def gain(score: np.ndarray) -> np.ndarray:
        rates = ndtr(score)
        return curve.tpr_at(rates) - price[:, None] * rates

    inner = largest(gain, np.full(price.shape, -12.0), np.full(price.shape, 8.2), first=65)
    return np.maximum(inner, np.maximum(curve.tpr_at(0.0), 1.0 - price))


class TradeOffContract:
    """Inherit, and provide a fixture `curve`."""

    # Whether `delta` is the supremum itself; a curve that only bounds it from above says False.
    delta_is_tight = True
    # Families that take long to evaluate are looked at in fewer places.
    rates = RATES
    epsilons = EPSILONS
    area_points = 4001

    # -- shape --------------------------------------------------------------------------------------------------------

    def test_ends(self, curve: TradeOff) -> None:
        assert curve.fnr_at(1.0) == 0.0
        assert curve.tpr_at(1.0) == 1.0
        assert curve.log_fnr(1.0) == -math.inf
        assert 0.0 <= curve.fnr_at(0.0) <= 1.0

    def test_lies_between_zero_and_guessing(self, curve: TradeOff) -> None:
        fnr = curve.fnr_at(self.rates)
        assert np.all(fnr >= 0.0)
        assert np.all(fnr <= 1.0 - self.rates + 1.0e-12)

    def test_does_not_increase(self, curve: TradeOff) -> None:
        assert np.all(np.diff(curve.fnr_at(self.rates)) <= 1.0e-12)
        assert np.all(np.diff(curve.tpr_at(self.rates)) >= -1.0e-12)

    def test_is_convex(self, curve: TradeOff) -> None:
        rates = np.unique(self.rates)
        fnr = curve.fnr_at(rates)
        for step in (1, 5, 20):
            a, b, c = rates[: -2 * step], rates[step:-step], rates[2 * step :]
            share = (c - b) / (c - a)
            chord = share * fnr[: -2 * step] + (1.0 - share) * fnr[2 * step :]
            assert np.all(fnr[step:-step] <= chord + CLOSE)

    def test_roc_is_concave_at_low_rates(self, curve: TradeOff) -> None:
        # TPR(a) - TPR(0) over a: the slope of a chord from the left end, which falls, checked in relative terms.
        rates = ndtr(np.linspace(-5.5, 0.0, 56))
        slope = (curve.tpr_at(rates) - curve.tpr_at(0.0)) / rates
        assert np.all(slope[1:] <= slope[:-1] * (1.0 + 1.0e-6) + 1.0e-15 / rates[:-1])

    # -- evaluation ---------------------------------------------------------------------------------------------------

    def test_three_ways_to_ask_agree(self, curve: TradeOff) -> None:
        fnr = curve.fnr_at(self.rates)
        np.testing.assert_allclose(np.exp(curve.log_fnr(self.rates)), fnr, rtol=1.0e-12, atol=0.0)
        np.testing.assert_allclose(curve.tpr_at(self.rates), 1.0 - fnr, rtol=0.0, atol=1.0e-15)
        np.testing.assert_array_equal(curve(self.rates), fnr)

    def test_no_nan(self, curve: TradeOff) -> None:
        assert not np.isnan(curve.log_fnr(self.rates)).any()
        assert not np.isnan(curve.tpr_at(self.rates)).any()

    def test_shapes(self, curve: TradeOff) -> None:
        answers: list[Callable[[Any], Any]] = [curve.fnr_at, curve.tpr_at, curve.log_fnr, curve.mu_at, curve]
        for answer in answers:
            one, row, table = answer(np.float64(0.25)), answer([0.25, 0.5, 0.75]), answer(np.full((2, 1, 3), 0.25))
            assert type(one) is float
            assert row.shape == (3,) and table.shape == (2, 1, 3)
            assert row[0] == pytest.approx(one, rel=1.0e-8)
            assert table[0, 0, 0] == table[1, 0, 2] == pytest.approx(one, rel=1.0e-8)
            assert answer(np.empty(0)).shape == (0,)
        assert type(curve.fnr_at(0.25)) is float
        assert curve.fnr_at([0.25]).shape == (1,)

    def test_rates_outside_the_unit_interval(self, curve: TradeOff) -> None:
        wrong: list[Any] = [math.nan, -1.0e-9, 1.0 + 1.0e-9, math.inf, "half", [0.5, math.nan], None]
        answers: list[Callable[[Any], Any]] = [curve.fnr_at, curve.tpr_at, curve.log_fnr, curve.mu_at, curve]
        for ask, value in itertools.product(answers, wrong):
            with pytest.raises(InvalidArgument, match="fpr"):
                ask(value)

    def test_arguments_are_left_alone(self, curve: TradeOff) -> None:
        rates = self.rates.copy()
        curve.fnr_at(rates)
        curve.tpr_at(rates)
        np.testing.assert_array_equal(rates, self.rates)

    # -- order --------------------------------------------------------------------------------------------------------

    def test_subsampling_is_the_mixture_and_only_helps_privacy(self, curve: TradeOff) -> None:
        fnr = curve.fnr_at(self.rates)
        for rate in (0.0, 1.0e-3, 0.4, 1.0):
            mixed = curve.subsample(rate).fnr_at(self.rates)
            np.testing.assert_allclose(mixed, rate * fnr + (1.0 - rate) * (1.0 - self.rates), rtol=0.0, atol=1.0e-12)
            assert np.all(mixed >= fnr - 1.0e-12)

    def test_composition_only_hurts_privacy(self, curve: TradeOff) -> None:
        other = Gaussian(0.5)
        together = (curve @ other).fnr_at(self.rates)
        assert np.all(together <= curve.fnr_at(self.rates) + CLOSE)
        assert np.all(together <= other.fnr_at(self.rates) + CLOSE)
        assert np.all(curve.compose(2).fnr_at(self.rates) <= curve.fnr_at(self.rates) + CLOSE)

    def test_composition_with_nothing(self, curve: TradeOff) -> None:
        alone, together = curve.fnr_at(self.rates), (curve @ Gaussian(0.0)).fnr_at(self.rates)
        assert np.all(together <= alone + CLOSE)
        if self.delta_is_tight:  # the size of the grid's error
            assert np.all(together >= alone - 1.0e-4)

    def test_composition_with_no_privacy(self, curve: TradeOff) -> None:
        assert (curve @ Gaussian(math.inf)).fnr_at(1.0e-6) == 0.0

    # -- epsilon and delta --------------------------------------------------------------------------------------------

    def test_delta_is_the_supremum(self, curve: TradeOff) -> None:
        deltas = np.array([curve.delta(epsilon) for epsilon in self.epsilons.tolist()])
        brute = brute_best(curve, np.exp(self.epsilons))
        assert np.all(deltas >= brute - DUAL - slack(curve))
        if self.delta_is_tight:
            assert np.all(deltas <= brute + DUAL + slack(curve))

    def test_curve_is_the_envelope_of_its_deltas(self, curve: TradeOff) -> None:
        # f(a) = sup over all real epsilon of 1 - delta(epsilon) - e^epsilon a
        rates = np.array([1.0e-3, 0.5, 0.999])

        def tangent(epsilons: np.ndarray) -> np.ndarray:
            deltas = np.array([curve.delta(e) for e in epsilons.ravel().tolist()]).reshape(epsilons.shape)
            return 1.0 - deltas - np.exp(epsilons) * rates[:, None]

        highest = np.maximum(largest(tangent, np.full(3, -20.0), np.full(3, 20.0), first=33), 0.0)
        np.testing.assert_allclose(highest, curve.fnr_at(rates), rtol=0.0, atol=DUAL + slack(curve))

    def test_delta_falls_and_is_convex_in_exp_epsilon(self, curve: TradeOff) -> None:
        slopes = np.geomspace(1.0e-4, 1.0e4, 65)
        deltas = np.array([curve.delta(math.log(s)) for s in slopes])
        assert np.all((deltas >= 0.0) & (deltas <= 1.0))
        assert np.all(np.diff(deltas) <= 1.0e-12)
        share = (slopes[2:] - slopes[1:-1]) / (slopes[2:] - slopes[:-2])
        if self.delta_is_tight:  # the smaller of two deltas is convex only in pieces
            assert np.all(deltas[1:-1] <= share * deltas[:-2] + (1.0 - share) * deltas[2:] + CLOSE)

    def test_delta_at_the_ends_of_the_line(self, curve: TradeOff) -> None:
        assert curve.delta(-800.0) == pytest.approx(1.0, abs=1.0e-12)
        assert curve.delta(800.0) == pytest.approx(curve.tpr_at(0.0), abs=1.0e-9)
        assert curve.delta(math.inf) == pytest.approx(curve.tpr_at(0.0), abs=1.0e-9)
        assert curve.delta(-math.inf) == pytest.approx(1.0, abs=1.0e-12)

    def test_epsilon_is_the_least_that_will_do(self, curve: TradeOff) -> None:
        for delta in (0.0, 1.0e-9, 1.0e-5, 0.01, 0.3, 1.0):
            epsilon = curve.epsilon(delta)
            assert epsilon >= 0.0
            if epsilon < math.inf:
                assert curve.delta(epsilon) <= delta * (1.0 + 1.0e-9) + 1.0e-13
            else:
                assert curve.delta(600.0) > delta or delta == 0.0
            if 0.0 < epsilon < math.inf:
                assert curve.delta(epsilon * (1.0 - 1.0e-6) - 1.0e-9) > delta * (1.0 - 1.0e-9) - 1.0e-13

    def test_epsilon_and_delta_of_nonsense(self, curve: TradeOff) -> None:
        for wrong in (-0.1, 1.1, math.nan, "x"):
            with pytest.raises(InvalidArgument, match="delta"):
                curve.epsilon(wrong)
        for absurd in (math.nan, "x", None):
            with pytest.raises(InvalidArgument, match="epsilon"):
                curve.delta(absurd)

    # -- one number ---------------------------------------------------------------------------------------------------

    def test_advantage(self, curve: TradeOff) -> None:
        assert curve.advantage() == curve.delta(0.0)
        assert 0.0 <= curve.advantage() <= 1.0

    def test_auc_is_the_area(self, curve: TradeOff) -> None:
        # f is convex: the trapezoidal rule is above its integral, and a point inside each interval, carried along by
        # the chords of its neighbours, is below.
        rates = np.concatenate([[0.0], ndtr(np.linspace(-9.0, 8.0, self.area_points)), [1.0]])
        above = float(np.trapezoid(curve.fnr_at(rates), rates))
        middle = 0.5 * (rates[1:] + rates[:-1])
        below = float(np.sum(curve.fnr_at(middle) * np.diff(rates)))
        assert above - below < 400.0 / self.area_points**2 + 1.0e-4
        assert below - 1.0e-6 <= 1.0 - curve.auc() <= above + 1.0e-6

    def test_bayes_accuracy(self, curve: TradeOff) -> None:
        prior = np.array([1.0e-3, 0.2, 0.7])
        accuracy = np.array([curve.bayes_accuracy(p) for p in prior.tolist()])
        assert np.all((accuracy >= np.maximum(prior, 1.0 - prior) - 1.0e-12) & (accuracy <= 1.0))
        best = 1.0 - prior + prior * brute_best(curve, (1.0 - prior) / prior)  # p TPR + (1 - p)(1 - a)
        assert np.all(accuracy >= best - DUAL - slack(curve))
        if self.delta_is_tight:
            assert np.all(accuracy <= best + DUAL + slack(curve))
        assert curve.bayes_accuracy(0.0) == curve.bayes_accuracy(1.0) == 1.0

    def test_bayes_accuracy_at_even_odds_is_the_advantage(self, curve: TradeOff) -> None:
        assert curve.bayes_accuracy() == pytest.approx(0.5 + 0.5 * curve.advantage(), abs=1.0e-12)

    def test_prior_outside_the_unit_interval(self, curve: TradeOff) -> None:
        for wrong in (-0.1, 1.1, math.nan):
            with pytest.raises(InvalidArgument, match="prior"):
                curve.bayes_accuracy(wrong)

    def test_mu_at_goes_through_the_point(self, curve: TradeOff) -> None:
        rates = ndtr(np.linspace(-5.0, 5.0, 41))
        mus = curve.mu_at(rates)
        assert np.all(mus >= 0.0)
        gaussian = [Gaussian(mu).fnr_at(rate) for rate, mu in zip(rates.tolist(), mus.tolist(), strict=True)]
        np.testing.assert_allclose(gaussian, curve.fnr_at(rates), rtol=CLOSE, atol=1.0e-12)

    def test_mu_at_the_ends(self, curve: TradeOff) -> None:
        for end in (0.0, 1.0):
            with pytest.raises(InvalidArgument, match="strictly between"):
                curve.mu_at(end)

    def test_equivalent_mu(self, curve: TradeOff) -> None:
        for fpr_range in (DEFAULT_FPR_RANGE, (0.01, 0.01)):
            mu = curve.equivalent_mu(fpr_range)
            rates = ndtr(
                np.linspace(float(ndtri(fpr_range[0])), float(ndtri(fpr_range[1])), 257)
            )  # the rates that the docstring names
            log_fnr = curve.log_fnr(rates)
            assert np.all(np.exp(log_fnr) >= Gaussian(mu).fnr_at(rates) - CLOSE)
            if mu == math.inf:
                assert np.any(log_fnr == -math.inf)
            elif mu > 0.0:  # no smaller one will do
                smaller = Gaussian(mu * (1.0 - 1.0e-3))
                fine = ndtr(np.linspace(float(ndtri(fpr_range[0])), float(ndtri(fpr_range[1])), 4001))  # for corners
                assert np.any(log_fnr < smaller.log_fnr(rates)) or np.any(curve.log_fnr(fine) < smaller.log_fnr(fine))
        between = ndtr(np.linspace(-4.2, 4.2, self.area_points))
        mu = curve.equivalent_mu()
        assert np.all(curve.fnr_at(between) >= Gaussian(mu).fnr_at(between) - 1.0e-5)  # corners between rates, too

    def test_equivalent_mu_of_no_range(self, curve: TradeOff) -> None:
        for wrong in ((0.0, 0.5), (0.5, 1.0), (0.2, 0.1), (math.nan, 0.5)):
            with pytest.raises(InvalidArgument, match="fpr_range"):
                curve.equivalent_mu(wrong)

    def test_assumptions_are_sentences(self, curve: TradeOff) -> None:
        assert isinstance(curve.assumptions, tuple)
        assert all(sentence.strip().endswith(".") for sentence in curve.assumptions)

    def test_has_a_short_repr(self, curve: TradeOff) -> None:
        assert 0 < len(repr(curve)) < 200


class OrderContract:
    """Order, inverse and symmetry: apart from the rest, as these look at many points and take some families long."""

    rates = RATES

    def test_order(self, curve: TradeOff) -> None:
        assert curve >= curve
        assert curve <= curve
        assert Gaussian(0.0) >= curve
        assert curve >= Gaussian(math.inf)
        assert (curve >= Gaussian(0.0)) == (curve.advantage() < 1.0e-12)

    def test_inverse_is_the_generalised_inverse(self, curve: TradeOff) -> None:
        # f^-1(b) = inf {x: f(x) <= b}
        inverse = curve.inverse()
        fnr = curve.fnr_at(self.rates)
        back = inverse.fnr_at(fnr)
        assert np.all(back <= self.rates + CLOSE + slack(curve))
        positive = fnr > 1.0e-7  # f is strictly decreasing there
        np.testing.assert_allclose(back[positive], self.rates[positive], rtol=0.0, atol=1.0e-7 + slack(curve))
        assert np.all(curve.fnr_at(inverse.fnr_at(self.rates)) <= self.rates + 1.0e-7 + slack(curve))

    def test_inverse_of_the_inverse(self, curve: TradeOff) -> None:
        again = curve.inverse().inverse()
        np.testing.assert_allclose(
            again.fnr_at(self.rates), curve.fnr_at(self.rates), rtol=0.0, atol=CLOSE + slack(curve)
        )

    def test_inverse_agrees_with_the_general_one(self, curve: TradeOff) -> None:
        own, general = curve.inverse(), Inverse(curve)
        np.testing.assert_allclose(
            own.fnr_at(self.rates), general.fnr_at(self.rates), rtol=0.0, atol=1.0e-7 + slack(curve)
        )
        for epsilon in EPSILONS.tolist():
            assert own.delta(epsilon) == pytest.approx(
                general.delta(epsilon), abs=DUAL + math.exp(abs(epsilon)) * slack(curve)
            )

    def test_symmetrised_is_symmetric_and_below_both(self, curve: TradeOff) -> None:
        both = curve.symmetrise()
        fnr = both.fnr_at(self.rates)
        assert np.all(fnr <= curve.fnr_at(self.rates) + 1.0e-7 + slack(curve))
        assert np.all(fnr <= curve.inverse().fnr_at(self.rates) + 1.0e-7 + slack(curve))
        back = both.fnr_at(fnr)  # its own inverse
        assert np.all(back <= self.rates + 1.0e-7 + slack(curve))
        positive = fnr > 1.0e-7
        np.testing.assert_allclose(back[positive], self.rates[positive], rtol=0.0, atol=1.0e-7 + slack(curve))
