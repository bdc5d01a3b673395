"""Who of a list was in, all at once, from the weights of a model at an optimum: there the members' gradients add up to
a known sum. Arrays only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gmip import _validate as check
from gmip.attacks.decode import Decoded, PublishedSum, decode, from_products, from_rows
from gmip.attacks.released.optimality import FAR, OptimumOutcome, distance, inner_distance, shrunk
from gmip.attacks.released.sum_fit import SumFit, fit_sum

__all__ = ["decode_optimum", "decode_optimum_products", "enough_background"]

Array = NDArray[np.float64]
_LISTED: Final = 0.1  # a residual, relative to what chance gives, at which the list holds all members
_SLACK: Final = 2.0  # residuals that decoding allows for: it approximates
_COVERAGES: Final = (1.0, 0.75, 0.5, 0.25, 0.0)  # tried for the residual, where background tells of the unlisted
_DOUBTED: Final = 2.0  # log-likelihood by which a sum that varies more than a draw from the list explains it better
_EXCESS: Final = 1.25  # and by how much more, at least
_LOOSE: Final = 0.5  # a residual, relative to what chance gives, at which the list explains little
_UNDECIDED: Final = 1.0  # the most that log-odds may say where the list does not explain the weights


def enough_background(count: int, dims: int) -> bool:
    """Whether so many records tell how members who are not listed vary in `dims` directions."""
    return count >= 1.5 * dims + 2


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
    `distance` tells; far from one, where the list explains nothing either, they are 0. Whether members drawn at random
    from the list explain the weights is tested, too (`explained`): a list without the members, or a model that
    interpolates them, fails unless there are only a few tens of directions.
    """
    rows = check.matrix("candidates", candidates).astype(np.float64, copy=False)
    c, d = rows.shape
    count = check.count("dataset_size", dataset_size)
    mean = -check.vector("penalty_gradient", penalty_gradient, length=d)
    if coverage is not None:
        check.probability("coverage", coverage, open_low=True)
    others = None
    if background is not None and len(given := check.matrix("background", background, columns=d)):
        others = given.astype(np.float64, copy=False) if enough_background(len(given), d) else None
    if others is None and 2 * d > c:  # then inner products are less work and memory
        products = np.empty((c + 1, c + 1))
        products[:c, :c] = rows @ rows.T
        products[c, :c] = products[:c, c] = rows @ -mean
        products[c, c] = mean @ mean
        return decode_optimum_products(
            products, dims=d + extra_dims, dataset_size=count, coverage=coverage, most_sweeps=most_sweeps, seed=seed
        )
    centre = rows.mean(0)
    scatter = (rows - centre).T @ (rows - centre)
    rest_mean, rest_cov = centre, scatter / c
    if others is not None:
        rest_mean = others.mean(0)
        rest_cov = (others - rest_mean).T @ (others - rest_mean) / (len(others) - d - 1)
    fits = []
    for listed, drawn in _drawn(c, count, coverage, others is not None):
        missing = max(count - listed, 0.0)
        gap = count * mean - listed * centre - missing * rest_mean
        total = drawn * scatter + missing * rest_cov
        typical = math.sqrt(count * float(np.mean(rows**2)))
        fits.append(
            fit_sum(total, gap, square=float(gap @ gap), dims=d + extra_dims, typical=typical or 1.0, inner=False)
        )
        del total
    found = max(fits, key=lambda one: one.likelihood)
    residual = _SLACK * found.level
    seen = from_rows(
        rows / residual,
        count * mean / residual,
        None if others is None else others / residual,
        share=1.0,
        draw="full",
        noisy=True,
    )
    far = distance(rows, mean, dataset_size=count, contains_members=True, seed=seed)
    return _decoded(seen, count, found, far, coverage, most_sweeps, told=others is not None)


def decode_optimum_products(
    products: Array,
    *,
    dims: int,
    dataset_size: int,
    coverage: float | None = None,
    most_sweeps: int = 15,
    seed: int = 0,
) -> OptimumOutcome:
    """`decode_optimum` by inner products, shape (c + 1, c + 1), overwritten: of the c candidates' gradients and, last,
    the penalty's. `dims` : parameters.

    Guarantees
    ----------
    As of `decode_optimum`. Besides `products` it holds about two matrices of that size at a time, and computes no
    spectrum of more than 2,500 candidates.
    """
    c, count = len(products) - 1, dataset_size
    space = min(dims, c + 1)
    rows_mean = products[:c, :c].mean(1)
    middle = float(rows_mean.mean())
    with_mean = -products[c, :c]
    with_centre = float(with_mean.mean())
    typical = math.sqrt(count * float(np.trace(products[:c, :c])) / (c * space)) or 1.0
    centred = products[:c, :c] - rows_mean
    centred -= rows_mean[:, None]
    centred += middle
    towards = with_mean - with_centre - rows_mean + middle
    square = max(float(products[c, c]) - 2.0 * with_centre + middle, 0.0)  # of the mean less the centre
    far = inner_distance(centred, towards, square, dims=space, dataset_size=count, seed=seed)
    fits = []
    for listed, drawn in _drawn(c, count, coverage, False):
        scale = drawn + max(count - listed, 0.0) / c
        matrix = scale * centred
        gap = math.sqrt(scale) * count * towards
        fits.append(fit_sum(matrix, gap, square=count**2 * square, dims=dims, typical=typical, inner=True))
        del matrix
    del centred
    found = max(fits, key=lambda one: one.likelihood)
    products[c, :] *= -count
    products[:, c] *= -count
    products /= (_SLACK * found.level) ** 2
    seen = from_products(products, c, dims=space, share=1.0, draw="full", noisy=True)
    return _decoded(seen, count, found, far, coverage, most_sweeps, told=False)


def _drawn(candidates: int, members: int, coverage: float | None, told: bool) -> Sequence[tuple[float, float]]:
    """How many members are listed, and the variance of a candidate's membership, for the coverages that are tried."""
    shares = (coverage,) if coverage is not None else _COVERAGES if told else (1.0,)
    found = []
    for share in shares:
        listed = min(share * members, candidates)
        chance = min(max(listed / candidates, 0.5 / candidates), 1.0 - 0.5 / candidates)
        found.append((listed, chance * (1.0 - chance)))
    return found


def _decoded(
    seen: PublishedSum, members: int, fit: SumFit, far: float, coverage: float | None, most_sweeps: int, *, told: bool
) -> OptimumOutcome:
    if coverage is None and not told and fit.relative < _LISTED:
        coverage = min(1.0, seen.count / members)
    found: Decoded = decode([seen], dataset_size=members, coverage=coverage, most_sweeps=most_sweeps)
    explained = fit.relative < _LOOSE and not (fit.gain > _DOUBTED and fit.excess > _EXCESS)
    odds = shrunk(found.log_odds, far, FAR[1])
    if not explained and far > FAR[1]:  # the published sum is not that of the members: it ranks nobody
        odds = np.zeros_like(odds)
    elif not explained:
        odds = odds * min(1.0, _UNDECIDED / max(float(np.abs(odds).max()), 1.0e-300))
    return OptimumOutcome(
        log_odds=odds, distance=far, residual=fit.relative, excess=fit.excess, explained=explained, decoded=found
    )
