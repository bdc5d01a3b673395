"""P-values of the likelihood ratio from the parameters, for many candidates at once.

Given a candidate, the log-likelihood ratio is a quadratic form of the published mean, hence of a standard normal y:
L = const + sum_i [slope_i y_i - bend_i (y_i^2 - 1)/2]; its cumulant generating function is

    K(t) = t const + sum_i [ t bend_i/2 - log(1 + t bend_i)/2 + t^2 slope_i^2 / (2 (1 + t bend_i)) ]

and steps on fresh data add up. `gmip.accounting._saddlepoint` inverts it by quadrature for one candidate; here the
formula of Lugannani and Rice (1980), its leading term, serves all of them (the tests give its error).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import special

from gmip.attacks.glir.likelihood import StepTest

__all__ = ["llr_p_values"]

Array = NDArray[np.float64]
_CHUNK = 256
_TURNS = 200


class _Form:
    """The quadratic forms of c candidates: const (c,), slopes squared (c, g) and bend (g,) in groups of equal bend."""

    def __init__(self, tests: Sequence[StepTest], coordinates: Sequence[Array]) -> None:
        squares, bends = [], []
        self.const = np.zeros(coordinates[0].shape[0])
        for test, places in zip(tests, coordinates, strict=True):
            shifts, n = test.shifts(places), test.batch_size
            gain = test.temperature / n
            squares.append((gain * shifts / test.v1) ** 2 * test.spread)
            bends.append(test.drawn * (1.0 / test.v1 - 1.0 / test.v0))
            ratio = test.v0 / test.v1
            self.const -= 0.5 * float(np.sum(ratio - 1.0 - np.log(ratio)))
            self.const -= gain * (0.5 / n) * ((shifts * shifts) @ (1.0 / test.v1) - test.anchor**2 * test.trace)
        bend = np.concatenate(bends)
        order = np.argsort(bend)
        # Without noise all bends are equal, to rounding: one direction with the length of all slopes takes their place.
        starts = np.flatnonzero(np.diff(bend[order], prepend=-1.0) > 1.0e-9 * bend.max(initial=0.0))
        self.multiplicity = np.diff(np.append(starts, bend.size)).astype(np.float64)
        self.bend = bend[order][starts]
        self.squares = np.add.reduceat(np.concatenate(squares, axis=1)[:, order], starts, axis=1)
        largest = float(self.bend.max(initial=0.0))
        self.lowest = -np.inf if largest == 0.0 else -1.0 / largest

    def cumulants(self, t: Array) -> tuple[Array, Array, Array]:
        """K, K' and K'' at t (c,), each of shape (c,)."""
        grown = 1.0 + t[:, None] * self.bend
        share, pull = self.bend / grown, self.squares / grown
        lifted = t * np.sum(pull, axis=1)
        bent = np.sum(pull * share, axis=1)
        many = self.multiplicity
        value = t * self.const + 0.5 * (t * (self.bend @ many) - np.log(grown) @ many) + 0.5 * t * lifted
        slope = self.const + 0.5 * ((self.bend - share) @ many) + lifted - 0.5 * t * t * bent
        curve = 0.5 * ((share * share) @ many) + np.sum(pull / grown**2, axis=1)
        return value, slope, curve

    def saddle(self, x: Array) -> Array:
        """t with K'(t) = x: Newton inside a bracket that bisection narrows."""
        _, slope, curve = self.cumulants(np.zeros_like(x))
        t = (x - slope) / curve
        low, high = np.full_like(x, max(self.lowest, -1.0e300)), np.full_like(x, np.inf)
        t = np.where(t <= low, 0.5 * low, t)
        for _ in range(_TURNS):
            _, slope, curve = self.cumulants(t)
            miss = slope - x
            low, high = np.where(miss < 0.0, t, low), np.where(miss < 0.0, high, t)
            if np.all(np.abs(miss) <= 1.0e-9 * np.sqrt(curve)):
                break
            trial = t - miss / curve
            middle = np.where(np.isfinite(high), 0.5 * (low + high), 2.0 * np.abs(t) + 1.0)
            t = np.where((trial > low) & (trial < high), trial, middle)
        return t

    def upper_tail(self, x: Array) -> Array:
        """P(L >= x), shape (c,)."""
        t = self.saddle(x)
        value, slope, curve = self.cumulants(t)
        root = np.copysign(np.sqrt(np.maximum(2.0 * (t * slope - value), 0.0)), t)
        u = t * np.sqrt(curve)
        middle = np.abs(root) < 1.0e-3  # 0/0 at the mean: there the first term of Edgeworth's series is exact enough
        with np.errstate(divide="ignore", invalid="ignore"):
            tail = special.ndtr(-root) + np.exp(-0.5 * root * root) / np.sqrt(2.0 * np.pi) * (1.0 / u - 1.0 / root)
        second = 0.5 * float(self.bend**2 @ self.multiplicity) + self.squares.sum(axis=1)
        third = -float(self.bend**3 @ self.multiplicity) - 3.0 * self.squares @ self.bend
        z = (x - self.const) / np.sqrt(second)
        near = special.ndtr(-z) + third / (6.0 * second**1.5) * (z * z - 1.0) * np.exp(-0.5 * z * z) / np.sqrt(
            2.0 * np.pi
        )
        return np.asarray(np.clip(np.where(middle, near, tail), 0.0, 1.0))


def llr_p_values(tests: Sequence[StepTest], coordinates: Sequence[Array], observed: Array) -> Array:
    """P(sum of the steps' log-likelihood ratios >= observed) for a candidate in no batch, shape (c,).

    coordinates : one array of shape (c, >= w) per step. Steps must face fresh data.
    """
    parts = []
    for start in range(0, observed.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        parts.append(_Form(tests, [places[part] for places in coordinates]).upper_tail(observed[part]))
    return np.concatenate(parts)
