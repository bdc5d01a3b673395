"""The loss attack: members have been fitted, so their loss is lower."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gmip._progress import Progress
from gmip.attacks.attack import Attack, Need, Parties, RunTraits
from gmip.attacks.signals import losses, released_model
from gmip.stats import ScoreSet
from gmip.tasks import Task
from gmip.trace import Trace

__all__ = ["Loss"]


@dataclass(frozen=True, kw_only=True)
class Loss(Attack):
    """Score = minus the loss of the candidate under the trained model (Yeom et al. 2018).

    Nothing is trained and no background is used. A record that is hard for any model looks like a non-member and an
    easy one like a member, which costs most at low false-positive rates; LiRA and RMIA correct that by shadow models.

    Parameters
    ----------
    device : where the model is evaluated.
    """

    device: str = "cpu"

    name: ClassVar[str] = "loss"
    title: ClassVar[str] = "Loss (Yeom et al. 2018)"
    needs: ClassVar[frozenset[Need]] = frozenset({"query", "loss", "labels"})

    @classmethod
    def runs_by_default(cls, runs: Sequence[RunTraits]) -> bool:
        """Always."""
        return True

    def _score(self, task: Task, trace: Trace, who: Parties, progress: Progress) -> ScoreSet:
        model = released_model(task, trace, device=self.device)
        found = who.by_id(lambda examples: losses(task, model, examples))
        progress(len(found), len(found))
        limit = np.finfo(np.float64).max  # a score is finite, a loss need not be
        return ScoreSet(ids=who.ids, scores=-np.clip(found, -limit, limit), attack=self.name)
