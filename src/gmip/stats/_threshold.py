"""A threshold is chosen on one half of the candidates and judged on the other: bounds on its rates, and TPR - FPR.

docs/theory/audit-bounds.md, "The statistics".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri, stdtrit

from gmip.stats._families import Family
from gmip.stats._pooled_scores import Pooled

__all__ = ["CrossFit", "Split", "binomial_lower", "binomial_upper", "cross_fit", "split_threshold", "threshold_bound"]

Array = NDArray[np.float64]
Counts = NDArray[np.intp]
_MOST_THRESHOLDS = 20_000  # that are tried: of more, an even choice of ranks and a finer one at both ends


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


def threshold_bound(scores: Pooled, family: Family, alpha: float, seed: int) -> tuple[float, str]:
    """The bound and what it rests on."""
    split = split_threshold(scores.comparable(seed), family, alpha, np.random.default_rng(seed))
    return split.parameter, f"a threshold with TPR >= {split.tpr_lower:.4g} and FPR <= {split.fpr_upper:.4g}"


def split_threshold(scores: Pooled, family: Family, alpha: float, rng: np.random.Generator) -> Split:
    """Choose the threshold with the highest bound on one half; alpha/2 for each rate on the other half."""
    chosen, judged = [], []
    for values in (scores.members, scores.non_members):
        mixed = rng.permutation(values.size)
        chosen.append(np.sort(values[mixed[: values.size // 2]]))
        judged.append(values[mixed[values.size // 2 :]])
    thresholds = _some(_distinct(*chosen))
    tpr, fpr = _rates(chosen[0], chosen[1], thresholds, alpha)
    best = thresholds[np.argmax(family.parameter(fpr, 1.0 - tpr))]
    tpr, fpr = _rates(np.sort(judged[0]), np.sort(judged[1]), np.array([best]), alpha)
    return Split(float(family.parameter(fpr, 1.0 - tpr)[0]), float(tpr[0]), float(fpr[0]))


def _some(values: Array) -> Array:
    if values.size <= _MOST_THRESHOLDS:
        return values
    ends = np.geomspace(1, values.size, _MOST_THRESHOLDS // 4).astype(np.intp)
    even = np.linspace(0, values.size - 1, _MOST_THRESHOLDS // 2).astype(np.intp)
    return np.asarray(values[np.unique(np.concatenate([ends - 1, even, values.size - ends]))])


def _distinct(ins: Array, outs: Array) -> Array:
    """All values of two rising arrays, rising. Stable sorting merges them in one pass."""
    values = np.sort(np.concatenate([ins, outs]), kind="stable")
    return np.asarray(values[np.append(True, values[1:] > values[:-1])])


def _rates(ins: Array, outs: Array, thresholds: Array, alpha: float) -> tuple[Array, Array]:
    """Lower bounds on P(member >= threshold), upper bounds on P(non-member >= threshold); sorted scores."""
    hits, alarms = (values.size - np.searchsorted(values, thresholds, side="left") for values in (ins, outs))
    return binomial_lower(hits, ins.size, alpha / 2.0), binomial_upper(alarms, outs.size, alpha / 2.0)


class CrossFit(NamedTuple):
    """TPR - FPR and how far it may be off on either side."""

    advantage: float
    margin: float


def cross_fit(scores: Pooled, error: float, rng: np.random.Generator) -> CrossFit:
    """Choose the threshold on one half of the candidates, judge it on the other, swap, and take the mean.

    error : chance of each side of the interval to fail. The two halves choose each other's threshold, so their
        results depend on each other; the margin is the mean of their margins, which holds for any dependence of two
        normal variables. With enough runs, it is at least that of a t-interval over runs.
    """
    ins, outs = scores.members, scores.non_members
    half1, half0 = (rng.permutation(values.size) < values.size // 2 for values in (ins, outs))
    hits, alarms = np.empty(ins.size), np.empty(outs.size)
    spreads = []
    for side in (False, True):
        threshold = _best_threshold(ins[half1 != side], outs[half0 != side])
        hits[half1 == side], alarms[half0 == side] = ins[half1 == side] >= threshold, outs[half0 == side] >= threshold
        spreads.append(np.sqrt(_variance(hits[half1 == side]) + _variance(alarms[half0 == side])))
    advantage = float(hits.mean() - alarms.mean())
    margin = -float(ndtri(error)) * float(np.mean(spreads))
    if scores.has_spread:
        parts = (
            np.bincount(scores.member_group, hits - hits.mean(), scores.num_groups) / ins.size
            - np.bincount(scores.non_member_group, alarms - alarms.mean(), scores.num_groups) / outs.size
        )
        spread = np.sqrt(parts.size / (parts.size - 1) * (parts @ parts))
        margin = max(margin, -float(stdtrit(parts.size - 1, error)) * float(spread))
    return CrossFit(advantage, margin)


def _best_threshold(ins: Array, outs: Array) -> float:
    """The score at which the TPR exceeds the FPR by most, ">= threshold" being called a member."""
    ins, outs = np.sort(ins), np.sort(outs)
    values = _distinct(ins, outs)
    hits = 1.0 - np.searchsorted(ins, values, side="left") / ins.size
    alarms = 1.0 - np.searchsorted(outs, values, side="left") / outs.size
    return float(values[np.argmax(hits - alarms)])


def _variance(flags: Array) -> float:
    """Of a share, with one success and one failure added (Agresti and Caffo 2000): not 0 where all are the same."""
    share = (flags.sum() + 1.0) / (flags.size + 2.0)
    return float(share * (1.0 - share) / (flags.size + 2.0))
