"""The pieces of a search, which any process can compute: noise of a recipe's sizes, and trainings."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from gmip._progress import Watch, silent
from gmip.attacks.model_pass import evaluating
from gmip.errors import Diverged, UnreachableTarget
from gmip.parallel import Crew
from gmip.store import Store
from gmip.tasks.task import Task
from gmip.training.loop import fit
from gmip.tuning.model_metrics import Metric, measure
from gmip.tuning.privacy_target import PrivacyTarget
from gmip.tuning.search_records import On, search_records
from gmip.vocabulary import Recipe

__all__ = ["Calibration", "Outcome", "Piece", "Pieces", "Training", "TrialWork"]


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A piece: the least noise of a recipe."""

    recipe: Recipe
    target: PrivacyTarget


@dataclass(frozen=True, kw_only=True)
class Training:
    """A piece: train the recipe with the noise that it has. It ends half-way if the metric is below `least` then.

    tested : measure on the task's test records, too, which no choice depends on.
    """

    recipe: Recipe
    seed: int
    least: float = -math.inf
    tested: bool = False


Piece = Calibration | Training


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Of a calibration: noise_std (NaN: no noise keeps the target) and the exposure promised. Of a training: metric
    (NaN: diverged), `test` if asked for, and whether it was ended half-way."""

    noise_std: float = math.nan
    exposure: float = math.nan
    metric: float = math.nan
    test: float = math.nan
    stopped: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class TrialWork:
    """What all pieces share."""

    task: Task
    num_params: int
    metric: Metric
    split_seed: int
    on: On

    @property
    def name(self) -> str:
        return f"Task {self.task.name!r}"

    def title(self, job: Piece) -> str:
        """As in "the training of 40 steps"."""
        return f"the {type(job).__name__.lower()} of {job.recipe.num_steps} steps"

    def compute(self, job: Piece) -> Outcome:
        begun = time.perf_counter()
        found = self._calibrated(job) if isinstance(job, Calibration) else self._trained(job)
        return dataclasses.replace(found, seconds=time.perf_counter() - begun)

    def _calibrated(self, job: Calibration) -> Outcome:
        try:
            recipe = job.target.calibrated(job.recipe, self.num_params)
        except UnreachableTarget:
            return Outcome()
        return Outcome(noise_std=recipe.noise_std, exposure=job.target.exposure(recipe, self.num_params))

    def _trained(self, job: Training) -> Outcome:
        recipe, seed = job.recipe, job.seed
        records = search_records(self.task, recipe.dataset_size, seed=seed, split_seed=self.split_seed, on=self.on)
        early = math.inf

        def good_enough(model: nn.Module) -> bool:
            nonlocal early
            with evaluating(model):
                early = measure(self.metric, self.task, model, records.validation)
            return early >= job.least

        asked = good_enough if math.isfinite(job.least) else None
        try:
            model = fit(self.task, records.recipe(recipe), records.train, seed=seed, go_on=asked)
        except Diverged:
            return Outcome()
        if not early >= job.least:  # NaN, too: the model is half-trained
            return Outcome(metric=early, stopped=True)
        metric = measure(self.metric, self.task, model, records.validation)
        test = measure(self.metric, self.task, model, self.task.test) if job.tested else math.nan
        return Outcome(metric=metric, test=test)


class Pieces:
    """Computes pieces, and keeps each on disk the moment it is ready; a piece that is kept is not computed again.

    Parameters
    ----------
    crew : who computes.
    store : for outcomes; its facts are all that they depend on beside the piece itself.
    """

    def __init__(self, crew: Crew[Piece, Outcome], store: Store) -> None:
        self._crew, self._store = crew, store
        self._known: dict[str, Outcome] = {}  # by the text of a piece, which cannot be hashed
        self.computed = 0  # by this process, not found on disk

    @property
    def workers(self) -> int:
        return self._crew.size

    def outcomes(self, pieces: Sequence[Piece], stage: str, watch: Watch = silent) -> list[Outcome]:
        """One for each piece; equal pieces are computed once. `watch` is told of the stage if there is work to do."""
        unique = {repr(piece): piece for piece in pieces}
        missing = [piece for piece in unique.values() if not self._find(piece)]
        if not missing:
            return [self._known[repr(piece)] for piece in pieces]
        total, done, progress = len(unique), len(unique) - len(missing), watch(stage)

        def take(piece: Piece, outcome: Outcome) -> None:
            nonlocal done
            done += 1
            self.computed += 1
            self._known[repr(piece)] = outcome
            self._store.put(_key(piece), fields=dataclasses.asdict(outcome))
            progress(done, total)

        self._crew.compute(missing, take)
        return [self._known[repr(piece)] for piece in pieces]

    def _find(self, piece: Piece) -> bool:
        if repr(piece) not in self._known:
            found = self._store.get(_key(piece))
            if found is not None:
                self._known[repr(piece)] = Outcome(**found.fields)
        return repr(piece) in self._known


def _key(piece: Piece) -> dict[str, Any]:
    return {"kind": type(piece).__name__, "piece": dataclasses.asdict(piece)}
