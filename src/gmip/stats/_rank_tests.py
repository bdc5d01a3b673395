"""Tests of "the attack's trade-off function is at least f" by ranks alone (docs/theory/audit-bounds.md).

Theorem: any statistic that only grows when a member moves up in the ranking is, under any trade-off function >= f,
stochastically at most what it is under f itself. So each p-value is computed under f, and needs no other model of the
scores. `f` is passed as a function that maps false-positive rates in (0, 1) to false-negative rates.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import betainc, betaincinv, ndtr, ndtri, stdtr, stdtrit

from gmip.stats.scores import Pooled, tpr_at_fpr

Array = NDArray[np.float64]
Fnr = Callable[[Array], Array]

# How much of the error "auto" spends on the sum; the levels make do with the rest.
SUM_SHARE = 0.8

# The trapezoidal rule in normal scores: its error falls exponentially for smooth integrands.
_SCORES = np.linspace(-8.0, 8.0, 401)
_LEVELS = ndtr(_SCORES)
_WEIGHTS = np.exp(-0.5 * _SCORES**2) / np.exp(-0.5 * _SCORES**2).sum()


class RankSum(NamedTuple):
    """The Mann-Whitney statistic, a sum over pairs of a member and a non-member: all pairs, or those within a run.

    losses : share of pairs in which the non-member scores higher, ties half: 1 - AUC.
    design : how many pairs there are, and how many pairs of pairs share a non-member, share a member.
    variance : of `losses`, estimated from the scores (DeLong et al. 1988).
    between : variance of `losses` by the jackknife over runs, None for too few runs.
    """

    losses: float
    members: int
    non_members: int
    design: tuple[float, float, float]
    variance: float
    between: float | None
    groups: int

    def p_value(self, fnr: Fnr) -> float:
        """Chance of as few losses if the trade-off function is at least f: normal approximation with the exact mean
        and variance under f. With enough runs, the larger of this and a t-test over runs."""
        mean, variance = expected_losses(fnr, self.design)
        shift = mean - self.losses
        # Half a pair, as usual for a whole number of pairs.
        within = float(ndtr(-(shift - 0.5 / self.design[0]) / np.sqrt(variance)))
        if self.between is None or self.between <= 0.0:
            return within
        return max(within, float(stdtr(self.groups - 1, -shift / np.sqrt(self.between))))


def one_run_design(members: int, non_members: int) -> tuple[float, float, float]:
    pairs = float(members) * non_members
    return pairs, pairs * (members - 1), pairs * (non_members - 1)


def expected_losses(fnr: Fnr, design: tuple[float, float, float]) -> tuple[float, float]:
    """Mean and variance of the share of lost pairs under f.

    A non-member at the false-positive rate U (uniform) beats a member with chance f(U); a member is beaten by a share
    V of the non-members, P(V > t) = f(t). Pairs that share a non-member have covariance Var f(U), pairs that share a
    member Var V.
    """
    pairs, same_non_member, same_member = design
    rates = fnr(_LEVELS)
    mean = float(_WEIGHTS @ rates)
    by_non_member = max(float(_WEIGHTS @ rates**2) - mean**2, 0.0)
    by_member = max(2.0 * float(_WEIGHTS @ (_LEVELS * rates)) - mean**2, 0.0)
    total = pairs * mean * (1.0 - mean) + same_non_member * by_non_member + same_member * by_member
    return mean, max(total, 1.0e-300) / pairs**2


class _Table(NamedTuple):
    """Pairs of one set of members with one set of non-members: how many are lost, and the variance of that number."""

    lost: float
    variance: float
    design: tuple[float, float, float]


def _table(ins: Array, outs: Array) -> _Table:
    """The table of rising scores, which are looked up several times as fast."""
    design = one_run_design(ins.size, outs.size)
    lost = _beaten(ins, outs)
    mean = float(lost.mean())
    if min(ins.size, outs.size) < 2:
        # No sample variance: the largest possible one for this mean (Birnbaum and Klose 1957).
        variance = mean * (1.0 - mean)
    else:
        variance = float(lost.var(ddof=1) / ins.size + _beaten(outs, ins).var(ddof=1) / outs.size)
    return _Table(mean * design[0], variance * design[0] ** 2, design)


def rank_sum(scores: Pooled) -> RankSum:
    """Count the pairs, and how the counts vary between candidates and between runs."""
    return scores.once("rank sum", lambda: _rank_sum(scores))


def _rank_sum(scores: Pooled) -> RankSum:
    ins, outs, groups = scores.members, scores.non_members, scores.num_groups
    if scores.same_scale:
        tables = [_table(scores.ordered_members, scores.ordered_non_members)]
    else:
        tables = [
            _table(np.sort(ins[scores.member_run == r]), np.sort(outs[scores.non_member_run == r]))
            for r in range(scores.num_runs)
        ]
    pairs, same_non_member, same_member = (float(sum(table.design[k] for table in tables)) for k in range(3))
    total = float(sum(table.lost for table in tables))
    between = None
    if scores.has_spread:
        if scores.same_scale:
            lost, gone = _pairs_of_groups(scores)
        else:
            group = np.arange(scores.num_runs) % groups
            lost = np.bincount(group, np.array([table.lost for table in tables]), groups).astype(np.float64)
            gone = np.bincount(group, np.array([table.design[0] for table in tables]), groups).astype(np.float64)
        between = float(jackknife_variances((total - lost) / (pairs - gone)))
    return RankSum(
        losses=total / pairs,
        members=ins.size,
        non_members=outs.size,
        design=(pairs, same_non_member, same_member),
        variance=float(sum(table.variance for table in tables)) / pairs**2,
        between=between,
        groups=groups,
    )


def _pairs_of_groups(scores: Pooled) -> tuple[Array, Array]:
    """The pairs with a candidate in each group: how many are lost, and how many there are."""
    ins, outs, groups = scores.members, scores.non_members, scores.num_groups
    member_group, non_member_group = scores.member_group, scores.non_member_group
    size1, size0 = np.bincount(member_group, minlength=groups), np.bincount(non_member_group, minlength=groups)
    # Its rows and its columns of the table of pairs, less where they cross.
    lost = np.bincount(member_group, _beaten(ins, scores.ordered_non_members), groups).astype(np.float64) * outs.size
    lost += np.bincount(non_member_group, 1.0 - _beaten(outs, scores.ordered_members), groups) * ins.size
    for g in range(groups):
        theirs = np.sort(outs[non_member_group == g])
        lost[g] -= _beaten(ins[member_group == g], theirs).sum() * theirs.size
    return lost, (size1 * outs.size + size0 * ins.size - size1 * size0).astype(np.float64)


def jackknife_variances(left_out: Array) -> Array:
    """Variance of statistics from their values with one group left out, along the last axis."""
    count = left_out.shape[-1]
    return np.asarray((count - 1) / count * ((left_out - left_out.mean(axis=-1, keepdims=True)) ** 2).sum(axis=-1))


def _beaten(ours: Array, theirs: Array) -> Array:
    """The share of their scores (rising) that is higher than each of ours, ties half."""
    ordered = theirs
    lower = np.searchsorted(ordered, ours, side="left") + np.searchsorted(ordered, ours, side="right")
    return 1.0 - lower / (2.0 * ordered.size)


def crossing_probability(above: int, members: int, rank: int, non_members: int, fnr: Fnr) -> float:
    """P(at least `above` of the members score above the `rank`-th highest non-member) under f, exactly.

    The false-positive rate of that non-member's score is Beta(rank, non_members + 1 - rank), whatever the scores are;
    given it, the members above are binomial.
    """
    if above == 0:
        return 1.0
    # betainc(c, n + 1 - c, p) = P(Binomial(n, p) >= c)
    return float(_WEIGHTS @ betainc(above, members - above + 1, 1.0 - fnr(_rates_of(rank, non_members))))


@functools.lru_cache(maxsize=512)
def _rates_of(rank: int, non_members: int) -> Array:
    """Quantiles of the false-positive rate of the `rank`-th highest non-member; they may round to 0 or 1 far out."""
    return np.clip(betaincinv(rank, non_members + 1 - rank, _LEVELS), 1.0e-300, 1.0 - 1.0e-16)


@dataclass(frozen=True, eq=False)
class Level:
    """How many members score above the `rank`-th highest non-member, in all and by group of runs."""

    above: int
    members: int
    rank: int
    non_members: int
    noise: tuple[Array, Array] | None

    def p_value(self, fnr: Fnr) -> float:
        """Chance of as many members above if the trade-off function is at least f: exact for independent scores.
        With enough runs, the larger of this and a t-test over runs."""
        within = crossing_probability(self.above, self.members, self.rank, self.non_members, fnr)
        if self.noise is None:
            return within
        ins, outs = self.noise
        count = ins.size
        fpr = self.rank / (self.non_members + 1)
        here = 1.0 - float(fnr(np.array([fpr]))[0])
        # The curve's slope, over as much as the false-positive rate is uncertain.
        step = max(np.sqrt(_clustered(outs)), np.sqrt(fpr * (1.0 - fpr) / self.non_members))
        far = min(fpr + step, 0.5 * (1.0 + fpr))
        slope = (1.0 - float(fnr(np.array([far]))[0]) - here) / (far - fpr)
        variance = _clustered(ins - slope * outs)
        if variance <= 0.0:
            return within
        return max(within, float(stdtr(count - 1, -(self.above / self.members - here) / np.sqrt(variance))))


def _clustered(parts: Array) -> float:
    """Variance of the sum of independent parts of mean 0, one for each group."""
    return float(parts.size / (parts.size - 1) * (parts @ parts))


def level_at(untied: Pooled, rank: int) -> Level:
    """The count at one order statistic; the scores must have no ties between members and non-members."""
    ins, outs = untied.members, untied.non_members
    barrier = np.partition(outs, outs.size - rank)[outs.size - rank]
    noise = None
    if untied.has_spread:
        noise = tuple(
            np.bincount(group, flags - flags.mean(), untied.num_groups) / flags.size
            for group, flags in (
                (untied.member_group, (ins > barrier).astype(np.float64)),
                (untied.non_member_group, (outs >= barrier).astype(np.float64)),
            )
        )
    above = int(np.count_nonzero(ins > barrier))
    return Level(above, ins.size, rank, outs.size, noise if noise is None else (noise[0], noise[1]))


# -- one-parameter families of trade-off functions that a bound is read from ------------------------------------------


_TOLERANCE = 1.0e-9


class Family(Protocol):
    def fnr(self, parameter: float | Array, fpr: Array) -> Array:
        """f(fpr) of the member of the family, broadcast."""

    def parameter(self, fpr: Array, fnr: Array) -> Array:
        """The smallest parameter whose curve reaches down to the point (fpr, fnr), at least 0."""


class GaussianFamily:
    """f(a) = Phi(Phi^-1(1 - a) - mu)."""

    def fnr(self, parameter: float | Array, fpr: Array) -> Array:
        return np.asarray(ndtr(-ndtri(fpr) - parameter))

    def parameter(self, fpr: Array, fnr: Array) -> Array:
        with np.errstate(invalid="ignore"):
            mu = -ndtri(fnr) - ndtri(fpr)
        return np.maximum(np.nan_to_num(mu, nan=0.0, posinf=np.inf, neginf=0.0), 0.0)


class EpsilonFamily:
    """f(a) = max(0, 1 - delta - e^eps a, e^-eps (1 - delta - a)) at a fixed delta."""

    def __init__(self, delta: float) -> None:
        self.delta = delta

    def fnr(self, parameter: float | Array, fpr: Array) -> Array:
        rest, epsilon = 1.0 - self.delta, np.asarray(parameter)
        steep = rest - np.exp(np.minimum(epsilon, 700.0)) * fpr
        return np.asarray(np.maximum(np.maximum(steep, np.exp(-epsilon) * (rest - fpr)), 0.0))

    def parameter(self, fpr: Array, fnr: Array) -> Array:
        rest = 1.0 - self.delta
        with np.errstate(divide="ignore", invalid="ignore"):
            low = np.where(rest > fnr, np.log((rest - fnr) / fpr), 0.0)
            high = np.where(rest > fpr, np.log((rest - fpr) / fnr), 0.0)
        return np.maximum(np.maximum(low, high), 0.0)


def curve_of(family: Family, parameter: float) -> Fnr:
    """The curve of the family with this parameter."""
    return lambda rates: family.fnr(parameter, rates)


def largest_rejected(p_value: Callable[[float], float], alpha: float, start: float = 0.0) -> float:
    """The largest parameter with p_value <= alpha, for a p-value that grows with it; `start` if that is too much."""

    def excess(parameter: float) -> float:
        return p_value(parameter) - alpha

    if excess(start) > 0.0:
        return start
    low, high = start, start + 1.0
    while excess(high) <= 0.0:
        low, high = high, 2.0 * high
        if high > 1.0e4:
            return low
    return max(float(brentq(excess, low, high, xtol=_TOLERANCE)) - _TOLERANCE, start)


# -- a threshold is chosen on one half of the candidates and judged on the other --------------------------------------


Counts = NDArray[np.intp]
_MOST_THRESHOLDS = 20_000  # that are tried: of more, an even choice of ranks and a finer one at both ends


def binomial_lower(successes: Counts, trials: int, error: float) -> Array:
    """Clopper and Pearson's one-sided lower bound, which fails with probability `error` at most."""
    k = np.maximum(successes, 1)
    return np.where(np.asarray(successes) == 0, 0.0, betaincinv(k, trials - k + 1, error))


