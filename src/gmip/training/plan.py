"""From a recipe to the run that the accountant knows, and to the least noise for a target."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from gmip.accounting.calibrate import calibrate
from gmip.accounting.mechanism import NoisySGD
from gmip.errors import InvalidArgument, TraceMismatch
from gmip.tasks.base import Recipe, Task
from gmip.trace import Trace

__all__ = ["recipe_of", "run_of", "with_least_noise"]

_FIELDS = tuple(field.name for field in dataclasses.fields(Recipe))


def run_of(recipe: Recipe, num_params: int) -> NoisySGD:
    """What the accountant is asked about; shuffled epochs on the safe side (`NoisySGD.shuffled`)."""
    sizes: dict[str, Any] = {
        "dataset_size": recipe.dataset_size,
        "batch_size": recipe.batch_size,
        "num_steps": recipe.num_steps,
        "num_params": num_params,
        "clip_norm": recipe.clip_norm,
        "noise_std": recipe.noise_std,
    }
    if recipe.sampling == "shuffled":
        return NoisySGD.shuffled(**sizes)
    return NoisySGD(**sizes, sampling=recipe.sampling)


def with_least_noise(recipe: Recipe, num_params: int, **target: Any) -> Recipe:
    """The recipe with the least noise that meets a target: target_mu, target_tpr or target_advantage, and the other
    keywords of `gmip.calibrate`."""
    return recipe.replace(noise_std=calibrate(run_of(recipe, num_params), **target).noise_std)


def recipe_of(task: Task, trace: Trace) -> Recipe:
    """How the run of a trace was trained: as `gmip.train` wrote it down, else the task's recipe, if the trace agrees.

    A loop of the user's own records sizes, sampling, clipping and noise. The task's recipe must say the same of these;
    optimizer and learning rate cannot be compared.
    """
    known = trace.header.recipe
    if known.get("task", task.name) != task.name:
        raise TraceMismatch(
            f"{trace.path} is a run of task {known['task']!r}, not of {task.name!r}: pass the run's own task."
        )
    written = {name: known[name] for name in _FIELDS if name in known}
    if len(written) == len(_FIELDS):
        try:
            return Recipe(**written)
        except (InvalidArgument, TypeError) as error:
            raise TraceMismatch(f"{trace.path} has a recipe that cannot be used ({error}): record it again.") from error
    recipe = task.recipe
    seen: dict[str, Any] = {
        "dataset_size": trace.header.dataset_size,
        "batch_size": trace.header.batch_size,
        "sampling": trace.header.sampling,
        "clip_norm": trace.header.clip_norm,
        "num_steps": trace.num_steps,
    } | written
    if trace.infos:
        seen["noise_std"] = max(info.noise_std for info in trace.infos)
    for name, value in seen.items():
        ours = getattr(recipe, name)
        near = isinstance(value, float) and isinstance(ours, float) and math.isclose(value, ours, rel_tol=1.0e-6)
        if value != ours and not near:
            raise TraceMismatch(
                f"{trace.path} was trained with {name} = {value!r} and the recipe of task {task.name!r} says {ours!r}: "
                "give the task the recipe of the run."
            )
    return recipe
