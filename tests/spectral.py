"""The exact curve of one step and one candidate where the covariance of the gradients is known."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from gmip.accounting.families import Gaussian
from gmip.accounting.gaussian_pair import gaussian_pair
from gmip.accounting.tradeoff import TradeOff


def spectral_step(
    eigenvalues: ArrayLike, coordinates: ArrayLike, *, batch_size: int, noise_std: float = 0.0
) -> TradeOff:
    """The optimal test in the Gaussian model (docs/theory/one-step.md).

    eigenvalues : array-like of shape (r,), of the per-example gradient covariance.
    coordinates : array-like of shape (r,), the candidate's gradient minus the mean, in the eigenbasis.
    noise_std : noise on the batch MEAN.
    """
    values, delta = np.asarray(eigenvalues, dtype=np.float64), np.asarray(coordinates, dtype=np.float64)
    variance = values / batch_size + noise_std**2
    seen = variance > 0.0
    if np.any(delta[~seen] != 0.0) or (batch_size == 1 and noise_std == 0.0):
        return Gaussian(math.inf)  # a direction without any randomness gives the candidate away
    drop = values[seen] / batch_size**2 / variance[seen]
    return gaussian_pair(drop, np.abs(delta[seen]) / batch_size / np.sqrt(variance[seen]), np.ones(drop.size))
