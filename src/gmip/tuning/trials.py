"""One trial: calibrate a recipe to the target, train it, measure how good the model is."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from gmip._progress import Watch, silent
from gmip.attacks.gradients import evaluating
from gmip.errors import Diverged, UnreachableTarget
from gmip.parallel import JobRunner
from gmip.store import Store
from gmip.tasks.task import Task
from gmip.training.loop import fit, initial_model
from gmip.training.models import count_params
from gmip.tuning.least_noise import calibrated, exposure
from gmip.tuning.model_metrics import Metric, measure
from gmip.tuning.search_records import On, SearchRecords, search_records
from gmip.vocabulary import PrivacyTarget, Recipe

__all__ = [
    "Calibration",
    "Outcome",
    "Piece",
    "Training",
    "Trial",
    "TrialRunner",
    "TrialWork",
    "num_params_of",
    "train_once",
    "trial",
]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A recipe as it was tried.

    recipe : calibrated, for the members of the run to come.
    exposure : of the recipe, measured as the target is (TPR at its FPR, mu, ...).
    metric : on records that were not trained on, the higher the better; NaN if training diverged.
    trained_on : how many records.
    """

    recipe: Recipe
    num_params: int
    seed: int
    exposure: float
    metric: float
    trained_on: int

    @property
    def noise_std(self) -> float:
        """The standard deviation of the noise on the batch MEAN."""
        return self.recipe.noise_std


def num_params_of(task: Task) -> int:
    """d, the trainable parameters of the task's model."""
    return count_params(initial_model(task, 0, checked=False))


def trial(
    task: Task,
    recipe: Recipe,
    target: PrivacyTarget | None,
    *,
    seed: int,
    split_seed: int = 0,
    metric: Metric = "accuracy",
    on: On = "outsiders",
    num_params: int | None = None,
) -> Trial:
    """Train the recipe with the least noise that keeps the target, once, and measure the model.

    Parameters
    ----------
    target : None trains the recipe with the noise that it has; then `exposure` is NaN.
    seed : of weights, batches and noise, and of who is trained and measured on.
    split_seed : of `task.split`, which says who will be a member and so is not trained on.
    on : see `search_records`. With "members" the trial itself is a run on the members: it adds to what they give away.
    num_params : of the model, where it is known.

    Raises
    ------
    UnreachableTarget : no noise keeps the target.
    """
    params = num_params_of(task) if num_params is None else num_params
    claimed = math.nan
    if target is not None:
        recipe = calibrated(recipe, params, target)
        claimed = exposure(recipe, params, target)
    records = search_records(task, recipe.dataset_size, seed=seed, split_seed=split_seed, on=on)
    return Trial(
        recipe=recipe,
        num_params=params,
        seed=seed,
        exposure=claimed,
        metric=train_once(task, recipe, records, seed=seed, metric=metric),
        trained_on=len(records.train),
    )


def train_once(task: Task, recipe: Recipe, records: SearchRecords, *, seed: int, metric: Metric) -> float:
    """The metric of one model, trained on these records with the noise that the recipe has; NaN if it diverged."""
    try:
        model = fit(task, records.recipe(recipe), records.train, seed=seed)
    except Diverged:
        return math.nan
    return measure(metric, task, model, records.validation)


# -- the pieces of a search -------------------------------------------------------------------------------------------


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
    """A calibration has noise_std (NaN: no noise keeps the target) and its exposure; a training has its metric
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
        """A name for the piece, such as "the training of 40 steps"."""
        return f"the {type(job).__name__.lower()} of {job.recipe.num_steps} steps"

    def compute(self, job: Piece) -> Outcome:
        begun = time.perf_counter()
        found = self._calibrated(job) if isinstance(job, Calibration) else self._trained(job)
        return dataclasses.replace(found, seconds=time.perf_counter() - begun)

    def _calibrated(self, job: Calibration) -> Outcome:
        try:
            recipe = calibrated(job.recipe, self.num_params, job.target)
        except UnreachableTarget:
            return Outcome()
        return Outcome(noise_std=recipe.noise_std, exposure=exposure(recipe, self.num_params, job.target))

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


class TrialRunner:
    """Computes pieces, and keeps each on disk the moment it is ready; a piece that is kept is not computed again.

    Parameters
    ----------
    runner : who computes.
    store : for outcomes; its facts are all that they depend on beside the piece itself.
    """

    def __init__(self, runner: JobRunner[Piece, Outcome], store: Store) -> None:
        self._crew, self._store = runner, store
        self._known: dict[str, Outcome] = {}  # by the text of a piece, which cannot be hashed
        self.computed = 0  # by this process, not found on disk

    @property
    def workers(self) -> int:
        return self._crew.size

    def outcomes(self, pieces: Sequence[Piece], stage: str, watch: Watch = silent) -> list[Outcome]:
        """One for each piece; equal pieces are computed once. `watch` hears of the stage if there is work to do."""
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
