"""The arithmetic of LiRA and RMIA: is a confidence that of models trained with a record, or without it?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

__all__ = [
    "LogMean",
    "Moments",
    "Variance",
    "blended",
    "finite_range",
    "likelihood_ratios",
    "log_probabilities",
    "ranks_among",
    "standardised",
]

Array = NDArray[np.float64]
Variance = Literal["auto", "per-example", "pooled"]
_PRIOR: Final = 4.0  # observations that the pooled variance counts as under "auto"


class Moments:
    """Mean and scatter of c candidates' confidences over models, one model at a time (Welford).

    Attributes
    ----------
    count : shape (c,), models that were counted for a candidate.
    mean, scatter : shape (c, q), scatter the sum of squared deviations from the mean.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self.count = np.zeros(shape[0])
        self.mean, self.scatter = np.zeros(shape), np.zeros(shape)

    def add(self, values: Array, rows: NDArray[np.bool_]) -> None:
        """One model: values of shape (c, q), counted for the candidates in `rows`, shape (c,)."""
        self.count[rows] += 1.0
        above = values[rows] - self.mean[rows]
        self.mean[rows] += above / self.count[rows, None]
        self.scatter[rows] += above * (values[rows] - self.mean[rows])

    def spread(self, variance: Variance) -> tuple[Array, Array]:
        """(variance of one more value around the mean, degrees of freedom of its estimate), shapes (c, q) and (c, 1).

        The mean is an estimate too, hence the factor 1 + 1/count.
        """
        own = self.count[:, None] - 1.0
        total = max(float(own.sum()), 1.0)
        pooled = self.scatter.sum(axis=0) / total
        pooled[pooled == 0.0] = 1.0  # all models agree on all candidates: any scale will do
        if variance == "pooled":
            found, freedom = np.broadcast_to(pooled, self.scatter.shape), np.full_like(own, total)
        elif variance == "per-example":
            found, freedom = self.scatter / np.maximum(own, 1.0), np.maximum(own, 1.0)
            found = np.where(found > 0.0, found, pooled)
        else:
            found, freedom = (self.scatter + _PRIOR * pooled) / (own + _PRIOR), own + _PRIOR
        return found * (1.0 + 1.0 / self.count[:, None]), freedom


def likelihood_ratios(phi: Array, inside: Moments, outside: Moments, variance: Variance = "auto") -> Array:
    """log p(phi | models with the candidate) - log p(phi | models without), shape (c,), mean over the columns.

    "pooled" and "per-example" are ratios of Gaussians. "auto" is a ratio of predictive distributions, given all models
    (docs/attacks.md): Student's t, since variances are estimated (as in BaVarIA, arXiv 2603.11799), around means that
    share what is known. A candidate's level is its own, but the shift that training on it makes is one of many: it has
    a Gaussian prior, whose mean and variance are those of all candidates' shifts.
    """
    if variance != "auto":
        logs = []
        for moments in (inside, outside):
            spread, _ = moments.spread(variance)
            logs.append(-0.5 * (np.log(spread) + (phi - moments.mean) ** 2 / spread))
        return np.asarray((logs[0] - logs[1]).mean(axis=1))
    groups = (inside, outside)
    counts = [moments.count[:, None] for moments in groups]
    spreads = [moments.spread(variance) for moments in groups]
    single = [spread / (1.0 + 1.0 / n) for (spread, _), n in zip(spreads, counts, strict=True)]
    errors = [one / n for one, n in zip(single, counts, strict=True)]  # of a mean
    shifts = inside.mean - outside.mean
    varies = np.maximum(shifts.var(axis=0) - (errors[0] + errors[1]).mean(axis=0), 0.0)
    weights = 1.0 / (errors[0] + errors[1] + varies)
    shift = (weights * shifts).sum(axis=0) / weights.sum(axis=0)
    logs = []
    for ours, theirs, sign in ((0, 1, 1.0), (1, 0, -1.0)):
        # The other group's mean, shifted, is a second measurement of ours.
        precisions = 1.0 / errors[ours], 1.0 / (errors[theirs] + varies)
        centre = precisions[0] * groups[ours].mean + precisions[1] * (groups[theirs].mean + sign * shift)
        total = precisions[0] + precisions[1]
        logs.append(_log_student(phi - centre / total, single[ours] + 1.0 / total, spreads[ours][1]))
    return np.asarray((logs[0] - logs[1]).mean(axis=1))


def _log_student(gap: Array, spread: Array, freedom: Array) -> Array:
    """log density of Student's t with this squared scale, up to log(pi)/2."""
    norm = gammaln((freedom + 1.0) / 2.0) - gammaln(freedom / 2.0) - np.log(freedom * spread) / 2.0
    return np.asarray(norm - (freedom + 1.0) / 2.0 * np.log1p(gap**2 / (freedom * spread)))


def standardised(phi: Array, outside: Moments, variance: Variance = "auto") -> Array:
    """How far phi, shape (c, 1), lies above the models without the candidate, in units of the spread: shape (c,)."""
    return np.asarray(((phi - outside.mean) / np.sqrt(outside.spread(variance)[0]))[:, 0])


def ranks_among(scores: Array, population: Array) -> Array:
    """(1 + how many of the population score as high or higher) / (1 + their number), shape of `scores`."""
    higher = len(population) - np.searchsorted(np.sort(population), scores, side="left")
    return np.asarray((1.0 + higher) / (1.0 + len(population)))


class LogMean:
    """Log of the mean probability of c records over models, one model at a time; shapes (c,)."""

    def __init__(self, size: int) -> None:
        self.count = np.zeros(size)
        self._log_sum = np.full(size, -np.inf)

    def add(self, log_p: Array, rows: NDArray[np.bool_]) -> None:
        """One model, counted for the records in `rows`."""
        self.count[rows] += 1.0
        self._log_sum[rows] = np.logaddexp(self._log_sum[rows], log_p[rows])

    @property
    def value(self) -> Array:
        """-inf where nothing was counted."""
        return np.asarray(self._log_sum - np.log(np.maximum(self.count, 1.0)))


def blended(log_out: Array, scale: float) -> Array:
    """log of ((1 + a) p_out + (1 - a))/2: the mean of p_out and of p_in = a p_out + (1 - a), which stands in for models
    that were not trained (Zarifzadeh et al. 2024, section 3)."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.logaddexp(np.log1p(scale) + log_out, np.log1p(-scale)) - np.log(2.0))


def log_probabilities(phi: NDArray[np.floating[Any]]) -> Array:
    """log p of a logit-scaled confidence, of any shape."""
    return -np.logaddexp(0.0, -np.asarray(phi, dtype=np.float64))


def finite_range(parts: Iterable[NDArray[Any]]) -> tuple[float, float]:
    """The least and the largest finite number in some arrays."""
    low, high = np.inf, -np.inf
    for part in parts:
        finite = part[np.isfinite(part)]
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    return (low, high) if low <= high else (-1.0, 1.0)  # none is finite: only the sign tells
