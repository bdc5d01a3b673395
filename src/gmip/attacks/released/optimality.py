"""Who was in, from the weights of a model at an optimum: the members' mean gradient is known there.

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
from scipy.linalg import solve_triangular

from gmip import _validate as check
from gmip._random import PlayStream
from gmip.attacks.decode import Decoded, decode, from_rows
from gmip.attacks.glir import GlirOutcome, Play, View, background_needed, glir_scores
from gmip.errors import InvalidArgument

__all__ = ["FAR", "OptimumOutcome", "decode_optimum", "distance", "optimum_scores"]

Array = NDArray[np.float64]
FAR: Final = (2.0, 3.0)  # times what chance explains, of other records and of a list: more is no optimum
_FITTED: Final = 0.4  # less: members are fitted so well that their gradients are not like those of others
_RIDGE: Final = 0.01  # where self-play cannot choose one
_DRAWS: Final = 200  # pseudo-batches
_LEAST_RESIDUAL: Final = 1.0e-5  # of a typical entry of a sum: less tells no more, and rounding gets in the way
_NULL: Final = 1.0e-10  # of the largest variance: directions in which no candidate has a part
_MOST_RESIDUAL: Final = 10.0
_EXPLAINED: Final = 0.1  # a residual, relative to what chance gives, at which the list holds the members
_SLACK: Final = 2.0  # residuals that decoding allows for: it approximates
_LEVELS: Final = 120
_COVERAGES: Final = (1.0, 0.75, 0.5, 0.25, 0.0)  # tried for the residual, where background tells of the unlisted


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
    glir, decoded : all that the method behind it found; one of them is None.
    """

    log_odds: Array
    distance: float
    residual: float | None = None
    glir: GlirOutcome | None = None
    decoded: Decoded | None = None

    @property
    def at_optimum(self) -> bool:
        """Whether chance explains where the model stands."""
        return self.distance <= FAR[self.glir is None]

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
    count = len(rows)
    if count < 4:
        raise InvalidArgument(f"has {count} records, too few to tell what chance explains", argument="pool")
    rng = PlayStream.OPTIMALITY.rng(seed)
    centre = rows.mean(0)
    centred = rows - centre
    if contains_members and count > n:  # batches like that of the members: N of the list, which is also the measure
        fit = rest = centred
        drawn = (np.argsort(rng.random((_DRAWS, count)), axis=1) < n) / n
        factor = 1.0
    else:  # what is estimated on one half is tried on the other, for the members are strangers, too
        order = rng.permutation(count)
        fit, rest = centred[order[: count // 2]], centred[order[count // 2 :]]
        rest = rest - rest.mean(0)
        drawn = rng.multinomial(n, np.full(len(rest), 1.0 / len(rest)), size=_DRAWS) / n
        factor = (1.0 + n / count) * len(rest) / max(1, len(rest) - 1)  # the others' mean varies, too
    covariance = fit.T @ fit / len(fit)
    covariance.flat[:: len(covariance) + 1] += max(float(np.trace(covariance)) / len(covariance), 1.0e-300)
    root = np.linalg.cholesky(covariance)
    gaps = solve_triangular(root, np.vstack([target - centre, drawn @ rest]).T, lower=True)
    squares = np.sum(gaps**2, axis=0)
    return float(squares[0]) / max(factor * float(squares[1:].mean()), 1.0e-300)


def optimum_scores(
    candidates: ArrayLike,
    background: ArrayLike,
    *,
    penalty_gradient: ArrayLike,
    dataset_size: int,
    play: Play | None = Play(),  # noqa: B008 (frozen)
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
    if len(rows) < background_needed(dataset_size):
        play = None
    found = glir_scores([view], play=play, ridge=None if play is not None else _RIDGE, seed=seed)
    far = distance(rows, mean, dataset_size=dataset_size, contains_members=False, seed=seed)
    slope, offset = (1.0, 0.0) if found.calibration is None else found.calibration
    odds = slope * found.scores + offset if slope > 0.0 else found.scores
    return OptimumOutcome(log_odds=_shrunk(odds, far, FAR[0]), distance=far, glir=found)


def decode_optimum(
    candidates: ArrayLike,
    *,
    penalty_gradient: ArrayLike,
    dataset_size: int,
    background: ArrayLike | None = None,
    coverage: float | None = None,
    most_sweeps: int = 15,
    extra_dims: int = 0,
    seed: int = 0,
) -> OptimumOutcome:
    """Decoding of a model at an optimum: all candidates of a list that contains the members, jointly.

    Parameters
    ----------
    candidates : array of shape (c, d), gradients of the records' losses at the weights.
    penalty_gradient, dataset_size : as in `optimum_scores`.
    background : array of shape (m, d), for lists that lack members: records that show how those vary; None or too few
        (less than 1.5 d): the candidates do.
    coverage : q, the share of the members that is listed; None: estimated, and without background all that can be if
        the list explains the weights.
    most_sweeps : of `gmip.attacks.decode.decode`.
    extra_dims : parameters less d, if the d coordinates are those of the span of all vectors.

    Guarantees
    ----------
    As of `decode`. How exactly a solver met its optimum is estimated, by maximum likelihood of a Gaussian residual that
    is the same in all directions: approximate. Away from an optimum the residual is large, the odds are small, and
    `distance` tells.
    """
    rows = check.matrix("candidates", candidates).astype(np.float64, copy=False)
    count = check.count("dataset_size", dataset_size)
    mean = -check.vector("penalty_gradient", penalty_gradient, length=rows.shape[1])
    if coverage is not None:
        check.probability("coverage", coverage, open_low=True)
    others = None
    if background is not None and len(given := check.matrix("background", background, columns=rows.shape[1])):
        others = given.astype(np.float64, copy=False) if len(given) >= 1.5 * rows.shape[1] + 2 else None
    rest_mean = None if others is None else others.mean(0)
    rest_cov = None
    if others is not None and rest_mean is not None:
        rest_cov = (others - rest_mean).T @ (others - rest_mean) / (len(others) - rows.shape[1] - 1)
    far = distance(rows, mean, dataset_size=count, contains_members=True, seed=seed)
    level, relative = _residual(rows, mean, count, coverage, rest_mean, rest_cov, extra_dims)
    if coverage is None and others is None and relative < _EXPLAINED:
        coverage = min(1.0, len(rows) / count)
    residual = _SLACK * level
    found = decode(
        [
            from_rows(
                rows / residual,
                count * mean / residual,
                None if others is None else others / residual,
                share=1.0,
                draw="full",
                noisy=True,
            )
        ],
        dataset_size=count,
        coverage=coverage,
        most_sweeps=most_sweeps,
    )
    return OptimumOutcome(log_odds=_shrunk(found.log_odds, far, FAR[1]), distance=far, residual=relative, decoded=found)


def _shrunk(log_odds: Array, far: float, limit: float) -> Array:
    return log_odds / far if far > limit else log_odds


def _residual(
    rows: Array,
    mean: Array,
    members: int,
    coverage: float | None,
    rest_mean: Array | None,
    rest_cov: Array | None,
    extra_dims: int,
) -> tuple[float, float]:
    """Standard deviation of what an entry of the sum lacks to an optimum, and that relative to what chance gives.

    The sum less its expectation is N(0, v C + R + s^2), C the candidates' scatter, R of those not listed: the s of the
    largest likelihood, over some coverages.
    """
    centre = rows.mean(0)
    scatter = (rows - centre).T @ (rows - centre)
    typical = math.sqrt(members * float(np.mean(rows**2))) or 1.0
    levels = typical * np.geomspace(_LEAST_RESIDUAL, _MOST_RESIDUAL, _LEVELS)
    tried = (1.0,) if rest_cov is None else _COVERAGES
    best = (-math.inf, float(levels[-1]), 1.0)
    for share in tried if coverage is None else (coverage,):
        listed = min(share * members, len(rows))
        chance = min(max(listed / len(rows), 0.5 / len(rows)), 1.0 - 0.5 / len(rows))
        total = chance * (1.0 - chance) * scatter
        gap = members * mean - listed * centre
        if listed < members:
            missing = members - listed
            gap -= missing * (centre if rest_mean is None else rest_mean)
            total = total + missing * (scatter / len(rows) if rest_cov is None else rest_cov)
        spread, axes = np.linalg.eigh(total)
        squares = (gap @ axes) ** 2
        kept = spread > _NULL * spread[-1]
        # Where no candidate has a part, there is nothing but the residual.
        least = math.sqrt(float(squares[~kept].sum()) / max(1, int(np.sum(~kept)) + extra_dims))
        spread, squares = spread[kept], squares[kept]
        for level in np.maximum(levels, least):
            variance = spread + level**2
            fit = -0.5 * float(np.sum(np.log(variance) + squares / variance))
            best = max(best, (fit, float(level), float(level) / math.sqrt(float(spread.mean()))))
    return best[1], best[2]
