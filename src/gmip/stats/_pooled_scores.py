"""Scores of an audit's runs, pooled: which candidate belongs to which run, ranks, and ties broken by chance."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from gmip import _validate as check
from gmip.errors import InvalidArgument

__all__ = ["MIN_RUNS", "Pooled", "RunScores", "checked_seed", "pool"]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
T = TypeVar("T")

# From this many runs on, the differences between runs are measured and enter every interval.
MIN_RUNS = 5
_MAX_GROUPS = 50


@dataclass(frozen=True, eq=False)
class RunScores:
    """Scores (higher = member) of one run, of shape (a,) and (b,); copied and read-only."""

    members: Array
    non_members: Array

    def __post_init__(self) -> None:
        for name in ("members", "non_members"):
            scores = check.vector(name, getattr(self, name)).copy()
            if scores.size == 0:
                raise InvalidArgument("is empty", argument=name, remedy="pass at least one score of each kind")
            scores.setflags(write=False)
            object.__setattr__(self, name, scores)


@dataclass(frozen=True, eq=False)
class Pooled:
    """All runs together.

    members, non_members : scores, shape (n1,) and (n0,).
    member_run, non_member_run : the number of the run of each.
    same_scale : whether scores of different runs can be compared.
    known : what was computed from the scores, and is not computed again.
    """

    members: Array
    non_members: Array
    member_run: Indices
    non_member_run: Indices
    num_runs: int
    same_scale: bool
    known: dict[Any, Any] = field(init=False, default_factory=dict, repr=False)

    def once(self, name: object, compute: Callable[[], T]) -> T:
        """What `compute` returned the first time that it was asked for by this name."""
        if name not in self.known:
            self.known[name] = compute()
        return cast("T", self.known[name])

    @cached_property
    def ordered_members(self) -> Array:
        """The members' scores, rising."""
        return np.sort(self.members)

    @cached_property
    def ordered_non_members(self) -> Array:
        """The non-members' scores, rising."""
        return np.sort(self.non_members)

    @property
    def has_spread(self) -> bool:
        """Whether there are enough runs to measure how much they differ."""
        return self.num_runs >= MIN_RUNS

    @property
    def num_groups(self) -> int:
        """Runs, or groups of runs that are as independent as they and keep the cost of a jackknife down."""
        return min(self.num_runs, _MAX_GROUPS)

    @property
    def member_group(self) -> Indices:
        return self.member_run % self.num_groups

    @property
    def non_member_group(self) -> Indices:
        return self.non_member_run % self.num_groups

    def comparable(self, seed: int) -> Pooled:
        """Scores that can be compared between runs.

        A score that cannot becomes its place among the (other) non-members of its run, between 0 and 1, with a coin
        for where it falls between two of them. For non-members that is uniform, exactly, however small the run; a
        rank among all candidates would also tell how many members there are. Every run is thinned out to the same
        share of members: otherwise the few non-members of one run would be the measure for many members, while those
        of another made them look many.
        """
        if self.same_scale:
            return self
        return self.once(("comparable", seed), lambda: self._made_comparable(seed))

    def _made_comparable(self, seed: int) -> Pooled:
        coins = self._coins(seed, *(np.concatenate(self._of(run)) for run in range(self.num_runs)))
        share = self.members.size / self.non_members.size
        parts = []
        for run in range(self.num_runs):
            ins, outs = self._of(run)
            ins = coins.permutation(ins)[: max(1, min(ins.size, round(share * outs.size)))]
            outs = coins.permutation(outs)[: max(1, min(outs.size, round(ins.size / share)))]
            parts.append((_place(ins, outs, 0, coins), _place(outs, outs, 1, coins)))
        return _joined(parts, same_scale=True)

    def untied(self, seed: int) -> Pooled:
        """The same order of scores; where there are ties, as ranks with ties broken at random: an attacker who tosses
        coins."""
        return self.once(("untied", seed), lambda: self._made_untied(seed))

    def _made_untied(self, seed: int) -> Pooled:
        # Stable sorting merges two rising parts in one pass.
        rising = np.sort(np.concatenate([self.ordered_members, self.ordered_non_members]), kind="stable")
        if (rising[1:] > rising[:-1]).all():
            return self
        scores = np.concatenate([self.members, self.non_members])
        places = np.unique(scores, return_inverse=True)[1]
        ranks = places.astype(np.float64)
        ranks[np.lexsort((self._coins(seed, scores).random(scores.size), places))] = np.arange(scores.size)
        return dataclasses.replace(self, members=ranks[: self.members.size], non_members=ranks[self.members.size :])

    @staticmethod
    def _coins(seed: int, *scores: Array) -> np.random.Generator:
        """Coins that depend on the seed and on the order of the scores. With coins from the seed alone, all audits of
        one size and seed would share one toss, and an unlucky one would mislead them all."""
        digest = hashlib.blake2b(digest_size=16)
        for part in scores:
            digest.update(np.unique(part, return_inverse=True)[1].astype("<i8").tobytes())
        return np.random.default_rng([seed, int.from_bytes(digest.digest(), "little")])

    def _of(self, run: int) -> tuple[Array, Array]:
        return self.members[self.member_run == run], self.non_members[self.non_member_run == run]

    def without(self, group: int) -> tuple[Array, Array]:
        """Scores of members and non-members of all runs but those of one group."""
        return self.members[self.member_group != group], self.non_members[self.non_member_group != group]


def pool(runs: RunScores | Sequence[RunScores] | Pooled, *, same_scale: bool = True) -> Pooled:
    """Put the runs together. What is pooled already stays as it is: it keeps what was computed from it."""
    if isinstance(runs, Pooled):
        return runs
    several: Sequence[Any] = [runs] if isinstance(runs, RunScores) else _sequence(runs)
    if not several:
        raise InvalidArgument("is empty", argument="runs", remedy="pass the scores of at least one run")
    for run in several:
        if not isinstance(run, RunScores):
            raise _not_runs(run)
    parts = [(run.members, run.non_members) for run in several]
    for name, side in (("members", 0), ("non_members", 1)):
        total = sum(part[side].size for part in parts)
        if total < 2:
            raise InvalidArgument(
                f"hold {total} score in all runs together", argument=name, remedy="pass at least 2 for an audit"
            )
    return _joined(parts, same_scale=same_scale or len(parts) == 1)


def _joined(parts: Sequence[tuple[Array, Array]], *, same_scale: bool) -> Pooled:
    members, non_members = (np.concatenate([part[side] for part in parts]) for side in (0, 1))
    member_run, non_member_run = (
        np.repeat(np.arange(len(parts)), [part[side].size for part in parts]) for side in (0, 1)
    )
    return Pooled(members, non_members, member_run, non_member_run, len(parts), same_scale)


def checked_seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise InvalidArgument("must be a whole number of at least 0", argument="seed", value=seed)
    return int(seed)


def _not_runs(given: Any) -> InvalidArgument:
    return InvalidArgument(f"must be RunScores or a sequence of them, not {type(given).__name__}", argument="runs")


def _sequence(runs: Any) -> Sequence[Any]:
    try:
        return list(runs)
    except TypeError:
        raise _not_runs(runs) from None


def _place(scores: Array, others: Array, own: int, coins: np.random.Generator) -> Array:
    """Smoothed share of `others` below each score; `own` of those equal to it are the score itself."""
    ordered = np.sort(others)
    below = np.searchsorted(ordered, scores, side="left")
    equal = np.searchsorted(ordered, scores, side="right") - below - own
    return np.asarray((below + coins.random(scores.size) * (equal + 1)) / (ordered.size - own + 1))
