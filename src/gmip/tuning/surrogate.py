"""What trials say about recipes that were not tried: a Gaussian process with a common offset for each seed."""

from __future__ import annotations

import itertools
import math
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular

__all__ = ["Surrogate"]

Array = NDArray[np.float64]
_LENGTHS: Final = (0.6, 1.0, 1.7)
_NOISES: Final = (0.02, 0.1, 0.4, 1.0)
_OFFSETS: Final = (1.0e-3, 0.1, 0.5)
_JITTER: Final = 1.0e-8


class Surrogate:
    """metric = smooth function of the recipe + offset of the seed (who was trained and measured on) + noise.

    Length, noise and offsets are those, of a small grid, that make the trials likeliest.

    Parameters
    ----------
    features : shape (n, k), see `SearchSpace.features`.
    seeds : shape (n,), whole numbers.
    values : shape (n,), finite. What lies below the median is taken for the median: how bad bad recipes are tells
        nothing about good ones.
    """

    def __init__(self, features: Array, seeds: NDArray[np.int64], values: Array) -> None:
        self._features, self._seeds = features, seeds
        clipped = np.maximum(values, np.median(values))
        self._mean = float(clipped.mean())
        self._scale = float(clipped.std()) or 1.0
        y = (clipped - self._mean) / self._scale
        distances = _distances(features, features)
        same = (seeds[:, None] == seeds[None, :]).astype(np.float64)
        best = -math.inf
        for length, noise, offset in itertools.product(_LENGTHS, _NOISES, _OFFSETS):
            covariance = np.exp(-0.5 * distances / length**2) + offset * same + (noise + _JITTER) * np.eye(len(y))
            factor = cholesky(covariance, lower=True)
            weights = cho_solve((factor, True), y)
            likelihood = -0.5 * float(y @ weights) - float(np.log(np.diag(factor)).sum())
            if likelihood > best:
                best, self._length, self._factor, self._weights = likelihood, length, factor, weights

    def predict(self, features: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of the function, shapes (m,) each, in the metric's units."""
        cross = np.exp(-0.5 * _distances(features, self._features) / self._length**2)
        solved = solve_triangular(self._factor, cross.T, lower=True)
        variance = np.maximum(1.0 - (solved**2).sum(0), 0.0)
        return self._mean + self._scale * (cross @ self._weights), self._scale * np.sqrt(variance)


def _distances(a: Array, b: Array) -> Array:
    """Squared, shape (len(a), len(b))."""
    return np.asarray(((a[:, None, :] - b[None, :, :]) ** 2).sum(-1))
