"""Non-central chi-squared tails and quantiles against exact high-precision arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath as mp
import numpy as np
import pytest
from scipy import special

from gmip.accounting import noncentral_chi2

TOLERANCE = 1e-8
Pair = tuple[mp.mpf, mp.mpf]


def relative(got: float, exact: mp.mpf) -> float:
    """|got / exact - 1|, or 0 when both are below the floats' range."""
    if abs(exact) < mp.mpf("1e-300"):
        return 0.0 if abs(got) < 1e-290 else math.inf
    return float(abs(mp.mpf(float(got)) / exact - 1))


def logs(cdf: mp.mpf | None, sf: mp.mpf | None) -> Pair:
    """(log cdf, log sf), the missing or larger one as the complement of the other."""
    if sf is None or (cdf is not None and cdf < sf):
        assert cdf is not None
        return mp.log(cdf), mp.log1p(-cdf)
    return mp.log1p(-sf), mp.log(sf)


def upper_normal(z: mp.mpf) -> mp.mpf:
    return mp.erfc(z / mp.sqrt(2)) / 2


def exact_odd(x: float, df: int, nc: float) -> Pair:
    """df = 1: X = (Z + sqrt(nc))^2; df = 3: one density term less."""
    a, b = mp.sqrt(mp.mpf(x)), mp.sqrt(mp.mpf(nc))
    cdf = upper_normal(b - a) - upper_normal(a + b)
    sf = upper_normal(a - b) + upper_normal(a + b)
    if df == 3:
        less = (mp.exp(-((a - b) ** 2) / 2) - mp.exp(-((a + b) ** 2) / 2)) / (b * mp.sqrt(2 * mp.pi))
        cdf, sf = cdf - less, sf + less
    return logs(cdf, sf)


def exact_mixture(x: float, df: float, nc: float) -> Pair:
    """Poisson(nc / 2) mixture of central chi-squared: positive terms only, around the largest one of either tail."""
    half, rate, at = mp.mpf(df) / 2, mp.mpf(nc) / 2, mp.mpf(x) / 2
    if nc == 0.0:
        return logs(mp.gammainc(half, 0, at, regularized=True), mp.gammainc(half, at, mp.inf, regularized=True))
    centre = 0.5 * (math.sqrt(df * df / 4 + nc * x) - df / 2)
    spread = 12 * math.sqrt(max(nc / 2, centre) + 1) + 40
    first, last = max(0, int(min(centre, nc / 2) - spread)), int(max(centre, nc / 2) + spread)
    if x < df + nc:  # P(X <= x), downwards: P(a, x) = P(a + 1, x) + x^a e^-x / Gamma(a + 1)
        term = mp.gammainc(half + last, 0, at, regularized=True)
        weight = mp.exp(-rate + last * mp.log(rate) - mp.loggamma(last + 1))
        step = mp.exp((half + last - 1) * mp.log(at) - at - mp.loggamma(half + last))
        cdf = weight * term
        for j in range(last - 1, first - 1, -1):
            term += step
            weight *= (j + 1) / rate
            step *= (half + j) / at
            cdf += weight * term
        return logs(cdf, None)
    term = mp.gammainc(half + first, at, mp.inf, regularized=True)
    weight = mp.exp(-rate + first * mp.log(rate) - mp.loggamma(first + 1))
    step = mp.exp((half + first) * mp.log(at) - at - mp.loggamma(half + first + 1))
    sf = weight * term
    for j in range(first + 1, last + 1):
        term += step
        weight *= rate / j
        step *= at / (half + j)
        sf += weight * term
    return logs(None, sf)


def exact_line(x: float, df: float, nc: float) -> Pair:
    """Inversion along a vertical line at least 1.5 widths from the pole, 50 digits, plain trapezoidal rule."""
    x_, df_, nc_ = mp.mpf(x), mp.mpf(df), mp.mpf(nc)
    d = (df_ + mp.sqrt(df_**2 + 4 * x_ * nc_)) / (2 * x_)  # 1 - 2t at the saddle
    width = 1 / mp.sqrt(2 * df_ / d**2 + 4 * nc_ / d**3)
    t = (1 - d) / 2
    if abs(t) < 1.5 * width:
        t = 1.5 * width if t >= 0 else -1.5 * width

    def integrand(s: mp.mpc) -> mp.mpc:
        return mp.exp(nc_ * s / (1 - 2 * s) - df_ / 2 * mp.log(1 - 2 * s) - s * x_ - peak) / s

    peak = mp.mpf(0)
    peak = mp.log(abs(integrand(mp.mpc(t))))
    step = width / 12
    total, j = integrand(mp.mpc(t)).real / 2, 1
    while True:
        value = integrand(mp.mpc(t, j * step))
        total += value.real
        if abs(value) < mp.mpf("1e-22"):
            break
        j += 1
    tail = total * step / mp.pi * mp.exp(peak)
    return logs(None, tail) if t > 0 else logs(-tail, None)


