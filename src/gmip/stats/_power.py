"""How many candidates an audit needs before it can refute a claim."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from gmip import _validate as check
from gmip.errors import InvalidArgument, UnreachableTarget
from gmip.stats._families import GaussianFamily
from gmip.stats._rank_tests import SUM_SHARE, Fnr, crossing_probability, expected_losses, one_run_design
from gmip.stats._rates import best_rank, chord

__all__ = ["Ties", "candidates_needed", "noticeable_mu", "noticeable_tpr", "tie_blocks"]

Ties = Sequence[tuple[float, float]]

_MOST = 10**8
_LARGEST_MU = 12.0
_NEARLY_ALL = 0.9999
_HALVINGS = 14
_FAR, _STEPS = 10.0, 60
_BLOCK = 0.01  # smaller blocks of equal scores cost no power worth counting


def tie_blocks(members: ArrayLike, non_members: ArrayLike) -> tuple[tuple[float, float], ...]:
    """Where many candidates share one score: from which to which share of all of them, ranked from low to high."""
    every = np.concatenate([np.asarray(members, dtype=float), np.asarray(non_members, dtype=float)])
    _, counts = np.unique(every, return_counts=True)
    ends = np.cumsum(counts) / every.size
    starts = ends - counts / every.size
    large = (counts > 1) & (counts >= _BLOCK * every.size)
    return tuple(zip(np.maximum(starts[large], 0.0).tolist(), ends[large].tolist(), strict=True))


def candidates_needed(
    *,
    claimed: float,
    actual: float,
    fpr: float | None = None,
    confidence: float = 0.95,
    power: float = 0.8,
    ties: Ties = (),
) -> int:
    """About how many members (and as many non-members) let the bound exceed `claimed` with probability `power`.

    Without `fpr`, `claimed` and `actual` are values of mu, and the bound is `mu_lower_bound`, by its sum;
    with it, they are TPRs at that false-positive rate, and the bound is `tpr_lower_bound`. The true curve is taken to
    be Gaussian, scores to be independent: a plan, not a guarantee. `ties` : blocks of equal scores (`tie_blocks`), in
    which members cannot be told from non-members.
    """
    error = 1.0 - check.probability("confidence", confidence, open_low=True, open_high=True)
    power = check.probability("power", power, open_low=True, open_high=True)
    if fpr is not None:
        fpr = check.probability("fpr", fpr, open_low=True, open_high=True)
        claimed = check.probability("claimed", claimed, open_low=True, open_high=True)
        actual = check.probability("actual", actual, open_low=True, open_high=True)
    else:
        claimed, actual = check.non_negative("claimed", claimed), check.non_negative("actual", actual)
    if actual <= claimed:
        raise InvalidArgument(
            f"must exceed `claimed` = {claimed}",
            argument="actual",
            value=actual,
            remedy="an audit cannot refute a claim that holds",
        )
    if fpr is None:
        enough = _sum_power(claimed, actual, error, power, ties)
    else:
        truth = _tied(max(float(ndtri(actual) - ndtri(fpr)), 0.0), ties)
        enough = _rate_power(chord(claimed, fpr), truth, fpr, error, power)
    return _smallest(enough)


def noticeable_mu(size: int, *, confidence: float = 0.95, power: float = 0.8, ties: Ties = ()) -> float:
    """About the least mu that `size` members and as many non-members tell from guessing with probability `power`.

    As `candidates_needed` with a claim of 0, the other way round; infinite where no mu is noticed.
    """
    error = 1.0 - check.probability("confidence", confidence, open_low=True, open_high=True)
    power = check.probability("power", power, open_low=True, open_high=True)
    low, high = 0.0, _LARGEST_MU
    if size < 2 or not _sum_power(0.0, high, error, power, ties)(size):
        return math.inf
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if _sum_power(0.0, middle, error, power, ties)(size) else (middle, high)
    return high


def noticeable_tpr(
    members: int,
    non_members: int,
    *,
    limit: float,
    fpr: float,
    confidence: float = 0.95,
    power: float = 0.8,
    ties: Ties = (),
) -> float | None:
    """About the least TPR at `fpr` that `tpr_lower_bound` puts above `limit` with probability `power`; None: none, not
    even scores that tell everybody apart would do.

    The true curve is taken to be Gaussian, with ties, as in `candidates_needed`: the TPR is that before ties.
    """
    error = 1.0 - check.probability("confidence", confidence, open_low=True, open_high=True)
    power = check.probability("power", power, open_low=True, open_high=True)
    limit, fpr = check.probability("limit", limit), check.probability("fpr", fpr, open_low=True, open_high=True)
    rank, claim = best_rank(non_members, fpr), chord(limit, fpr)

    def refuted(above: int) -> bool:
        return crossing_probability(above, members, rank, non_members, claim) <= error

    if not refuted(members):
        return None
    critical = _bisect(refuted, 0, members)

    def seen(tpr: float) -> bool:
        truth = _tied(max(float(ndtri(tpr) - ndtri(fpr)), 0.0), ties)
        return crossing_probability(critical, members, rank, non_members, truth) >= power

    low, high = max(limit, fpr), 1.0
    if ties and not seen(_NEARLY_ALL):
        return None
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if seen(middle) else (middle, high)
    return high


def _gaussian(mu: float) -> Fnr:
    return lambda rates: GaussianFamily().fnr(mu, rates)


def _tied(mu: float, ties: Ties) -> Fnr:
    """The Gaussian curve of scores of which blocks were made equal: a straight line over each block. A block is given
    by shares of members and non-members together, who are taken to be equally many."""
    if not ties:
        return _gaussian(mu)
    ends = np.array(ties, dtype=float)
    low, high = np.full(ends.shape, -_FAR - mu), np.full(ends.shape, _FAR + mu)
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        below = 0.5 * (ndtr(middle) + ndtr(middle - mu)) < ends
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    cuts = 0.5 * (low + high)
    # Rates above the cuts; the upper end of a block has the lower rate.
    right, left = ndtr(-cuts[:, 1]), ndtr(-cuts[:, 0])
    top, bottom = ndtr(mu - cuts[:, 1]), ndtr(mu - cuts[:, 0])

    def fnr(rates: NDArray[np.float64]) -> NDArray[np.float64]:
        found = GaussianFamily().fnr(mu, rates)
        for block in range(len(ends)):
            inside = (rates > right[block]) & (rates < left[block])
            share = (rates - right[block]) / (left[block] - right[block])
            found = np.where(inside, 1.0 - top[block] - share * (bottom[block] - top[block]), found)
        return found

    return fnr


def _sum_power(claimed: float, actual: float, error: float, power: float, ties: Ties) -> Callable[[int], bool]:
    def enough(size: int) -> bool:
        mean, variance = expected_losses(_gaussian(claimed), one_run_design(size, size))
        critical = mean + float(ndtri(SUM_SHARE * error)) * math.sqrt(variance) - 0.5 / size**2
        mean, variance = expected_losses(_tied(actual, ties), one_run_design(size, size))
        return critical >= 0.0 and float(ndtr((critical - mean) / math.sqrt(variance))) >= power

    return enough


def _rate_power(claim: Fnr, truth: Fnr, fpr: float, error: float, power: float) -> Callable[[int], bool]:
    def enough(size: int) -> bool:
        rank = best_rank(size, fpr)

        def refuted(above: int) -> bool:
            return crossing_probability(above, size, rank, size, claim) <= error

        if not refuted(size):
            return False
        critical = _bisect(refuted, 0, size)
        return crossing_probability(critical, size, rank, size, truth) >= power

    return enough


def _smallest(enough: Callable[[int], bool]) -> int:
    """Double, then bisect; a rounded binomial makes `enough` flicker, which "about" covers."""
    size = 2
    while not enough(size):
        size *= 2
        if size > _MOST:
            raise UnreachableTarget(
                f"More than {_MOST} candidates would be needed, because the claim is too close to the truth"
            )
    return _bisect(enough, size // 2, size)


def _bisect(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The smallest number above `low` that holds, given that `high` does."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
