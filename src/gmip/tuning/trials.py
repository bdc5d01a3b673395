"""One trial: calibrate a recipe to the target, train it, measure how good the model is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gmip.errors import Diverged
from gmip.tasks.task import Task
from gmip.training.loop import fit, initial_model
from gmip.training.models import count_params
from gmip.tuning.model_metrics import Metric, measure
from gmip.tuning.privacy_target import PrivacyTarget
from gmip.tuning.search_records import On, SearchRecords, search_records
from gmip.vocabulary import Recipe

__all__ = ["Trial", "num_params_of", "train_once", "trial"]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A recipe as it was tried.

    recipe : calibrated, for the members of the run to come.
    exposure : what it promises, measured as the target is (TPR at its FPR, mu, ...).
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
        """Of the noise on the batch MEAN."""
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
    exposure = math.nan
    if target is not None:
        recipe = target.calibrated(recipe, params)
        exposure = target.exposure(recipe, params)
    records = search_records(task, recipe.dataset_size, seed=seed, split_seed=split_seed, on=on)
    return Trial(
        recipe=recipe,
        num_params=params,
        seed=seed,
        exposure=exposure,
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
