"""ROC curves as points: how to thin them, and how to read them between the points that are left.

A measured ROC is a step function: the largest TPR of any threshold whose FPR is at most x (where scores tie, a coin
gives points between). A bound on the attacker is concave, and is read so that it stays a bound.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
_SLACK = 1.0 + 1.0e-9  # 1 of 100 is 1%, whatever floats say


def corners(fpr: ArrayLike, tpr: ArrayLike) -> tuple[Array, Array]:
    """The points of a curve in order, each FPR once with its largest TPR, from an FPR of 0; both of shape (n,)."""
    xs, ys = np.asarray(fpr, dtype=np.float64), np.asarray(tpr, dtype=np.float64)
    order = np.lexsort((ys, xs))
    xs, ys = xs[order], np.maximum.accumulate(ys[order])
    last = np.append(xs[1:] != xs[:-1], True)
    xs, ys = xs[last], ys[last]
    return (xs, ys) if xs[0] == 0.0 else (np.append(0.0, xs), np.append(0.0, ys))


def thin_steps(fpr: Array, tpr: Array, rates: Iterable[float]) -> tuple[Array, Array]:
    """The corners that say all about a step function at `rates`; the first and the last stay.

    Between two rates what is left is at most the measured curve, and at each of them it is the curve.
    """
    wanted = np.fromiter(rates, dtype=np.float64)
    kept = np.searchsorted(fpr, wanted * _SLACK, side="right") - 1
    # Equal TPRs are one tread: its first corner says it.
    kept = np.searchsorted(tpr, tpr[np.maximum(kept, 0)], side="left")
    keep = np.union1d(kept, [0, len(fpr) - 1])
    return fpr[keep], tpr[keep]


def read_steps(fpr: Array, tpr: Array, rates: ArrayLike) -> Array:
    """The TPR of a step function at `rates`, of their shape."""
    return np.asarray(tpr[np.searchsorted(fpr, np.asarray(rates) * _SLACK, side="right") - 1])


def read_bound(fpr: Array, tpr: Array, rates: ArrayLike) -> Array:
    """An upper bound at `rates` on the concave curve through the points, which have increasing FPRs; of their shape.

    Straight lines between points of a concave curve lie below it. The lines through the two points on the left and
    through the two on the right, continued, lie above.
    """
    x = np.asarray(rates, dtype=np.float64)
    chord = np.interp(x, fpr, tpr)
    slopes = np.diff(tpr) / np.diff(fpr)
    i = np.clip(np.searchsorted(fpr, x, side="right") - 1, 0, len(fpr) - 2)  # the piece that x lies in
    right = np.minimum(i + 1, len(slopes) - 1)
    from_left = np.where(i > 0, tpr[i] + slopes[np.maximum(i - 1, 0)] * (x - fpr[i]), np.inf)
    from_right = np.where(i + 1 < len(slopes), tpr[i + 1] - slopes[right] * (fpr[i + 1] - x), np.inf)
    above = np.minimum(np.minimum(from_left, from_right), tpr[i + 1])
    known = np.isin(x, fpr)
    return np.where(known, chord, np.maximum(chord, above))
