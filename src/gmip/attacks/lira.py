"""LiRA: is a model's confidence in a candidate that of models trained with it, or of models trained without it?"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Final, get_args

import numpy as np
from numpy.typing import NDArray

from gmip import _validate as check
from gmip.attacks.attack import Need, Parties
from gmip.attacks.shadow import Signal
from gmip.attacks.shadow_attack import Seen, ShadowAttack, twins
from gmip.attacks.signals import Augmentation, Confidence
from gmip.attacks.work import Work
from gmip.stats import ScoreSet
from gmip.stats.reference_models import (
    Moments,
    Variance,
    finite_range,
    likelihood_ratios,
    ranks_among,
    standardised,
)
from gmip.tasks import Task
from gmip.trace import Trace

__all__ = ["LiRA"]

Array = NDArray[np.float64]
_VARIANCES: Final = get_args(Variance)


@dataclass(frozen=True, kw_only=True)
class LiRA(ShadowAttack):
    """The likelihood-ratio attack on confidences (Carlini et al. 2022), the paper's "Loss LRT".

    Confidence is phi = log(p/(1 - p)), p the probability of the true label, which is nearly Gaussian over trainings.

    Parameters
    ----------
    shadows : how many shadow models, and where they are trained.
    online : True fits two distributions to each candidate, over the shadow models with it and without it; the score is
        the log-likelihood ratio. False uses only models without the candidate; the score is how many spreads the
        released model's phi lies above theirs, and there are p-values.
    variance : "pooled", one for all candidates; "per-example", each candidate's own; "auto" weighs a candidate's own by
        the number of its models less 1 and the pooled one by 4, so that few shadow models give nearly the pooled and
        many the candidate's own. Online, "auto" also compares predictive distributions (Student's t) instead of
        Gaussians, and lets candidates share what training on a record does to its confidence: see
        `gmip.stats.reference_models.likelihood_ratios`, and docs/attacks.md for what that gains with few models.
    augmentations : further views of each candidate, see `Confidence`. Online, the log-likelihood ratios of the views
        are averaged; offline, their phi.
    device : where the released model is evaluated.

    Guarantees
    ----------
    The likelihood ratio rests on phi being Gaussian over trainings, and on shadow models being trained as the released
    model was: an approximation. An offline p-value is the candidate's rank among background records that are in no
    model, compared with as many models: valid for candidates drawn as the background was, up to shadow models being
    unlike the released one in its records. Infinite confidences count as the largest finite ones seen in any model.
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

    def _score(self, task: Task, trace: Trace, who: Parties, progress: Work) -> ScoreSet:
        signal = Confidence(self.augmentations)
        found = self._seen(task, trace, who, signal, progress)
        low, high = finite_range(chain([found.candidates], (m.signal(signal.key)[0] for m in found.shadows)))
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
        elif len(found.population):
            scores, others = self._standardised(found, signal)
            p_values = ranks_among(scores, others)[found.back]
        else:
            scores = standardised(phi, outside, self.variance)
        return ScoreSet(
            ids=found.ids,
            scores=scores[found.back],
            attack=self.name,
            p_values=p_values,
            facts={
                "online": self.online,
                "variance": self.variance,
            }
            | self._shadow_facts(found.shadows),
            cut_short=self._cut_short(found.shadows),
        )

    def _standardised(self, found: Seen, signal: Confidence) -> tuple[Array, Array]:
        """Scores of the candidates and of the population records, all standardised alike."""
        c, z = len(found.candidates), len(found.population)
        released = np.concatenate([found.candidates, found.population])
        parts = (part for model in found.shadows for part in model.signal(signal.key) if part is not None)
        low, high = finite_range(chain([released], parts))
        phi = self._views(released, low, high)
        outside = Moments(phi.shape)
        for model in found.shadows:
            own, others = model.signal(signal.key)
            assert others is not None
            values = self._views(np.concatenate([own, others]), low, high)
            outside.add(values, ~np.concatenate([model.inside, twins(model.inside, z)]))
        above = standardised(phi, outside, self.variance)
        return above[:c], above[c:]

    def _views(self, values: NDArray[Any], low: float, high: float) -> Array:
        clipped = np.clip(values.astype(np.float64), low, high)
        return clipped if self.online else clipped.mean(axis=1, keepdims=True)
