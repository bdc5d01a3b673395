"""LiRA: is a model's confidence in a candidate that of models trained with it, or of models trained without it?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from gmip import _validate as check
from gmip._progress import Progress
from gmip.attacks.attack import Need, Parties
from gmip.attacks.shadow import Signal
from gmip.attacks.shadow_attack import ShadowAttack
from gmip.attacks.signals import Augmentation, Confidence
from gmip.stats import ScoreSet
from gmip.tasks import Task
from gmip.trace import Trace

__all__ = ["LiRA", "Moments", "Variance", "likelihood_ratios", "standardised"]

Array = NDArray[np.float64]
Variance = Literal["auto", "per-example", "pooled"]
_VARIANCES: Final = ("auto", "per-example", "pooled")
_PRIOR: Final = 4.0  # observations that the pooled variance counts as under "auto"


class Moments:
    """Mean and scatter of c candidates' confidences over models, one model at a time (Welford).

    Attributes
    ----------
    count : shape (c,), models that were counted for a candidate.
    mean, scatter : shape (c, q), scatter the sum of squared deviations from the mean.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self.count = np.zeros(shape[0])
        self.mean, self.scatter = np.zeros(shape), np.zeros(shape)

    def add(self, values: Array, rows: NDArray[np.bool_]) -> None:
        """One model: values of shape (c, q), counted for the candidates in `rows`, shape (c,)."""
        self.count[rows] += 1.0
        above = values[rows] - self.mean[rows]
        self.mean[rows] += above / self.count[rows, None]
        self.scatter[rows] += above * (values[rows] - self.mean[rows])

    def spread(self, variance: Variance) -> tuple[Array, Array]:
        """(variance of one more value around the mean, degrees of freedom of its estimate), shapes (c, q) and (c, 1).

        The mean is an estimate too, hence the factor 1 + 1/count.
        """
        own = self.count[:, None] - 1.0
        total = max(float(own.sum()), 1.0)
        pooled = self.scatter.sum(axis=0) / total
        pooled[pooled == 0.0] = 1.0  # all models agree on all candidates: any scale will do
        if variance == "pooled":
            found, freedom = np.broadcast_to(pooled, self.scatter.shape), np.full_like(own, total)
        elif variance == "per-example":
            found, freedom = self.scatter / np.maximum(own, 1.0), np.maximum(own, 1.0)
            found = np.where(found > 0.0, found, pooled)
        else:
            found, freedom = (self.scatter + _PRIOR * pooled) / (own + _PRIOR), own + _PRIOR
        return found * (1.0 + 1.0 / self.count[:, None]), freedom


def likelihood_ratios(phi: Array, inside: Moments, outside: Moments, variance: Variance = "auto") -> Array:
    """log N(phi; of models with the candidate) - log N(phi; of models without), shape (c,), mean over the columns."""
    logs = []
    for moments in (inside, outside):
        spread, _ = moments.spread(variance)
        logs.append(-0.5 * (np.log(spread) + (phi - moments.mean) ** 2 / spread))
    return np.asarray((logs[0] - logs[1]).mean(axis=1))


def standardised(phi: Array, outside: Moments, variance: Variance = "auto") -> tuple[Array, Array]:
    """How far phi, shape (c, 1), lies above the models without the candidate, in units of the spread, and the chance of
    as much or more (Student's t): shapes (c,) and (c,)."""
    spread, freedom = outside.spread(variance)
    above = ((phi - outside.mean) / np.sqrt(spread))[:, 0]
    return above, np.asarray(stdtr(freedom[:, 0], -above))


@dataclass(frozen=True, kw_only=True)
class LiRA(ShadowAttack):
    """The likelihood-ratio attack on confidences (Carlini et al. 2022), the paper's "Loss LRT".

    Confidence is phi = log(p/(1 - p)), p the probability of the true label, which is nearly Gaussian over trainings.

    Parameters
    ----------
    shadows : how many shadow models, and where they are trained.
    online : True fits two Gaussians to each candidate, over the shadow models with it and without it; the score is the
        log-likelihood ratio. False uses only models without the candidate; the score is how many spreads the released
        model's phi lies above theirs, and there are p-values.
    variance : "pooled", one for all candidates; "per-example", each candidate's own; "auto" weighs a candidate's own by
        the number of its models less 1 and the pooled one by 4, so that few shadow models give nearly the pooled and
        many the candidate's own. Of 4 to 64 models on three tasks its AUC was never more than .004 below the better of
        the two, which cross at about 16 models (docs/attacks.md, the runs of 2,000 steps).
    augmentations : further views of each candidate, see `Confidence`. Online, the log-likelihood ratios of the views
        are averaged; offline, their phi.
    device : where the released model is evaluated.

    Guarantees
    ----------
    p-values rest on phi being Gaussian over trainings and on shadow models being trained as the released model was: an
    approximation, like the likelihood ratio. Infinite confidences count as the largest finite ones seen in any model.
    """

    online: bool = True
    variance: Variance = "auto"
    augmentations: tuple[str | Augmentation, ...] = ()

    name: ClassVar[str] = "lira"
    title: ClassVar[str] = "Loss LRT (LiRA, Carlini et al. 2022)"
    needs: ClassVar[frozenset[Need]] = frozenset({"query", "loss", "population", "labels", "shadows"})

    def __post_init__(self) -> None:
        check.one_of("variance", self.variance, _VARIANCES)
        object.__setattr__(self, "augmentations", Confidence(self.augmentations).augmentations)

    def signals(self) -> tuple[Signal, ...]:
        """What it asks of each shadow model."""
        return (Confidence(self.augmentations),)

    def _score(self, task: Task, trace: Trace, who: Parties, progress: Progress) -> ScoreSet:
        signal = Confidence(self.augmentations)
        found = self._seen(task, trace, who, signal, progress)
        low, high = _finite_range(chain([found.candidates], (m.signal(signal.key)[0] for m in found.shadows)))
        phi = self._views(found.candidates, low, high)
        inside, outside = Moments(phi.shape), Moments(phi.shape)
        for model in found.shadows:
            values = self._views(model.signal(signal.key)[0], low, high)
            inside.add(values, model.inside)
            outside.add(values, ~model.inside)
        needed = 2 if self.variance == "per-example" else 1
        for count, is_inside in ([(inside.count, True)] if self.online else []) + [(outside.count, False)]:
            self._check_counts(
                found.shadows.candidates, count, inside=is_inside, needed=needed, spread=True, online=self.online
            )
        p_values: Array | None = None
        if self.online:
            scores = likelihood_ratios(phi, inside, outside, self.variance)
        else:
            scores, p_values = standardised(phi, outside, self.variance)
            p_values = p_values[found.back]
        return ScoreSet(
            ids=found.ids,
            scores=scores[found.back],
            attack=self.name,
            p_values=p_values,
            facts={
                "online": self.online,
                "variance": self.variance,
                "shadows": len(found.shadows),
                "folder": str(found.shadows.path),
            },
        )

    def _views(self, values: NDArray[Any], low: float, high: float) -> Array:
        clipped = np.clip(values.astype(np.float64), low, high)
        return clipped if self.online else clipped.mean(axis=1, keepdims=True)


def _finite_range(parts: Iterable[NDArray[Any]]) -> tuple[float, float]:
    low, high = np.inf, -np.inf
    for part in parts:
        finite = part[np.isfinite(part)]
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    return (low, high) if low <= high else (-1.0, 1.0)  # none is finite: only the sign tells
