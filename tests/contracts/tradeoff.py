"""What every trade-off function must do, whatever its family: subclass `TradeOffContract` and give it a `curve` fixture.

The rates at which curves are looked at are evenly spaced in their normal score, so both ends are seen. Where an answer is
a supremum, it is found again by brute force: on a grid, then on ever finer grids around the best point.
"""

from __future__ import annotations

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
RATES = np.concatenate([[0.0, 1.0e-200, 1.0e-30], ndtr(SCORES), [1.0]])
EPSILONS = np.array([-9.0, -3.0, -1.0, -0.25, -1.0e-3, 0.0, 1.0e-3, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0])

# Rounding, and the quadratures behind the one-step curves (1e-8 in the log of an error rate).
CLOSE = 1.0e-9
# Two polygons meet where false negatives fall below 1e-8 in a composed curve; duality is kept up to that.
DUAL = 3.0e-8


def largest(gain: Callable[[np.ndarray], np.ndarray], low: float, high: float, *, finer: int = 4) -> float:
    """The maximum of a unimodal function on [low, high]: a grid, then finer ones between the best point's neighbours."""
    best = -math.inf
    for _ in range(finer):
        grid = np.linspace(low, high, 129)
        values = gain(grid)
        top = int(np.argmax(values))
        best = max(best, float(values[top]))
        low, high = float(grid[max(top - 1, 0)]), float(grid[min(top + 1, grid.size - 1)])
    return best


def brute_delta(curve: TradeOff, epsilon: float) -> float:
    """sup_a 1 - f(a) - e^epsilon a, from f alone."""

    def gain(score: np.ndarray) -> np.ndarray:
        rates = ndtr(score)
        return curve.tpr_at(rates) - math.exp(epsilon) * rates

    ends = curve.tpr_at(np.array([0.0, 1.0])) - math.exp(epsilon) * np.array([0.0, 1.0])
    return max(largest(gain, -12.0, 8.2), float(ends.max()))


