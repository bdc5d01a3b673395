"""Confidence bounds on the TPR at a false-positive rate, where the threshold is estimated from non-members too."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import betainc, betaincinv, stdtrit

from gmip.stats._pooled_scores import Pooled
from gmip.stats._rank_tests import Fnr, crossing_probability, jackknife_variances
from gmip.stats.roc import tpr_at_fpr

__all__ = ["best_rank", "chord", "members_above", "tpr_lower", "tpr_spread", "tpr_upper"]

Array = NDArray[np.float64]
_TOLERANCE = 1.0e-7


def best_rank(non_members: int, fpr: float) -> int:
    """Which non-member, from the top, is the threshold for a lower bound at `fpr`: one standard deviation below it.

    Chosen by simulation of Gaussian scores; any choice that does not look at the scores is valid.
    """
    expected = non_members * fpr
    return max(1, round(expected - math.sqrt(expected)))


def chord(tpr: float, fpr: float) -> Fnr:
    """The least false-negative rates when an attacker reaches at most `tpr` at `fpr`: ROC curves (with coins) are
    concave, so beyond `fpr` they stay below the ray from the origin."""
    return lambda rates: 1.0 - np.minimum(tpr * np.maximum(rates / fpr, 1.0), 1.0)


def members_above(untied: Pooled, rank: int) -> int:
    """How many members score above the `rank`-th highest non-member."""
    barrier = untied.ordered_non_members[untied.non_members.size - rank]
    return untied.members.size - int(np.searchsorted(untied.ordered_members, barrier, side="right"))


def tpr_lower(untied: Pooled, fpr: float, error: float, spread: float = 0.0) -> float:
    """Below the TPR that the scores reach at `fpr` (with coins), except with probability `error`.

    spread : standard deviation of the TPR by the jackknife over runs, 0 where it is not known.
    """
    ins, outs = untied.members.size, untied.non_members.size
    rank = best_rank(outs, fpr)
    above = members_above(untied, rank)
    if above == 0:
        return 0.0

    def excess(tpr: float) -> float:
        return crossing_probability(above, ins, rank, outs, chord(tpr, fpr)) - error

    within = float(brentq(excess, 0.0, 1.0, xtol=_TOLERANCE))
    if spread == 0.0:
        return max(within - _TOLERANCE, 0.0)
    seen = tpr_at_fpr(untied.members, untied.non_members, fpr)
    between = seen + spread * float(stdtrit(untied.num_groups - 1, error))
    return min(max(within - _TOLERANCE, 0.0), max(between, 0.0))


def tpr_upper(untied: Pooled, fpr: float, error: float, spread: float = 0.0) -> float:
    """Above the TPR of the threshold whose false-positive rate is `fpr`, except with probability `error`.

    The threshold is a non-member so low that its false-positive rate is below `fpr` with a small part of the error
    only; the TPR there is no less.
    """
    ins, outs = untied.members.size, untied.non_members.size
    rank, high = 0, outs  # the least rank for which the chance is a quarter of the error, by bisection
    if betainc(outs, 1, fpr) > error / 4.0:
        return 1.0
    while high - rank > 1:
        middle = (rank + high) // 2
        rank, high = (rank, middle) if betainc(middle, outs + 1 - middle, fpr) <= error / 4.0 else (middle, high)
    rank, missed = high, float(betainc(high, outs + 1 - high, fpr))
    above = members_above(untied, rank)
    if above == ins:
        return 1.0
    rest = (error - missed) / (1.0 - missed)
    within = float(betaincinv(above + 1, ins - above, 1.0 - rest))
    if spread == 0.0:
        return within
    seen = tpr_at_fpr(untied.members, untied.non_members, fpr)
    return max(within, min(seen - spread * float(stdtrit(untied.num_groups - 1, error)), 1.0))


def tpr_spread(untied: Pooled, fprs: Array) -> Array:
    """Standard deviation of the TPR at each rate, shape (k,), by the jackknife over runs; 0 for too few runs."""
    if not untied.has_spread:
        return np.zeros(fprs.shape)
    left_out = np.empty((fprs.size, untied.num_groups))
    for group in range(untied.num_groups):
        left_out[:, group] = tpr_at_fpr(*untied.without(group), fprs)
    return np.sqrt(jackknife_variances(left_out))
