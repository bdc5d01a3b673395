"""Composition: closed forms and the paper's CLT. Its accuracy is tested in tests/oracles."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from gmip.accounting.account import account
from gmip.accounting.composition import Composed, Maximum, clt_mu, compose, stochastic_composition, subsampled_clt_mu
from gmip.accounting.families import EpsilonDelta, Gaussian, PiecewiseLinear
from gmip.accounting.gaussian_pair import ChiSquared, GaussianPair
from gmip.accounting.step import tight_step
from gmip.vocabulary import NoisySGD

RATES = np.array([0.0, 1.0e-6, 1.0e-3, 0.05, 0.3, 0.5, 0.9, 0.999, 1.0])


def test_gaussians_add_in_squares() -> None:
    together = Gaussian(3.0) @ Gaussian(4.0)
    assert isinstance(together, Gaussian) and together.mu == pytest.approx(5.0)
    many = Gaussian(0.5).compose(16)
    assert isinstance(many, Gaussian) and many.mu == pytest.approx(2.0)
    mixed = compose([(Gaussian(1.0), 4), (Gaussian(2.0), 3), (Gaussian(0.0), 9)])
    assert isinstance(mixed, Gaussian) and mixed.mu == pytest.approx(4.0)


def test_one_without_privacy_spoils_all() -> None:
    assert (Gaussian(1.0) @ Gaussian(math.inf)).fnr_at(0.3) == 0.0
    assert (ChiSquared(dimension=3, susceptibility=2, batch_size=9) @ Gaussian(math.inf)).fnr_at(0.3) == 0.0
    assert (Gaussian(1.0).subsample(0.1) @ Gaussian(math.inf)).fnr_at(0.3) == 0.0


def test_pairs_stay_pairs() -> None:
    pair = GaussianPair(drop=[0.0, 0.1], shift=[0.3, 0.4], multiplicity=[1, 5])
    many = pair.compose(9)
    assert isinstance(many, GaussianPair)
    expected = GaussianPair(drop=[0.0, 0.1], shift=[0.9, 1.2], multiplicity=[9, 45])
    np.testing.assert_allclose(many.shift, expected.shift)
    np.testing.assert_allclose(many.multiplicity, expected.multiplicity)
    np.testing.assert_allclose(many(RATES), expected(RATES), rtol=0.0, atol=1.0e-12)
    assert many.divergence == pytest.approx(9 * pair.divergence)


def test_a_pair_with_a_gaussian_is_a_pair() -> None:
    together = GaussianPair(drop=[0.1], shift=[0.4], multiplicity=[5]) @ Gaussian(0.7)
    assert isinstance(together, GaussianPair)
    np.testing.assert_allclose(together.drop, [0.0, 0.1])
    np.testing.assert_allclose(together.shift, [0.7, 0.4])


def test_a_pair_and_its_loss_distribution_agree() -> None:
    pair = GaussianPair(drop=[0.02, 0.05], shift=[0.4, 0.0], multiplicity=[1, 20])
    exact, by_loss = pair.compose(6), Composed([(1.0, [(pair._atoms(), 6)])])
    excess = exact(RATES) - by_loss(RATES)
    assert np.all((excess >= -1.0e-9) & (excess <= 1.0e-4))


def test_composition_is_associative_and_commutative() -> None:
    a, b, c = Gaussian(1.0).subsample(0.2), EpsilonDelta(0.4), Gaussian(0.6)
    left, right, turned = (a @ b) @ c, a @ (b @ c), c @ b @ a
    np.testing.assert_allclose(left(RATES), right(RATES), rtol=0.0, atol=1.0e-4)
    np.testing.assert_allclose(left(RATES), turned(RATES), rtol=0.0, atol=1.0e-4)


def test_repeated_composition_multiplies() -> None:
    step = Gaussian(1.0).subsample(0.05)
    np.testing.assert_allclose(step.compose(6).compose(7)(RATES), step.compose(42)(RATES), rtol=0.0, atol=1.0e-12)


def test_pure_epsilon_adds_up_at_worst() -> None:
    many = EpsilonDelta(0.2).compose(5)
    assert many.is_at_least(EpsilonDelta(1.0), tolerance=1.0e-4)
    assert many.epsilon(1.0e-9) <= 1.0 + 1.0e-2


def test_a_billion_steps() -> None:
    # p sqrt(T) = 0.03: here the CLT of one-sided subsampling holds, mu^2 = p^2 T (e^(m^2) - 1).
    curve = Gaussian(0.5).subsample(1.0e-6).compose(10**9)
    assert curve.equivalent_mu((1.0e-3, 0.5)) == pytest.approx(1.0e-6 * math.sqrt(1.0e9 * math.expm1(0.25)), rel=2.0e-3)


class TestMaximum:
    def test_is_the_higher_curve_everywhere(self) -> None:
        a, b = Gaussian(1.0), Gaussian(2.0).subsample(0.5)
        np.testing.assert_array_equal(Maximum([a, b])(RATES), np.maximum(a(RATES), b(RATES)))
        assert Maximum([a, b]).epsilon(1e-3) == min(a.epsilon(1e-3), b.epsilon(1e-3))

    def test_composes_by_its_better_part(self) -> None:
        a, b = Gaussian(1.0), Gaussian(2.0).subsample(0.9)
        np.testing.assert_allclose((Maximum([a, b]) @ b)(RATES), (a @ b)(RATES), rtol=0.0, atol=1.0e-4)


class TestClt:
    @pytest.mark.parametrize("mu_step", [1.0e-8, 9.0e-4, 1.1e-3, 0.05, 0.5, 1.14, 5.0, 24.9, 25.1, 26.5])
    def test_formula(self, mu_step: float) -> None:
        with mpmath.workdps(60):
            m = mpmath.mpf(mu_step)
            inner = mpmath.exp(m * m) * mpmath.ncdf(1.5 * m) + 3 * mpmath.ncdf(-0.5 * m) - 2
            expected = mpmath.sqrt(2 * inner) * mpmath.mpf("0.02") * mpmath.sqrt(300)
        got = subsampled_clt_mu(mu_step=mu_step, sample_rate=0.02, num_steps=300)
        assert float(abs(got / expected - 1)) < 1.0e-9

    def test_series_and_formula_meet(self) -> None:
        below, above = (subsampled_clt_mu(mu_step=m, sample_rate=0.1, num_steps=9) for m in (1e-3 * (1 - 1e-12), 1e-3))
        assert below == pytest.approx(above, rel=1.0e-9)

    def test_overflow_is_infinity(self) -> None:
        assert subsampled_clt_mu(mu_step=40.0, sample_rate=0.01, num_steps=100) == math.inf
        assert subsampled_clt_mu(mu_step=math.inf, sample_rate=0.01, num_steps=100) == math.inf

    def test_no_step_no_mu(self) -> None:
        assert subsampled_clt_mu(mu_step=0.0, sample_rate=0.5, num_steps=10) == 0.0

    def test_full_batches_add_in_squares(self) -> None:
        assert clt_mu([(1.14, 1.0, 5)]) == pytest.approx(math.sqrt(5) * 1.14)
        assert clt_mu([(0.3, 1.0, 4), (0.8, 1.0, 1)]) == pytest.approx(1.0)

    def test_parts_add_in_squares(self) -> None:
        one = subsampled_clt_mu(mu_step=1.0, sample_rate=0.1, num_steps=50)
        assert clt_mu([(1.0, 0.1, 25), (1.0, 0.1, 25)]) == pytest.approx(one)
        assert clt_mu([(1.0, 0.1, 50), (0.5, 1.0, 4)]) == pytest.approx(math.hypot(one, 1.0))

    def test_cifar(self) -> None:
        # docs/theory/composition.md: 0.787 for the paper's CIFAR-10 setting
        mu_step = math.sqrt(2 * 650 / 1001)
        steps = 48_000 / 500 * 10
        mu = subsampled_clt_mu(mu_step=mu_step, sample_rate=500 / 48_000, num_steps=steps)
        assert 0.5 < mu < 1.0


def test_what_is_made_from_a_forecast_is_a_forecast() -> None:
    run = NoisySGD(dataset_size=100, batch_size=10, num_steps=3, num_params=20)
    forecast, bound = account(run), account(run, susceptibility=20.0)
    assert (forecast.kind, bound.kind) == ("forecast", "bound")
    made = [
        forecast @ bound,
        bound @ forecast,
        forecast.compose(2),
        forecast.inverse(),
        forecast.symmetrise(),
        forecast.subsample(0.5),
        forecast.subsample(0.5).symmetrise(),
        forecast.subsample(0.5).symmetrise().symmetrise(),
        stochastic_composition([bound, forecast]),
        account(run, composition="clt") @ account(run, composition="clt"),
        PiecewiseLinear.from_roc([1.0, 2.0], [0.0, 1.0]),
        PiecewiseLinear.from_roc([1.0, 2.0], [0.0, 1.0]).inverse(),
        PiecewiseLinear.from_roc([1.0, 2.0], [0.0, 1.0]).symmetrise(),
        Maximum([bound, forecast]),
    ]
    assert [curve.kind for curve in made] == ["forecast"] * len(made)
    both = bound @ forecast
    assert both.for_whom == f"{bound.for_whom}; and {forecast.for_whom}"
    assert set(both.assumptions) > {*bound.assumptions, *forecast.assumptions}
    assert bound.compose(1).claim == bound.claim and bound.symmetrise().kind == "bound"


def test_membership_by_hand_composes_to_a_forecast() -> None:
    """Two runs on the same data: gradients x and x + e of a record that stands alone tell it for certain."""
    run = NoisySGD(dataset_size=200, batch_size=200, num_steps=1, num_params=20, sampling="full")
    one = account(run, susceptibility=20.0)
    assert one.kind == "bound" and one.compose(1).kind == "bound"
    assert one.compose(2).kind == (one @ one).kind == account([run, run], susceptibility=20.0).kind == "forecast"


def test_differential_privacy_of_different_neighbours_does_not_compose() -> None:
    run = NoisySGD(dataset_size=200, batch_size=20, num_steps=5, num_params=9, clip_norm=1.0, noise_std=0.1)
    fixed = account(run, notion="gdp")
    poisson = account(run.replace(sampling="poisson"), notion="gdp")
    assert (fixed @ fixed).kind == "bound" and (fixed @ poisson).kind == "forecast"


def test_an_epoch_of_bins_that_is_cut_in_two_is_a_forecast() -> None:
    run = NoisySGD(
        dataset_size=100,
        batch_size=10,
        num_steps=10,
        num_params=9,
        clip_norm=1.0,
        noise_std=0.1,
        sampling="balls-in-bins",
    )
    half = run.replace(num_steps=5)
    assert account([run, half], notion="gdp").kind == "bound"
    assert account([half, half], notion="gdp").kind == account([half, half]).kind == "forecast"


def test_rounding_errors_of_very_many_parameters_do_not_grow_with_the_steps() -> None:
    # A step's masses under the two laws differ by 1e-11, and what hardly ever happens (a loss of -.4)
    # kept that from being balanced: f was 8e-5 at a false-positive rate of 1 - 1e-9.
    run = NoisySGD(dataset_size=2_147_483_647, batch_size=715_827_882, num_steps=10**7, num_params=10**10)
    run = run.replace(clip_norm=1.0).with_noise_multiplier(3.0)
    curve, step = account(run, susceptibility=0.002), tight_step(run, 0.002)
    assert curve.fnr_at(1.0 - 1.0e-9) <= 1.0e-9 * (1.0 + 1.0e-6)
    limit = run.sample_rate * math.sqrt(run.num_steps * step.divergence)
    np.testing.assert_allclose(curve.mu_at([0.001, 0.1, 0.5, 0.9, 0.999]), limit, rtol=2.0e-4)
    assert np.all(curve.mu_at([0.001, 0.1, 0.5, 0.9, 0.999]) >= limit)
