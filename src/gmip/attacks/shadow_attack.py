"""Attacks that compare the released model with shadow models: LiRA and RMIA."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar, Final, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from gmip import _validate as check
from gmip.attacks.arrays import (
    LEAST_LOG,
    OFFLINE_SCALE,
    LogMean,
    Moments,
    Variance,
    finite_range,
    likelihood_ratios,
    log_probabilities,
    ranks_among,
    standardised,
    usual_log_p,
)
from gmip.attacks.attack import Attack, AttackedRecords, Need
from gmip.attacks.attack_table import ATTACKS
from gmip.attacks.shadow import Shadows, ShadowSet, Signal, shadow_set
from gmip.attacks.signals import Augmentation, Confidence, released_model
from gmip.attacks.work import Work
from gmip.errors import GmipWarning, InvalidArgument
from gmip.stats import ScoreSet
from gmip.stats.scores import Fact
from gmip.tasks import Examples, Task
from gmip.trace import ModelRecord

__all__ = [
    "RMIA",
    "LiRA",
    "ModelAnswers",
    "ShadowAttack",
    "matched_membership",
]

Array = NDArray[np.float64]


class ModelAnswers(NamedTuple):
    """What the released model and its shadow models say.

    Candidates are in the order of their ids, so that nothing depends on the order in which they were asked about.

    Attributes
    ----------
    ids : the candidates as asked, shape (c,); ids = shadows.candidates[back].
    back : shape (c,).
    candidates, population : the released model's confidences, shapes (c, 1 + k) and (z, 1 + k) for k augmentations.
    shadows : the shadow models.
    """

    ids: NDArray[np.int64]
    back: NDArray[np.int64]
    candidates: Array
    population: Array
    shadows: ShadowSet


def matched_membership(inside: NDArray[np.bool_], population: int) -> NDArray[np.bool_]:
    """The membership of a candidate for each population record, shape (population,): it is compared with as many models
    as a candidate is, since a mean over more of them would vary less."""
    return inside[np.arange(population) % len(inside)]


@dataclass(frozen=True, kw_only=True)
class ShadowAttack(Attack):
    """What attacks with shadow models have in common.

    Parameters
    ----------
    shadows : how many shadow models, and where they are trained.
    device : where the released model is evaluated.
    """

    shadows: Shadows = field(default_factory=Shadows)
    device: str = "cpu"

    @abstractmethod
    def signals(self) -> tuple[Signal, ...]:
        """What it asks of each shadow model."""

    def _model_answers(
        self, task: Task, target: ModelRecord, who: AttackedRecords, signal: Confidence, work: Work
    ) -> ModelAnswers:
        """The released model is evaluated first: what is wrong with it is said before anything is trained."""
        ids = np.sort(who.ids)
        model = released_model(task, target, device=self.device)
        own = signal(task, model, task.pool[ids])
        models = self._models(task, target, ids, who.background, signal, work)
        return ModelAnswers(who.ids, np.searchsorted(ids, who.ids), own, signal(task, model, models.population), models)

    def _models(
        self, task: Task, target: ModelRecord, ids: NDArray[np.int64], background: Examples, signal: Signal, work: Work
    ) -> ShadowSet:
        """The shadow models, or those that there was time for, with a warning."""
        models = shadow_set(
            task, target, ids, background, (signal,), self.shadows, progress=work.progress, budget=work.budget
        )
        if len(models) < self.shadows.count:
            warnings.warn(
                f"attack {self.name!r} had {work.budget.seconds:.0f} seconds and uses {len(models)} of "
                f"{self.shadows.count} shadow models. Raise `budget` (--budget) for more: trained ones are kept.",
                GmipWarning,
                stacklevel=5,
            )
        return models

    def _shadow_facts(self, models: ShadowSet) -> dict[str, Fact]:
        """What every such attack tells about its shadow models."""
        return {"shadows": len(models), "folder": str(models.path)}

    def _cut_short(self, models: ShadowSet) -> bool:
        """Whether there was no time for all of the shadow models."""
        return len(models) < self.shadows.count

    def _check_counts(
        self, ids: NDArray[np.int64], count: Array, *, inside: bool, needed: int, spread: bool, online: bool = False
    ) -> None:
        """Raise unless each candidate, shape (c,), has so many models with it (or without); for a spread some
        candidate must have two."""
        words = "with" if inside else "without"
        remedy = f"raise `count` of shadows, which is {self.shadows.count}"
        if inside and online:
            remedy += ", or pass `online` = False"
        if count.min() < needed:
            raise InvalidArgument(
                f"Candidate {ids[count.argmin()]} has {count.min():.0f} of {self.shadows.count} shadow models {words} "
                f"it, and {self.name} needs {needed} or more",
                remedy=remedy,
            )
        if spread and count.max() < 2.0:
            raise InvalidArgument(
                f"No candidate has two shadow models {words} it, so nothing is known about how much they vary",
                remedy=remedy,
            )


# -- lira -------------------------------------------------------------------------------------------------------------


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
        `gmip.attacks.arrays.likelihood_ratios`, and docs/attacks.md for what that gains with few models.
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
    title: ClassVar[str] = ATTACKS["lira"].title
    needs: ClassVar[frozenset[Need]] = ATTACKS["lira"].needs

    def __post_init__(self) -> None:
        check.one_of("variance", self.variance, _VARIANCES)
        object.__setattr__(self, "augmentations", Confidence(self.augmentations).augmentations)

    def signals(self) -> tuple[Signal, ...]:
        """What it asks of each shadow model."""
        return (Confidence(self.augmentations),)

    def _score(self, task: Task, target: ModelRecord, who: AttackedRecords, progress: Work) -> ScoreSet:
        signal = Confidence(self.augmentations)
        found = self._model_answers(task, target, who, signal, progress)
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

    def _standardised(self, found: ModelAnswers, signal: Confidence) -> tuple[Array, Array]:
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
            outside.add(values, ~np.concatenate([model.inside, matched_membership(model.inside, z)]))
        above = standardised(phi, outside, self.variance)
        return above[:c], above[c:]

    def _views(self, values: NDArray[Any], low: float, high: float) -> Array:
        clipped = np.clip(values.astype(np.float64), low, high)
        return clipped if self.online else clipped.mean(axis=1, keepdims=True)


# -- rmia -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RMIA(ShadowAttack):
    """The robust membership-inference attack (Zarifzadeh et al. 2024), which does with few shadow models.

    A record's ratio is p(x | released model) / p(x), p(x) the mean over shadow models. The paper's score is the share
    of population records z with ratio_x >= gamma ratio_z. That is a monotone function of ratio_x alone, whatever gamma,
    so the score here is log ratio_x: the same ROC without ties. The share is in the p-value, 1 + the number of z with
    ratio_z >= ratio_x, over 1 + the number of z; z are background records that no shadow model was trained on.

    Parameters
    ----------
    shadows : how many shadow models, and where they are trained. One shadow set serves LiRA too.
    online : True takes p(x) as the mean of models with x and models without; False of those without alone, where the
        others are guessed by `offline_scale`.
    offline_scale : a in p_in(x) = a p_out(x) + 1 - a, from 0 (models learn members by heart) to 1 (not at all). Online
        it is used for p-values only.
    device : where the released model is evaluated.

    Guarantees
    ----------
    Models without the record alone make its p-value, online too: no model has seen a population record, so only these
    ratios can be compared. Ratios of non-members and of the population are computed alike, each from as many models, so
    that the p-value of a candidate drawn as the background was is valid up to shadow models being unlike the released
    model in its records. Online, p-values therefore do not follow the order of the scores.
    """

    online: bool = True
    offline_scale: float = OFFLINE_SCALE

    name: ClassVar[str] = "rmia"
    title: ClassVar[str] = ATTACKS["rmia"].title
    needs: ClassVar[frozenset[Need]] = ATTACKS["rmia"].needs

    def __post_init__(self) -> None:
        object.__setattr__(self, "offline_scale", check.probability("offline_scale", self.offline_scale))

    def signals(self) -> tuple[Signal, ...]:
        """What it asks of each shadow model."""
        return (Confidence(),)

    def _score(self, task: Task, target: ModelRecord, who: AttackedRecords, progress: Work) -> ScoreSet:
        signal = Confidence()
        found = self._model_answers(task, target, who, signal, progress)
        c, z = len(found.candidates), len(found.population)
        inside, outside, others = LogMean(c), LogMean(c), LogMean(z)
        for model in found.shadows:
            part = model.signal(signal.key)
            log_p = _log_p(part[0])
            inside.add(log_p, model.inside)
            outside.add(log_p, ~model.inside)
            if part[1] is not None and z:
                others.add(_log_p(part[1]), ~matched_membership(model.inside, z))
        for count, is_inside in ([(inside.count, True)] if self.online else []) + [(outside.count, False)]:
            self._check_counts(
                found.shadows.candidates, count, inside=is_inside, needed=1, spread=False, online=self.online
            )
        without = _log_p(found.candidates) - usual_log_p(None, outside, self.offline_scale)
        scores = _log_p(found.candidates) - usual_log_p(inside, outside) if self.online else without
        ratios = _log_p(found.population) - usual_log_p(None, others, self.offline_scale)
        return ScoreSet(
            ids=found.ids,
            scores=scores[found.back],
            attack=self.name,
            p_values=ranks_among(without, ratios)[found.back] if z else None,
            facts={
                "online": self.online,
                "population": z,
            }
            | self._shadow_facts(found.shadows),
            cut_short=self._cut_short(found.shadows),
        )


def _log_p(phi: NDArray[Any]) -> Array:
    """log p of the records as they are, shape (c,)."""
    return np.maximum(log_probabilities(phi[:, 0]), LEAST_LOG)
