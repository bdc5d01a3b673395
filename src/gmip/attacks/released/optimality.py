"""Who was in, one at a time, from the weights of a model at an optimum: the members' mean gradient is known there.

Arrays only. Where the mean loss of the members plus a penalty is least, the members' mean gradient is minus the
penalty's: a published mean without a trace (docs/theory/attackers.md, "Released weights"). How far from an optimum a
model is shows in the mean gradient of other records: at an optimum it differs from the members' by chance alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import lapack, solve_triangular

from gmip import _validate as check
from gmip._random import PlayStream
from gmip.attacks.decode import Decoded
from gmip.attacks.glir import GlirOutcome, Play, View, background_needed, glir_scores
from gmip.errors import InvalidArgument

__all__ = ["FAR", "OptimumOutcome", "distance", "inner_distance", "optimum_scores", "shrunk"]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
FAR: Final = (2.0, 3.0)  # times what chance explains, of other records and of a list: more is no optimum
_FITTED: Final = 0.4  # less: members are fitted so well that their gradients are not like those of others
_RIDGE: Final = 0.01  # where self-play cannot choose one
_DRAWS: Final = 200  # pseudo-batches


@dataclass(frozen=True, kw_only=True, eq=False)
class OptimumOutcome:
    """Attributes
    ----------
    log_odds : array of shape (c,), the score: log-odds of membership at even prior odds, divided by `distance` where
        the model is at no optimum.
    distance : squared length of the pool's mean gradient, penalty included, in units of what chance explains: about 1
        or less at an optimum.
    residual : standard deviation of what the members' sum of gradients lacks to an optimum, relative to the spread that
        chance gives it; None where nothing estimates it.
    excess : how much more the members' sum varies than a random draw from the list would, squared; 1 if they were drawn
        from it, None where nothing estimates it.
    explained : whether such a draw explains the weights. If not, the list does not hold the members, or the model
        fits them so well that their gradients are unlike others', and nobody counts as decided: log-odds are scaled
        to at most 1.
    glir, decoded : all that the method behind it found; one of them is None.
    """

    log_odds: Array
    distance: float
    residual: float | None = None
    excess: float | None = None
    explained: bool = True
    glir: GlirOutcome | None = None
    decoded: Decoded | None = None

    @property
    def at_optimum(self) -> bool:
        """Whether chance explains where the model stands."""
        return self.distance <= FAR[self.glir is None]

    @property
    def sure(self) -> float:
        """The share of the candidates whose membership is decided, at odds of 100 to 1."""
        return float(np.mean(np.abs(self.log_odds) > math.log(100.0)))

    @property
    def fitted(self) -> bool:
        """Whether members are fitted so well that their gradients have become smaller than others' (`optimum_scores`
        alone can tell)."""
        return self.glir is not None and self.distance < _FITTED


def distance(pool: ArrayLike, mean: ArrayLike, *, dataset_size: int, contains_members: bool, seed: int = 0) -> float:
    """How far a model is from an optimum: 1 is what chance explains, whoever the members were.

    The gap between `mean` and the pool's mean, against the gaps of means of random batches of the pool: squared
    lengths, directions weighted by 1/(variance + mean variance), so that neither the largest nor the smallest ones
    decide alone.

    Parameters
    ----------
    pool : array of shape (m, d), gradients of records at the model's weights.
    mean : array of shape (d,), the members' mean gradient if the model is at an optimum: minus the penalty's gradient.
    dataset_size : N, members.
    contains_members : whether the members are in the pool (a list of candidates, more than N), or it is of others.
    """
    rows = check.matrix("pool", pool).astype(np.float64, copy=False)
    target, n = check.vector("mean", mean, length=rows.shape[1]), check.count("dataset_size", dataset_size)
    fit, rest, drawn, factor = _batches(len(rows), n, contains_members, seed)
    centre = rows.mean(0)
    centred = rows - centre
    covariance = centred[fit].T @ centred[fit] / len(fit)
    covariance.flat[:: len(covariance) + 1] += max(float(np.trace(covariance)) / len(covariance), 1.0e-300)
    root = np.linalg.cholesky(covariance)
    gaps = solve_triangular(root, np.vstack([target - centre, drawn @ centred[rest]]).T, lower=True)
    squares = np.sum(gaps**2, axis=0)
    return float(squares[0]) / max(factor * float(squares[1:].mean()), 1.0e-300)


def inner_distance(products: Array, towards: Array, square: float, *, dims: int, dataset_size: int, seed: int) -> float:
    """`distance` of a list, from inner products of its c records less their mean, shape (c, c), their products with the
    gap, shape (c,), and its square; `dims` : entries of the vectors, or of their span."""
    fit, rest, drawn, factor = _batches(len(products), dataset_size, True, seed)
    inner = products if len(fit) == len(products) else products[np.ix_(fit, fit)]
    ridge = max(float(np.trace(inner)) / len(fit) / dims, 1.0e-300)
    root = np.array(inner, order="F")
    root.flat[:: len(root) + 1] += len(fit) * ridge
    root, failed = lapack.dpotrf(root, lower=1, overwrite_a=1)
    if failed:
        raise InvalidArgument("have gradients that are not finite", argument="candidates")
    across = (products if len(rest) == len(products) else products[:, rest]) @ drawn.T
    with_fit = np.column_stack([towards, across])[fit]
    own = np.append(square, np.einsum("ij,ji->i", drawn, across[rest]))
    squares = (own - np.sum(solve_triangular(root, with_fit, lower=True, check_finite=False) ** 2, axis=0)) / ridge
    return float(squares[0]) / max(factor * float(squares[1:].mean()), 1.0e-300)


def _batches(count: int, n: int, contains_members: bool, seed: int) -> tuple[Rows, Rows, Array, float]:
    """Rows to measure directions by, rows to draw batches of, weights of these in the gaps of random batches, shape
    (draws, rows), and what their squares are multiplied by."""
    if count < 4:
        raise InvalidArgument(f"has {count} records, too few to tell what chance explains", argument="pool")
    rng = PlayStream.OPTIMALITY.rng(seed)
    if contains_members and count > n:  # batches like that of the members: N of the list, which is also the measure
        everyone = np.arange(count)
        return everyone, everyone, (np.argsort(rng.random((_DRAWS, count)), axis=1) < n) / n - 1.0 / count, 1.0
    # What is estimated on one half is tried on the other, for the members are strangers, too.
    order = rng.permutation(count)
    rest = order[count // 2 :]
    drawn = rng.multinomial(n, np.full(len(rest), 1.0 / len(rest)), size=_DRAWS) / n - 1.0 / len(rest)
    factor = (1.0 + n / count) * len(rest) / max(1, len(rest) - 1)  # the others' mean varies, too
    return order[: count // 2], rest, drawn, factor


def optimum_scores(
    candidates: ArrayLike,
    background: ArrayLike,
    *,
    penalty_gradient: ArrayLike,
    dataset_size: int,
    play: Play | None = Play(),  # noqa: B008 (frozen)
    with_candidates: bool = False,
    extra_dims: int = 0,
    seed: int = 0,
) -> OptimumOutcome:
    """GLiR on a model at an optimum: one candidate at a time, against records of the same distribution.

    Parameters
    ----------
    candidates, background : arrays of shapes (c, d) and (m, d), gradients of the records' losses at the weights;
        background records are not members.
    penalty_gradient : array of shape (d,), the gradient of the penalty at the weights, for a penalty on the MEAN loss:
        l2 * w for (l2/2)|w|^2, 0 for parameters that are not penalised.
    dataset_size : N, members.
    play : self-play, as in `glir_scores`; left out where the background is too small for it, with a ridge of .01 then,
        which was chosen on digits and Adult with labels at hand.
    with_candidates : fit on background and candidates alike, as `background` = "with-candidates" of `glir_scores`: for
        an attacker who holds a list that contains members. It needs self-play.
    extra_dims : of the View, where directions were left out.

    Guarantees
    ----------
    As of `glir_scores`; p-values hold wherever the model stands. Self-play's prediction and the log-odds hold at an
    optimum: `distance` tells.
    """
    rows = check.matrix("background", background)
    mean = -check.vector("penalty_gradient", penalty_gradient)
    view = View(
        mean=mean,
        candidates=np.asarray(check.matrix("candidates", candidates)),
        background=rows,
        batch_size=dataset_size,
        extra_dims=extra_dims,
    )
    if not with_candidates and len(rows) < background_needed(dataset_size):
        play = None
    found = glir_scores(
        [view],
        play=play,
        ridge=None if play is not None else _RIDGE,
        background="with-candidates" if with_candidates else "alone",
        seed=seed,
    )
    far = distance(rows, mean, dataset_size=dataset_size, contains_members=False, seed=seed)
    slope, offset = (1.0, 0.0) if found.calibration is None else found.calibration
    odds = slope * found.scores + offset if slope > 0.0 else found.scores
    return OptimumOutcome(log_odds=shrunk(odds, far, FAR[0]), distance=far, glir=found)


def shrunk(log_odds: Array, far: float, limit: float) -> Array:
    """Log-odds divided by the distance from an optimum, where that is beyond a limit."""
    return log_odds / far if far > limit else log_odds
