"""What one attack found, by its scores, with intervals and bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gmip._numbers import rate_key
from gmip.accounting.tradeoff import TradeOff
from gmip.auditing.curves import GRID, roc_points
from gmip.auditing.schema import AttackOutcome, Band, Curve, Estimate, GroupOutcome, MuBound, Sees
from gmip.auditing.verdict import is_turned
from gmip.stats import Pooled, RunScores, bounds, intervals, pool, roc_curve, tie_blocks
from gmip.stats.scores import Fact

__all__ = [
    "Groups",
    "attack_outcome",
    "estimate",
    "group_outcomes",
    "measured_curve",
]

Array = NDArray[np.float64]
# Where a straight piece of an ROC is read.
_ON_LINES: Final[Array] = np.unique(
    np.round(np.concatenate([np.geomspace(1.0e-5, 1.0, 151), np.linspace(0.0, 1.0, 101)]), 12)
)[1:-1]


def attack_outcome(
    *,
    attack: str,
    title: str,
    needs: Sequence[str],
    runs: Sequence[RunScores] | Pooled,
    claimed: TradeOff | None,
    fprs: Sequence[float],
    confidence: float,
    tests: int,
    delta: float,
    seconds: float,
    facts: Mapping[str, Fact],
    notes: Sequence[str],
    seed: int,
    sees: Sees = "gradients",
    attacker_knows: float = 0.0,
    guessed_seed: int | None = None,
    cut_short: bool = False,
) -> AttackOutcome:
    """What an attack found in the runs of one recipe.

    Parameters
    ----------
    claimed : the curve for this attacker, who holds a list with a share `attacker_knows` of the members; None: there is
        none.
    tests : the number of attacks that are tried. Each gets its share of the error in the test of the claim and in the
        bounds on mu and epsilon: a sound run is called exposed with a chance of at most 1 - confidence, and the largest
        bound exceeds the truth with no more than that, however many attacks are tried. Intervals (AUC, TPR, band) are
        each for itself.
    """
    pooled = pool(runs)
    found = intervals.summary(pooled, confidence=confidence, fprs=tuple(fprs), seed=seed)
    grid = GRID[(GRID > 0.0) & (GRID < 1.0)]
    band = intervals.roc_band(pooled, grid, confidence=confidence)
    shared = 1.0 - (1.0 - confidence) / tests
    all_bounds = [
        bounds.mu_lower_bound(pooled, confidence=shared, method=method, seed=seed) for method in bounds.METHODS
    ]
    epsilon = bounds.epsilon_lower_bound(pooled, delta=delta, confidence=shared, seed=seed)
    p_value = None if claimed is None else bounds.claim_p_value(pooled, claimed, seed=seed)
    shown = pooled.comparable(seed)
    return AttackOutcome(
        attack=attack,
        title=title,
        needs=tuple(needs),
        members=pooled.members.size,
        non_members=pooled.non_members.size,
        repeats=pooled.num_runs,
        seconds=seconds,
        roc=measured_curve(shown.members, shown.non_members),
        band=Band(
            fpr=tuple(map(float, grid)),
            lower=tuple(map(float, np.clip(band.lower, 0.0, 1.0))),
            upper=tuple(map(float, np.clip(band.upper, 0.0, 1.0))),
        ),
        auc=estimate(found.auc),
        tpr_at={rate_key(fpr): estimate(found.tpr[fpr]) for fpr in fprs},
        balanced_accuracy=estimate(found.balanced_accuracy),
        advantage=estimate(found.advantage),
        mu_lower=all_bounds[0].mu,
        mu_bounds=tuple(MuBound(method=bound.method, mu=bound.mu) for bound in all_bounds),
        epsilon_lower=epsilon.epsilon,
        sees=sees,
        attacker_knows=attacker_knows,
        claim_p_value=p_value,
        turned=found.auc.upper < 0.5 and is_turned(pooled, confidence=shared, seed=seed),
        exceeds_claim=p_value is not None and p_value < 1.0 - shared,
        ties=tie_blocks(shown.members, shown.non_members),
        guessed_seed=guessed_seed,
        cut_short=cut_short,
        facts=dict(facts),
        notes=tuple(notes),
    )


def measured_curve(members: Array, non_members: Array) -> Curve:
    """The ROC over every distinct score: its corners, which are all of it, or as many as a report can use.

    Where members and non-members share a score the ROC is a straight line, on which a coin gets: such lines have points
    of their own, because a curve is read as steps. Only scores that are all the same stay two points.
    """
    roc = roc_curve(members, non_members)
    fpr, tpr = roc.fpr, roc.tpr
    inner = np.ones(fpr.size, dtype=bool)
    inner[1:-1] = ~(
        ((fpr[:-2] == fpr[1:-1]) & (fpr[1:-1] == fpr[2:])) | ((tpr[:-2] == tpr[1:-1]) & (tpr[1:-1] == tpr[2:]))
    )
    fpr, tpr = fpr[inner], tpr[inner]
    if fpr.size > 2:
        piece = np.searchsorted(fpr, _ON_LINES, side="right") - 1
        straight = (fpr[piece] < _ON_LINES) & (tpr[piece] < tpr[piece + 1])
        between = _ON_LINES[straight]
        places = np.searchsorted(fpr, between)
        found = np.interp(between, fpr, tpr)
        fpr, tpr = np.insert(fpr, places, between), np.insert(tpr, places, found)
    return roc_points(fpr, tpr)


def estimate(found: intervals.Estimate) -> Estimate:
    """Converts an estimate to the schema of result.json."""
    return Estimate(value=found.value, lower=found.lower, upper=found.upper)


# -- who is exposed ---------------------------------------------------------------------------------------------------


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
