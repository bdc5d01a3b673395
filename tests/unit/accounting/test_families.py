"""Trade-off families: closed forms and constructors. What all of them share is in tests/contracts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy.special import ndtr, ndtri

from gmip.accounting.families import EpsilonDelta, Gaussian, PiecewiseLinear
from gmip.errors import InvalidArgument

RATES = np.array([0.0, 1.0e-9, 1.0e-3, 0.05, 0.3, 0.5, 0.9, 0.999, 1.0])


class TestGaussian:
    @pytest.mark.parametrize("mu", [1.0e-8, 0.3, 1.0, 4.0, 20.0])
    def test_closed_forms(self, mu: float) -> None:
        curve = Gaussian(mu)
        np.testing.assert_allclose(curve(RATES), ndtr(ndtri(1.0 - RATES) - mu), rtol=1.0e-6, atol=1.0e-300)
        assert curve.advantage() == pytest.approx(2.0 * ndtr(0.5 * mu) - 1.0, rel=1.0e-9)
        assert curve.auc() == pytest.approx(ndtr(mu / math.sqrt(2.0)))
        assert curve.equivalent_mu() == curve.mu_at(0.37) == mu

    def test_deep_tails_stay_in_logs(self) -> None:
        # Phi(-35) is about 1e-268; 45 standard deviations are beyond any double.
        assert Gaussian(45.0).log_fnr(0.5) == pytest.approx(
            -(45.0**2) / 2 - math.log(45.0 * math.sqrt(2 * math.pi)), rel=1e-5
        )
        assert Gaussian(45.0).fnr_at(0.5) == 0.0
        assert Gaussian(45.0).mu_at(0.5) == 45.0

    def test_no_privacy_and_perfect_privacy(self) -> None:
        none, all_ = Gaussian(math.inf), Gaussian(0.0)
        assert none.tpr_at(0.0) == none.advantage() == none.auc() == none.bayes_accuracy(0.3) == 1.0
        assert none.epsilon(0.5) == math.inf and none.epsilon(1.0) == 0.0
        assert all_.advantage() == all_.epsilon(0.0) == 0.0 and all_.auc() == 0.5
        np.testing.assert_allclose(all_(RATES), 1.0 - RATES, rtol=1.0e-15)

    def test_is_its_own_inverse(self) -> None:
        curve = Gaussian(1.2)
        assert curve.inverse() is curve.symmetrise() is curve

    @pytest.mark.parametrize("mu", [-0.1, -math.inf, math.nan, "1", None, True])
    def test_mu_must_be_a_number_that_is_not_negative(self, mu: object) -> None:
        with pytest.raises(InvalidArgument, match="mu"):
            Gaussian(mu)

    def test_repr(self) -> None:
        assert repr(Gaussian(1.25)) == "Gaussian(mu=1.25)"


class TestEpsilonDelta:
    @pytest.mark.parametrize(
        ("epsilon", "delta"), [(0.0, 0.0), (0.0, 0.3), (1.0, 0.0), (2.0, 1.0e-5), (0.5, 0.5), (3, 1)]
    )
    def test_closed_form(self, epsilon: float, delta: float) -> None:
        expected = np.maximum(1.0 - delta - math.exp(epsilon) * RATES, math.exp(-epsilon) * (1.0 - delta - RATES))
        np.testing.assert_allclose(
            EpsilonDelta(epsilon, delta)(RATES), np.maximum(expected, 0.0), rtol=0.0, atol=1.0e-15
        )

    @pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.0), (2.0, 1.0e-5), (0.5, 0.5)])
    def test_gives_back_what_it_was_made_of(self, epsilon: float, delta: float) -> None:
        curve = EpsilonDelta(epsilon, delta)
        assert curve.delta(epsilon) == pytest.approx(delta, abs=1.0e-15)
        assert curve.epsilon(delta) == pytest.approx(epsilon, rel=1.0e-12)
        assert curve.advantage() == pytest.approx(delta + (1 - delta) * math.tanh(0.5 * epsilon), rel=1.0e-12)

    def test_less_delta_than_it_has_is_out_of_reach(self) -> None:
        assert EpsilonDelta(1.0, 0.01).epsilon(0.009) == math.inf

    @pytest.mark.parametrize(
        ("epsilon", "delta", "match"),
        [(-1, 0, "epsilon"), (math.inf, 0, "epsilon"), (1, 1.1, "delta"), (1, -0.1, "delta")],
    )
    def test_arguments(self, epsilon: float, delta: float, match: str) -> None:
        with pytest.raises(InvalidArgument, match=match):
            EpsilonDelta(epsilon, delta)

    def test_repr(self) -> None:
        assert repr(EpsilonDelta(1.0, 1e-5)) == "EpsilonDelta(epsilon=1, delta=1e-05)"


class TestPiecewiseLinear:
    def test_goes_through_its_points(self) -> None:
        curve = PiecewiseLinear([0.4, 0.1], [0.1, 0.5])  # in any order
        np.testing.assert_allclose(curve([0.0, 0.05, 0.1, 0.25, 0.4, 0.7, 1.0]), [1.0, 0.75, 0.5, 0.3, 0.1, 0.05, 0.0])

    def test_points_above_the_hull_are_dropped(self) -> None:
        curve = PiecewiseLinear([0.1, 0.3, 0.4], [0.5, 0.45, 0.1])
        assert curve(0.3) == pytest.approx(0.5 + (0.3 - 0.1) / (0.4 - 0.1) * (0.1 - 0.5))
        np.testing.assert_allclose(PiecewiseLinear([0.5], [0.9])(RATES), 1.0 - RATES, rtol=1.0e-15)

    def test_a_jump_at_zero(self) -> None:
        curve = PiecewiseLinear([0.0], [0.6])
        assert curve(0.0) == pytest.approx(0.6)
        assert curve.epsilon(0.4) == pytest.approx(0.0)
        assert curve.epsilon(0.39) == math.inf

    def test_auc_by_hand(self) -> None:
        assert PiecewiseLinear([0.2], [0.3]).auc() == pytest.approx(1.0 - (0.2 * 1.3 / 2 + 0.8 * 0.3 / 2))

    def test_from_roc_by_hand(self) -> None:
        # thresholds: 3 finds half of the members and nobody else, 1 all members and one other of two
        curve = PiecewiseLinear.from_roc([1.0, 3.0], [0.0, 2.0])
        np.testing.assert_allclose(curve([0.0, 0.25, 0.5, 1.0]), [0.5, 0.25, 0.0, 0.0])
        assert curve.auc() == pytest.approx(0.875)  # the hull's; 0.75 for the steps

    def test_from_roc_with_ties_and_infinite_scores(self) -> None:
        same = PiecewiseLinear.from_roc([1.0, 1.0], [1.0, 1.0, 1.0])
        np.testing.assert_allclose(same(RATES), 1.0 - RATES, atol=1.0e-15)
        apart = PiecewiseLinear.from_roc([math.inf], [-math.inf])
        assert apart.tpr_at(0.0) == 1.0

    def test_from_roc_of_gaussian_scores(self) -> None:
        rng = np.random.default_rng(3)
        curve = PiecewiseLinear.from_roc(rng.normal(1.0, 1.0, 20_000), rng.normal(0.0, 1.0, 20_000))
        rates = np.array([0.05, 0.2, 0.5, 0.8])
        np.testing.assert_allclose(curve(rates), Gaussian(1.0)(rates), atol=0.02)  # 4 standard errors and the hull

    @pytest.mark.parametrize(("members", "others"), [([], [1.0]), ([1.0], []), ([math.nan], [1.0]), (["x"], [1.0])])
    def test_from_roc_needs_scores(self, members: list, others: list) -> None:
        with pytest.raises(InvalidArgument, match="member_scores"):
            PiecewiseLinear.from_roc(members, others)

    def test_lengths_must_match(self) -> None:
        with pytest.raises(InvalidArgument, match="one length"):
            PiecewiseLinear([0.1, 0.2], [0.5])

    @pytest.mark.parametrize(("fpr", "fnr", "match"), [([1.1], [0.5], "fpr"), ([0.1], [math.nan], "fnr")])
    def test_points_must_be_probabilities(self, fpr: list, fnr: list, match: str) -> None:
        with pytest.raises(InvalidArgument, match=match):
            PiecewiseLinear(fpr, fnr)


class TestFromDpAccounting:
    @pytest.mark.parametrize(("sigma", "rate", "steps"), [(1.0, 1.0, 1), (0.8, 0.05, 20)])
    def test_agrees_with_their_deltas(self, sigma: float, rate: float, steps: int) -> None:
        pld = privacy_loss_distribution.from_gaussian_mechanism(
            sigma, sampling_prob=rate, value_discretization_interval=1.0e-3
        ).self_compose(steps)
        curve = PiecewiseLinear.from_dp_accounting(pld)
        for epsilon in (0.0, 0.3, 1.0, 2.0, 4.0):
            theirs = pld.get_delta_for_epsilon(epsilon)
            assert theirs - 1.0e-12 <= curve.delta(epsilon) <= theirs + 1.0e-5
        # a polygon between epsilons 0.01 apart: no attacker gets less than his due
        assert curve.epsilon(1.0e-5) == pytest.approx(pld.get_epsilon_for_delta(1.0e-5), abs=0.02)

    def test_is_near_the_gaussian_it_came_from(self) -> None:
        pld = privacy_loss_distribution.from_gaussian_mechanism(0.5, value_discretization_interval=1.0e-3)
        curve = PiecewiseLinear.from_dp_accounting(pld)
        rates = np.linspace(0.0, 1.0, 101)
        excess = Gaussian(2.0)(rates) - curve(rates)
        assert np.all((excess >= -1.0e-9) & (excess <= 1.0e-4))

    def test_other_things_are_turned_away(self) -> None:
        with pytest.raises(InvalidArgument, match="pld"):
            PiecewiseLinear.from_dp_accounting(1.0)


class TestRenyi:
    @pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 5.0])
    def test_no_curve_of_that_rdp_is_below(self, mu: float) -> None:
        orders = 1.0 + np.geomspace(1.0e-3, 1.0e4, 500)
        gaussian = Gaussian(mu)  # its divergence at order alpha is alpha mu^2/2
        for curve in (PiecewiseLinear.from_rdp(orders, 0.5 * mu * mu * orders), PiecewiseLinear.from_zcdp(mu * mu / 2)):
            assert gaussian.is_at_least(curve)
            assert curve.epsilon(1.0e-6) == pytest.approx(gaussian.epsilon(1.0e-6), rel=0.12)
            np.testing.assert_allclose(curve.inverse()(RATES[1:-1]), curve(RATES[1:-1]), rtol=1.0e-9, atol=1.0e-12)

    def test_one_order_is_one_delta_for_each_epsilon(self) -> None:
        # Canonne, Kamath and Steinke (2020), Proposition 12
        alpha, rho, epsilon = 8.0, 0.4, 2.0
        delta = math.exp((alpha - 1) * (rho - epsilon)) / (alpha - 1) * (1 - 1 / alpha) ** alpha
        curve = PiecewiseLinear.from_rdp([alpha], [rho])
        assert delta <= curve.delta(epsilon) <= 1.02 * delta

    def test_accountants_of_dp_accounting(self) -> None:
        import dp_accounting
        from dp_accounting.pld import PLDAccountant
        from dp_accounting.rdp import RdpAccountant

        sampled = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.0))
        found = {}
        for kind in (RdpAccountant, PLDAccountant):
            accountant = kind()
            accountant.compose(dp_accounting.SelfComposedDpEvent(sampled, 100))
            curve = found[kind] = PiecewiseLinear.from_dp_accounting(accountant)
            theirs = accountant.get_epsilon(1.0e-6)
            assert theirs - 1.0e-6 <= curve.epsilon(1.0e-6) <= 1.02 * theirs
        assert found[PLDAccountant].is_at_least(found[RdpAccountant], tolerance=1.0e-4)

    @pytest.mark.parametrize(
        ("orders", "rdp"), [([1.0], [0.1]), ([2.0, 3.0], [0.1]), ([2.0], [-1.0]), ([2.0], [math.nan])]
    )
    def test_what_is_no_rdp_is_turned_away(self, orders: list[float], rdp: list[float]) -> None:
        with pytest.raises(InvalidArgument, match="orders"):
            PiecewiseLinear.from_rdp(orders, rdp)
