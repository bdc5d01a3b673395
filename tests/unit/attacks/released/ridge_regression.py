"""Ridge regression, whose optimum is known in closed form: gradients there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gmip.stats.scores import auc

Array = NDArray[np.float64]


class Ridge(NamedTuple):
    """Gradients of members, others and background at the weights, and the penalty's gradient."""

    members: Array
    others: Array
    background: Array
    penalty: Array

    @property
    def listed(self) -> Array:
        return np.vstack([self.members, self.others])


def ridge(
    seed: int, members: int, dims: int, *, l2: float = 0.05, background: int = 1000, stop: float = 0.0, spare: int = 0
) -> Ridge:
    """Least squares + (l2/2)|w|^2 on `members` records; `stop` of 1 leaves the weights at 0, of 0 at the optimum."""
    rng = np.random.default_rng(seed)
    count = 2 * members + background + spare
    x = rng.standard_normal((count, dims))
    y = x @ rng.standard_normal(dims) / np.sqrt(dims) + 0.5 * rng.standard_normal(count)
    ours = slice(0, members)
    hessian = x[ours].T @ x[ours] / members + l2 * np.eye(dims)
    w = (1.0 - stop) * np.linalg.solve(hessian, x[ours].T @ y[ours] / members)
    rows = x * (x @ w - y)[:, None]
    return Ridge(rows[ours], rows[members : 2 * members], rows[2 * members : 2 * members + background], l2 * w)


def areas(scores: Array, members: int) -> float:
    return auc(scores[:members], scores[members:])
