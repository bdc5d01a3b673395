"""One threshold, chosen on one half of the candidates and judged on the other.

docs/theory/audit-bounds.md, "The statistics".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from gmip.stats._families import Family
from gmip.stats._runs import Pooled

__all__ = ["Split", "binomial_lower", "binomial_upper", "split_threshold"]

Array = NDArray[np.float64]
Counts = NDArray[np.intp]


def binomial_lower(successes: Counts, trials: int, error: float) -> Array:
    """Clopper and Pearson's one-sided lower bound, which fails with probability `error` at most."""
    k = np.maximum(successes, 1)
    return np.where(np.asarray(successes) == 0, 0.0, betaincinv(k, trials - k + 1, error))


def binomial_upper(successes: Counts, trials: int, error: float) -> Array:
    """The one-sided upper bound."""
    return 1.0 - binomial_lower(trials - np.asarray(successes), trials, error)


class Split(NamedTuple):
    """Bounds on the two rates of the chosen threshold, and the parameter of the curve through them."""

    parameter: float
    tpr_lower: float
    fpr_upper: float


def split_threshold(scores: Pooled, family: Family, alpha: float, rng: np.random.Generator) -> Split:
    """Choose the threshold with the highest bound on one half; alpha/2 for each rate on the other half."""
    chosen, judged = [], []
    for values in (scores.members, scores.non_members):
        mixed = rng.permutation(values.size)
        chosen.append(np.sort(values[mixed[: values.size // 2]]))
        judged.append(values[mixed[values.size // 2 :]])
    thresholds = np.unique(np.concatenate(chosen))
    tpr, fpr = _rates(chosen[0], chosen[1], thresholds, alpha)
    best = thresholds[np.argmax(family.parameter(fpr, 1.0 - tpr))]
    tpr, fpr = _rates(np.sort(judged[0]), np.sort(judged[1]), np.array([best]), alpha)
    return Split(float(family.parameter(fpr, 1.0 - tpr)[0]), float(tpr[0]), float(fpr[0]))


def _rates(ins: Array, outs: Array, thresholds: Array, alpha: float) -> tuple[Array, Array]:
    """Lower bounds on P(member >= threshold), upper bounds on P(non-member >= threshold); sorted scores."""
    hits, alarms = (values.size - np.searchsorted(values, thresholds, side="left") for values in (ins, outs))
    return binomial_lower(hits, ins.size, alpha / 2.0), binomial_upper(alarms, outs.size, alpha / 2.0)
