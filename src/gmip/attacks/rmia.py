"""RMIA: how much more probable is a candidate under the released model than under models in general, compared with
records that are known not to be members?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from gmip import _validate as check
from gmip.attacks.attack import Need, Parties
from gmip.attacks.shadow import Signal
from gmip.attacks.shadow_attack import ShadowAttack, twins
from gmip.attacks.signals import Confidence
from gmip.attacks.work import Work
from gmip.stats import ScoreSet
from gmip.stats.reference_models import LogMean, blended, log_probabilities, ranks_among
from gmip.tasks import Task
from gmip.trace import Trace

__all__ = ["RMIA"]

Array = NDArray[np.float64]
_LEAST: Final = float(np.log(np.nextafter(0.0, 1.0)))  # log of the least probability that a float64 holds


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
    ratios can be compared. Those of non-members and of the population are computed alike, each from as many models, so
    that the p-value of a candidate drawn as the background was is valid up to shadow models being unlike the released
    model in its records. Online, p-values therefore do not follow the order of the scores.
    """

    online: bool = True
    offline_scale: float = 0.3

    name: ClassVar[str] = "rmia"
    title: ClassVar[str] = "RMIA (Zarifzadeh et al. 2024)"
    needs: ClassVar[frozenset[Need]] = frozenset({"query", "loss", "population", "labels", "shadows"})

    def __post_init__(self) -> None:
        object.__setattr__(self, "offline_scale", check.probability("offline_scale", self.offline_scale))

    def signals(self) -> tuple[Signal, ...]:
        """What it asks of each shadow model."""
        return (Confidence(),)

    def _score(self, task: Task, trace: Trace, who: Parties, progress: Work) -> ScoreSet:
        signal = Confidence()
        found = self._seen(task, trace, who, signal, progress)
        c, z = len(found.candidates), len(found.population)
        inside, outside, others = LogMean(c), LogMean(c), LogMean(z)
        for model in found.shadows:
            part = model.signal(signal.key)
            log_p = _log_p(part[0])
            inside.add(log_p, model.inside)
            outside.add(log_p, ~model.inside)
            if part[1] is not None and z:
                others.add(_log_p(part[1]), ~twins(model.inside, z))
        for count, is_inside in ([(inside.count, True)] if self.online else []) + [(outside.count, False)]:
            self._check_counts(
                found.shadows.candidates, count, inside=is_inside, needed=1, spread=False, online=self.online
            )
        without = _log_p(found.candidates) - blended(outside.value, self.offline_scale)
        scores = without
        if self.online:
            scores = _log_p(found.candidates) - (np.logaddexp(inside.value, outside.value) - np.log(2.0))
        ratios = _log_p(found.population) - blended(others.value, self.offline_scale)
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
    return np.maximum(log_probabilities(phi[:, 0]), _LEAST)
