"""Tails by inverting a moment generating function along a hyperbola through its saddle point, all in logs.

With M(t) = E[exp(tL)] = exp(K(t)), the tail on the far side of the pole at 0 is

    P(L > x) = 1/(2 pi i) * integral of exp(K(t) - t x) / t dt        (contour right of 0; left of 0: -P(L <= x)).

Every K here is a sum of terms -m/2 log(1 + a t), b / (1 + a t), t^2 and t with a, b, m >= 0: singular on the real axis
only, left of some point t_s. From the saddle c (K'(c) = x), each such term shrinks along every ray whose angle with
the vertical, leaning to the left, is below 45 degrees. A hyperbola with asymptotes leaning by half of that,

    t(v) = c + scale * (sin(LEAN) - sin(LEAN - i v)),     v real,

makes the integrand analytic in a strip around real v and its decay doubly exponential, so the trapezoidal rule
converges exponentially, however slow the decay along the vertical line (one degree of freedom) and however far apart
the scales. A pole inside that strip changes the rule by a known amount, 1 / (1 + exp(2 pi distance / STEP)) for nodes
at (j + 1/2) STEP: adding it makes the bulk (saddle near or on the pole) as accurate as the tails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]

LEAN = np.pi / 8
STEP = 0.07
BLOCK = 8
_V = (np.arange(100 * BLOCK) + 0.5) * STEP
_NODE: Complex = np.sin(LEAN) - np.sin(LEAN - 1j * _V)
_SLOPE: Complex = 1j * np.cos(LEAN - 1j * _V)
_SMALL = 0.05  # |z| below which z - log(1 + z) is summed as a series
_ORDER = 14
_BUDGET = 1 << 18  # array entries per temporary


def excess(z: Any, one_plus_z: Any) -> Any:
    """z - log(1 + z) >= 0, to relative accuracy also for tiny z; 1 + z is passed for accuracy near -1. Any shape."""
    near = np.where(np.abs(z) < _SMALL, z, 0.0)
    series = np.zeros_like(near)
    for k in range(_ORDER, 1, -1):
        series = near.dtype.type(1) / k - near * series
    log = np.where(np.abs(z) < 0.5, np.log1p(np.maximum(z, -0.5)), np.log(one_plus_z))
    return np.where(np.abs(z) < _SMALL, near * near * series, z - log)


def remainder_of_log(z: Complex) -> Complex:
    """z - log(1 + z) off the real axis; absolute error a few ulp of |z|. Any shape."""
    out = np.empty_like(z)
    re, im = z.real, z.imag
    out.real = re - 0.5 * np.log1p(re * (2.0 + re) + im * im)
    out.imag = im - np.arctan2(im, 1.0 + re)
    return out


def complement(log_p: Real) -> Real:
    """log(1 - exp(log_p)) for log_p <= 0. Any shape."""
    log_p = np.minimum(log_p, 0.0)
    with np.errstate(divide="ignore", under="ignore"):
        return np.asarray(np.where(log_p > -0.7, np.log(-np.expm1(log_p)), np.log1p(-np.exp(log_p))))


def log_tails(
    remainder: Callable[[Complex, NDArray[np.intp]], Complex], curvature: Real, gaps: Real, exponents: Real
) -> Real:
    """Log tail probabilities beyond the pole, in units in which the saddle is at distance 1 from the singularity t_s.

    remainder(z, points) -> K(c + z) - K(c) - x z of shape (n, j) at nodes z (n, j) for the points of indices (n,);
    curvature (n,): K''(c); gaps (poles, n): c minus each pole; exponents (poles, n): log of the integrand without its
    pole at c. Returns (poles, n): log P(L > x) where the gap is >= 0, log P(L <= x) where it is negative.
    """
    scale = 1.0 / np.sqrt(curvature / 64.0 + 1.0 / 1.44)
    total = np.zeros_like(gaps)
    peak = np.zeros_like(gaps)
    live = np.arange(curvature.size)
    for start in range(0, _V.size, BLOCK):
        z = scale[live, None] * _NODE[start : start + BLOCK]
        weight = np.exp(remainder(z, live)) * (scale[live, None] * _SLOPE[start : start + BLOCK])
        going = np.zeros(live.size, dtype=np.bool_)
        for k in range(len(gaps)):
            term = weight / (z + gaps[k, live, None])
            total[k, live] += term.imag.sum(axis=1)
            if start == 0:
                peak[k] = np.abs(term).max(axis=1)
            going |= np.abs(term[:, -1]) > 1e-17 * peak[k, live]
        live = live[going]
        if live.size == 0:
            break
    distance = np.abs(np.arcsin(np.clip(np.sin(LEAN) + gaps / scale, -1.0, 1.0)) - LEAN)
    inside = distance < LEAN
    pole = np.where(inside, -special.log1p(np.exp(2.0 * np.pi / STEP * distance)) - exponents, -np.inf)
    mass = np.where(gaps >= 0.0, total, -total) * (STEP / np.pi) + np.exp(pole)
    return np.asarray(exponents + np.log(np.maximum(mass, 1e-300)))


class _Pair:
    """The log-likelihood ratio of N(M, I - diag(w)) against N(0, I): drop w, half the multiplicity, half the
    squared shift of shape (groups,), in falling order of w, w[0] > 0. Below, points are rows and groups are columns."""

    def __init__(self, drop: Real, half: Real, shift: Real) -> None:
        order = np.argsort(-drop)
        self.drop, self.half = drop[order], half[order]
        self.keep = 1.0 - self.drop
        wide, push = self.drop.astype(np.longdouble), 0.5 * shift[order].astype(np.longdouble) ** 2
        keep = 1.0 - wide
        self.push: Real = push.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            self.reach: Real = np.where(self.push > 0.0, self.push / self.drop, 0.0)
            bound = np.where(push > 0.0, push / wide, 0.0) - self.half * np.log1p(-wide)
        self.mean0 = -(self.half * excess(wide / keep, 1.0 / keep) + push / keep).sum()
        self.mean1 = (self.half * excess(-wide, keep) + push).sum()
        self.supremum = bound.sum()
        top = float(self.drop[0])
        lowest = (1.0 - top) / top
        steps = np.arange(-45.0, 60.0 + np.log2(1.0 / top / lowest))
        self.grid: Real = lowest * np.exp2(steps) - lowest
        pieces = [self.slopes(part, np.zeros_like(part))[0] for part in _parts(self.grid, self.drop.size)]
        self.grid_slope: Real = np.concatenate(pieces)

    def slopes(self, c: Real, x: Real) -> tuple[Real, Real]:
        """K'(c) - x and K''(c), of shape (n,) like c and x, where K' is summed from its value at 0, 1 or infinity."""
        d = self.keep + c[:, None] * self.drop
        r = self.drop / d
        from0 = c * ((r * self.drop / self.keep) @ self.half + ((self.keep + d) / (self.keep * d * d)) @ self.push)
        from1 = (c - 1.0) * ((r * self.drop) @ self.half + (self.keep * (1.0 + d) / (d * d)) @ self.push)
        first = np.where(np.abs(from0) < np.abs(from1), (self.mean0 - x) + from0, (self.mean1 - x) + from1)
        if self.supremum < np.inf:
            short = r @ self.half + (self.keep / (d * d)) @ self.reach
            first = np.where(short < np.minimum(np.abs(from0), np.abs(from1)), (self.supremum - x) - short, first)
        first = first.astype(np.float64)
        return first, (r * r) @ self.half + 2.0 * (self.keep / d**3) @ self.push

    def saddles(self, x: Real) -> tuple[Real, Real, Real]:
        """c with K'(c) = x nearly, K'(c) - x and K''(c), of shape (n,) like x: Newton, monotone as K' is concave."""
        c = self.grid[np.clip(np.searchsorted(self.grid_slope, x) - 1, 0, self.grid.size - 1)]
        for _ in range(100):
            first, second = self.slopes(c, x)
            if (np.abs(first) <= 1e-4 * np.sqrt(second)).all():
                break
            c = np.maximum(c - first / second, self.grid[0])
        return c, *self.slopes(c, x)

    def tails(self, x: Real) -> tuple[Real, Real]:
        """Gaps and log tails beyond the poles 0 and 1, each of shape (2, n), for x of shape (n,) below the supremum."""
        c, miss, second = self.saddles(x)
        d = self.keep + c[:, None] * self.drop
        unit = d[:, 0] / self.drop[0]
        exponents = np.empty((2, c.size))
        for pole, scale, weight in ((0, self.keep, np.ones_like(self.keep)), (1, np.ones_like(self.keep), self.keep)):
            move = (c - pole)[:, None] / d
            fall = excess(-move * self.drop, scale / d) @ self.half + (move * move) @ (weight * self.push)
            exponents[pole] = (c - pole) * miss - fall
        ratio = unit[:, None] * self.drop / d
        bend = self.push * self.keep * unit[:, None] ** 2 / d**3
        tilt = np.clip(miss, -np.sqrt(second), np.sqrt(second)) * unit  # clipped only where floats do not resolve x
        gaps = np.stack([c, c - 1.0]) / unit

        def remainder(z: Complex, points: NDArray[np.intp]) -> Complex:
            far = np.abs(z[:, -1])[:, None] * ratio[points]
            near = int((far.max(axis=0) > _SMALL).sum())  # ratio falls along the groups: those from `near` on are small
            out: Complex = tilt[points, None] * z
            tail, tail_bend = ratio[points, near:], bend[points, near:]
            coefficients = []
            power = np.ones_like(tail)
            for k in range(2, _ORDER + 1):
                coefficients.append((power * tail * tail) @ (self.half[near:] / k) + (power * tail_bend).sum(axis=1))
                power = power * tail
            series = np.zeros_like(z)
            for coefficient in reversed(coefficients):
                series = coefficient[:, None] - z * series
            out += z * z * series
            width = max(1, _BUDGET // z.size)
            for start in range(0, near, width):
                part = slice(start, min(start + width, near))
                w = z[:, :, None] * ratio[points, None, part]
                out += remainder_of_log(w) @ self.half[part]
                out += (z * z) * (bend[points, None, part] / (1.0 + w)).sum(axis=2)
            return out

        return gaps, log_tails(remainder, second * unit * unit, gaps, exponents)


def _parts(values: Real, groups: int) -> list[Real]:
    """The values (n,) cut into pieces small enough for temporaries of shape (piece, groups)."""
    size = max(1, _BUDGET // groups)
    return [values[start : start + size] for start in range(0, values.size, size)]


def gaussian_pair_log_tails(
    log_ratio: ArrayLike, *, drop: ArrayLike, shift: ArrayLike, multiplicity: ArrayLike
) -> tuple[Real, Real, Real, Real]:
    """Tails of L = log dP1/dP0 for P0 = N(0, I) and P1 = N(M, I - diag(w)), in coordinate groups.

    log_ratio (n,): the points x; drop (groups,): 0 <= w < 1; shift (groups,): length of M within the group, >= 0;
    multiplicity (groups,): coordinates in the group, >= 0, and >= 1 where the shift is not 0.
    Returns log P0(L > x), log P0(L <= x), log P1(L > x) and log P1(L <= x), each of shape (n,).
    """
    x = np.asarray(log_ratio, dtype=np.float64)
    w, s, m = (np.asarray(value, dtype=np.float64) for value in (drop, shift, multiplicity))
    w = np.where(w < 1e-100, 0.0, w)
    used = (s > 0.0) | ((w > 0.0) & (m > 0.0))
    w, s, m = w[used], s[used], m[used]
    sf = np.tile(np.where(x < 0.0, 0.0, -np.inf), (2, 1))
    cdf = np.tile(np.where(x < 0.0, -np.inf, 0.0), (2, 1))
    if w.size and w.max() == 0.0:
        size = float(np.sqrt(s @ s))
        for hypothesis, z in enumerate((x / size + 0.5 * size, x / size - 0.5 * size)):
            sf[hypothesis], cdf[hypothesis] = special.log_ndtr(-z), special.log_ndtr(z)
    elif w.size:
        pair = _Pair(w, 0.5 * m, s)
        inner = (x > -np.inf) & (x < pair.supremum)
        pieces = [pair.tails(piece) for piece in _parts(np.maximum(x[inner], -1e200), w.size)]
        if pieces:
            gaps, tail = (np.concatenate(side, axis=1) for side in zip(*pieces, strict=True))
            other = complement(tail)
            sf[:, inner], cdf[:, inner] = np.where(gaps >= 0.0, (tail, other), (other, tail))
    return sf[0], cdf[0], sf[1], cdf[1]
