"""delta(epsilon) of mu-GDP and its two inverses against the textbook formula in mpmath, to 50 digits and more."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from gmip.accounting import convert

MUS = [1e-300, 1e-100, 1e-6, 1e-4, 1e-2, 0.1, 0.499, 0.5, 0.501, 1.0, 3.0, 10.0, 30.0, 100.0, 1e3]
# Where along the curve: x = epsilon/mu - mu/2, delta < Phi(-x). Phi(-36.9) is about 1e-298.
SHIFTS = [-30.0, -8.0, -2.0, -0.4, -1e-3, 0.0, 1e-3, 0.3, 1.0, 4.0, 9.0, 20.0, 30.0, 36.9]


def oracle_delta(mu: float, epsilon: float) -> mpmath.mpf:
    """Dong et al., Corollary 1, literally. The two terms agree in up to -log10(mu) digits: that many are added."""
    with mpmath.workdps(60 + int(2 * max(0.0, -math.log10(mu)))):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)


def relative_tolerance(mu: float, epsilon: float) -> float:
    """What the docstring of delta_from_mu says."""
    ratio = epsilon / mu
    return 1e-12 + 1e-16 * ratio * (1.0 + abs(ratio - mu / 2))


def points() -> list[tuple[float, float]]:
    inside = [(mu, mu * (x + mu / 2)) for mu in MUS for x in SHIFTS if x > -mu / 2]
    return inside + [(mu, 0.0) for mu in MUS]


@pytest.mark.parametrize(("mu", "epsilon"), points())
def test_delta_from_mu(mu: float, epsilon: float) -> None:
    expected = oracle_delta(mu, epsilon)
    got = convert.delta_from_mu(mu, epsilon=epsilon)
    if expected < 2.3e-308:  # subnormal or less: no relative accuracy to ask for
        assert abs(got - expected) <= 1e-310
    else:
        assert abs(got / expected - 1) <= relative_tolerance(mu, epsilon)


@pytest.mark.slow
def test_delta_from_mu_at_random_points() -> None:
    rng = np.random.default_rng(2023)
    for _ in range(2000):
        mu = 10.0 ** rng.uniform(-6, 3)
        epsilon = mu * (rng.uniform(-min(mu / 2, 40.0), 36.0) + mu / 2)
        expected = oracle_delta(mu, epsilon)
        if expected < 1e-300:
            continue
        got = convert.delta_from_mu(mu, epsilon=epsilon)
        assert abs(got / expected - 1) <= relative_tolerance(mu, epsilon), (mu, epsilon)


@pytest.mark.parametrize("delta", [1e-300, 1e-100, 1e-12, 1e-5, 0.01, 0.3, 0.9, 1.0 - 1e-9])
@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.1, 0.5, 1.0, 5.0, 50.0, 1e3])
def test_epsilon_from_mu(mu: float, delta: float) -> None:
    epsilon = convert.epsilon_from_mu(mu, delta=delta)
    if oracle_delta(mu, 0.0) <= delta:
        assert epsilon == 0.0
        return
    # The true delta at a neighbourhood of the answer of relative width 1e-12 must enclose the one asked for.
    width = 1e-12 * (epsilon + mu * mu)
    assert oracle_delta(mu, epsilon + width) <= delta <= oracle_delta(mu, max(0.0, epsilon - width))


@pytest.mark.parametrize("delta", [1e-300, 1e-100, 1e-12, 1e-5, 0.01, 0.3, 0.9, 1.0 - 1e-9])
@pytest.mark.parametrize("epsilon", [0.0, 1e-6, 1e-2, 0.5, 1.0, 8.0, 100.0, 1e5])
def test_mu_from_epsilon_delta(epsilon: float, delta: float) -> None:
    mu = convert.mu_from_epsilon_delta(epsilon=epsilon, delta=delta)
    assert oracle_delta(mu * (1 - 2e-12), epsilon) <= delta <= oracle_delta(mu * (1 + 2e-12), epsilon)


def test_known_value() -> None:
    # 1-GDP at epsilon = 1: Phi(-1/2) - e Phi(-3/2).
    assert convert.delta_from_mu(1.0, epsilon=1.0) == pytest.approx(0.12693673750664397, rel=1e-14)
    # 1-GDP at delta = 1e-5, from the same formula solved in mpmath at 30 digits.
    root = mpmath.findroot(lambda e: mpmath.log(oracle_delta(1.0, e)) - mpmath.log(mpmath.mpf(1e-5)), 4.4)
    assert convert.epsilon_from_mu(1.0, delta=1e-5) == pytest.approx(float(root), rel=1e-13)
