"""Who is exposed: what an attack finds in each group of records, with intervals that account for looking at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gmip._numbers import rate_key
from gmip.auditing.outcomes import estimate
from gmip.auditing.schema import GroupOutcome
from gmip.stats import RunScores, bounds, intervals, pool

__all__ = ["Groups", "group_outcomes"]

_FEWEST = 2  # members, and non-members, in all runs together


@dataclass(frozen=True, eq=False)
class Groups:
    """codes : array of shape (c,), the group of each candidate as a place in `names`."""

    codes: NDArray[np.intp]
    names: tuple[str, ...]

    def of(self, rows: NDArray[np.intp]) -> list[str]:
        """The names of the groups of some candidates."""
        return [self.names[code] for code in self.codes[rows].tolist()]


def group_outcomes(
    runs: Sequence[tuple[NDArray[np.float64], NDArray[np.bool_], Groups | None]],
    *,
    fprs: Sequence[float],
    confidence: float,
    tests: int,
    seed: int,
    same_scale: bool = True,
) -> tuple[GroupOutcome, ...]:
    """What an attack finds in each group, the most exposed first; empty without groups.

    Each group is judged by itself: its members against its non-members, and false alarms are counted in the group. So a
    group that scores high as a whole, members and non-members alike, does not look exposed.

    Parameters
    ----------
    runs : of each repetition the scores, who was in, and the groups.
    tests : how many attacks there are, of which this one was chosen.

    Guarantees
    ----------
    The error 1 - confidence is divided among groups and attacks (Bonferroni): all intervals of TPRs at one rate cover
    together, and so do all bounds on mu, whichever group and attack is looked at. Intervals of TPRs are exact for
    independent scores, those of the AUC approximate.
    """
    parts: dict[str, list[tuple[NDArray[np.float64], NDArray[np.float64]]]] = {}
    for scores, inside, groups in runs:
        if groups is None:
            return ()
        order = np.argsort(groups.codes, kind="stable")
        ends = np.searchsorted(groups.codes[order], np.arange(len(groups.names) + 1))
        for name, low, high in zip(groups.names, ends[:-1], ends[1:], strict=True):
            rows = order[low:high]
            here = inside[rows]
            parts.setdefault(name, []).append((scores[rows[here]], scores[rows[~here]]))
    if not parts:
        return ()
    shared = 1.0 - (1.0 - confidence) / (len(parts) * tests)
    found = [_outcome(name, pairs, fprs, shared, seed, same_scale) for name, pairs in parts.items()]
    return tuple(sorted(found, key=_rank))


def _rank(one: GroupOutcome) -> tuple[float, float, str]:
    return (-1.0 if one.mu_lower is None else -one.mu_lower - 1.0, -one.auc.value if one.auc else 0.0, one.group)


def _outcome(
    name: str,
    pairs: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]],
    fprs: Sequence[float],
    confidence: float,
    seed: int,
    same_scale: bool,
) -> GroupOutcome:
    members, non_members = (sum(pair[side].size for pair in pairs) for side in (0, 1))
    both = [RunScores(*pair) for pair in pairs if pair[0].size and pair[1].size]
    # A run in which the group has members only, or non-members only, has nothing to compare them with.
    if any(sum(getattr(run, side).size for run in both) < _FEWEST for side in ("members", "non_members")):
        return GroupOutcome(group=name, members=members, non_members=non_members)
    pooled = pool(both, same_scale=same_scale)
    found = intervals.summary(pooled, confidence=confidence, fprs=tuple(fprs), seed=seed)
    return GroupOutcome(
        group=name,
        members=members,
        non_members=non_members,
        auc=estimate(found.auc),
        tpr_at={rate_key(fpr): estimate(found.tpr[fpr]) for fpr in fprs},
        mu_lower=bounds.mu_lower_bound(pooled, confidence=confidence, seed=seed).mu,
    )
