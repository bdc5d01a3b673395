"""What the operations of `TradeOff` return, beyond the contract."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtri

from gmip.accounting.families import EpsilonDelta, Gaussian, PiecewiseLinear
from gmip.accounting.gaussian_pair import ChiSquared
from gmip.accounting.tradeoff import Inverse, Subsampled, Symmetrised
from gmip.errors import InvalidArgument
from gmip.vocabulary import Claim
from tests.unit.report.page import Page

RATES = np.linspace(0.0, 1.0, 101)


def test_subsampling_at_rate_one_changes_nothing() -> None:
    curve = Gaussian(1.0)
    assert curve.subsample(1.0) is curve
    assert isinstance(curve.subsample(0.5), Subsampled)


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan, "x"])
def test_rate_must_be_a_probability(rate: object) -> None:
    with pytest.raises(InvalidArgument, match="rate"):
        Gaussian(1.0).subsample(rate)


@pytest.mark.parametrize(("rate", "mu"), [(0.01, 1.0), (0.5, 0.2), (0.9, 3.0), (1.0e-9, 5.0)])
def test_delta_of_a_subsampled_gaussian(rate: float, mu: float) -> None:
    # amplification by subsampling: epsilon -> log(1 + (e^eps - 1)/p), delta -> p delta
    curve = Gaussian(mu).subsample(rate)
    for epsilon in (0.0, 1.0e-6, 0.1, 2.0, 29.0, 31.0):
        inner = math.log1p(math.expm1(epsilon) / rate)
        assert curve.delta(epsilon) == pytest.approx(rate * Gaussian(mu).delta(inner), rel=1.0e-9, abs=1.0e-300)
    below = 2.0 * math.log1p(-rate)  # slopes flatter than the idle part's
    assert curve.delta(below) == pytest.approx(-math.expm1(below))


def test_assumptions_are_handed_on() -> None:
    curve = EpsilonDelta(1.0)
    curve.claim = Claim("forecast", "somebody", ("Said once.",))
    assert curve.subsample(0.3).claim == Inverse(curve).claim == Symmetrised(curve).claim == curve.claim
    assert curve.subsample(0.0).claim == PiecewiseLinear.near(curve, 0.1).claim == curve.claim
    assert PiecewiseLinear.near(curve, 0.6).claim == curve.claim


def test_symmetrised_closed_form() -> None:
    # C_p at p = 1 of a symmetric curve is the curve; of a polygon, the hull of both.
    curve = PiecewiseLinear([0.1], [0.4])
    both = curve.symmetrise()
    np.testing.assert_allclose(both([0.1, 0.25, 0.4]), [0.4, 0.25, 0.1])
    np.testing.assert_allclose(Symmetrised(curve)(RATES), both(RATES), atol=1.0e-12)
    assert both.advantage() == pytest.approx(0.5)


def test_symmetrised_where_the_two_directions_cross() -> None:
    curve = PiecewiseLinear([0.02, 0.2, 0.5], [0.8, 0.35, 0.1])
    hull = curve.symmetrise()
    both = np.minimum(curve(RATES), curve.inverse()(RATES))
    assert np.all(hull(RATES) <= both + 1.0e-12)
    assert np.min(both - hull(RATES)) == pytest.approx(0.0, abs=1.0e-12)
    np.testing.assert_allclose(hull.inverse()(RATES), hull(RATES), atol=1.0e-12)
    # A curve that crosses its mirror image more than once has no shortcut; the shortcut is still below both.
    assert np.all(Symmetrised(curve)(RATES) <= both + 1.0e-12)


@pytest.mark.parametrize("epsilon", [35.0, 40.0])
def test_delta_of_an_inverse_at_a_large_epsilon(epsilon: float) -> None:
    # f^-1 of a subsampled curve has losses of at most -log(1 - p) = 0.1
    inverse = Inverse(Gaussian(1.0).subsample(0.1))
    assert max(inverse.delta(e) for e in np.linspace(epsilon - 1.0, epsilon + 1.0, 41).tolist()) < 1.0e-9


def test_a_record_that_never_takes_part_composes() -> None:
    np.testing.assert_allclose(Gaussian(1.0).subsample(0.0).compose(3)(RATES), 1.0 - RATES, atol=1.0e-12)


def test_a_record_that_never_takes_part_has_no_delta() -> None:
    assert Gaussian(1.0).subsample(0.0).delta(800.0) == 0.0


def test_order_needs_every_point() -> None:
    crossing = Gaussian(2.0).subsample(0.5)
    assert not crossing >= Gaussian(1.0)
    assert not crossing <= Gaussian(1.0)
    assert Gaussian(1.0) >= Gaussian(1.1) and not Gaussian(1.1) >= Gaussian(1.0)
    assert Gaussian(1.1).is_at_least(Gaussian(1.0), tolerance=0.05)


def test_composition_with_something_else() -> None:
    with pytest.raises(TypeError):
        Gaussian(1.0) @ 2.0  # type: ignore[operator]


@pytest.mark.parametrize("times", [0, -1, 1.5, math.nan, "2"])
def test_times_must_be_a_count(times: object) -> None:
    with pytest.raises(InvalidArgument, match="times"):
        Gaussian(1.0).compose(times)


def test_bayes_accuracy_of_a_gaussian() -> None:
    # threshold where p phi(x - mu) = (1 - p) phi(x)
    from scipy.special import ndtr

    mu, prior = 1.3, 0.2
    x = 0.5 * mu + math.log((1 - prior) / prior) / mu
    assert Gaussian(mu).bayes_accuracy(prior) == pytest.approx(prior * ndtr(mu - x) + (1 - prior) * ndtr(x))


def test_equivalent_mu_depends_on_the_range() -> None:
    curve = Gaussian(3.0).subsample(0.1)
    low, high = curve.equivalent_mu((1.0e-6, 1.0e-5)), curve.equivalent_mu((0.1, 0.2))
    assert low > high > 0.0
    assert curve.equivalent_mu((0.1, 0.1)) == pytest.approx(curve.mu_at(0.1))


def test_equivalent_mu_of_a_curve_with_a_kink() -> None:
    # The supremum lies at the kink, between two of the rates that are looked at first.
    for epsilon in (0.3, 1.0, 2.5):
        kink = 1.0 / (1.0 + math.exp(epsilon))
        assert EpsilonDelta(epsilon).equivalent_mu() == pytest.approx(-2.0 * ndtri(kink), rel=1e-5)
    assert EpsilonDelta(1.0).equivalent_mu() == pytest.approx(1.2320, abs=5e-5)


def test_plot() -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    ax = figure.subplots()
    assert Gaussian(1.0).plot(ax, name="mine") is ax
    drawn = {line.get_label(): np.asarray(line.get_data()) for line in ax.get_lines()}
    assert set(drawn) == {"mine", "guessing"} and ax.get_xscale() == ax.get_yscale() == "log"
    np.testing.assert_allclose(drawn["mine"][1], Gaussian(1.0).tpr_at(drawn["mine"][0]))
    assert Gaussian(1.0).plot(figure.subplots(), log=False).get_xscale() == "linear"


def test_plot_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InvalidArgument, match=r"needs matplotlib: pip install 'gmip\[plot\]'"):
        Gaussian(1.0).plot()


def test_names_fit_on_a_line() -> None:
    base = Gaussian(1.0).subsample(0.1)
    assert repr(base) == "Gaussian(mu=1).subsample(0.1)" and repr(base.inverse()) == f"{base!r}.inverse()"
    assert repr(base.symmetrise()) == f"{base!r}.symmetrise()"
    for curve in (
        base,
        base.compose(3),
        ChiSquared(dimension=3, susceptibility=3.0, batch_size=10),
        base @ Gaussian(1.0),
    ):
        assert len(repr(curve)) < 80 and "object at" not in repr(curve)


def test_in_a_notebook() -> None:
    page = Page(Gaussian(1.0)._repr_html_())
    assert len(page.all("svg", role="img")) == 1 and not page.all("script") and not page.all("style")
    cells = [text for _, text in page.all("td")]
    assert cells == ["at most 1.83%", "at most 9.24%", "at most 39%"]  # Phi(Phi^-1(fpr) + 1), up
