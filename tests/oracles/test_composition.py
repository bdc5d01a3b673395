"""Exact composition against oracles that share no code with it.

- one and two steps: the hockey-stick divergence as an integral;
- many steps: dp-accounting's loss distributions, the characteristic function of the loss inverted by quadrature, and
  Monte Carlo of the likelihood-ratio test;
- finer grids of our own.

Each looks at both sides: the bound never falls below the truth, and exceeds it by no more than it says.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy.special import ndtr, ndtri

from gmip.accounting import _lattice, _loss
from gmip.accounting.account import account
from gmip.accounting.composition import Composed, compose
from gmip.accounting.families import EpsilonDelta, Gaussian, PiecewiseLinear
from gmip.accounting.tradeoff import TradeOff
from gmip.vocabulary import NoisySGD

GRID_ERROR = 1.0e-4  # what `account` says of the TPR
# `tpr_error` is an average over where a threshold falls between two grid points; see test_the_stated_error_is_a_bound.
STATED = 1.0
RATES = np.concatenate([[0.0], ndtr(np.linspace(-6.0, 6.0, 61)), [1.0]])


def composed(mu: float, rate: float, steps: int) -> Composed:
    """The loss distribution even where there is a closed form."""
    return Composed([(1.0, [(Gaussian(mu).subsample(rate)._atoms(), steps)])])


# -- one and two steps: integrals ------------------------------------------------------------------------------------


def panels(low: float, high: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of Gauss-Legendre quadrature on `count` equal pieces of [low, high]."""
    x, w = np.polynomial.legendre.leggauss(12)
    edges = np.linspace(low, high, count + 1)
    half = 0.5 * np.diff(edges)[:, None]
    return (edges[:-1, None] + half * (1.0 + x)).ravel(), (half * w).ravel()


def density(z: np.ndarray, centre: float) -> np.ndarray:
    return np.exp(-0.5 * (z - centre) ** 2) / math.sqrt(2.0 * math.pi)


def step_loss(z: np.ndarray, mu: float, rate: float) -> np.ndarray:
    """log of (1 - p) N(0, 1) + p N(mu, 1) over N(0, 1) at z."""
    return np.log1p(rate * np.expm1(mu * z - 0.5 * mu * mu))


def one_step_delta(epsilon: np.ndarray, mu: float, rate: float) -> np.ndarray:
    """The integral of (mixture - e^eps N(0, 1))_+: its integrand is positive above one threshold z."""
    share = np.expm1(epsilon) / rate + 1.0  # e^(mu z - mu^2/2) there
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(share > 0.0, np.log(np.maximum(share, 1.0e-300)) / mu + 0.5 * mu, -np.inf)
    return (1.0 - rate) * ndtr(-z) + rate * ndtr(mu - z) - np.exp(epsilon) * ndtr(-z)


def two_step_delta(epsilon: float, mu: float, rate: float) -> float:
    """Given the first outcome z, the second step is asked for delta at what is left of epsilon."""
    z, w = panels(-10.0, mu + 10.0, 4000)
    member = (1.0 - rate) * density(z, 0.0) + rate * density(z, mu)
    return float((w * member) @ one_step_delta(epsilon - step_loss(z, mu, rate), mu, rate))


def test_the_integrals_by_hand() -> None:
    # p = 1 has a closed form: Gaussian(mu) and Gaussian(sqrt(2) mu).
    for epsilon in (-1.0, 0.0, 0.7):
        one = one_step_delta(np.array(epsilon), 1.3, 1.0)
        assert one == pytest.approx(Gaussian(1.3).delta(epsilon), abs=1.0e-14)
        assert two_step_delta(epsilon, 1.3, 1.0) == pytest.approx(
            Gaussian(1.3 * math.sqrt(2.0)).delta(epsilon), abs=1.0e-12
        )


