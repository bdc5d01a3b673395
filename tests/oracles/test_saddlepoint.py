"""Tails of the log-likelihood ratio of two Gaussians against exact high-precision arithmetic and sampling."""

from __future__ import annotations

import math
import tracemalloc

import mpmath as mp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special

from gmip.accounting import noncentral_chi2
from gmip.accounting._saddlepoint import gaussian_pair_log_tails

TOLERANCE = 1e-8
Groups = tuple[list[float], list[float], list[float]]  # drop, shift, multiplicity


def tails(x: NDArray[np.float64] | list[float], groups: Groups) -> NDArray[np.float64]:
    """Rows: log P0(L > x), log P0(L <= x), log P1(L > x), log P1(L <= x)."""
    return np.array(gaussian_pair_log_tails(x, drop=groups[0], shift=groups[1], multiplicity=groups[2]))


def relative(got: float, exact: mp.mpf) -> float:
    if abs(exact) < mp.mpf("1e-300"):
        return 0.0 if abs(got) < 1e-290 else math.inf
    return float(abs(mp.mpf(float(got)) / exact - 1))


def points(groups: Groups, scores: tuple[float, ...]) -> list[float]:
    """Points at these standard scores under P0 and under P1, below the supremum of L."""
    w, s, m = (np.array(column) for column in groups)
    mean0 = float(np.sum(0.5 * m * (-np.log1p(-w) - w / (1.0 - w)) - 0.5 * s * s / (1.0 - w)))
    mean1 = float(np.sum(0.5 * m * (-np.log1p(-w) - w) + 0.5 * s * s))
    sd0 = math.sqrt(float(np.sum(0.5 * m * (w / (1.0 - w)) ** 2 + (s / (1.0 - w)) ** 2)))
    sd1 = math.sqrt(float(np.sum(0.5 * m * w * w + s * s * (1.0 - w))))
    with np.errstate(divide="ignore", invalid="ignore"):
        top = float(np.sum(np.where(s > 0.0, 0.5 * s * s / w, 0.0) - 0.5 * m * np.log1p(-w)))
    chosen = [mean0 + z * sd0 for z in scores] + [mean1 + z * sd1 for z in scores]
    return [x for x in chosen if x < top]


def exact_line(x: float, groups: Groups, pole: int) -> tuple[mp.mpf, mp.mpf]:
    """(log P(L > x), log P(L <= x)) by the plain trapezoidal rule along a vertical line away from the pole."""
    terms = [(mp.mpf(w), mp.mpf(s) ** 2 / 2, mp.mpf(m) / 2) for w, s, m in zip(*groups, strict=True)]
    at = mp.mpf(x)

    def cgf(t: mp.mpc) -> mp.mpc:
        logs = (m * (-t * mp.log(1 - w) - mp.log(1 + t * w / (1 - w))) for w, _, m in terms)
        return mp.fsum(logs) + mp.fsum(p * t * (t - 1) / (1 - w + t * w) for w, p, _ in terms)

    def first(t: mp.mpf) -> mp.mpf:
        logs = mp.fsum(m * (-mp.log(1 - w) - w / (1 - w + t * w)) for w, _, m in terms)
        return logs + mp.fsum(p * ((1 - w) * (2 * t - 1) + w * t * t) / (1 - w + t * w) ** 2 for w, p, _ in terms)

    def second(t: mp.mpf) -> mp.mpf:
        return mp.fsum(m * (w / (1 - w + t * w)) ** 2 + 2 * p * (1 - w) / (1 - w + t * w) ** 3 for w, p, m in terms)

    top = max(w for w, _, _ in terms)
    lowest = -(1 - top) / top
    c = lowest + 1
    while first(c) > at:
        c = lowest + (c - lowest) / 4
    move = mp.mpf(1)
    while abs(move) * mp.sqrt(second(c)) > mp.mpf("1e-6"):
        move = (at - first(c)) / second(c)
        c += move
    width = 1 / mp.sqrt(second(c))
    if abs(c - pole) < 1.5 * width:
        c = pole + 1.5 * width
        width = 1 / mp.sqrt(second(c))
    peak = (cgf(c) - (c - pole) * at).real
    step = min(width, c - lowest) / 10
    total, j = mp.mpf(1) / (c - pole) / 2, 1
    while True:
        t = mp.mpc(c, j * step)
        value = mp.exp(cgf(t) - (t - pole) * at - peak) / (t - pole)
        total += value.real
        if abs(value) < mp.mpf("1e-18") / abs(c - pole):
            break
        j += 1
    tail = abs(total) * step / mp.pi * mp.exp(peak)
    small, large = mp.log(tail), mp.log1p(-tail)
    return (small, large) if c > pole else (large, small)


