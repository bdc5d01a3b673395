"""One-parameter families of trade-off functions that a bound is read from: mu-Gaussian and (epsilon, delta).

Both are symmetric (f = f^-1) and fall as the parameter grows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

__all__ = ["EpsilonFamily", "Family", "GaussianFamily", "largest_rejected"]

Array = NDArray[np.float64]
_TOLERANCE = 1.0e-9


class Family(Protocol):
    def fnr(self, parameter: float | Array, fpr: Array) -> Array:
        """f(fpr) of the member of the family, broadcast."""

    def parameter(self, fpr: Array, fnr: Array) -> Array:
        """The smallest parameter whose curve reaches down to the point (fpr, fnr), at least 0."""


class GaussianFamily:
    """f(a) = Phi(Phi^-1(1 - a) - mu)."""

    def fnr(self, parameter: float | Array, fpr: Array) -> Array:
        return np.asarray(ndtr(-ndtri(fpr) - parameter))

    def parameter(self, fpr: Array, fnr: Array) -> Array:
        with np.errstate(invalid="ignore"):
            mu = -ndtri(fnr) - ndtri(fpr)
        return np.maximum(np.nan_to_num(mu, nan=0.0, posinf=np.inf, neginf=0.0), 0.0)


class EpsilonFamily:
    """f(a) = max(0, 1 - delta - e^eps a, e^-eps (1 - delta - a)) at a fixed delta."""

    def __init__(self, delta: float) -> None:
        self.delta = delta

    def fnr(self, parameter: float | Array, fpr: Array) -> Array:
        rest, epsilon = 1.0 - self.delta, np.asarray(parameter)
        steep = rest - np.exp(np.minimum(epsilon, 700.0)) * fpr
        return np.asarray(np.maximum(np.maximum(steep, np.exp(-epsilon) * (rest - fpr)), 0.0))

    def parameter(self, fpr: Array, fnr: Array) -> Array:
        rest = 1.0 - self.delta
        with np.errstate(divide="ignore", invalid="ignore"):
            low = np.where(rest > fnr, np.log((rest - fnr) / fpr), 0.0)
            high = np.where(rest > fpr, np.log((rest - fpr) / fnr), 0.0)
        return np.maximum(np.maximum(low, high), 0.0)


def largest_rejected(p_value: Callable[[float], float], alpha: float, start: float = 0.0) -> float:
    """The largest parameter with p_value <= alpha, for a p-value that grows with it; `start` if that is too much."""

    def excess(parameter: float) -> float:
        return p_value(parameter) - alpha

    if excess(start) > 0.0:
        return start
    low, high = start, start + 1.0
    while excess(high) <= 0.0:
        low, high = high, 2.0 * high
        if high > 1.0e4:
            return low
    return max(float(brentq(excess, low, high, xtol=_TOLERANCE)) - _TOLERANCE, start)