def worst(exact: Callable[[float, float, float], Pair], cases: list[tuple[float, float, float]], digits: int) -> float:
    x, df, nc = (np.array(column) for column in zip(*cases, strict=True))
    low, high = noncentral_chi2.log_cdf(x, df, nc), noncentral_chi2.log_sf(x, df, nc)
    errors = []
    with mp.workdps(digits):
        for case, *got in zip(cases, low, high, strict=True):
            errors.append(max(relative(g, e) for g, e in zip(got, exact(*case), strict=True)))
    return max(errors)


SCORES = [-400.0, -60.0, -12.0, -4.0, -1.5, -0.3, 0.0, 0.01, 1.0, 3.0, 7.0, 30.0, 140.0, 440.0]


@pytest.mark.parametrize("nc", [1e-6, 0.03, 1.0, 17.0, 400.0, 1e5, 1e8, 1e12, 1e15])
@pytest.mark.parametrize("df", [1, 3])
def test_closed_forms_of_one_and_three_degrees(df: int, nc: float) -> None:
    roots = [math.sqrt(nc) + z if math.sqrt(nc) + z > 0.0 else math.exp(z / 8.0) for z in SCORES]
    cases = [(root * root, float(df), nc) for root in roots]
    assert worst(lambda x, d, n: exact_odd(x, df, n), cases, 320) < TOLERANCE


@pytest.mark.parametrize("df", [1.0, 2.0, 5.0, 24.5, 650.0])
@pytest.mark.parametrize("nc", [0.0, 0.01, 3.0, 150.0])
def test_mixture_at_small_scales(df: float, nc: float) -> None:
    deviation = math.sqrt(2.0 * df + 4.0 * nc)
    above = [df + nc + z * deviation for z in (-4.0, -1.0, 0.0, 0.5, 2.0, 9.0, 50.0, 300.0)]
    cases = [(x, df, nc) for x in above if x > 0.0] + [((df + nc) * f, df, nc) for f in (1e-30, 1e-4, 0.1)]
    assert worst(exact_mixture, cases, 60) < TOLERANCE


def test_mixture_where_scipy_underflows() -> None:
    df, nc = 650.0, 3.25e5
    deviation = math.sqrt(2.0 * df + 4.0 * nc)
    assert worst(exact_mixture, [(df + nc + z * deviation, df, nc) for z in (-40.0, 8.0)], 40) < TOLERANCE


@pytest.mark.parametrize(
    ("df", "nc"), [(650.0, 3.25e5), (1e7, 1e12), (100.0, 1e15), (1e9, 1e15), (1e9, 0.0), (1e9, 7.0), (4e4, 3e3)]
)
def test_line_integral_at_large_scales(df: float, nc: float) -> None:
    deviation = math.sqrt(2.0 * df + 4.0 * nc)
    scores = (-440.0, -40.0, -7.0, -2.0, 0.0, 1.0, 5.0, 40.0, 440.0)
    cases = [(df + nc + z * deviation, df, nc) for z in scores if df + nc + z * deviation > 0.0]
    assert worst(exact_line, cases, 50) < TOLERANCE


def test_the_oracles_agree_with_each_other() -> None:
    with mp.workdps(60):
        for x in (900.0, 1060.0, 1500.0):
            for one, other in zip(exact_mixture(x, 60.0, 1000.0), exact_line(x, 60.0, 1000.0), strict=True):
                assert abs(one / other - 1) < 1e-18
        for x in (0.3, 9.0, 40.0):
            for one, other in zip(exact_odd(x, 3, 7.0), exact_mixture(x, 3.0, 7.0), strict=True):
                assert abs(one / other - 1) < 1e-30


def test_monotone_and_complementary() -> None:
    for df, nc in ((1.0, 0.0), (2.0, 0.5), (650.0, 3.25e5), (1e7, 1e12)):
        deviation = math.sqrt(2.0 * df + 4.0 * nc)
        x = np.linspace(max(df + nc - 9.0 * deviation, 1e-9), df + nc + 9.0 * deviation, 4001)
        low, high = noncentral_chi2.log_cdf(x, df, nc), noncentral_chi2.log_sf(x, df, nc)
        assert (np.diff(low) >= 0.0).all() and (np.diff(high) <= 0.0).all()
        np.testing.assert_allclose(np.exp(low) + np.exp(high), 1.0, rtol=0.0, atol=1e-15)


