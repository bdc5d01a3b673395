"""TPR - FPR at the best threshold, without looking twice at the same candidates."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from gmip.stats._runs import Pooled

__all__ = ["CrossFit", "cross_fit"]

Array = NDArray[np.float64]


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
    values = np.unique(np.concatenate([ins, outs]))
    hits = 1.0 - np.searchsorted(np.sort(ins), values, side="left") / ins.size
    alarms = 1.0 - np.searchsorted(np.sort(outs), values, side="left") / outs.size
    return float(values[np.argmax(hits - alarms)])


def _variance(flags: Array) -> float:
    """Of a share, with one success and one failure added (Agresti and Caffo 2000): not 0 where all are the same."""
    share = (flags.sum() + 1.0) / (flags.size + 2.0)
    return float(share * (1.0 - share) / (flags.size + 2.0))
