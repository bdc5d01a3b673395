"""What an attack's scores say about it, with confidence intervals: AUC, TPR at low FPR, accuracy, ROC bands.

With fewer than 5 runs an interval covers the attack on these runs: candidates are the sample. From 5 runs on, it is at
least as wide as a t-interval over runs, and covers the attack on runs of this kind. Members of one run share what it
published, so their scores depend on each other a little; docs/theory/audit-bounds.md says what that does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, ndtr, ndtri, stdtrit

from gmip import _validate as check
from gmip.errors import InvalidArgument
from gmip.stats._rank_tests import (
    GaussianFamily,
    RankSum,
    cross_fit,
    curve_of,
    largest_rejected,
    rank_sum,
    tpr_lower,
    tpr_spread,
    tpr_upper,
)
from gmip.stats.scores import Pooled, RunScores, pool, tpr_at_fpr

Array = NDArray[np.float64]


class Interval(NamedTuple):
    """A value and the ends of its confidence interval."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """What the scores of an attack say.

    tpr : the TPR at each false-positive rate asked for, by that rate.
    balanced_accuracy, advantage : (1 + TPR - FPR)/2 and TPR - FPR at the best threshold, which was chosen on other
        candidates than it is judged on: on average no more than the truth, 1/2 and 0 for scores that say nothing.
    """

    auc: Interval
    tpr: Mapping[float, Interval]
    balanced_accuracy: Interval
    advantage: Interval


class RocBand(NamedTuple):
    """TPR and the ends of its band at each false-positive rate, of shape (k,)."""

    tpr: Array
    lower: Array
    upper: Array


def summary(
    runs: RunScores | Sequence[RunScores] | Pooled,
    *,
    confidence: float = 0.95,
    fprs: Sequence[float] = (0.001, 0.01, 0.1),
    seed: int = 0,
) -> Metrics:
    """AUC, TPR at each of `fprs`, balanced accuracy and advantage of the scores of one or more runs, pooled.

    seed : breaks ties between scores and draws the halves that choose a threshold for each other.

    Guarantees
    ----------
    For scores that are independent given the run: the intervals of the TPRs cover at least at `confidence` (order
    statistics and binomials, no approximation); those of AUC (DeLong et al. 1988 on the logit scale), accuracy and
    advantage are normal approximations, checked by simulation.
    """
    error = 1.0 - check.inside("confidence", confidence)
    rates = np.array([check.inside("fprs", fpr) for fpr in fprs])
    seed = check.seed(seed)
    raw = pool(runs)
    scores = raw.comparable(seed)
    untied = scores.untied(seed)
    band = _tpr_band(scores, untied, rates, error)
    tpr = {
        float(rate): Interval(float(value), float(lower), float(upper))
        for rate, value, lower, upper in zip(rates, *band, strict=True)
    }
    fit = cross_fit(scores, error / 2.0, np.random.default_rng(seed))
    # The best threshold is never worse than none at all.
    found = [min(max(fit.advantage + side * fit.margin, 0.0), 1.0) for side in (0.0, -1.0, 1.0)]
    return Metrics(
        auc=_auc(rank_sum(raw), error),
        tpr=MappingProxyType(tpr),
        balanced_accuracy=Interval(*(0.5 + 0.5 * one for one in found)),
        advantage=Interval(*found),
    )


def roc_band(
    runs: RunScores | Sequence[RunScores] | Pooled,
    fprs: ArrayLike,
    *,
    confidence: float = 0.95,
    seed: int = 0,
) -> RocBand:
    """The ROC curve of the pooled scores at the rates `fprs` of shape (k,), with a pointwise confidence band.

    Guarantees
    ----------
    They are those of the TPRs of `summary`. The lower end is about an attacker who may toss coins between thresholds
    (the concave hull of the ROC curve), the upper end about thresholds alone.
    """
    error = 1.0 - check.inside("confidence", confidence)
    grid = check.probability_array("fprs", fprs)
    if grid.ndim != 1 or grid.size == 0 or grid.min() <= 0.0 or grid.max() >= 1.0:
        raise InvalidArgument(
            "must be a non-empty one-dimensional array of rates strictly between 0 and 1", argument="fprs"
        )
    seed = check.seed(seed)
    scores = pool(runs).comparable(seed)
    return _tpr_band(scores, scores.untied(seed), grid, error)


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


def _auc(pairs: RankSum, error: float) -> Interval:
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
        mu = largest_rejected(lambda mu: pairs.p_value(curve_of(GaussianFamily(), mu)), error / 2.0)
        lower = min(lower, float(ndtr(mu / np.sqrt(2.0)))) if mu > 0.0 else lower
    return Interval(value, lower, upper)
