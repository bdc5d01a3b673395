"""What an attack's scores say about it, with confidence intervals: AUC, TPR at low FPR, accuracy, ROC bands.

With fewer than 5 runs an interval covers the attack on these runs: candidates are the sample. From 5 runs on, it is at
least as wide as a t-interval over runs, and covers the attack on runs of this kind. Members of one run share what it
published, so their scores depend on each other a little; docs/theory/audit-bounds.md says what that does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, ndtr, ndtri, stdtrit

from gmip import _validate as check
from gmip.errors import InvalidArgument
from gmip.stats._rank_tests import (
    GaussianFamily,
    RankSum,
    binomial_lower,
    binomial_upper,
    cross_fit,
    largest_rejected,
    rank_sum,
    tpr_lower,
    tpr_spread,
    tpr_upper,
)
from gmip.stats.roc import tpr_at_fpr
from gmip.stats.scores import Pooled, RunScores, checked_seed, pool

__all__ = ["Estimate", "Metrics", "RocBand", "RunScores", "clopper_pearson", "roc_band", "summary"]

Array = NDArray[np.float64]

# A simultaneous band is made at no more rates than this; in between, the curve's shape carries it.
_ANCHORS = 24


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value and its confidence interval."""

    value: float
    lower: float
    upper: float
    confidence: float


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """What the scores of an attack say.

    tpr : the TPR at each false-positive rate asked for, by that rate.
    balanced_accuracy, advantage : (1 + TPR - FPR)/2 and TPR - FPR at the best threshold, which was chosen on other
        candidates than it is judged on: on average no more than the truth, 1/2 and 0 for scores that say nothing.
    members, non_members, runs : how many there were.
    """

    auc: Estimate
    tpr: Mapping[float, Estimate]
    balanced_accuracy: Estimate
    advantage: Estimate
    members: int
    non_members: int
    runs: int


class RocBand(NamedTuple):
    """TPR and the ends of its band at each false-positive rate, of shape (k,)."""

    tpr: Array
    lower: Array
    upper: Array


def clopper_pearson(
    successes: int,
    trials: int,
    confidence: float = 0.95,
    *,
    side: Literal["both", "lower", "upper"] = "both",
) -> Estimate:
    """Exact interval of a binomial probability (Clopper and Pearson 1934); one-sided ones have the other end at 0 or 1.

    Covers with probability `confidence` at least, whatever the truth is.
    """
    confidence = check.probability("confidence", confidence, open_low=True, open_high=True)
    error = 1.0 - confidence
    check.one_of("side", side, ("both", "lower", "upper"))
    n = check.count("trials", trials)
    k = check.number("successes", successes)
    if not (0 <= k <= n and k == int(k)):
        raise InvalidArgument(
            f"must be a whole number from 0 to `trials` = {trials}", argument="successes", value=successes
        )
    share = error / 2.0 if side == "both" else error
    counts = np.array(int(k))
    return Estimate(
        value=k / n,
        lower=0.0 if side == "upper" else float(binomial_lower(counts, n, share)),
        upper=1.0 if side == "lower" else float(binomial_upper(counts, n, share)),
        confidence=confidence,
    )


def summary(
    runs: RunScores | Sequence[RunScores] | Pooled,
    *,
    confidence: float = 0.95,
    fprs: Sequence[float] = (0.001, 0.01, 0.1),
    same_scale: bool = True,
    seed: int = 0,
) -> Metrics:
    """AUC, TPR at each of `fprs`, balanced accuracy and advantage of the scores of one or more runs, pooled.

    same_scale : whether scores of different runs can be compared; if not, a score stands for its place among the
        non-members of its run, and the AUC is that of pairs within a run.
    seed : breaks ties between scores and draws the halves that choose a threshold for each other.

    Guarantees
    ----------
    For scores that are independent given the run: the intervals of the TPRs cover at least at `confidence` (order
    statistics and binomials, no approximation); those of AUC (DeLong et al. 1988 on the logit scale), accuracy and
    advantage are normal approximations, checked by simulation.
    """
    confidence = check.probability("confidence", confidence, open_low=True, open_high=True)
    error = 1.0 - confidence
    rates = np.array([check.probability("fprs", fpr, open_low=True, open_high=True) for fpr in fprs])
    seed = checked_seed(seed)
    raw = pool(runs, same_scale=same_scale)
    scores = raw.comparable(seed)
    untied = scores.untied(seed)
    band = _tpr_band(scores, untied, rates, error)
    tpr = {
        float(rate): Estimate(value=float(value), lower=float(lower), upper=float(upper), confidence=confidence)
        for rate, value, lower, upper in zip(rates, *band, strict=True)
    }
    fit = cross_fit(scores, error / 2.0, np.random.default_rng(seed))
    # The best threshold is never worse than none at all.
    value, lower, upper = (min(max(fit.advantage + side * fit.margin, 0.0), 1.0) for side in (0.0, -1.0, 1.0))
    return Metrics(
        auc=_auc(rank_sum(raw), confidence),
        tpr=MappingProxyType(tpr),
        balanced_accuracy=Estimate(
            value=0.5 + 0.5 * value, lower=0.5 + 0.5 * lower, upper=0.5 + 0.5 * upper, confidence=confidence
        ),
        advantage=Estimate(value=value, lower=lower, upper=upper, confidence=confidence),
        members=raw.members.size,
        non_members=raw.non_members.size,
        runs=raw.num_runs,
    )


