"""Tests of "the attack's trade-off function is at least f" by ranks alone (docs/theory/audit-bounds.md).

Theorem: any statistic that only grows when a member moves up in the ranking is, under any trade-off function >= f,
stochastically at most what it is under f itself. So each p-value is computed under f, and needs no other model of the
scores. `f` is passed as a function that maps false-positive rates in (0, 1) to false-negative rates.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv, ndtr, stdtr

from gmip.stats._pooled_scores import Pooled

__all__ = [
    "SUM_SHARE",
    "Fnr",
    "Level",
    "RankSum",
    "crossing_probability",
    "expected_losses",
    "jackknife_variances",
    "level_at",
    "one_run_design",
    "rank_sum",
]

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
    """Of rising scores: they are looked up several times as fast."""
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
    """For each group, how many pairs with a candidate in it are lost, and how many there are."""
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
    """For each of our scores, the share of theirs (rising) that is higher, ties half."""
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
