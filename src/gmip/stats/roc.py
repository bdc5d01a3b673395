"""Exact empirical ROC: every distinct score is a threshold, ties are right."""

from __future__ import annotations

from typing import NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gmip import _validate as check
from gmip.errors import InvalidArgument

__all__ = ["RocCurve", "auc", "roc_curve", "tpr_at_fpr"]

Array = NDArray[np.float64]


class RocCurve(NamedTuple):
    """Rates of the test "score >= threshold", each of shape (k + 1,) for k distinct scores; the first point is (0, 0)
    at an infinite threshold, the last (1, 1)."""

    fpr: Array
    tpr: Array
    thresholds: Array


def _pair(members: ArrayLike, non_members: ArrayLike) -> tuple[Array, Array]:
    pair = check.vector("members", members), check.vector("non_members", non_members)
    for name, scores in zip(("members", "non_members"), pair, strict=True):
        if scores.size == 0:
            raise InvalidArgument("is empty", argument=name, remedy="pass at least one score")
    return pair


def roc_curve(members: ArrayLike, non_members: ArrayLike) -> RocCurve:
    """The ROC of scores (higher = member) of shape (a,) and (b,)."""
    ins, outs = _pair(members, non_members)
    ins, outs = np.sort(ins), np.sort(outs)
    rising = np.sort(np.concatenate([ins, outs]), kind="stable")  # two rising parts: merged in one pass
    thresholds = rising[np.append(True, rising[1:] > rising[:-1])][::-1]
    # Counts are divided last: 1 of 100 is 0.01, the same number that people write.
    rates = [
        np.append(0, scores.size - np.searchsorted(scores, thresholds, side="left")) / scores.size
        for scores in (outs, ins)
    ]
    return RocCurve(rates[0], rates[1], np.concatenate([[np.inf], thresholds]))


def auc(members: ArrayLike, non_members: ArrayLike) -> float:
    """P(a member's score is higher than a non-member's) + P(they are equal)/2."""
    ins, outs = _pair(members, non_members)
    ordered = np.sort(outs)
    wins = np.searchsorted(ordered, ins, side="left").sum() + np.searchsorted(ordered, ins, side="right").sum()
    return float(wins) / (2.0 * ins.size * outs.size)


def _above(rising: Array, barrier: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """How many scores are above each barrier, and how many equal it."""
    last = np.searchsorted(rising, barrier, side="right")
    return np.asarray(rising.size - last), np.asarray(last - np.searchsorted(rising, barrier, side="left"))


@overload
def tpr_at_fpr(members: ArrayLike, non_members: ArrayLike, fpr: float) -> float: ...
@overload
def tpr_at_fpr(members: ArrayLike, non_members: ArrayLike, fpr: ArrayLike) -> float | Array: ...
def tpr_at_fpr(members: ArrayLike, non_members: ArrayLike, fpr: ArrayLike) -> float | Array:
    """The TPR of the threshold whose empirical FPR is `fpr`, shaped like `fpr`; a coin decides among equal scores.

    Between scores that differ nothing is interpolated: it is the largest TPR at an FPR of at most `fpr`. Where members
    and non-members have the same score, the same share of both is taken (a straight piece of the ROC): scores that are
    all equal find `fpr` of the members, as guessing does, not none.
    """
    ins, outs = _pair(members, non_members)
    rates = check.probability_array("fpr", fpr)
    allowed = np.searchsorted(np.arange(outs.size + 1) / outs.size, rates, side="right") - 1  # false positives
    # The threshold may fall just above the first non-member that must not be taken.
    ins, outs = np.sort(ins), np.sort(outs)
    barrier = np.append(outs[::-1], -np.inf)[allowed]
    (above, tied), (alarms, equal) = (_above(scores, barrier) for scores in (ins, outs))
    coin = np.clip((np.maximum(rates * outs.size, allowed) - alarms) / np.maximum(equal, 1), 0.0, 1.0)
    result = (above + tied * coin) / ins.size
    return float(result) if np.ndim(fpr) == 0 else np.asarray(result)
