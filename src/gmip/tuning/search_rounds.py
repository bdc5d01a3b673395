"""Where to look for a good recipe: an even start, then where a model of the trials expects the best, then a final.

All of it follows from the seed and the outcomes of pieces, in rounds: so a search that was interrupted, and one with
more workers, comes to the same answer.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from scipy.stats import qmc

from gmip._progress import Watch
from gmip._random import TuningStream
from gmip.errors import InvalidArgument, UnreachableTarget
from gmip.tuning.privacy_target import PrivacyTarget, noise_at
from gmip.tuning.search_space import Point, SearchSpace
from gmip.tuning.surrogate import Surrogate
from gmip.tuning.trial_work import Calibration, Outcome, Pieces, Training
from gmip.vocabulary import Recipe

__all__ = ["Schedule", "Search", "Tried"]

_ROUNDS: Final = 3
_APART: Final = 0.25  # finalists differ by about 30% in the clipping norm or the pace, or in something else
_CANDIDATES: Final = 512


@dataclass(frozen=True)
class Tried:
    """A training of the search: the recipe with its noise, what it promises, and what came out."""

    point: Point
    recipe: Recipe
    exposure: float
    seed: int
    outcome: Outcome

    @property
    def good(self) -> bool:
        return math.isfinite(self.outcome.metric)


@dataclass(frozen=True)
class Schedule:
    """How many trainings go into the parts of a search of `trials` in all."""

    trials: int

    @property
    def start(self) -> int:
        """Spread evenly, the second half of them with bad ones ended early."""
        return max(4, round(0.4 * self.trials))

    @property
    def round(self) -> int:
        """New recipes in each round after that."""
        return max(2, round(0.3 * self.trials / _ROUNDS))

    @property
    def finalists(self) -> int:
        """Recipes in the final, beside the task's own."""
        return 4 if self.trials >= 50 else 2

    @property
    def seeds(self) -> int:
        """Trainings of each finalist."""
        rest = self.trials - self.start - _ROUNDS * (self.round + 1)
        return max(2, rest // (self.finalists + 1))


class Search:
    """Looks for the recipe with the best metric among those that keep the target; `choose_sizes` comes first."""

    def __init__(
        self, space: SearchSpace, target: PrivacyTarget, pieces: Pieces, *, seed: int, own: Recipe, watch: Watch
    ) -> None:
        self.space, self.target, self.pieces, self.seed, self._watch = space, target, pieces, seed, watch
        self.own = own
        self.tried: list[Tried] = []

    # -- pieces -------------------------------------------------------------------------------------------------------

    def calibrated(self, recipes: Sequence[Recipe], target: PrivacyTarget) -> list[tuple[Recipe, float] | None]:
        """Each recipe with the least noise, and what it promises; None where no noise keeps the target."""
        plain = [r.replace(clip_norm=1.0, noise_std=0.0, **_IRRELEVANT) for r in recipes]
        found = self.pieces.outcomes([Calibration(recipe=r, target=target) for r in plain], "noise", self._watch)
        made: list[tuple[Recipe, float] | None] = []
        for recipe, one in zip(recipes, found, strict=True):
            noise = noise_at(recipe.clip_norm or 1.0, one.noise_std)
            made.append(None if math.isnan(noise) else (recipe.replace(noise_std=noise), one.exposure))
        return made

    def trial_seed(self, number: int) -> int:
        """Of the trials that belong to this number: equal for all recipes, which makes them comparable."""
        return TuningStream.TRIALS.torch_seed(self.seed, number)

    def _try(self, points: Sequence[Point], number: int, stage: str, least: float = -math.inf) -> None:
        calibrated = self.calibrated([self.space.recipe_at(point) for point in points], self.target)
        ready = [(point, *made) for point, made in zip(points, calibrated, strict=True) if made is not None]
        seed = self.trial_seed(number)
        jobs = [Training(recipe=recipe, seed=seed, least=least) for _, recipe, _ in ready]
        outcomes = self.pieces.outcomes(jobs, stage, self._watch)
        self.tried += [Tried(*made, seed, outcome) for made, outcome in zip(ready, outcomes, strict=True)]

    # -- the search ---------------------------------------------------------------------------------------------------

    def choose_sizes(self) -> None:
        """Batch size and sampling for each number of steps, by their noise alone: no training."""
        target = self.target
        if isinstance(target.susceptibility, str):  # which takes long: a typical record orders sizes as well
            target = dataclasses.replace(target, susceptibility=None)
        made = self.calibrated(self.space.sizes(), target)
        self.space = self.space.with_least_noise([None if one is None else one[0] for one in made])
        if not self.space.best:
            raise UnreachableTarget(
                f"{self.target.words} is kept by none of {len(made)} combinations of sizes and sampling, whatever the "
                "noise",
                remedy="ask for less, or for other sizes in `space`",
            )

    @cached_property
    def starts(self) -> list[Point]:
        """Where a search begins, in this order: the task's own recipe, then points spread evenly."""
        halton = qmc.Halton(self.space.dimension, rng=TuningStream.POINTS.rng(self.seed))
        return _distinct([self.space.place_of(self.own), *map(tuple, halton.random(_CANDIDATES).tolist())], self.space)

    def pilot(self, number: int) -> float:
        """Seconds of a training, its share of calibrations included, from the first few."""
        points = self.starts[:number]
        self._try(points, 0, "first trials")
        return float(np.mean([one.outcome.seconds for one in self.tried]))

    def run(self, schedule: Schedule) -> list[Tried]:
        """All rounds; the best recipe comes first in what is returned: one entry for each finalist, its last trial."""
        half = schedule.start // 2
        done = len(self.tried)
        if done < half:
            self._try(self.starts[done:half], 0, "an even start")
        done = max(done, half)
        self._try(self.starts[done : schedule.start], 0, "an even start, bad ones ended early", self._median())
        if not any(one.good for one in self.tried):
            raise InvalidArgument(
                f"is NaN or infinite for all {len(self.tried)} recipes that were tried",
                argument="metric",
                remedy="check that it is a number for this task, and that learning rates in `space` are not too large",
            )
        for number in range(1, _ROUNDS + 1):
            points = self._promising(schedule.round, number)
            self._try([*self._best(1), *points], number, f"round {number} of {_ROUNDS}", self._median())
        # The task's own recipe, which was tried first, is always in the final: a search should not do worse.
        finalists = list(dict.fromkeys([self.tried[0].point, *self._best(schedule.finalists, apart=_APART)]))
        for number in range(_ROUNDS + 1, _ROUNDS + 1 + schedule.seeds):
            self._try(finalists, number, f"final, {number - _ROUNDS} of {schedule.seeds}")
        last = {one.point: one for one in self.tried}
        return [last[point] for point in self._best(len(finalists), among=finalists)]

    def _median(self) -> float:
        values = [one.outcome.metric for one in self.tried if one.good]
        return float(np.median(values)) if values else -math.inf

    def _surrogate(self) -> Surrogate:
        worst = min(one.outcome.metric for one in self.tried if one.good)
        numbers = {seed: i for i, seed in enumerate(dict.fromkeys(one.seed for one in self.tried))}
        return Surrogate(
            self.space.features([one.point for one in self.tried]),
            np.array([numbers[one.seed] for one in self.tried]),
            np.array([one.outcome.metric if one.good else worst for one in self.tried]),
        )

    def _best(self, count: int, among: Sequence[Point] | None = None, apart: float = 0.0) -> list[Point]:
        """Tried recipes that the model of all trials thinks best, best first, at least `apart` from each other."""
        good = [one.point for one in self.tried if one.good and not one.outcome.stopped]
        points = list(dict.fromkeys(good)) if among is None else list(among)
        features = self.space.features(points)
        mean, _ = self._surrogate().predict(features)
        chosen: list[int] = []
        for i in np.argsort(-mean, kind="stable").tolist():
            if all(np.linalg.norm(features[i] - features[j]) >= apart for j in chosen) and len(chosen) < count:
                chosen.append(i)
        return [points[i] for i in chosen]

    def _promising(self, count: int, number: int) -> list[Point]:
        """Recipes that may be better than all tried, by mean + standard deviation, one after the other: each is
        taken to have come out as expected before the next is chosen."""
        rng = TuningStream.POINTS.rng(self.seed, number)
        spread = qmc.Halton(self.space.dimension, rng=rng).random(_CANDIDATES)
        near = np.array([p for p in self._best(4) for _ in range(_CANDIDATES // 8)])
        moved = near + rng.normal(0.0, 0.12, near.shape) * (rng.random(near.shape) < 0.5)
        pool = _distinct([tuple(row) for row in np.clip([*spread, *moved], 0.0, 1.0 - 1e-9).tolist()], self.space)
        features = self.space.features(pool)
        model = self._surrogate()
        mean, std = model.predict(features)
        chosen: list[int] = []
        for _ in range(min(count, len(pool))):
            gain = mean + std
            gain[chosen] = -np.inf
            best = int(np.argmax(gain))
            chosen.append(best)
            near_best = np.exp(-0.5 * ((features - features[best]) ** 2).sum(-1))
            std = std * np.sqrt(1.0 - near_best * 0.9)  # known about as well as what has been tried
        return [pool[i] for i in chosen]


_IRRELEVANT: Final = {"learning_rate": 1.0, "optimizer": "SGD", "optimizer_options": {}}


def _distinct(points: list[Point], space: SearchSpace) -> list[Point]:
    """Without those that make the same recipe as one before."""
    seen: dict[str, Point] = {}
    for point in points:
        seen.setdefault(repr(space.recipe_at(point)), point)
    return list(seen.values())
