"""Attacks that compare the released model with shadow models."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gmip.attacks.attack import Attack, Parties
from gmip.attacks.shadow import Shadows, ShadowSet, Signal, shadow_set
from gmip.attacks.signals import Confidence, released_model
from gmip.attacks.work import Work
from gmip.errors import GmipWarning, InvalidArgument
from gmip.stats.scores import Fact
from gmip.tasks import Examples, Task
from gmip.trace import Trace

__all__ = ["Seen", "ShadowAttack", "twins"]

Array = NDArray[np.float64]


class Seen(NamedTuple):
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


def twins(inside: NDArray[np.bool_], population: int) -> NDArray[np.bool_]:
    """For each population record the membership of a candidate, shape (population,): models of which it is compared as
    many as of candidates, since a mean over more of them would vary less."""
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

    def _seen(self, task: Task, trace: Trace, who: Parties, signal: Confidence, work: Work) -> Seen:
        """The released model is evaluated first: what is wrong with it is said before anything is trained."""
        ids = np.sort(who.ids)
        model = released_model(task, trace, device=self.device)
        own = signal(task, model, task.pool[ids])
        models = self._models(task, trace, ids, who.background, signal, work)
        return Seen(who.ids, np.searchsorted(ids, who.ids), own, signal(task, model, models.population), models)

    def _models(
        self, task: Task, trace: Trace, ids: NDArray[np.int64], background: Examples, signal: Signal, work: Work
    ) -> ShadowSet:
        """The shadow models, or those that there was time for, with a warning."""
        models = shadow_set(
            task, trace, ids, background, (signal,), self.shadows, progress=work.progress, budget=work.budget
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