def test_ends_shapes_and_extreme_points() -> None:
    assert noncentral_chi2.log_cdf(0.0, 3.0, 1.0) == -np.inf and noncentral_chi2.log_sf(0.0, 3.0, 1.0) == 0.0
    assert noncentral_chi2.log_cdf(np.inf, 3.0, 1.0) == 0.0 and noncentral_chi2.log_sf(np.inf, 3.0, 1.0) == -np.inf
    df, nc = np.array([1.0, 2.5, 1e4, 1e9])[:, None, None], np.array([0.0, 1e-300, 1.0, 1e15])[:, None]
    x = np.array([0.0, 5e-324, 1e-200, 1e-90, 1e-3, 1.0, 1e9, 1e15, 1e40, 1e300, np.inf])
    low, high = noncentral_chi2.log_cdf(x, df, nc), noncentral_chi2.log_sf(x, df, nc)
    assert low.shape == high.shape == (4, 4, 11)
    assert not np.isnan(low).any() and not np.isnan(high).any() and (low <= 0.0).all() and (high <= 0.0).all()
    assert (np.diff(low) >= 0.0).all() and (np.diff(high) <= 0.0).all()
    # x to 0 with df = 1: the density is that of a normal pair at +-sqrt(nc)
    assert noncentral_chi2.log_cdf(1e-300, 1.0, 4.0) == pytest.approx(
        -150 * math.log(10) + 0.5 * math.log(2 / math.pi) - 2.0, 1e-12
    )
    assert noncentral_chi2.log_sf(1e300, 2.0, 0.0) == pytest.approx(-5e299, 1e-12)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize(
    ("df", "nc"),
    [(1.0, 0.0), (1.0, 1e15), (2.0, 0.3), (650.0, 3.25e5), (1e7, 1e12), (1e9, 0.0), (1e9, 1e15), (40.0, 0.0)],
)
def test_quantile_round_trip(df: float, nc: float, upper: bool) -> None:
    log_p = np.array([-1e5, -4321.0, -100.0, -9.0, -1.0, -math.log(2.0), -0.1, -1e-4, -1e-12])
    x = noncentral_chi2.quantile(log_p, df, nc, upper=upper)
    lost = x == 0.0  # the quantile is below the smallest float
    assert not lost.any() or (df <= 40.0 and not upper and (log_p[lost] < df / 2.0 * math.log(5e-324)).all())
    low, high = noncentral_chi2.log_cdf(x, df, nc), noncentral_chi2.log_sf(x, df, nc)
    score = np.where(low < high, special.ndtri_exp(low), -special.ndtri_exp(high))
    wanted = special.ndtri_exp(log_p) * (-1.0 if upper else 1.0)
    np.testing.assert_allclose(score[~lost], wanted[~lost], rtol=0.0, atol=1e-6)


def test_quantile_ends_and_shape() -> None:
    log_p = np.array([-np.inf, 0.0])
    np.testing.assert_array_equal(noncentral_chi2.quantile(log_p, 3.0, 1.0), [0.0, np.inf])
    np.testing.assert_array_equal(noncentral_chi2.quantile(log_p, 3.0, 1.0, upper=True), [np.inf, 0.0])
    assert noncentral_chi2.quantile(-1.0, np.ones((3, 1)), np.ones(2)).shape == (3, 2)
    assert noncentral_chi2.quantile(-1.0, 2.0, 0.0) == pytest.approx(-2.0 * math.log(-math.expm1(-1.0)), 1e-8)


def test_a_hundred_thousand_points_at_once() -> None:
    df, nc = 650.0, 3.25e5
    x = df + nc + np.linspace(-8.0, 8.0, 100_000) * math.sqrt(2.0 * df + 4.0 * nc)
    some = slice(None, None, 9_973)
    np.testing.assert_allclose(
        noncentral_chi2.log_cdf(x, df, nc)[some], noncentral_chi2.log_cdf(x[some], df, nc), rtol=1e-12
    )


def test_quantile_next_to_the_centre_beside_harder_points() -> None:
    """A point that needs no step once was thrown out of its bracket while the others were still on their way."""
    z = np.linspace(-4.2648907939228245, 4.264890793923841, 257)
    df, nc = 7072.0, 2603.0 * 7071.999999999998
    together = noncentral_chi2.quantile(special.log_ndtr(z), df, nc)
    alone = np.array([float(noncentral_chi2.quantile(special.log_ndtr(v), df, nc)) for v in z])
    assert np.all(np.diff(together) > 0.0)
    np.testing.assert_allclose(together, alone, rtol=1e-9)