@pytest.mark.parametrize(
    "groups",
    [
        ([1e-9], [0.0], [1e12]),
        ([1e-9], [3.0], [1e12]),
        ([1.0 - 1e-9], [1e4], [1e12]),
        ([0.4], [1e-6], [60.0]),
        ([1e-6, 0.9, 0.0], [0.5, 0.0, 2.0], [1e6, 40.0, 7.0]),
        ([0.0, 0.3], [1e4, 0.0], [1.0, 1e9]),
        ([1.0 - 1e-9, 1e-9, 0.5], [1e-6, 1e2, 1.0], [50.0, 1e12, 1e4]),
        ([1e-4, 1e-3, 1e-2], [0.0, 0.0, 0.0], [1e15, 1e10, 1e6]),
    ],
)
def test_line_integral(groups: Groups) -> None:
    x = points(groups, (-40.0, -3.0, 0.0, 12.0))
    got = tails(x, groups)
    with mp.workdps(40):
        for k, at in enumerate(x):
            for pole in (0, 1):
                exact = exact_line(at, groups, pole)
                assert relative(got[2 * pole, k], exact[0]) < TOLERANCE
                assert relative(got[2 * pole + 1, k], exact[1]) < TOLERANCE


def exact_two(x: float, w: list[float], s: list[float], hypothesis: int) -> tuple[mp.mpf, mp.mpf]:
    """Two single coordinates: L = sup - sum A_i (sigma_i Z_i - mu_i)^2 by integration over Z_2, Z_1 in closed form."""
    ws, ss = [mp.mpf(v) for v in w], [mp.mpf(v) for v in s]
    y = mp.fsum(b * b / (2 * a) - mp.log(1 - a) / 2 for a, b in zip(ws, ss, strict=True)) - mp.mpf(x)
    keep = [1 - a if hypothesis else mp.mpf(1) for a in ws]
    sigma, mu = [mp.sqrt(k) for k in keep], [k * b / a for a, b, k in zip(ws, ss, keep, strict=True)]
    radius = [mp.sqrt(y * 2 * (1 - a) / a) for a in ws]

    def slice_of(angle: mp.mpf) -> mp.mpf:
        along, reach = radius[1] * mp.sin(angle), radius[0] * mp.cos(angle)
        inner = mp.erfc((mu[0] - reach) / sigma[0] / mp.sqrt(2)) - mp.erfc((mu[0] + reach) / sigma[0] / mp.sqrt(2))
        density = mp.exp(-(((along + mu[1]) / sigma[1]) ** 2) / 2) / (sigma[1] * mp.sqrt(2 * mp.pi))
        return density * radius[1] * mp.cos(angle) * inner / 2

    cuts = {mp.pi * q / 8 for q in range(-4, 5)}
    for k in (-12, -5, -2, 0, 2, 5, 12):
        along, across = (k * sigma[1] - mu[1]) / radius[1], (k * sigma[0] + mu[0]) / radius[0]
        cuts |= {mp.asin(along)} if abs(along) < 1 else set()
        cuts |= {mp.acos(across), -mp.acos(across)} if 0 < across < 1 else set()
    sf = mp.quad(slice_of, sorted(cuts))
    return mp.log(sf), mp.log(1 - sf)


@pytest.mark.parametrize("hypothesis", [0, 1])
@pytest.mark.parametrize(
    ("w", "s"), [([0.5, 0.5], [0.0, 0.0]), ([0.9, 1e-3], [1.0, 0.3]), ([1.0 - 1e-5, 0.2], [0.0, 2.0])]
)
def test_convolution_of_two_coordinates(w: list[float], s: list[float], hypothesis: int) -> None:
    keep = [1.0 - a if hypothesis else 1.0 for a in w]
    top = sum(0.5 * b * b / a - 0.5 * math.log1p(-a) for a, b in zip(w, s, strict=True))
    x = [
        top - sum(0.5 * a / (1.0 - a) * (z * math.sqrt(k) - k * b / a) ** 2 for a, b, k in zip(w, s, keep, strict=True))
        for z in (-4.0, 0.02, 1.0)
    ]
    got = tails(x, (w, s, [1.0, 1.0]))[2 * hypothesis : 2 * hypothesis + 2]
    with mp.workdps(24):
        for k, at in enumerate(x):
            for value, exact in zip(got[:, k], exact_two(at, w, s, hypothesis), strict=True):
                assert relative(value, exact) < TOLERANCE


@pytest.mark.parametrize("w", [1e-4, 0.3, 1.0 - 1e-6])
@pytest.mark.parametrize(("m", "shift"), [(1.0, 0.0), (1.0, 0.2), (2.0, 5.0), (300.0, 1.0), (1e6, 30.0)])
def test_one_group_is_non_central_chi_squared(w: float, m: float, shift: float) -> None:
    nc0, nc1 = (shift / w) ** 2, shift**2 * (1.0 - w) / w**2
    for scale, nc, row in ((1.0, nc0, 0), (1.0 - w, nc1, 2)):
        u = scale * noncentral_chi2.quantile(np.array([-3e3, -50.0, -3.0, -0.5, -1e-3, -1e-9]), m, nc)
        u = u[u > 1e-12 * m]  # nearer to the supremum, L itself is not resolved by floats
        log_ratio = -0.5 * m * math.log1p(-w) + 0.5 * shift**2 / w - 0.5 * w / (1.0 - w) * u
        got = tails(log_ratio, ([w], [shift], [m]))
        # rounding of log_ratio moves the normal score by this much
        blur = np.spacing(0.5 * m * -math.log1p(-w) + 0.5 * shift**2 / w + np.abs(log_ratio)) / (
            0.5 * w / (1.0 - w) * u
        )
        size = 4.0 * blur * np.maximum(m, u / scale)
        for value, exact in (
            (got[row], noncentral_chi2.log_cdf(u / scale, m, nc)),
            (got[row + 1], noncentral_chi2.log_sf(u / scale, m, nc)),
        ):
            np.testing.assert_array_less(np.abs(value - exact), (1e-8 + size) * np.abs(exact) + 1e-300)


