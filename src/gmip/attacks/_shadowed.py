"""What LiRA and RMIA begin with: the target's confidences, and a shadow set that holds those of the shadow models."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gmip.attacks.base import Parties, Progress
from gmip.attacks.shadow import Shadows, ShadowSet, shadow_set
from gmip.attacks.signals import Confidence
from gmip.attacks.target import target_model
from gmip.tasks.task import Task
from gmip.trace import Trace

__all__ = ["Seen", "seen"]

Array = NDArray[np.float64]


class Seen(NamedTuple):
    """Candidates are in the order of their ids, so that nothing depends on the order in which they were asked about.

    Attributes
    ----------
    ids : the candidates as asked, shape (c,); ids = shadows.candidates[back].
    back : shape (c,).
    candidates, population : the target's confidences, shapes (c, 1 + k) and (z, 1 + k) for k augmentations.
    shadows : the shadow models.
    """

    ids: NDArray[np.int64]
    back: NDArray[np.int64]
    candidates: Array
    population: Array
    shadows: ShadowSet


def seen(
    task: Task,
    trace: Trace,
    who: Parties,
    signal: Confidence,
    *,
    shadows: Shadows,
    device: str,
    progress: Progress | None,
) -> Seen:
    """The target is looked at first: what is wrong with it is told before anything is trained."""
    ids = np.sort(who.ids)
    model = target_model(task, trace, device=device)
    own = signal(task, model, task.pool[ids])
    models = shadow_set(task, trace, ids, who.background, (signal,), shadows, progress=progress)
    return Seen(who.ids, np.searchsorted(ids, who.ids), own, signal(task, model, models.population), models)