def binomial_upper(successes: Counts, trials: int, error: float) -> Array:
    """The one-sided upper bound."""
    return 1.0 - binomial_lower(trials - np.asarray(successes), trials, error)


def threshold_bound(scores: Pooled, family: Family, alpha: float, seed: int) -> float:
    """The parameter of the curve through the bounds, alpha/2 for each, on the two rates of the threshold that has the
    highest bound on the other half."""
    rng = np.random.default_rng(seed)
    both = scores.comparable(seed)
    chosen, judged = [], []
    for values in (both.members, both.non_members):
        mixed = rng.permutation(values.size)
        chosen.append(np.sort(values[mixed[: values.size // 2]]))
        judged.append(values[mixed[values.size // 2 :]])
    thresholds = _some(_distinct(*chosen))
    tpr, fpr = _rates(chosen[0], chosen[1], thresholds, alpha)
    best = thresholds[np.argmax(family.parameter(fpr, 1.0 - tpr))]
    tpr, fpr = _rates(np.sort(judged[0]), np.sort(judged[1]), np.array([best]), alpha)
    return float(family.parameter(fpr, 1.0 - tpr)[0])


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
        margin = max(margin, -float(stdtrit(parts.size - 1, error)) * math.sqrt(_clustered(parts)))
    return CrossFit(advantage, margin)


def _best_threshold(ins: Array, outs: Array) -> float:
    """The score at which the TPR exceeds the FPR by most, ">= threshold" being called a member."""
    ins, outs = np.sort(ins), np.sort(outs)
    values = _distinct(ins, outs)
    hits = 1.0 - np.searchsorted(ins, values, side="left") / ins.size
    alarms = 1.0 - np.searchsorted(outs, values, side="left") / outs.size
    return float(values[np.argmax(hits - alarms)])


def _variance(flags: Array) -> float:
    """The variance of a share, with one success and one failure added (Agresti and Caffo 2000): it is never 0."""
    share = (flags.sum() + 1.0) / (flags.size + 2.0)
    return float(share * (1.0 - share) / (flags.size + 2.0))


# -- confidence bounds on the tpr at a false-positive rate ------------------------------------------------------------


_RATE_TOLERANCE = 1.0e-7


def best_rank(non_members: int, fpr: float) -> int:
    """Which non-member, from the top, is the threshold for a lower bound at `fpr`: one standard deviation below it.

    Chosen by simulation of Gaussian scores; any choice that does not look at the scores is valid.
    """
    expected = non_members * fpr
    return max(1, round(expected - math.sqrt(expected)))


def chord(tpr: float, fpr: float) -> Fnr:
    """The least false-negative rates when an attacker reaches at most `tpr` at `fpr`: ROC curves (with coins) are
    concave, so beyond `fpr` they stay below the ray from the origin."""
    return lambda rates: 1.0 - np.minimum(tpr * np.maximum(rates / fpr, 1.0), 1.0)


def members_above(untied: Pooled, rank: int) -> int:
    """How many members score above the `rank`-th highest non-member."""
    barrier = untied.ordered_non_members[untied.non_members.size - rank]
    return untied.members.size - int(np.searchsorted(untied.ordered_members, barrier, side="right"))


def tpr_lower(untied: Pooled, fpr: float, error: float, spread: float = 0.0) -> float:
    """Below the TPR that the scores reach at `fpr` (with coins), except with probability `error`.

    spread : standard deviation of the TPR by the jackknife over runs, 0 where it is not known.
    """
    ins, outs = untied.members.size, untied.non_members.size
    rank = best_rank(outs, fpr)
    above = members_above(untied, rank)
    if above == 0:
        return 0.0

    def excess(tpr: float) -> float:
        return crossing_probability(above, ins, rank, outs, chord(tpr, fpr)) - error

    within = float(brentq(excess, 0.0, 1.0, xtol=_RATE_TOLERANCE))
    if spread == 0.0:
        return max(within - _RATE_TOLERANCE, 0.0)
    seen = tpr_at_fpr(untied.members, untied.non_members, fpr)
    between = seen + spread * float(stdtrit(untied.num_groups - 1, error))
    return min(max(within - _RATE_TOLERANCE, 0.0), max(between, 0.0))


def tpr_upper(untied: Pooled, fpr: float, error: float, spread: float = 0.0) -> float:
    """Above the TPR of the threshold whose false-positive rate is `fpr`, except with probability `error`.

    The threshold is a non-member so low that its false-positive rate is below `fpr` with a small part of the error
    only; the TPR there is no less.
    """
    ins, outs = untied.members.size, untied.non_members.size
    rank, high = 0, outs  # the least rank for which the chance is a quarter of the error, by bisection
    if betainc(outs, 1, fpr) > error / 4.0:
        return 1.0
    while high - rank > 1:
        middle = (rank + high) // 2
        rank, high = (rank, middle) if betainc(middle, outs + 1 - middle, fpr) <= error / 4.0 else (middle, high)
    rank, missed = high, float(betainc(high, outs + 1 - high, fpr))
    above = members_above(untied, rank)
    if above == ins:
        return 1.0
    rest = (error - missed) / (1.0 - missed)
    within = float(betaincinv(above + 1, ins - above, 1.0 - rest))
    if spread == 0.0:
        return within
    seen = tpr_at_fpr(untied.members, untied.non_members, fpr)
    return max(within, min(seen - spread * float(stdtrit(untied.num_groups - 1, error)), 1.0))


def tpr_spread(untied: Pooled, fprs: Array) -> Array:
    """Standard deviation of the TPR at each rate, shape (k,), by the jackknife over runs; 0 for too few runs."""
    if not untied.has_spread:
        return np.zeros(fprs.shape)
    left_out = np.empty((fprs.size, untied.num_groups))
    for group in range(untied.num_groups):
        left_out[:, group] = tpr_at_fpr(*untied.without(group), fprs)
    return np.sqrt(jackknife_variances(left_out))