def test_gaussian_closed_form_and_its_limit() -> None:
    for size in (1e-6, 0.3, 5.0, 1e4):
        z = np.array([-140.0, -6.0, -1.0, 0.0, 0.5, 3.0, 140.0])
        x = size * z - 0.5 * size**2
        exact = tails(x, ([0.0, 0.0], [0.6 * size, 0.8 * size], [1.0, 2.0]))
        np.testing.assert_allclose(exact[1], special.log_ndtr(z), rtol=1e-8 * max(1.0, size))
        nearly = tails(x, ([1e-20 * min(1.0, size), 0.0], [0.6 * size, 0.8 * size], [1.0, 2.0]))
        np.testing.assert_allclose(nearly, exact, rtol=1e-9)


def test_sampling() -> None:
    rng = np.random.default_rng(20240611)
    w, s, m = np.array([0.7, 0.2, 0.0, 0.05]), np.array([0.8, 0.0, 0.5, 0.3]), np.array([1, 5, 1, 40])
    n = 60_000
    drop, mean = np.repeat(w, m), np.zeros(m.sum())
    mean[np.concatenate([[0], np.cumsum(m)[:-1]])] = s
    x = np.array([-6.0, -2.0, -0.5, 0.0, 0.4, 1.5])
    got = tails(x, (w.tolist(), s.tolist(), m.astype(float).tolist()))
    for row in (0, 2):
        z = rng.standard_normal((n, drop.size))
        if row:
            z = mean + z * np.sqrt(1.0 - drop)
        ratio = 0.5 * np.sum(z**2 - (z - mean) ** 2 / (1.0 - drop) - np.log1p(-drop), axis=1)
        share = np.array([np.mean(ratio > at) for at in x])
        p = np.exp(got[row])
        assert (np.abs(share - p) <= 5.0 * np.sqrt(p * (1.0 - p) / n) + 3.0 / n).all()


def test_ends_and_extreme_points() -> None:
    groups: Groups = ([0.5, 0.1], [1.0, 0.0], [3.0, 1.0])
    top = 1.0 - 1.5 * math.log(0.5) - 0.5 * math.log(0.9)
    got = tails([-math.inf, -1e308, -1e20, -1e6, top * (1.0 - 1e-12), top * (1.0 + 1e-12), 1e9, math.inf], groups)
    assert not np.isnan(got).any() and (got <= 0.0).all()
    assert (got[::2, 0] == 0.0).all() and (got[1::2, 0] == -np.inf).all()
    assert (got[::2, -3:] == -np.inf).all() and (got[1::2, -3:] == 0.0).all()
    assert (got[::2, 1:] <= got[::2, :-1]).all() and (got[1::2, 1:] >= got[1::2, :-1]).all()
    # nothing differs between the hypotheses: L = 0
    np.testing.assert_array_equal(
        tails([-1.0, 0.0, 1.0], ([0.0, 0.4], [0.0, 0.0], [9.0, 0.0])), [[0, -np.inf, -np.inf], [-np.inf, 0, 0]] * 2
    )
    assert tails([], groups).shape == (4, 0)


def test_the_hypotheses_are_tied_by_the_ratio() -> None:
    """dP1 = exp(L) dP0: increments of both laws over a cell (x, x + h] have a ratio within exp(x), exp(x + h)."""
    x = np.linspace(-60.0, 12.0, 721)
    got = np.exp(tails(x, ([0.6, 0.02], [1.0, 3.0], [4.0, 900.0])))
    for rows in ((0, 2), (1, 3)):
        cell0, cell1 = (np.abs(np.diff(got[row])) for row in rows)
        use = (cell0 > 1e-9) & (cell1 > 1e-9)
        log_ratio = np.log(cell1[use] / cell0[use])
        assert use.sum() > 100 and (log_ratio > x[:-1][use] - 1e-5).all() and (log_ratio < x[1:][use] + 1e-5).all()


def test_thousands_of_groups_within_memory() -> None:
    rng = np.random.default_rng(3)
    w = 10.0 ** rng.uniform(-6.0, -0.1, 3000)
    groups: Groups = (w.tolist(), (0.05 * rng.random(3000)).tolist(), np.ones(3000).tolist())
    x = np.array(points(groups, tuple(np.linspace(-6.0, 6.0, 50))))
    tracemalloc.start()
    got = tails(x, groups)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6
    merged = tails(x[::40], ([*groups[0], 0.25], [*groups[1], 0.0], [*groups[2], 0.0]))
    np.testing.assert_allclose(got[:, ::40], merged, rtol=1e-10)
