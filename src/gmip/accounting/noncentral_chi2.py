"""Non-central chi-squared distribution in logs, for all scales; see _saddlepoint for the quadrature."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from gmip.accounting._saddlepoint import Complex, Real, complement, excess, log_tails, remainder_of_log

_CHUNK = 4096
_TINY = 1e-100  # below this x, P(X <= x) is proportional to x^(df/2)
_HUGE = 1e300  # above this x, P(X > x) is exp(-x/2) to the precision of floats


def _saddle(x: Real, df: Real, nc: Real) -> tuple[Real, Real, Real]:
    """With -X as L and D = 1 + 2c at its saddle c: D, gap = 2c/D and the log of the integrand at c, each like x."""
    half = 0.5 * df / x
    root = np.hypot(half, np.sqrt(nc) / np.sqrt(x))
    d = half + root
    above = (x - np.maximum(df, nc)) - np.minimum(df, nc)
    # 4 x c^2 + (4 x - 2 df) c + above = 0, by the root formula that does not cancel
    lead = 1.0 - half
    with np.errstate(divide="ignore", invalid="ignore"):
        twice = np.where(lead > 0.0, -above / x / (lead + root), root - lead)
    gap = twice / d
    return d, gap, -0.5 * df * excess(-gap, 1.0 / d) - 0.5 * nc * gap * gap


def _tails(x: Real, df: Real, nc: Real) -> tuple[Real, Real]:
    """(log P(X <= x), log P(X > x)) for 0 < x < inf, all of shape (n,)."""
    low, high = np.empty_like(x), np.empty_like(x)
    for start in range(0, x.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        inner = np.clip(x[part], _TINY, _HUGE)
        half_df = 0.5 * df[part]
        d, gap, exponent = _saddle(inner, df[part], nc[part])
        pull = 0.5 * nc[part] / d

        def remainder(z: Complex, points: NDArray[np.intp], half_df: Real = half_df, pull: Real = pull) -> Complex:
            return half_df[points, None] * remainder_of_log(z) + pull[points, None] * (z * z / (1.0 + z))

        tail = log_tails(remainder, half_df + 2.0 * pull, gap[None], exponent[None])[0]
        beyond = x[part] - inner
        tail = tail + np.where(beyond < 0.0, half_df * (np.log(x[part]) - np.log(inner)), -0.5 * beyond)
        other = complement(tail)
        low[part] = np.where(gap >= 0.0, tail, other)
        high[part] = np.where(gap >= 0.0, other, tail)
    return low, high


def _evaluate(x: ArrayLike, df: ArrayLike, nc: ArrayLike, which: int) -> Real:
    """Log tail number `which` of _tails for broadcast arguments, with the ends x <= 0 and x = inf."""
    xs, dfs, ncs = np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in (x, df, nc)))
    out = np.where(xs > 0.0, 0.0, -np.inf) if which == 0 else np.where(xs > 0.0, -np.inf, 0.0)
    inner = (xs > 0.0) & (xs < np.inf)
    if inner.any():
        out[inner] = _tails(xs[inner], dfs[inner], ncs[inner])[which]
    return out


def log_cdf(x: ArrayLike, df: ArrayLike, nc: ArrayLike) -> Real:
    """log P(X <= x) for X non-central chi-squared (df >= 1, nc >= 0), of the broadcast shape of the arguments."""
    return _evaluate(x, df, nc, 0)


def log_sf(x: ArrayLike, df: ArrayLike, nc: ArrayLike) -> Real:
    """log P(X > x) for X non-central chi-squared (df >= 1, nc >= 0), of the broadcast shape of the arguments."""
    return _evaluate(x, df, nc, 1)


def _root(x: Real, df: Real, nc: Real) -> tuple[Real, Real]:
    """Signed root r of twice the saddle exponent (nearly the normal score of x) and dr / dlog(x), each like x."""
    floor = np.maximum(x, _TINY)
    d, gap, exponent = _saddle(floor, df, nc)
    root = np.copysign(np.sqrt(-2.0 * (exponent + 0.5 * df * (np.log(x) - np.log(floor)))), -gap)
    bulk = np.abs(root) < 1e-6
    slope = np.where(bulk, floor / np.sqrt(2.0 * df + 4.0 * nc), -0.5 * floor * d * gap / np.where(bulk, 1.0, root))
    return root, slope


def _score(x: Real, df: Real, nc: Real) -> Real:
    """Normal score of P(X <= x), each of shape (n,)."""
    low, high = _tails(x, df, nc)
    return np.asarray(np.where(low < high, special.ndtri_exp(low), -special.ndtri_exp(high)))


def _quantiles(z: Real, df: Real, nc: Real) -> Real:
    """The x whose normal score is z, all of shape (n,): root-finding in log(x), first on r, then on the score."""
    x = df + nc
    low, high = np.full_like(x, 5e-324), np.full_like(x, 1e200)
    for _ in range(200):
        root, slope = _root(x, df, nc)
        low, high = np.where(root < z, x, low), np.where(root < z, high, x)
        trial = x * np.exp(np.clip((z - root) / slope, -50.0, 50.0))
        middle = np.sqrt(low) * np.sqrt(high)
        close = np.abs(root - z) <= 1e-3 * (1.0 + np.abs(z))
        if close.all():
            break
        # What is close stays where it is: a step too small to change x must not count as a failure of the bracket.
        x = np.where(close, x, np.where((trial > low) & (trial < high), trial, middle))
    live = np.arange(x.size)
    for _ in range(40):
        at = x[live]
        miss = z[live] - _score(at, df[live], nc[live])
        slope = _root(at, df[live], nc[live])[1]
        x[live] = np.clip(at * np.exp(np.clip(miss / slope, -50.0, 50.0)), 5e-324, 1e200)
        live = live[(np.abs(miss) > 1e-8) & (x[live] != at)]
        if live.size == 0:
            break
    return np.where(x <= 5e-324, 0.0, x)  # below the smallest float


def quantile(log_p: ArrayLike, df: ArrayLike, nc: ArrayLike, *, upper: bool = False) -> Real:
    """The x with log P(X <= x) = log_p, or log P(X > x) = log_p when `upper`, of the broadcast shape."""
    ps, dfs, ncs = np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in (log_p, df, nc)))
    with np.errstate(divide="ignore"):
        z = special.ndtri_exp(ps) * (-1.0 if upper else 1.0)
    out = np.where(z > 0.0, np.inf, 0.0)
    inner = np.isfinite(z)
    if inner.any():
        out[inner] = _quantiles(z[inner], dfs[inner], ncs[inner])
    return out
