"""The best recipe for any amount of noise, from models trained at a few amounts.

Accuracy depends on a privacy target only through the noise that it needs. So recipes are trained once on a ladder of
noise multipliers, on records that serve for this alone; each target reads off what the recipes would give with the
noise that it asks of them, and takes the best. The chosen one is trained again, with its exact noise, on others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from gmip.reproduce.linear_heads import train_heads
from gmip.tuning import SearchRecords
from gmip.vocabulary import Recipe

__all__ = ["Ladder", "climb", "rungs", "susceptibilities", "with_multiplier"]

_FLAT: Final = 1.0e-9  # eigenvalues below this share of the largest are rounding


class Ladder:
    """Accuracies of recipes (which have no noise of their own) at the noise multipliers of the rungs.

    steps : the rungs, increasing, from 0, shape (m,); accuracies : shape (recipes, m).
    """

    def __init__(self, recipes: Sequence[Recipe], steps: Sequence[float], accuracies: ArrayLike) -> None:
        self.recipes, self.steps = list(recipes), np.asarray(steps, dtype=np.float64)
        self.accuracies = np.asarray(accuracies, dtype=np.float64)

    def best(self, multiplier: Callable[[Recipe], float | None]) -> tuple[float, Recipe]:
        """The highest accuracy of a recipe with the noise that it needs (None: it cannot be taken), and the recipe.

        By linear interpolation; beyond the last rung, as there.
        """
        needed = [multiplier(recipe) for recipe in self.recipes]
        reached = [
            -np.inf if asked is None else float(np.interp(asked, self.steps, row))
            for asked, row in zip(needed, self.accuracies, strict=True)
        ]
        place = int(np.argmax(reached))
        return reached[place], self.recipes[place]


def rungs(multipliers: Sequence[float], count: int) -> list[float]:
    """0, and `count` - 1 multipliers spread evenly in the logarithm over those that will be asked for."""
    asked = [m for m in multipliers if m > 0.0]
    if not asked:
        return [0.0, 1.0]
    low, high = min(asked), max(asked)
    return [0.0, *np.geomspace(low, max(high, 1.001 * low), count - 1).tolist()]


def with_multiplier(recipe: Recipe, multiplier: float) -> Recipe:
    """The recipe with noise given as Opacus gives it: of standard deviation multiplier times C on the SUM."""
    assert recipe.clip_norm is not None
    return recipe.replace(noise_std=multiplier * recipe.clip_norm / recipe.batch_size)


def climb(
    records: Sequence[SearchRecords],
    recipes: Sequence[Recipe],
    steps: Sequence[float],
    *,
    seeds: Sequence[int],
    classes: int,
    basis: Tensor | None = None,
    initial: Callable[[int], tuple[Tensor, Tensor]] | None = None,
) -> Ladder:
    """Train every recipe at every rung: one run for each seed, on its own records.

    recipes : those that can be trained together (`train_heads`).
    """
    noisy = [with_multiplier(recipe, step) for recipe in recipes for step in steps]
    found = np.zeros((len(recipes), len(steps)))
    for seed, mine in zip(seeds, records, strict=True):
        heads = train_heads(
            mine.train,
            [mine.recipe(recipe) for recipe in noisy],
            seed=seed,
            classes=classes,
            basis=basis,
            initial=None if initial is None else initial(seed),
        )
        found += heads.accuracy(mine.validation).reshape(found.shape) / len(seeds)
    return Ladder(recipes, steps, found)


def susceptibilities(gradients: Tensor) -> NDArray[np.float64]:
    """K of each record against the covariance of all of them, shape (n,): their mean is its rank, exactly."""
    centred = (gradients - gradients.mean(0)).double()
    tall = centred.shape[0] > centred.shape[1]
    values, vectors = torch.linalg.eigh(centred.T @ centred if tall else centred @ centred.T)
    kept = values > _FLAT * values[-1]
    scores = (centred @ vectors[:, kept]).square() / values[kept] if tall else vectors[:, kept].square()
    return np.asarray(len(centred) * scores.sum(1).numpy(), dtype=np.float64)
