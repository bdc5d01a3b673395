"""From a recipe to the run that the accountant knows, and to the least noise for a target."""

from __future__ import annotations

from typing import Any

from gmip.accounting.calibrate import calibrate
from gmip.accounting.mechanism import NoisySGD
from gmip.tasks.base import Recipe

__all__ = ["run_of", "with_least_noise"]


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