@pytest.mark.parametrize("rate", [1.0e-3, 0.01, 0.5, 0.9])
@pytest.mark.parametrize("mu", [0.3, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("steps", [1, 2])
def test_one_and_two_steps(mu: float, rate: float, steps: int) -> None:
    curve = composed(mu, rate, steps)
    for epsilon in (-2.0, -0.5, -0.01, 0.0, 1.0e-3, 0.05, 0.3, 1.0, 2.0, 4.0, 7.0):
        true = two_step_delta(epsilon, mu, rate) if steps == 2 else float(one_step_delta(np.array(epsilon), mu, rate))
        got = curve.delta(epsilon)
        assert got >= true - 1.0e-12
        assert got <= true + GRID_ERROR
        assert got <= true + STATED * curve.tpr_error + 1.0e-9


# -- many steps: dp-accounting ---------------------------------------------------------------------------------------


@cache
def dp_accounting(mu: float, rate: float) -> Any:
    return privacy_loss_distribution.from_gaussian_mechanism(
        1.0 / mu, sampling_prob=rate, value_discretization_interval=1.0e-4
    )


def test_which_of_dp_accountings_directions_is_ours() -> None:
    # Add-or-remove-one neighbours come as two loss distributions. "Remove" has the record in its upper distribution,
    # the mixture, and none in the lower: it is f-MIP's test. "Add" is its mirror image.
    pld = dp_accounting(2.0, 0.3)
    curve = Gaussian(2.0).subsample(0.3)
    for epsilon in (0.1, 0.5, 1.5):
        assert pld._pmf_remove.get_delta_for_epsilon(epsilon) == pytest.approx(curve.delta(epsilon), abs=1.0e-6)
        assert pld._pmf_add.get_delta_for_epsilon(epsilon) == pytest.approx(curve.inverse().delta(epsilon), abs=1.0e-6)
        assert curve.delta(epsilon) > curve.inverse().delta(epsilon) + 1.0e-3


@pytest.mark.parametrize(
    ("mu", "rate", "steps"),
    [
        (1.0, 0.01, 100),
        *((mu, rate, steps) for mu, rate in ((0.5, 0.05), (1.5, 0.005), (0.7, 0.001)) for steps in (10, 1000)),
    ],
)
def test_dp_accounting(mu: float, rate: float, steps: int) -> None:
    remove = dp_accounting(mu, rate).self_compose(steps)._pmf_remove
    curve = composed(mu, rate, steps)
    epsilons = np.linspace(0.0, 5.0, 26)
    theirs = np.array(remove.get_delta_for_epsilon(epsilons))
    ours = np.array([curve.delta(e) for e in epsilons.tolist()])
    # Both are upper bounds. Theirs adds variance of at most steps * interval^2/4.
    assert np.all(np.abs(ours - theirs) <= steps * 1.0e-8 + GRID_ERROR)
    assert np.all(ours - theirs <= STATED * curve.tpr_error + 1.0e-9)


@pytest.mark.parametrize(("mu", "rate"), [(1.0, 0.01), (0.5, 0.1)])
def test_differential_privacy_of_poisson_batches(mu: float, rate: float) -> None:
    run = NoisySGD(
        dataset_size=1000, batch_size=round(1000 * rate), num_steps=100, num_params=1, clip_norm=1.0, sampling="poisson"
    ).with_noise_multiplier(1.0 / mu)
    curve = account(run, notion="gdp")
    pld = dp_accounting(mu, rate).self_compose(100)
    for delta in (1.0e-2, 1.0e-3, 1.0e-5):
        assert curve.epsilon(delta) == pytest.approx(pld.get_epsilon_for_delta(delta), rel=2.0e-3, abs=1.0e-3)
    for epsilon in (0.0, 0.3, 1.0, 3.0):
        assert curve.delta(epsilon) == pytest.approx(pld.get_delta_for_epsilon(epsilon), abs=GRID_ERROR)


# -- many steps: characteristic function -----------------------------------------------------------------------------


def exceedance(thresholds: np.ndarray, *, mu: float, rate: float, steps: int, member: bool, cut: float) -> np.ndarray:
    """P(L > t) of the composed loss by inversion of its characteristic function with the mid-point rule (Davies, 1973).

    cut : frequency beyond which the characteristic function is nil. The rule is exact but for the probability of losses
    further than 2 pi/spacing from t.
    """
    # Losses hardly vary below z = 1 or so; where they do, e^(iuL) turns quickly.
    nodes = [panels(-9.0, 1.0, 40), panels(1.0, mu + 9.0, 1200)]
    z, w = (np.concatenate(part) for part in zip(*nodes, strict=True))
    loss = step_loss(z, mu, rate)
    mass = w * ((1.0 - rate) * density(z, 0.0) + rate * density(z, mu) if member else density(z, 0.0))
    order = np.arange(round(2.0 * cut)) + 0.5
    u = 0.5 * order  # 2 pi/0.5: losses within 12.5 of the threshold
    phi = np.empty(u.size, dtype=complex)
    for part in np.array_split(np.arange(u.size), max(1, u.size // 100)):
        # E[e^(iuL)] - 1, summed as such: one step hardly differs from no step.
        angle = u[part, None] * loss
        half, side = np.sin(0.5 * angle), np.sin(angle)
        phi[part] = np.exp(steps * np.log1p(-2.0 * (half * half) @ mass + 1j * (side @ mass)))
    assert abs(phi[-1]) < 1.0e-9
    return np.array([0.5 + np.sum(np.imag(np.exp(-1j * u * t) * phi) / order) / math.pi for t in thresholds.tolist()])


@pytest.mark.parametrize(
    ("mu", "rate", "steps", "thresholds", "cut"),
    [
        (0.8, 0.1, 50, [-1.0, 0.0, 1.0, 2.0, 3.0], 60.0),
        # Tiny sample rate and a heavy tail. A member is in Bin(1e5, 1e-6) batches, about Poisson(0.1); the loss of 1e5
        # steps is a narrow bulk (std 0.007) and rare single large losses, log(p) + mu z - mu^2/2 and more.
        (3.0, 1.0e-6, 100_000, [-0.02, 0.0, 0.02, 0.1, 0.5, 1.0], 1800.0),
    ],
)
def test_characteristic_function(mu: float, rate: float, steps: int, thresholds: list[float], cut: float) -> None:
    at = np.array(thresholds)
    fpr, tpr = (exceedance(at, mu=mu, rate=rate, steps=steps, member=member, cut=cut) for member in (False, True))
    curve = composed(mu, rate, steps)
    excess = curve.tpr_at(fpr) - tpr
    assert np.all(excess >= -1.0e-8)  # the oracle's own accuracy
    assert np.all(excess <= min(STATED * curve.tpr_error, GRID_ERROR) + 1.0e-8)


# -- Monte Carlo -----------------------------------------------------------------------------------------------------


def test_monte_carlo_of_the_likelihood_ratio_test() -> None:
    mu, rate, steps, runs = 1.5, 0.1, 50, 200_000
    rng = np.random.default_rng(20231)
    absent, present = np.zeros(runs), np.zeros(runs)
    for _ in range(steps):
        absent += step_loss(rng.standard_normal(runs), mu, rate)
        present += step_loss(rng.standard_normal(runs) + mu * (rng.random(runs) < rate), mu, rate)
    curve = composed(mu, rate, steps)
    for threshold in (-2.0, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0):
        fpr, fnr = float(np.mean(absent > threshold)), float(np.mean(present <= threshold))
        # The point lies on the curve up to its own sampling errors: the slope of f there is -e^threshold.
        error = math.hypot(math.sqrt(fnr * (1 - fnr) / runs), math.exp(threshold) * math.sqrt(fpr * (1 - fpr) / runs))
        assert abs(curve.fnr_at(fpr) - fnr) <= 4.0 * error + GRID_ERROR
        # and delta there is P1(L > t) - e^t P0(L > t)
        assert abs(curve.delta(threshold) - (1.0 - fnr - math.exp(threshold) * fpr)) <= 4.0 * error + GRID_ERROR


# -- regimes with a plain answer -------------------------------------------------------------------------------------


def test_a_step_that_gives_members_away() -> None:
    # mu = 20: whoever is in a batch is found, whoever is in none cannot be told from a non-member.
    rate, steps = 1.0e-4, 100
    curve = compose([(Gaussian(20.0).subsample(rate), steps)])
    rates = np.concatenate([[1.0e-12, 1.0e-6], np.linspace(0.01, 0.99, 25)])
    np.testing.assert_allclose(curve.fnr_at(rates), (1.0 - rate) ** steps * (1.0 - rates), rtol=0.0, atol=1.0e-6)


@pytest.mark.parametrize(("mu", "steps"), [(0.05, 400), (0.5, 16), (1.0, 9), (3.0, 2)])
def test_full_batches_have_a_closed_form(mu: float, steps: int) -> None:
    curve, closed = composed(mu, 1.0, steps), Gaussian(mu * math.sqrt(steps))
    excess = curve.tpr_at(RATES) - closed.tpr_at(RATES)
    assert np.all(excess >= -1.0e-12)
    assert np.all(excess <= min(GRID_ERROR, STATED * curve.tpr_error + 1.0e-9))


@pytest.mark.parametrize("steps", [1, 2, 63, 64, 65, 200, 4096])
def test_digits_of_the_number_of_steps(steps: int) -> None:
    # Steps are counted in base 64: T = a + b from two compositions is one of T = a + b.
    atoms = Gaussian(0.8).subsample(0.05)._atoms()
    whole = Composed([(1.0, [(atoms, steps)])])
    parts = Composed([(1.0, [(atoms, 1), *([(atoms, steps - 1)] if steps > 1 else [])])])
    error = whole.tpr_error + parts.tpr_error + 1.0e-9
    np.testing.assert_allclose(whole.fnr_at(RATES), parts.fnr_at(RATES), rtol=0.0, atol=error)


# -- the symmetric operator C_p --------------------------------------------------------------------------------------


def c_p(rates: np.ndarray, mu: float, rate: float) -> np.ndarray:
    """C_p(g_mu) in closed form (Dong et al. 2022, Prop. A.1): p g_mu + (1-p)(1-a) down to slope -1, a line, its mirror.

    g_mu has slope -1 at a* = Phi(-mu/2) = g_mu(a*)."""
    star = float(ndtr(-0.5 * mu))
    corner = rate * star + (1.0 - rate) * (1.0 - star)  # f_p(a*)
    upper = rate * ndtr(-ndtri(rates) - mu) + (1.0 - rate) * (1.0 - rates)
    line = star + corner - rates
    # mirror: solve f_p(x) = a for x by bisection
    low, high = np.zeros_like(rates), np.full_like(rates, star)
    for _ in range(100):
        middle = 0.5 * (low + high)
        above = rate * ndtr(-ndtri(middle) - mu) + (1.0 - rate) * (1.0 - middle) > rates
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.where(rates <= star, upper, np.where(rates >= corner, high, line))


def fixed_run(mu: float, rate: float, steps: int) -> NoisySGD:
    n = round(1000 * rate)
    return NoisySGD(
        dataset_size=1000, batch_size=n, num_steps=steps, num_params=1, clip_norm=1.0, noise_std=2.0 / (n * mu)
    )


@pytest.mark.parametrize(("mu", "rate"), [(0.5, 0.01), (1.0, 0.3), (2.0, 0.1), (2.0, 0.9)])
def test_one_step_of_c_p(mu: float, rate: float) -> None:
    true = c_p(RATES, mu, rate)
    np.testing.assert_allclose(Gaussian(mu).subsample(rate).symmetrise().fnr_at(RATES), true, rtol=0.0, atol=1.0e-12)
    curve = account(fixed_run(mu, rate, 1), notion="gdp")
    excess = true - curve.fnr_at(RATES)
    assert np.all(excess >= -1.0e-9)
    assert np.all(excess <= 3.0 * GRID_ERROR)


@pytest.mark.parametrize(("mu", "rate"), [(1.0, 0.3), (2.0, 0.1)])
def test_one_step_of_c_p_is_as_good_as_claimed(mu: float, rate: float) -> None:
    curve = account(fixed_run(mu, rate, 1), notion="gdp")
    assert np.all(c_p(RATES, mu, rate) - curve.fnr_at(RATES) <= GRID_ERROR)


@pytest.mark.parametrize(("mu", "rate"), [(0.5, 0.01), (1.0, 0.05)])
def test_many_steps_of_c_p_are_below_both_directions(mu: float, rate: float) -> None:
    curve = account(fixed_run(mu, rate, 100), notion="gdp")
    pld = dp_accounting(mu, rate).self_compose(100)  # its own error is below 1e-6
    for epsilon in np.linspace(0.0, 4.0, 17).tolist():
        assert curve.delta(epsilon) >= pld.get_delta_for_epsilon(epsilon) - 1.0e-6
    one_sided = composed(mu, rate, 100)
    assert one_sided.is_at_least(curve, tolerance=1.0e-4)
    assert one_sided.inverse().is_at_least(curve, tolerance=1.0e-4)
    # By symmetry C_p has one delta for both directions.
    for epsilon in (0.0, 0.5, 2.0):
        mirrored = 1.0 - math.exp(epsilon) + math.exp(epsilon) * curve.delta(-epsilon)
        assert curve.delta(epsilon) == pytest.approx(mirrored, abs=GRID_ERROR)


# -- finer grids -----------------------------------------------------------------------------------------------------


def refine(monkeypatch: pytest.MonkeyPatch, factor: int) -> None:
    monkeypatch.setattr(_loss, "_SPACING", _loss._SPACING / factor)
    monkeypatch.setattr(_loss, "_MAX_POINTS", _loss._MAX_POINTS * factor)
    monkeypatch.setattr(_lattice, "_INFLATION", _lattice._INFLATION / factor**2)
    monkeypatch.setattr(_lattice, "_POINTS", _lattice._POINTS * factor)


@pytest.mark.parametrize(("mu", "rate", "steps"), [(1.0, 1.0, 9), (0.6, 1.0, 70)])
def test_the_error_falls_with_the_grid(monkeypatch: pytest.MonkeyPatch, mu: float, rate: float, steps: int) -> None:
    closed = Gaussian(mu * math.sqrt(steps))

    def error(curve: TradeOff) -> float:
        return float(np.max(curve.tpr_at(RATES) - closed.tpr_at(RATES)))

    coarse = composed(mu, rate, steps)
    refine(monkeypatch, 3)
    fine = composed(mu, rate, steps)
    assert 0.0 < error(fine) < 0.3 * error(coarse)  # a ninth, were it exactly quadratic
    assert fine.tpr_error < 0.3 * coarse.tpr_error


@pytest.mark.slow
def test_the_stated_error_covers_a_finer_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(58)
    settings = [
        (float(10 ** rng.uniform(-1, 0.6)), float(10 ** rng.uniform(-3, 0)), round(10 ** rng.uniform(0, 3.3)))
        for _ in range(30)
    ]
    coarse = [composed(*setting) for setting in settings]
    before = [(curve.tpr_at(RATES), curve.tpr_error) for curve in coarse]
    refine(monkeypatch, 4)
    for setting, (tpr, stated) in zip(settings, before, strict=True):
        finer = composed(*setting)
        excess = tpr - finer.tpr_at(RATES)
        assert np.all(excess <= stated + 1.0e-9), setting
        assert np.all(excess >= -finer.tpr_error - 1.0e-9), setting  # both are bounds on one truth
        assert stated < GRID_ERROR, setting


@pytest.mark.parametrize(("mu", "rate"), [(0.3, 0.5), (1.0, 0.9), (1.0, 1.0)])
def test_the_stated_error_is_a_bound(mu: float, rate: float) -> None:
    curve = composed(mu, rate, 1)
    epsilons = np.linspace(-0.5, 1.0, 1001)
    excess = np.array([curve.delta(e) for e in epsilons.tolist()]) - one_step_delta(epsilons, mu, rate)
    assert np.max(excess) <= curve.tpr_error + 1.0e-9


def test_the_stated_error_is_a_bound_for_discrete_losses() -> None:
    step = PiecewiseLinear([0.1, 0.3], [0.5, 0.2])
    curve = Composed([(1.0, [(step._atoms(), 1)])])
    assert np.max(step.fnr_at(RATES) - curve.fnr_at(RATES)) <= curve.tpr_error + 1.0e-9


# -- discrete losses -------------------------------------------------------------------------------------------------


def brute_force(step: PiecewiseLinear, rates: np.ndarray) -> np.ndarray:
    """f tensor f of a polygon: all pairs of its outcomes, the certain and the impossible ones too, sorted by loss."""
    fpr, fnr = step._fpr_vertices, np.exp(step._log_fnr_vertices)
    p0 = np.concatenate([[0.0], np.diff(fpr), [1.0 - fpr[-1]]])
    p1 = np.concatenate([[1.0 - fnr[0]], -np.diff(fnr), [fnr[-1]]])
    both0, both1 = np.outer(p0, p0).ravel(), np.outer(p1, p1).ravel()
    used = both0 + both1 > 0.0
    both0, both1 = both0[used], both1[used]
    order = np.argsort(both0 / (both0 + both1))  # from the most to the least telling outcome
    points = np.concatenate([[0.0], np.cumsum(both0[order])]), 1.0 - np.concatenate([[0.0], np.cumsum(both1[order])])
    return PiecewiseLinear(np.clip(points[0], 0.0, 1.0), np.clip(points[1], 0.0, 1.0)).fnr_at(rates)


@pytest.mark.parametrize(
    "step",
    [
        PiecewiseLinear([0.1, 0.3], [0.5, 0.2]),
        EpsilonDelta(1.0),
        EpsilonDelta(0.0, 0.1),
        EpsilonDelta(1.0, 0.01),
        PiecewiseLinear([0.2, 0.7], [0.3, 0.0]),
        PiecewiseLinear([0.0, 0.2], [0.9, 0.3]),
    ],
    ids=repr,
)
def test_two_discrete_steps(step: PiecewiseLinear) -> None:
    true = brute_force(step, RATES)
    excess = true - step.compose(2).fnr_at(RATES)
    assert np.all(excess >= -1.0e-9)
    assert np.all(excess <= 10.0 * GRID_ERROR)
