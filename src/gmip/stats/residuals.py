"""Tests of residuals that should be independent normal noise of a declared size; exact where not said otherwise.

A residual is what is left of a recorded gradient when the members' mean gradient is taken away. NumPy and SciPy only.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]
_TURNS = 200


def normal_p_value(z: float) -> float:
    """Two-sided: P(|Z| >= |z|)."""
    return float(2.0 * special.ndtr(-abs(z)))


def bernstein_p_value(deviation: float, variance: float, largest: float) -> float:
    """Two-sided, at most: a sum of independent terms of mean 0, none beyond `largest`, and of normal noise, which have
    that variance together. Bernstein's inequality; terms drawn without replacement obey it, too (Hoeffding 1963)."""
    size = abs(deviation)
    if variance <= 0.0:
        return 1.0 if size == 0.0 else 0.0
    return min(1.0, 2.0 * math.exp(-0.5 * size**2 / (variance + largest * size / 3.0)))


def size_p_value(squares: Array | float, dof: Array | float) -> Array:
    """Two-sided, for a sum of `dof` squares of standard normal numbers: twice the smaller tail. Any shape."""
    low, high = special.chdtr(dof, squares), special.chdtrc(dof, squares)
    return np.asarray(np.minimum(1.0, 2.0 * np.minimum(low, high)))


def cosine_p_value(cosine: Array | float, dimension: int) -> Array:
    """Two-sided, for the cosine between two independent normal vectors of that dimension. Any shape.

    (1 + cosine)/2 is Beta((d-1)/2, (d-1)/2).
    """
    if dimension < 2:
        return np.ones_like(np.asarray(cosine, dtype=np.float64))
    half = 0.5 * (dimension - 1)
    tail = special.betainc(half, half, 0.5 * (1.0 - np.minimum(np.abs(cosine), 1.0)))
    return np.asarray(np.minimum(1.0, 2.0 * tail))


def shared_noise(matrix: Array) -> tuple[float, float]:
    """(p-value, strength) of noise that rows of a matrix share; entries standard normal if they share none.

    The sum over the rows is normal with a variance of their number; its squares add up to chi-squared. Strength: the
    mean correlation between rows, 1 where all are the same, 0 where they are independent. One-sided: shared noise adds.
    """
    rows, columns = matrix.shape
    if rows < 2:
        return 1.0, 0.0
    squares = float(np.sum(matrix.sum(axis=0) ** 2)) / rows
    return float(special.chdtrc(columns, squares)), (squares / columns - 1.0) / (rows - 1)


def cancelled_noise(matrix: Array) -> float:
    """P-value of noise that cancels when the rows of a matrix are summed, as centring makes it; entries standard normal
    if it does not. The squares of that sum are chi-squared, and too small."""
    rows, columns = matrix.shape
    return float(special.chdtr(columns, float(np.sum(matrix.sum(axis=0) ** 2)) / rows))


def quadratic_form_p_value(value: float, weights: Array) -> float:
    """P(sum_j weights_j Z_j^2 >= value) for independent standard normal Z, weights >= 0, shape (k,).

    Lugannani and Rice (1980) with K(t) = -sum_j log(1 - 2 t w_j)/2: relative error of a few per cent in the tail.
    """
    w = np.asarray(weights, dtype=np.float64)
    w = w[w > 1.0e-12 * w.max(initial=0.0)]
    mean, spread = float(w.sum()), math.sqrt(2.0 * float(np.sum(w * w)))
    if w.size == 0 or value <= 0.0:
        return 1.0
    if (w.size < 3 and np.ptp(w) == 0.0) or abs(value - mean) < 1.0e-3 * spread:
        # One weight is chi-squared; at the mean, where the formula is 0/0, the two-moment match is accurate enough.
        dof = mean * mean / float(np.sum(w * w))
        return float(special.chdtrc(dof, value * dof / mean))
    low, high = -0.5 * w.size / value - 1.0 / float(w.max()), 0.5 / float(w.max())
    for _ in range(_TURNS):  # K'(t) = value: K' rises from 0 to infinity
        t = 0.5 * (low + high)
        if float(np.sum(w / (1.0 - 2.0 * t * w))) < value:
            low = t
        else:
            high = t
    t = 0.5 * (low + high)
    shrunk = 1.0 - 2.0 * t * w
    root = math.copysign(math.sqrt(max(2.0 * (t * value + 0.5 * float(np.sum(np.log(shrunk)))), 0.0)), t)
    u = t * math.sqrt(2.0 * float(np.sum((w / shrunk) ** 2)))
    tail = special.ndtr(-root) + math.exp(-0.5 * root * root) / math.sqrt(2.0 * math.pi) * (1.0 / u - 1.0 / root)
    return float(min(max(tail, 0.0), 1.0))
