"""Lower confidence bounds on what an attack reached: mu, epsilon, the TPR at a false-positive rate.

Every bound depends on the order of the scores only. What is proved, under which assumption, and what was checked by
simulation, is in docs/theory/audit-bounds.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from gmip import _validate as check
from gmip.accounting.tradeoff import TradeOff
from gmip.errors import InvalidArgument, UnreachableTarget
from gmip.stats._rank_tests import (
    SUM_SHARE,
    EpsilonFamily,
    Family,
    Fnr,
    GaussianFamily,
    Level,
    RankSum,
    best_rank,
    chord,
    crossing_probability,
    curve_of,
    expected_losses,
    largest_rejected,
    level_at,
    one_run_design,
    rank_sum,
    threshold_bound,
    tpr_lower,
    tpr_spread,
)
from gmip.stats.scores import Pooled, RunScores, pool

# -- guesses about one run's candidates -------------------------------------------------------------------------------


Array = NDArray[np.float64]

# Guessing about a tenth of the candidates gave the highest bounds for Gaussian scores; below 50 guesses, guess more.
_GUESSED, _FEWEST = 0.1, 50
_GRID, _ROUNDS = 33, 3
_MOST = 50_000  # of each kind: each guess is a step of a loop, and more of them say little more


class Guesses(NamedTuple):
    """`correct` right answers among `made` guesses about `candidates` candidates."""

    correct: int
    made: int
    candidates: int


def guess(untied: Pooled, rng: np.random.Generator) -> Guesses:
    """Call the highest scores members and as many of the lowest non-members, and abstain in between.

    Sets are thinned out to the size of the smaller (at most 50,000), since the analysis is about fair coins. With
    as many members as non-members right answers may come in pairs, which coins do not do: one of them is not counted.
    How many guesses are made depends on the number of candidates only.
    """
    half = min(untied.members.size, untied.non_members.size, _MOST)
    ins = rng.permutation(untied.members)[:half]
    outs = rng.permutation(untied.non_members)[:half]
    order = np.argsort(np.concatenate([ins, outs]))
    member = order < half
    side = min(half, max(round(0.5 * _GUESSED * 2 * half), _FEWEST // 2))
    correct = int(np.count_nonzero(member[-side:])) + int(np.count_nonzero(~member[:side]))
    return Guesses(max(correct - 1, 0), 2 * side, 2 * half)


def one_run_bound(scores: Pooled, family: Family, alpha: float, seed: int) -> float:
    """The largest parameter that guesses about these scores refute."""
    guesses = guess(scores.comparable(seed).untied(seed), np.random.default_rng(seed))
    return refuted_parameter(guesses, family, alpha)


def refuted_parameter(guesses: Guesses, family: Family, alpha: float) -> float:
    """The largest parameter that so many right answers refute: on a grid, refined, rounded down."""
    low, high = 0.0, 8.0
    while _refuted(guesses, family, np.array([high]), alpha)[0] and high < 1.0e3:
        low, high = high, 2.0 * high
    if not _refuted(guesses, family, np.array([low]), alpha)[0]:
        return 0.0
    for _ in range(_ROUNDS):
        grid = np.linspace(low, high, _GRID)
        refuted = _refuted(guesses, family, grid, alpha)
        last = int(np.argmin(refuted)) - 1 if not refuted.all() else _GRID - 2
        low, high = float(grid[last]), float(grid[last + 1])
    return low


def _refuted(guesses: Guesses, family: Family, parameters: Array, alpha: float) -> NDArray[np.bool_]:
    """Whether P(as many right answers) <= alpha under each f of the family.

    With p_k the chance of exactly k right answers out of c, r_i = sum_{k >= i} k p_k/m and h_i = sum_{k >= i}
    (c - k) p_k/m, flipping one candidate's coin turns a right answer into a wrong one, so f-DP says
    1 - r_{i+1} >= f(h_i), or h_i >= f(1 - r_{i+1}) for a symmetric f. Starting from a chance of alpha at the answers
    seen and going down, this forces more total probability than r_0 + h_0 = c/m if alpha was too much.
    """
    m, made = guesses.candidates, guesses.made
    right = np.full(parameters.shape, alpha * guesses.correct / m)
    wrong = np.full(parameters.shape, alpha * (made - guesses.correct) / m)
    for i in range(guesses.correct - 1, -1, -1):
        forced = np.maximum(wrong, family.fnr(parameters, 1.0 - np.minimum(right, 1.0)))
        right = right + i / (made - i) * (forced - wrong)
        wrong = forced
        if np.all(right + wrong > made / m):
            break
    return np.asarray(right + wrong > made / m)


# -- how many candidates an audit needs before it can refute a claim --------------------------------------------------


Ties = Sequence[tuple[float, float]]

_MOST_CANDIDATES = 10**8
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
    *, claimed: float, actual: float, confidence: float = 0.95, power: float = 0.8, ties: Ties = ()
) -> int:
    """About how many members (and as many non-members) let the bound exceed `claimed` with probability `power`.

    `claimed` and `actual` are values of mu, and the bound is `mu_lower_bound`, by its sum. The true curve is taken to
    be Gaussian, scores to be independent: a plan, not a guarantee. `ties` : blocks of equal scores (`tie_blocks`), in
    which members cannot be distinguished from non-members.
    """
    error = _error(confidence)
    power = check.inside("power", power)
    claimed, actual = check.non_negative("claimed", claimed), check.non_negative("actual", actual)
    if actual <= claimed:
        raise InvalidArgument(
            f"must exceed `claimed` = {claimed}",
            argument="actual",
            value=actual,
            remedy="an audit cannot refute a claim that holds",
        )
    enough, size = _sum_power(claimed, actual, error, power, ties), 2
    while not enough(size):
        size *= 2
        if size > _MOST_CANDIDATES:
            raise UnreachableTarget(
                f"More than {_MOST_CANDIDATES} candidates would be needed, because the claim is too close to the truth"
            )
    return _bisect(enough, size // 2, size)  # rounding makes `enough` flicker, which "about" covers


def noticeable_mu(size: int, *, confidence: float = 0.95, power: float = 0.8, ties: Ties = ()) -> float:
    """About the least mu that `size` members and as many non-members tell from guessing with probability `power`.

    This is `candidates_needed` with a claim of 0, the other way round; infinite where no mu is noticed.
    """
    error = _error(confidence)
    power = check.inside("power", power)
    if size < 2 or not _sum_power(0.0, _LARGEST_MU, error, power, ties)(size):
        return math.inf
    return _halved(lambda mu: _sum_power(0.0, mu, error, power, ties)(size), 0.0, _LARGEST_MU)


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
    error = _error(confidence)
    power = check.inside("power", power)
    limit, fpr = check.probability("limit", limit), check.inside("fpr", fpr)
    rank, claim = best_rank(non_members, fpr), chord(limit, fpr)

    def refuted(above: int) -> bool:
        return crossing_probability(above, members, rank, non_members, claim) <= error

    if not refuted(members):
        return None
    critical = _bisect(refuted, 0, members)

    def seen(tpr: float) -> bool:
        truth = _tied(max(float(ndtri(tpr) - ndtri(fpr)), 0.0), ties)
        return crossing_probability(critical, members, rank, non_members, truth) >= power

    if ties and not seen(_NEARLY_ALL):
        return None
    return _halved(seen, max(limit, fpr), 1.0)


def _halved(holds: Callable[[float], bool], low: float, high: float) -> float:
    """About the least number above `low` that holds, given that `high` does."""
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _tied(mu: float, ties: Ties) -> Fnr:
    """The Gaussian curve of scores of which blocks were made equal: a straight line over each block. A block is given
    by shares of members and non-members together, who are taken to be equally many."""
    if not ties:
        return curve_of(GaussianFamily(), mu)
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
        mean, variance = expected_losses(curve_of(GaussianFamily(), claimed), one_run_design(size, size))
        critical = mean + float(ndtri(SUM_SHARE * error)) * math.sqrt(variance) - 0.5 / size**2
        mean, variance = expected_losses(_tied(actual, ties), one_run_design(size, size))
        return critical >= 0.0 and float(ndtr((critical - mean) / math.sqrt(variance))) >= power

    return enough


def _bisect(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The smallest number above `low` that holds, given that `high` does."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


# -- lower confidence bounds on what an attack reached ----------------------------------------------------------------


Runs = RunScores | Sequence[RunScores] | Pooled
# From all scores, a family of curves, the error and a seed: a lower bound on the parameter.
Bound = Callable[[Pooled, Family, float, int], float]

# False-positive rates at which "levels" looks: those that reports quote.
_RATES = (0.001, 0.01, 0.1)


def mu_lower_bound(runs: Runs, *, confidence: float = 0.95, method: str = "auto", seed: int = 0) -> float:
    """Lower confidence bound on the mu of the attack that gave these scores, at least 0.

    Parameters
    ----------
    runs : the scores of one run or of several independent ones, or `gmip.stats.pool` of them, which says whether those
        of different runs can be compared, and makes several bounds at less cost.
    method : "gaussian-sum": how many pairs of a member and a non-member are in the right order (Mann-Whitney), against
        what mu allows. The tightest when the scores are about Gaussian.
        "levels": how many members score above the 0.1%, 1% and 10% highest non-members. The tightest when few records
        leak much.
        "auto": the better of these two, the error split between them.
        "threshold": a threshold chosen on one half of the candidates, Clopper-Pearson bounds on the other.
        "one-run": right answers among guesses about the 5% highest and 5% lowest scores (arXiv 2410.22235).
    seed : breaks ties, and draws the halves of "threshold" and the subset of "one-run".

    Guarantees
    ----------
    P(bound > mu) <= 1 - confidence whenever the trade-off function of the scores is at least g_mu and the scores are
    independent given the run: exactly for "levels" and "threshold", and for "gaussian-sum" up to the normal
    approximation of a sum over all candidates (tested down to 3 + 3 candidates). The members of one run share what it
    published; for the mean of Gaussian records this dependence makes the bounds safer. "one-run" is proved for
    dependent scores too, but for differential privacy, not f-MIP, and membership by fair coins. With runs on different
    scales only the sum is proved; the others were simulated.
    With fewer than 5 runs the statement is about the runs at hand. From 5 on, "gaussian-sum" and "levels" measure how
    much runs differ, and the statement is about the procedure that made them.
    """
    return _bound(runs, GaussianFamily(), confidence, method, seed)


def epsilon_lower_bound(
    runs: Runs, *, delta: float, confidence: float = 0.95, method: str = "auto", seed: int = 0
) -> float:
    """Lower confidence bound on the epsilon that goes with `delta`, at least 0; arguments as in `mu_lower_bound`.

    No shape is assumed: the bound says that (epsilon, delta) is refuted, which needs more candidates than refuting a
    Gaussian curve. "auto" is "levels" here: a sum over all pairs says little about epsilon. For the epsilon of a curve
    that is known to be Gaussian, convert the bound on mu with `gmip.accounting.convert.epsilon_from_mu`.

    Guarantees
    ----------
    As for `mu_lower_bound`, with the (epsilon, delta) trade-off function for g_mu.
    """
    family = EpsilonFamily(check.probability("delta", delta, open_high=True))
    used = "levels" if method == "auto" else method
    return _bound(runs, family, confidence, used, seed)


def tpr_lower_bound(runs: Runs, fpr: float, *, confidence: float = 0.95, seed: int = 0) -> float:
    """Lower confidence bound on the TPR that an attacker with these scores reaches at the false-positive rate `fpr`.

    Guarantees
    ----------
    Exact for scores that are independent given the run: the threshold is a non-member's score, and that its true
    false-positive rate is not known enters the bound. The attacker may toss coins between thresholds (the ROC curve's
    hull). From 5 runs on, never above a t-interval over runs.
    """
    fpr = check.inside("fpr", fpr)
    error = _error(confidence)
    seed = check.seed(seed)
    scores = pool(runs).comparable(seed).untied(seed)
    return tpr_lower(scores, fpr, error, float(tpr_spread(scores, np.array([fpr]))[0]))


def claim_p_value(runs: Runs, curve: TradeOff, *, seed: int = 0) -> float:
    """A p-value of the claim that the attack's trade-off function is at least `curve`: small refutes the claim.

    The tests of `mu_lower_bound(method="auto")`, at the same guarantees, with `curve` in the place of g_mu: for
    composed or measured curves, which have no single mu.
    """
    if not isinstance(curve, TradeOff):
        raise InvalidArgument(f"must be a TradeOff, not {type(curve).__name__}", argument="curve")
    tests = _rank_tests(pool(runs), "auto", check.seed(seed))
    return min(1.0, min(test.p_value(curve.fnr_at) / share for test, share in tests))


def _error(confidence: float) -> float:
    return 1.0 - check.inside("confidence", confidence)


def _bound(runs: Runs, family: Family, confidence: float, method: str, seed: int) -> float:
    check.one_of("method", method, METHODS)
    alpha, seed = _error(confidence), check.seed(seed)
    return _BOUNDS[method](pool(runs), family, alpha, seed)


def _rank_bound(method: str, scores: Pooled, family: Family, alpha: float, seed: int) -> float:
    best = 0.0
    for test, share in _rank_tests(scores, method, seed):
        p_value = partial(_p_value, test, family)
        best = largest_rejected(p_value, alpha * share, start=best)
    return best


def _p_value(test: RankSum | Level, family: Family, parameter: float) -> float:
    return test.p_value(curve_of(family, parameter))


def _rank_tests(scores: Pooled, method: str, seed: int) -> list[tuple[RankSum | Level, float]]:
    """The tests of a method, each with its share of the error."""
    sum_share = {"auto": SUM_SHARE, "gaussian-sum": 1.0, "levels": 0.0}[method]
    tests: list[tuple[RankSum | Level, float]] = []
    if sum_share > 0.0:
        tests.append((rank_sum(scores), sum_share))
    if sum_share < 1.0:
        untied = scores.comparable(seed).untied(seed)
        size = untied.non_members.size
        ranks = sorted({max(1, round(rate * (size + 1))) for rate in _RATES})
        tests += [(level_at(untied, rank), (1.0 - sum_share) / len(ranks)) for rank in ranks]
    return tests


# A new bound is a line here: audits compute it, and reports list it.
_BOUNDS: Final[dict[str, Bound]] = {
    **{method: partial(_rank_bound, method) for method in ("auto", "gaussian-sum", "levels")},
    "threshold": threshold_bound,
    "one-run": one_run_bound,
}
METHODS: Final = tuple(_BOUNDS)
