"""Each notion gets its best recipe: the search behind the experiment `value`, for one data set and number of members.

Half of the pool serves to find features and recipes, the other half to report. Where more members are asked for than
that half holds, they are drawn from the whole pool: the choice of the recipe has then seen members, which changes no
accuracy (the test records are others) but is not covered by the accounting.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gmip._random import Stream
from gmip.accounting.calibrate import calibrate
from gmip.tasks.task import Examples, Task
from gmip.tuning import SearchRecords
from gmip.tuning.search_space import calibrated
from gmip.vocabulary import NoisySGD, PrivacyTarget, Recipe, Sampling
from reproduction.linear_heads import Ladder, contrasts, rungs, train_heads, train_ladder

FPR: Final = 0.01
_VALIDATION, _MOST_VALIDATION = 0.25, 5_000  # share of the records to tune on that is measured on, and the most of them
_MOST_MEASURED: Final = 3_000  # records whose susceptibilities are measured
_FLAT: Final = 1.0e-9  # eigenvalues below this share of the largest are rounding
_MANY: Final = 1_000_000
_TUNING_SEED: Final = 1_000  # the first: those of reported runs are small
CONSTANTS: Final = {"validation": [_VALIDATION, _MOST_VALIDATION], "measured": _MOST_MEASURED}


@dataclass(frozen=True, kw_only=True)
class Arm:
    """An arm of the study: keywords of `PrivacyTarget`, how batches may be drawn, and how full ones are accounted."""

    keywords: Mapping[str, Any] = field(default_factory=dict)
    samplings: tuple[Sampling, ...] = ("poisson", "fixed")
    full: tuple[Sampling, ...] = ("poisson", "full")

    @property
    def notion(self) -> str:
        return str(self.keywords.get("notion", "gmip"))

    @property
    def known(self) -> float:
        """The share of the others that the attacker holds."""
        return float(self.keywords.get("attacker_knows", 0.0))


# Poisson batches need half the noise of fixed ones: nobody is in the place of a record that is left out. If all records
# are in every batch, either noise alone hides one (Poisson batches with n = N), or the unknown others help ("full").
TUNED: Final = {
    "gmip": Arm(),
    "half": Arm(keywords={"attacker_knows": 0.5}),
    "gdp": Arm(keywords={"notion": "gdp"}),
    "gmip-fixed": Arm(samplings=("fixed",), full=("full",)),
    "gdp-fixed": Arm(keywords={"notion": "gdp"}, samplings=("fixed",), full=("full",)),
}


class Features(NamedTuple):
    """The records as some principal components of the half that serves for tuning, of mean square norm 1 there."""

    num_params: int
    tuning: Examples
    members: Examples  # to draw them from
    test: Examples


class Grid(NamedTuple):
    """What is tried: components kept, shares of the members in a batch, steps, clipping norms, and how far a step moves
    at most (learning rate times clipping norm)."""

    components: tuple[int, ...]
    shares: tuple[float, ...]
    steps: tuple[int, ...]
    clip_norms: tuple[float, ...]
    moves: tuple[float, ...]
    rungs: int
    tuning_seeds: int


class ChosenRecipe(NamedTuple):
    """A recipe with its noise, and what it is expected to reach; ``target` None: whatever it gives."""

    arm: str
    target: float | None
    components: int
    recipe: Recipe
    expected: float
    privacy: PrivacyTarget


def project(task: Task, components: int, dataset_size: int) -> Features:
    """Principal components by the half of the pool that serves for tuning."""
    order = np.random.default_rng(0).permutation(len(task.pool))
    half = len(task.pool) // 2
    tuning = task.pool[order[:half]]
    members = task.pool[order[half:]] if dataset_size <= len(task.pool) - half else task.pool
    raw: Any = tuning.inputs
    mean = raw.double().mean(0)
    centred = raw.double() - mean
    _, vectors = torch.linalg.eigh(centred.T @ centred)
    kept = vectors[:, -components:]
    scale = (centred @ kept).square().sum(1).mean().sqrt()

    def seen(examples: Examples) -> Examples:
        inputs: Any = examples.inputs
        return Examples(((inputs.double() - mean) @ kept / scale).float(), examples.targets)

    classes = int(task.pool.targets.max()) + 1
    params = (classes - 1) * (kept.shape[1] + 1)
    return Features(params, seen(tuning), seen(members), seen(task.test))


class Search:
    """Ladders of one task and number of members, and the choices that they give."""

    def __init__(self, task: Task, dataset_size: int, grid: Grid, targets: Sequence[float]) -> None:
        self.size, self.grid, self.targets = dataset_size, grid, tuple(targets)
        self.classes = int(task.pool.targets.max()) + 1
        self.basis = contrasts(self.classes)
        self.features = {c: project(task, c, dataset_size) for c in grid.components}
        self._ladders = [(c, share, self._ladder(c, share)) for c in grid.components for share in grid.shares]

    @property
    def seen_members(self) -> bool:
        """Whether some members may have served for tuning."""
        first = next(iter(self.features.values()))
        return len(first.members) > len(first.tuning) + 1

    def recipes(self, share: float) -> list[Recipe]:
        """Without noise."""
        batch = max(1, round(self.size * share))
        return [
            Recipe(
                dataset_size=self.size,
                batch_size=batch,
                num_steps=steps,
                learning_rate=move / clip_norm,
                clip_norm=clip_norm,
                sampling="full" if batch == self.size else "poisson",
            )
            for steps in self.grid.steps
            for clip_norm in self.grid.clip_norms
            for move in self.grid.moves
        ]

    def _ladder(self, components: int, share: float) -> Ladder:
        recipes = self.recipes(share)
        asked = [
            self._estimate(arm, target, components, recipe)[0]
            for arm in TUNED
            for target in self._targets_of(arm)
            for recipe in {r.num_steps: r for r in recipes}.values()
        ]
        seeds = range(_TUNING_SEED, _TUNING_SEED + self.grid.tuning_seeds)
        records = [self.records(components, seed) for seed in seeds]
        steps = rungs(asked, self.grid.rungs)
        return train_ladder(records, recipes, steps, seeds=seeds, classes=self.classes, basis=self.basis)

    def _targets_of(self, arm: str) -> tuple[float, ...]:
        """Fixed batches are looked at for the middle target alone."""
        return self.targets if "poisson" in TUNED[arm].samplings else (self.middle,)

    @property
    def middle(self) -> float:
        return self.targets[len(self.targets) // 2]

    def records(self, components: int, seed: int) -> SearchRecords:
        """To train and to measure on, of the half that serves for tuning."""
        tuning = self.features[components].tuning
        order = Stream.MEMBERS.rng(seed).permutation(len(tuning))
        trained = min(self.size, len(tuning) - int(np.ceil(_VALIDATION * len(tuning))))
        return SearchRecords(tuning[order[:trained]], tuning[order[trained : trained + _MOST_VALIDATION]])

    def _estimate(self, arm: str, target: float, components: int, recipe: Recipe) -> tuple[float, Sampling]:
        """About the noise multiplier that a recipe needs, and how its batches are best drawn: for the choice alone."""
        settings, share = TUNED[arm], recipe.batch_size / self.size
        params = self.features[components].num_params
        drawn = settings.full if recipe.sampling == "full" else settings.samplings
        found: list[tuple[float, Sampling]] = []
        for sampling in drawn:
            alone = _noise_alone(share, recipe.num_steps, target, settings.notion, sampling)
            hidden = 0.0
            if settings.notion == "gmip" and sampling == "full":
                hidden = 4.0 * (1.0 - settings.known) * self.size / params
            elif settings.notion == "gmip":  # noise and data randomness add up: docs/theory/one-step.md
                reach = 1.0 if sampling == "poisson" else 4.0
                hidden = reach * (1.0 - settings.known) * recipe.batch_size * (1.0 - share) / (params + 1.0)
            found.append((math.sqrt(max(alone**2 - hidden, 0.0)), sampling))
        return min(found)

    def _chosen(
        self, arm: str, target: float, components: int, recipe: Recipe, accuracy: float, **more: Any
    ) -> ChosenRecipe:
        """The recipe with the noise that it needs, exactly."""
        wanted = PrivacyTarget(target_tpr=(target, FPR), **more)
        # For differential privacy the number of parameters plays no part: noise found for one is found for all.
        params = 1 if wanted.notion == "gdp" else self.features[components].num_params
        return ChosenRecipe(arm, target, components, calibrated(recipe, params, wanted), accuracy, wanted)

    def chosen(self) -> list[ChosenRecipe]:
        """The best recipe of each tuned arm and target, and the best one without noise."""
        found = [self._quiet()]
        for arm in TUNED:
            found += [self._best(arm, target) for target in self._targets_of(arm)]
        return found

    def _best(self, arm: str, target: float) -> ChosenRecipe:
        reached: list[tuple[float, int, Recipe]] = []
        for components, _, ladder in self._ladders:
            accuracy, recipe = ladder.best(lambda r, c=components: self._estimate(arm, target, c, r)[0])  # type: ignore[misc]
            reached.append((accuracy, components, recipe))
        accuracy, components, recipe = max(reached, key=lambda each: each[0])
        drawn = self._estimate(arm, target, components, recipe)[1]
        return self._chosen(arm, target, components, recipe.replace(sampling=drawn), accuracy, **TUNED[arm].keywords)

    def _quiet(self) -> ChosenRecipe:
        reached = [(*ladder.best(lambda r: 0.0), c) for c, _, ladder in self._ladders]
        accuracy, recipe, components = max(reached, key=lambda each: each[0])
        return ChosenRecipe("none", None, components, recipe, accuracy, PrivacyTarget(target_tpr=(self.middle, FPR)))

    def again(self, chosen: ChosenRecipe, arm: str, **keywords: Any) -> ChosenRecipe:
        """The same recipe with the noise that another arm needs."""
        assert chosen.target is not None
        return self._chosen(arm, chosen.target, chosen.components, chosen.recipe, chosen.expected, **keywords)

    def measured(self, chosen: ChosenRecipe) -> NDArray[np.float64]:
        """Susceptibilities of records that serve for tuning, under a recipe: the larger of those half-way and at the
        end."""
        recipe = chosen.recipe
        records = self.records(chosen.components, _TUNING_SEED)
        ends = [recipe.replace(num_steps=max(1, steps)) for steps in (recipe.num_steps // 2, recipe.num_steps)]
        heads = train_heads(
            records.train, list(map(records.recipe, ends)), seed=_TUNING_SEED, classes=self.classes, basis=self.basis
        )
        some = records.train[slice(_MOST_MEASURED)]
        assert recipe.clip_norm is not None
        found = [susceptibilities(heads.gradients(some, i, recipe.clip_norm)) for i in range(2)]
        return np.maximum(*found)

    def reported(self, chosen: Sequence[ChosenRecipe], seed: int) -> NDArray[np.float64]:
        """Test accuracies of these recipes, shape (chosen,), trained on the members of that seed."""
        groups: dict[Any, list[int]] = {}
        for place, one in enumerate(chosen):
            groups.setdefault((one.components, one.recipe.batch_size, one.recipe.sampling), []).append(place)
        accuracies = np.zeros(len(chosen))
        for (components, _, _), places in groups.items():
            features = self.features[components]
            rows = Stream.MEMBERS.rng(seed).permutation(len(features.members))[: self.size]
            heads = train_heads(
                features.members[rows],
                [chosen[place].recipe for place in places],
                seed=seed,
                classes=self.classes,
                basis=self.basis,
            )
            accuracies[places] = heads.accuracy(features.test)
        return accuracies


def susceptibilities(gradients: Tensor) -> NDArray[np.float64]:
    """K of each record against the covariance of all of them, shape (n,): their mean is its rank, exactly."""
    centred = (gradients - gradients.mean(0)).double()
    tall = centred.shape[0] > centred.shape[1]
    values, vectors = torch.linalg.eigh(centred.T @ centred if tall else centred @ centred.T)
    kept = values > _FLAT * values[-1]
    scores = (centred @ vectors[:, kept]).square() / values[kept] if tall else vectors[:, kept].square()
    return np.asarray(len(centred) * scores.sum(1).numpy(), dtype=np.float64)


@lru_cache(maxsize=1024)
def _noise_alone(share: float, steps: int, target: float, notion: str, sampling: Sampling) -> float:
    """The noise multiplier that a large run needs without data randomness; for other sizes it is about the same."""
    run = NoisySGD(
        dataset_size=_MANY,
        batch_size=max(1, round(share * _MANY)),
        num_steps=steps,
        num_params=1,
        clip_norm=1.0,
        sampling=sampling,
    )
    whose: dict[str, Any] = {"notion": "gdp"} if notion == "gdp" else {"attacker_knows": 1.0}
    noisy = calibrate(run, target_tpr=(target, FPR), **whose)
    return noisy.noise_std * noisy.batch_size


def multiplier(recipe: Recipe) -> float:
    """Opacus' noise multiplier."""
    assert recipe.clip_norm is not None
    return recipe.noise_std * recipe.batch_size / recipe.clip_norm