def roc_band(
    runs: RunScores | Sequence[RunScores] | Pooled,
    fprs: ArrayLike,
    *,
    confidence: float = 0.95,
    simultaneous: bool = False,
    same_scale: bool = True,
    seed: int = 0,
) -> RocBand:
    """The ROC curve of the pooled scores at the rates `fprs` of shape (k,), with a confidence band.

    Pointwise unless `simultaneous`: then the band covers the curve at all rates at once. Either end by itself holds
    with probability (1 + confidence)/2: a claimed curve that the lower end of a simultaneous 90% band exceeds anywhere
    is refuted at 95% (`bounds.claim_p_value` is a sharper test of the same).

    Guarantees
    ----------
    As the TPRs of `summary`. The lower end is about an attacker who may toss coins between thresholds (the concave
    hull of the ROC curve), the upper end about thresholds alone. The simultaneous band divides the error among at most
    24 of the rates; between them its lower end is the concave hull, its upper end a step function.
    """
    confidence = check.probability("confidence", confidence, open_low=True, open_high=True)
    error = 1.0 - confidence
    grid = check.probability_array("fprs", fprs)
    if grid.ndim != 1 or grid.size == 0 or grid.min() <= 0.0 or grid.max() >= 1.0:
        raise InvalidArgument(
            "must be a non-empty one-dimensional array of rates strictly between 0 and 1", argument="fprs"
        )
    seed = checked_seed(seed)
    scores = pool(runs, same_scale=same_scale).comparable(seed)
    untied = scores.untied(seed)
    if not simultaneous:
        return _tpr_band(scores, untied, grid, error)
    rates = np.unique(grid)
    rates = rates[np.unique(np.linspace(0, rates.size - 1, _ANCHORS).round().astype(np.intp))]
    anchors = _tpr_band(scores, untied, rates, error / rates.size)
    lower = _concave_hull(np.concatenate([[0.0], rates, [1.0]]), np.concatenate([[0.0], anchors.lower, [1.0]]), grid)
    steps = np.append(np.minimum.accumulate(anchors.upper[::-1])[::-1], 1.0)
    upper = steps[np.searchsorted(rates, grid, side="left")]
    return RocBand(np.asarray(tpr_at_fpr(scores.members, scores.non_members, grid)), lower, upper)


def _tpr_band(scores: Pooled, untied: Pooled, rates: Array, error: float) -> RocBand:
    """Pointwise, `error`/2 for each end."""
    seen = np.asarray(tpr_at_fpr(scores.ordered_members, scores.ordered_non_members, rates))
    spreads = tpr_spread(untied, rates)
    ends = [
        (tpr_lower(untied, fpr, error / 2.0, spread), tpr_upper(untied, fpr, error / 2.0, spread))
        for fpr, spread in zip(rates.tolist(), spreads.tolist(), strict=True)
    ]
    lower, upper = np.array(ends).reshape(-1, 2).T
    return RocBand(seen, np.minimum(lower, seen), np.maximum(upper, seen))


def _auc(pairs: RankSum, confidence: float) -> Estimate:
    error = 1.0 - confidence
    value = 1.0 - pairs.losses
    margin = -float(ndtri(error / 2.0)) * float(np.sqrt(pairs.variance))
    if pairs.between is not None:
        margin = max(margin, -float(stdtrit(pairs.groups - 1, error / 2.0)) * float(np.sqrt(pairs.between)))
    if margin == 0.0 or value in (0.0, 1.0):
        # No pair differs from the others: P(this | AUC) <= AUC^k for k pairs that share no candidate.
        gap = 1.0 - float((error / 2.0) ** (1.0 / min(pairs.members, pairs.non_members)))
        lower, upper = max(value - gap, 0.0), min(value + gap, 1.0)
    else:
        wide = margin / (value * (1.0 - value))
        lower, upper = (float(expit(logit(value) + side * wide)) for side in (-1.0, 1.0))
        # Where few pairs are lost their sample variance is too small; that of a Gaussian curve is not.
        mu = largest_rejected(lambda mu: pairs.p_value(lambda fpr: GaussianFamily().fnr(mu, fpr)), error / 2.0)
        lower = min(lower, float(ndtr(mu / np.sqrt(2.0)))) if mu > 0.0 else lower
    return Estimate(value=value, lower=lower, upper=upper, confidence=confidence)


def _concave_hull(x: Array, y: Array, at: Array) -> Array:
    """The least concave function above the points, x growing strictly, evaluated at `at`."""
    kept: list[int] = []
    for i in range(x.size):
        while len(kept) > 1 and (y[kept[-1]] - y[kept[-2]]) * (x[i] - x[kept[-2]]) <= (y[i] - y[kept[-2]]) * (
            x[kept[-1]] - x[kept[-2]]
        ):
            kept.pop()
        kept.append(i)
    return np.asarray(np.interp(at, x[kept], y[kept]))