class TradeOffContract:
    """Inherit, and provide a fixture `curve`."""

    # Whether `delta` is the supremum itself; a curve that only bounds it from above says False.
    delta_is_tight = True

    # -- shape --------------------------------------------------------------------------------------------------------

    def test_ends(self, curve: TradeOff) -> None:
        assert curve.fnr_at(1.0) == 0.0
        assert curve.tpr_at(1.0) == 1.0
        assert curve.log_fnr(1.0) == -math.inf
        assert 0.0 <= curve.fnr_at(0.0) <= 1.0

    def test_lies_between_zero_and_guessing(self, curve: TradeOff) -> None:
        fnr = curve.fnr_at(RATES)
        assert np.all(fnr >= 0.0)
        assert np.all(fnr <= 1.0 - RATES + 1.0e-12)

    def test_does_not_increase(self, curve: TradeOff) -> None:
        assert np.all(np.diff(curve.fnr_at(RATES)) <= 1.0e-12)
        assert np.all(np.diff(curve.tpr_at(RATES)) >= -1.0e-12)

    def test_is_convex(self, curve: TradeOff) -> None:
        rates = np.unique(RATES)
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
        fnr = curve.fnr_at(RATES)
        np.testing.assert_allclose(np.exp(curve.log_fnr(RATES)), fnr, rtol=1.0e-12, atol=0.0)
        np.testing.assert_allclose(curve.tpr_at(RATES), 1.0 - fnr, rtol=0.0, atol=1.0e-15)
        np.testing.assert_array_equal(curve(RATES), fnr)

    def test_no_nan(self, curve: TradeOff) -> None:
        assert not np.isnan(curve.log_fnr(RATES)).any()
        assert not np.isnan(curve.tpr_at(RATES)).any()

    @pytest.mark.parametrize("ask", ["fnr_at", "tpr_at", "log_fnr", "mu_at", "__call__"])
    def test_shapes(self, curve: TradeOff, ask: str) -> None:
        answer: Callable[[Any], Any] = getattr(curve, ask)
        assert type(answer(0.25)) is float
        assert type(answer(np.float64(0.25))) is float
        one, row, table = answer([0.25]), answer([0.25, 0.5, 0.75]), answer(np.full((2, 3), 0.25))
        assert one.shape == (1,) and row.shape == (3,) and table.shape == (2, 3)
        assert one[0] == pytest.approx(answer(0.25), rel=1.0e-12)
        assert row[0] == pytest.approx(answer(0.25), rel=1.0e-12)
        assert np.all(table == table[0, 0])
        assert answer(np.empty(0)).shape == (0,)

    @pytest.mark.parametrize("wrong", [math.nan, -1.0e-9, 1.0 + 1.0e-9, math.inf, "half", [0.5, math.nan], None])
    def test_rates_outside_the_unit_interval(self, curve: TradeOff, wrong: Any) -> None:
        for ask in (curve.fnr_at, curve.tpr_at, curve.log_fnr, curve.mu_at, curve):
            with pytest.raises(InvalidArgument, match="fpr"):
                ask(wrong)

    def test_arguments_are_left_alone(self, curve: TradeOff) -> None:
        rates = RATES.copy()
        curve.fnr_at(rates)
        curve.tpr_at(rates)
        np.testing.assert_array_equal(rates, RATES)

    # -- inverse and symmetry -----------------------------------------------------------------------------------------

    def test_inverse_is_the_generalised_inverse(self, curve: TradeOff) -> None:
        # f^-1(b) = inf {x: f(x) <= b}
        inverse = curve.inverse()
        fnr = curve.fnr_at(RATES)
        back = inverse.fnr_at(fnr)
        assert np.all(back <= RATES + CLOSE)
        positive = fnr > 1.0e-7  # f is strictly decreasing there
        np.testing.assert_allclose(back[positive], RATES[positive], rtol=0.0, atol=1.0e-7)
        assert np.all(curve.fnr_at(inverse.fnr_at(RATES)) <= RATES + 1.0e-7)

    def test_inverse_of_the_inverse(self, curve: TradeOff) -> None:
        again = curve.inverse().inverse()
        np.testing.assert_allclose(again.fnr_at(RATES), curve.fnr_at(RATES), rtol=0.0, atol=CLOSE)

    def test_inverse_agrees_with_the_general_one(self, curve: TradeOff) -> None:
        own, general = curve.inverse(), Inverse(curve)
        np.testing.assert_allclose(own.fnr_at(RATES), general.fnr_at(RATES), rtol=0.0, atol=1.0e-7)
        for epsilon in EPSILONS:
            assert own.delta(epsilon) == pytest.approx(general.delta(epsilon), abs=DUAL)

    def test_symmetrised_is_symmetric_and_below_both(self, curve: TradeOff) -> None:
        both = curve.symmetrise()
        assert curve.is_at_least(both, tolerance=CLOSE)
        assert curve.inverse().is_at_least(both, tolerance=1.0e-7)
        inverse = Inverse(both)
        np.testing.assert_allclose(both.fnr_at(RATES), inverse.fnr_at(RATES), rtol=0.0, atol=1.0e-7)

    # -- order --------------------------------------------------------------------------------------------------------

    def test_order(self, curve: TradeOff) -> None:
        assert curve >= curve
        assert curve <= curve
        assert Gaussian(0.0) >= curve
        assert curve >= Gaussian(math.inf)

    @pytest.mark.parametrize("rate", [0.0, 1.0e-3, 0.4, 1.0])
    def test_subsampling_is_the_mixture_and_only_helps_privacy(self, curve: TradeOff, rate: float) -> None:
        mixed = curve.subsample(rate)
        np.testing.assert_allclose(
            mixed.fnr_at(RATES), rate * curve.fnr_at(RATES) + (1.0 - rate) * (1.0 - RATES), rtol=0.0, atol=1.0e-12
        )
        assert mixed >= curve

    def test_composition_only_hurts_privacy(self, curve: TradeOff) -> None:
        other = Gaussian(0.5)
        together = curve @ other
        assert curve.is_at_least(together, tolerance=CLOSE)
        assert other.is_at_least(together, tolerance=CLOSE)
        assert curve.is_at_least(curve.compose(2), tolerance=CLOSE)

    def test_composition_with_nothing(self, curve: TradeOff) -> None:
        together = curve @ Gaussian(0.0)
        assert curve.is_at_least(together, tolerance=CLOSE)
        assert together.is_at_least(curve, tolerance=1.0e-4)  # the size of the grid's error

    def test_composition_with_no_privacy(self, curve: TradeOff) -> None:
        assert (curve @ Gaussian(math.inf)).fnr_at(1.0e-6) == 0.0

    # -- epsilon and delta --------------------------------------------------------------------------------------------

    def test_delta_is_the_supremum(self, curve: TradeOff) -> None:
        for epsilon in EPSILONS:
            delta, brute = curve.delta(epsilon), brute_delta(curve, float(epsilon))
            assert delta >= brute - DUAL
            if self.delta_is_tight:
                assert delta <= brute + DUAL

    def test_curve_is_the_envelope_of_its_deltas(self, curve: TradeOff) -> None:
        # f(a) = sup over all real epsilon of 1 - delta(epsilon) - e^epsilon a
        for rate in (1.0e-4, 0.01, 0.2, 0.5, 0.9, 0.999):

            def tangent(epsilons: np.ndarray, rate: float = rate) -> np.ndarray:
                return np.array([1.0 - curve.delta(e) - math.exp(e) * rate for e in epsilons.tolist()])

            highest = largest(tangent, -20.0, 20.0, finer=3)
            fnr = curve.fnr_at(rate)
            assert highest <= fnr + DUAL
            assert max(highest, 0.0) >= fnr - 1.0e-5  # three grids leave a corner this far away

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

    @pytest.mark.parametrize("delta", [0.0, 1.0e-9, 1.0e-5, 0.01, 0.3, 0.9, 1.0])
    def test_epsilon_is_the_least_that_will_do(self, curve: TradeOff, delta: float) -> None:
        epsilon = curve.epsilon(delta)
        assert epsilon >= 0.0
        if epsilon < math.inf:
            assert curve.delta(epsilon) <= delta * (1.0 + 1.0e-9) + 1.0e-13
        if 0.0 < epsilon < math.inf:
            assert curve.delta(epsilon * (1.0 - 1.0e-6) - 1.0e-9) > delta * (1.0 - 1.0e-9) - 1.0e-13
        if epsilon == math.inf:
            assert curve.delta(600.0) > delta or delta == 0.0

    @pytest.mark.parametrize("wrong", [-0.1, 1.1, math.nan, "x"])
    def test_epsilon_of_no_probability(self, curve: TradeOff, wrong: Any) -> None:
        with pytest.raises(InvalidArgument, match="delta"):
            curve.epsilon(wrong)

    @pytest.mark.parametrize("wrong", [math.nan, "x", None])
    def test_delta_of_no_number(self, curve: TradeOff, wrong: Any) -> None:
        with pytest.raises(InvalidArgument, match="epsilon"):
            curve.delta(wrong)

    # -- one number ---------------------------------------------------------------------------------------------------

    def test_advantage(self, curve: TradeOff) -> None:
        assert curve.advantage() == curve.delta(0.0)
        assert 0.0 <= curve.advantage() <= 1.0

    def test_auc_is_the_area(self, curve: TradeOff) -> None:
        # f is convex: the trapezoidal rule is above its integral, and a point inside each interval, carried along by
        # the chords of its neighbours, is below.
        rates = np.concatenate([[0.0], ndtr(np.linspace(-9.0, 8.0, 4001)), [1.0]])
        above = float(np.trapezoid(curve.fnr_at(rates), rates))
        middle = 0.5 * (rates[1:] + rates[:-1])
        below = float(np.sum(curve.fnr_at(middle) * np.diff(rates)))
        assert above - below < 1.0e-4
        assert below - 1.0e-6 <= 1.0 - curve.auc() <= above + 1.0e-6

    @pytest.mark.parametrize("prior", [0.0, 1.0e-3, 0.2, 0.5, 0.7, 0.999, 1.0])
    def test_bayes_accuracy(self, curve: TradeOff, prior: float) -> None:
        accuracy = curve.bayes_accuracy(prior)

        def right(score: np.ndarray) -> np.ndarray:
            rates = ndtr(score)
            return prior * curve.tpr_at(rates) + (1.0 - prior) * (1.0 - rates)

        best = max(largest(right, -12.0, 8.2), 1.0 - prior + prior * curve.tpr_at(0.0), prior)
        assert max(prior, 1.0 - prior) - 1.0e-12 <= accuracy <= 1.0
        assert accuracy >= best - DUAL
        if self.delta_is_tight:
            assert accuracy <= best + DUAL

    def test_bayes_accuracy_at_even_odds_is_the_advantage(self, curve: TradeOff) -> None:
        assert curve.bayes_accuracy() == pytest.approx(0.5 + 0.5 * curve.advantage(), abs=1.0e-12)

    @pytest.mark.parametrize("wrong", [-0.1, 1.1, math.nan])
    def test_prior_outside_the_unit_interval(self, curve: TradeOff, wrong: float) -> None:
        with pytest.raises(InvalidArgument, match="prior"):
            curve.bayes_accuracy(wrong)

    def test_mu_at_goes_through_the_point(self, curve: TradeOff) -> None:
        rates = ndtr(np.linspace(-5.0, 5.0, 41))
        mus = curve.mu_at(rates)
        assert np.all(mus >= 0.0)
        for rate, mu in zip(rates.tolist(), mus.tolist(), strict=True):
            assert Gaussian(mu).fnr_at(rate) == pytest.approx(curve.fnr_at(rate), rel=1.0e-9, abs=1.0e-12)

    @pytest.mark.parametrize("end", [0.0, 1.0])
    def test_mu_at_the_ends(self, curve: TradeOff, end: float) -> None:
        with pytest.raises(InvalidArgument, match="strictly between"):
            curve.mu_at(end)

    @pytest.mark.parametrize("fpr_range", [DEFAULT_FPR_RANGE, (1.0e-3, 1.0e-2), (0.05, 0.05)])
    def test_equivalent_mu(self, curve: TradeOff, fpr_range: tuple[float, float]) -> None:
        mu = curve.equivalent_mu(fpr_range)
        rates = ndtr(np.linspace(*ndtri(fpr_range), 257))
        fnr = curve.fnr_at(rates)
        assert np.all(fnr >= Gaussian(mu).fnr_at(rates) - 1.0e-9)
        between = ndtr(np.linspace(*ndtri(fpr_range), 1000))
        assert np.all(curve.fnr_at(between) >= Gaussian(mu).fnr_at(between) - 2.0e-3)  # corners between the rates
        if 0.0 < mu < math.inf:  # and no smaller one will do; in scores, for fnr may be too small to compare
            assert np.max(curve.mu_at(rates)) > mu * (1.0 - 1.0e-4)
            assert np.any(curve.log_fnr(rates) < Gaussian(mu * (1.0 - 1.0e-4)).log_fnr(rates))
        if mu == math.inf:
            assert np.any(fnr == 0.0)

    @pytest.mark.parametrize("wrong", [(0.0, 0.5), (0.5, 1.0), (0.2, 0.1), (math.nan, 0.5)])
    def test_equivalent_mu_of_no_range(self, curve: TradeOff, wrong: tuple[float, float]) -> None:
        with pytest.raises(InvalidArgument, match="fpr_range"):
            curve.equivalent_mu(wrong)

    def test_assumptions_are_sentences(self, curve: TradeOff) -> None:
        assert isinstance(curve.assumptions, tuple)
        assert all(sentence.strip().endswith(".") for sentence in curve.assumptions)

    def test_has_a_short_repr(self, curve: TradeOff) -> None:
        assert 0 < len(repr(curve)) < 200
