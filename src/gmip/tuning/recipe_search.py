"""Where to look for a good recipe: an initial search, then where a model of the trials expects the best, then a final.

All of it follows from the seed and the outcomes of pieces, in rounds: so a search that was interrupted, and one with
more workers, comes to the same answer.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.stats import qmc
from torch import nn

from gmip import _io, _numbers
from gmip import _validate as check
from gmip._io import read_yaml
from gmip._progress import Watch, silent
from gmip._random import TuningStream
from gmip.attacks.work import as_seconds
from gmip.errors import Diverged, InvalidArgument, UnreachableTarget
from gmip.parallel import Workers, job_runner
from gmip.store import Store
from gmip.tasks.catalog import load
from gmip.tasks.task import Task
from gmip.training.loop import fit
from gmip.tuning.search_space import Point, SearchSpace, calibrated, curve_of, exposure, noise_at
from gmip.tuning.search_space import exposure as claimed_exposure
from gmip.tuning.trials import (
    Calibration,
    Metric,
    Outcome,
    Training,
    TrialRunner,
    TrialWork,
    gradient_norms,
    measure,
    metric_name,
    num_params_of,
    outsider_fingerprints,
    records_on_members,
    search_records,
)
from gmip.vocabulary import Claim, PrivacyTarget, Recipe

# -- what a search found ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Quality:
    """The metric of several models: one for each seed."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def error(self) -> float:
        """Standard error of the mean; NaN for a single one."""
        return float(np.std(self.values, ddof=1) / math.sqrt(len(self.values))) if len(self.values) > 1 else math.nan


@dataclass(frozen=True)
class FrontierPoint:
    """A recipe, its exposure (as the target is measured), and the metric of its models on test records."""

    name: str
    recipe: Recipe
    exposure: float
    quality: Quality


@dataclass(frozen=True, kw_only=True, eq=False)
class TuneResult:
    """The best recipe that a search found.

    Attributes
    ----------
    task, task_spec : its name, and how `gmip.tasks.load` finds it.
    recipe : with the noise that keeps `target`.
    exposure : of the recipe, measured as the target is.
    claim : bound or forecast: what that exposure is, about whom, and what it does not cover.
    own_sampling : of the recipe that the search began with.
    quality : of its models on the task's test records, which no choice depends on. Models are trained on
        `trained_on` outsiders, who may be fewer than the members will be.
    own : the task's own recipe with the noise that keeps the target, measured in the same way; None where none does.
    frontier : the best recipe with less and more noise, from strict to loose, the target and no noise among them.
    tried : every training of the search.
    outsiders : records that will not be members, on which the search trained; 0 where it trained on members.
    model : of the best run, where the search was on members: it is what may be published, with its recipe. Nothing is
        said of the other runs then: `tried`, `frontier`, `trainings` and `seconds` are empty.
    """

    task: str
    task_spec: str
    target: PrivacyTarget
    metric: str
    recipe: Recipe
    num_params: int
    exposure: float
    claim: Claim
    own_sampling: str
    quality: Quality
    trained_on: int
    split_seed: int
    outsiders: int
    own: FrontierPoint | None = None
    frontier: tuple[FrontierPoint, ...] = ()
    tried: tuple[SearchTrial, ...] = ()
    trainings: int | None = None
    seconds: float | None = None
    seed: int | None = None
    model: nn.Module | None = None

    def __repr__(self) -> str:
        return f"<TuneResult of {self.task}: {self.target}, {self.metric} {self.shown(self.quality.mean)}>"

    def shown(self, value: float) -> str:
        """A value of the metric for people: loss as loss, shares in percent."""
        if self.metric == "loss":
            return _numbers.number(-value, "nearest")
        share = self.metric.endswith("accuracy") and 0.0 <= value <= 1.0
        return _numbers.percent(value, "nearest") if share else _numbers.number(value, "nearest")

    def stricter(self) -> FrontierPoint | None:
        """The frontier's next point on the strict side of the target."""
        below = [
            point for point in self.frontier if point.exposure < 0.99 * self.target.value and point.recipe.noise_std
        ]
        return max(below, key=lambda point: point.exposure, default=None)

    def summary(self) -> dict[str, Any]:
        """Plain JSON (infinity and NaN as strings), without trials, and without `split_seed`: that says who is in."""
        plain: dict[str, Any] = _finite(
            {
                "format": "gmip-tune",
                "version": 1,
                "gmip": version("gmip"),
                "task": self.task,
                "target": self.target.as_json(),
                "metric": self.metric,
                "recipe": dataclasses.asdict(self.recipe),
                "num_params": self.num_params,
                "noise_multiplier": self.recipe.noise_multiplier,
                "exposure": self.exposure,
                "kind": self.claim.kind,
                "for_whom": self.claim.for_whom,
                "caveat": self.claim.caveat,
                "adjacency": self.claim.adjacency,
                "not_a_member": self.claim.not_a_member,
                "test": _quality(self.quality),
                "own": None if self.own is None else _point(self.own),
                "frontier": [_point(point) for point in self.frontier],
                "trials": None if self.model is not None else len(self.tried),
                "trainings": self.trainings,
                "seconds": self.seconds,
                "trained_on": self.trained_on,
                "seed": self.seed,
                "outsiders": self.outsiders,
            }
        )
        return plain


def _finite(value: Any) -> Any:
    """JSON has neither infinity nor NaN: strings that float() reads."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    return [_finite(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def _quality(quality: Quality) -> dict[str, Any]:
    error = quality.error
    return {"mean": quality.mean, "error": None if math.isnan(error) else error, "values": list(quality.values)}


def _point(point: FrontierPoint) -> dict[str, Any]:
    return {
        "name": point.name,
        "exposure": point.exposure,
        "recipe": dataclasses.asdict(point.recipe),
        "test": _quality(point.quality),
    }


# -- what trials say about recipes that were not tried ----------------------------------------------------------------


Array = NDArray[np.float64]
_LENGTHS: Final = (0.6, 1.0, 1.7)
_NOISES: Final = (0.02, 0.1, 0.4, 1.0)
_OFFSETS: Final = (1.0e-3, 0.1, 0.5)
_JITTER: Final = 1.0e-8


class Surrogate:
    """metric = smooth function of the recipe + offset of the seed (who was trained and measured on) + noise.

    Length, noise and offsets are those, of a small grid, that make the trials likeliest.

    Parameters
    ----------
    features : shape (n, k), see `SearchSpace.features`.
    seeds : shape (n,), whole numbers.
    values : shape (n,), finite. What lies below the median is taken for the median: how bad bad recipes are tells
        nothing about good ones.
    """

    def __init__(self, features: Array, seeds: NDArray[np.int64], values: Array) -> None:
        self._features, self._seeds = features, seeds
        clipped = np.maximum(values, np.median(values))
        self._mean = float(clipped.mean())
        self._scale = float(clipped.std()) or 1.0
        y = (clipped - self._mean) / self._scale
        distances = _distances(features, features)
        same = (seeds[:, None] == seeds[None, :]).astype(np.float64)
        best = -math.inf
        for length, noise, offset in itertools.product(_LENGTHS, _NOISES, _OFFSETS):
            covariance = np.exp(-0.5 * distances / length**2) + offset * same + (noise + _JITTER) * np.eye(len(y))
            factor = cholesky(covariance, lower=True)
            weights = cho_solve((factor, True), y)
            likelihood = -0.5 * float(y @ weights) - float(np.log(np.diag(factor)).sum())
            if likelihood > best:
                best, self._length, self._factor, self._weights = likelihood, length, factor, weights

    def predict(self, features: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of the function, shapes (m,) each, in the metric's units."""
        cross = np.exp(-0.5 * _distances(features, self._features) / self._length**2)
        solved = solve_triangular(self._factor, cross.T, lower=True)
        variance = np.maximum(1.0 - (solved**2).sum(0), 0.0)
        return self._mean + self._scale * (cross @ self._weights), self._scale * np.sqrt(variance)


def _distances(a: Array, b: Array) -> Array:
    """Squared, shape (len(a), len(b))."""
    return np.asarray(((a[:, None, :] - b[None, :, :]) ** 2).sum(-1))


# -- where to look for a good recipe ----------------------------------------------------------------------------------


_ROUNDS: Final = 3
_APART: Final = 0.25  # finalists differ by about 30% in the clipping norm or the pace, or in something else
_CANDIDATES: Final = 512


@dataclass(frozen=True)
class SearchTrial:
    """A training of the search: the recipe with its noise, its exposure, and what came out."""

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
        self, space: SearchSpace, target: PrivacyTarget, pieces: TrialRunner, *, seed: int, own: Recipe, watch: Watch
    ) -> None:
        self.space, self.target, self.pieces, self.seed, self._watch = space, target, pieces, seed, watch
        self.own = own
        self.tried: list[SearchTrial] = []

    # -- pieces -------------------------------------------------------------------------------------------------------

    def calibrated(self, recipes: Sequence[Recipe], target: PrivacyTarget) -> list[tuple[Recipe, float] | None]:
        """Each recipe with the least noise, and its exposure; None where no noise keeps the target."""
        plain = [r.replace(clip_norm=1.0, noise_std=0.0, **_IRRELEVANT) for r in recipes]
        found = self.pieces.outcomes([Calibration(recipe=r, target=target) for r in plain], "noise", self._watch)
        made: list[tuple[Recipe, float] | None] = []
        for recipe, one in zip(recipes, found, strict=True):
            noise = noise_at(recipe.clip_norm or 1.0, one.noise_std)
            made.append(None if math.isnan(noise) else (recipe.replace(noise_std=noise), one.exposure))
        return made

    def trial_seed(self, number: int) -> int:
        """The seed of the trials of this number: equal for all recipes, which makes them comparable."""
        return TuningStream.TRIALS.torch_seed(self.seed, number)

    def _try(self, points: Sequence[Point], number: int, stage: str, least: float = -math.inf) -> None:
        calibrated = self.calibrated([self.space.recipe_at(point) for point in points], self.target)
        ready = [(point, *made) for point, made in zip(points, calibrated, strict=True) if made is not None]
        seed = self.trial_seed(number)
        jobs = [Training(recipe=recipe, seed=seed, least=least) for _, recipe, _ in ready]
        outcomes = self.pieces.outcomes(jobs, stage, self._watch)
        self.tried += [SearchTrial(*made, seed, outcome) for made, outcome in zip(ready, outcomes, strict=True)]

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
                f"{self.target} is kept by none of {len(made)} combinations of sizes and sampling, whatever the noise",
                remedy="ask for less, or for other sizes in `space`",
            )

    @cached_property
    def starts(self) -> list[Point]:
        """The points where a search begins, in this order: the task's own recipe, then points spread evenly."""
        halton = qmc.Halton(self.space.dimension, rng=TuningStream.POINTS.rng(self.seed))
        return _distinct([self.space.place_of(self.own), *map(tuple, halton.random(_CANDIDATES).tolist())], self.space)

    def pilot(self, number: int) -> float:
        """Seconds of a training, from the first few."""
        points = self.starts[:number]
        self._try(points, 0, "first trials")
        return float(np.mean([one.outcome.seconds for one in self.tried]))

    def run(self, schedule: Schedule) -> list[SearchTrial]:
        """All rounds; the best recipe comes first in what is returned: one entry for each finalist, its last trial."""
        half = schedule.start // 2
        done = len(self.tried)
        if done < half:
            self._try(self.starts[done:half], 0, "initial search")
        done = max(done, half)
        self._try(self.starts[done : schedule.start], 0, "initial search, bad trials ended early", self._median())
        if not any(one.good for one in self.tried):
            raise InvalidArgument(
                f"is NaN or infinite for all {len(self.tried)} recipes that were tried",
                argument="metric",
                remedy="check that it is a number for this task, and that learning rates in `space` are not too large",
            )
        for number in range(1, _ROUNDS + 1):
            points = self._likely(schedule.round, number)
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
        """Recipes of trials that the model of all trials thinks best, best first, at least `apart` from each other."""
        good = [one.point for one in self.tried if one.good and not one.outcome.stopped]
        points = list(dict.fromkeys(good)) if among is None else list(among)
        features = self.space.features(points)
        mean, _ = self._surrogate().predict(features)
        chosen: list[int] = []
        for i in np.argsort(-mean, kind="stable").tolist():
            if all(np.linalg.norm(features[i] - features[j]) >= apart for j in chosen) and len(chosen) < count:
                chosen.append(i)
        return [points[i] for i in chosen]

    def _likely(self, count: int, number: int) -> list[Point]:
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
    """Drops those that make the same recipe as one before."""
    seen: dict[str, Point] = {}
    for point in points:
        seen.setdefault(repr(space.recipe_at(point)), point)
    return list(seen.values())


# -- gmip.tune --------------------------------------------------------------------------------------------------------


MOST_TRIALS: Final = 120  # of a budget in time: more hardly help
_FEWEST_TRIALS: Final = 24
_PILOT: Final = 4
_TEST_SEEDS: Final = 3
_LEVELS: Final = {"much stricter": 0.25, "stricter": 0.5, "looser": 2.0}
_SPLIT_SEED: Final = "split_seed"  # the file: who will be a member
_AFTERWARDS: Final = 40  # trainings on top of the trials: tests and the frontier


def tune(
    task: str | Task,
    target: PrivacyTarget | None = None,
    *,
    recipe: Recipe | None = None,
    space: Mapping[str, Any] | None = None,
    metric: Metric = "accuracy",
    budget: float | str = "10min",
    trials: int | None = None,
    split_seed: int | None = None,
    seed: int = 0,
    workers: Workers | int | None = None,
    folder: str | os.PathLike[str] | None = None,
    watch: Watch = silent,
    spec: str | None = None,
    on_members: float | None = None,
    **wanted: Any,
) -> TuneResult:
    """The recipe with the best metric among those that keep a privacy target.

    Every recipe that is tried gets the least noise that keeps the target first, so that all of them keep it. Batch size
    and sampling are chosen for each number of steps by that noise; the rest is tried. A search
    begins evenly, goes on where a Gaussian process of the trials expects the best, and ends with a final between the
    best few, with new seeds. Bad trials are ended half-way.

    Parameters
    ----------
    task : a task, its name, or path/to/file.py:make_task.
    target, wanted : what to keep, and for whom: a `PrivacyTarget`, or its keywords, as in target_tpr=(0.05, 0.01).
    recipe : what the search begins with and what it leaves as it is, such as dataset_size; None: the task's own.
    space : what to search: name -> (lowest, highest) for clip_norm and learning_rate, choices for batch_size,
        num_steps, optimizer and sampling; a single value fixes it. Differential privacy has other neighbours under
        other samplings: by default only samplings with those of the recipe's are tried then.
    metric : "accuracy", "balanced-accuracy", "loss", or a function of task, model and records (more is better).
    budget : about how long, in seconds or as "10min"; it sets the number of trials, from the first few (24 to 120).
    trials : the number of trainings instead, to within two; 24 at least. On top come 30 or so to measure the recipe and
        the frontier: `TuneResult.trainings` counts all.
    split_seed : of `task.split`, which says who will be a member: the search trains and measures on all others. Who
        knows it and the task's data knows the members. None: a random one, kept in `folder` for the next call.
    seed : of the search.
    workers : processes at once, or `gmip.parallel.Workers` for a cluster; None: one for each core.
    folder : where finished work is kept; the same call goes on from there after an interruption. None: nowhere.
    watch : called with how far the search is.
    spec : how `gmip.tasks.load` finds a task that is passed as an object, for recipe.yaml.
    on_members : search on the members themselves, where there are too few others to train on (40 others are needed to
        measure): runs with recipes drawn at random, so many on average; their number is random, and only the best,
        `TuneResult.model`, may be published. Clipping norm, learning rate and optimizer are drawn; the noise keeps the
        target of differential privacy after that choice (docs/theory/trials.md). Needs notion="gdp".

    Guarantees
    ----------
    With `on_members` the target covers `model`, `recipe` and `quality` together, if nothing else of the search is
    published: neither how many runs there were nor how long they took. Seeds are random and kept nowhere. Without it:

    The recipe keeps the target by the accountant, for whom the target is about; `kind` says whether that is a bound or
    a forecast. No record of `task.split(dataset_size, split_seed).members` has any influence on the result: the search
    gives nothing away about them, whatever it prints, unless the task's own code looked at them before, as where it
    standardises by statistics of the pool. With `split_seed` or `folder`, the same call gives the same result after any
    interruption, and (with `trials`) with any number of workers.

    Raises
    ------
    UnreachableTarget : no recipe keeps the target.
    InvalidArgument : too few records that will not be members; too few trials; a metric that is never finite.
    """
    spec = spec or (task if isinstance(task, str) else task.name)
    task = load(task) if isinstance(task, str) else task
    target = PrivacyTarget.of(target, wanted)
    if on_members is not None:
        target = _target_on_members(target, on_members, trials)
    name, seconds = metric_name(metric), as_seconds("budget", budget)
    count = None if trials is None else check.count("trials", trials)
    if count is not None and count < _FEWEST_TRIALS:
        raise InvalidArgument(
            f"are fewer than the {_FEWEST_TRIALS} that a search needs at least",
            argument="trials",
            value=count,
            remedy="raise it",
        )
    own = task.recipe if recipe is None else recipe
    seed = check.seed(seed)
    place = None if folder is None else Path(folder)
    split_seed = _members_seed(place) if split_seed is None else check.seed(split_seed)
    norms = gradient_norms(task, own.dataset_size, split_seed=split_seed)
    params = num_params_of(task)
    typical = float(np.median(norms))
    if on_members is not None:
        space = _space_on_members(own, space)
    around = SearchSpace.around(own, num_params=params, typical_norm=typical, target=target, given=space)
    work = TrialWork(task=task, num_params=params, metric=metric, split_seed=split_seed)
    facts = {
        "task": task.name,
        "data": outsider_fingerprints(task, task.split(own.dataset_size, split_seed).members),
        "metric": name,
        "split_seed": split_seed,
        "norm": typical,  # of the untrained model: knows it again
        "torch": version("torch"),
    }
    settings = workers if isinstance(workers, Workers) else Workers(workers=workers)
    if place is not None:
        _io.make_folder(place)
    lock = nullcontext() if place is None else _io.Lock(place / ".lock", wait=False, signed=True)
    with lock, job_runner(work, settings, MOST_TRIALS) as runner:
        pieces = TrialRunner(runner, Store(None if on_members is not None else place, "trials", facts))
        search = Search(around, target, pieces, seed=seed, own=own, watch=watch)
        search.choose_sizes()
        if target.best_of is not None:
            return _best_on_members(search, work, spec, watch)
        if count is None:
            each = search.pilot(_PILOT)
            left = seconds * pieces.workers - pieces.spent  # calibrations and the first trials are part of the budget
            count = int(min(MOST_TRIALS, max(_FEWEST_TRIALS, _PILOT + left / each - _AFTERWARDS)))
        best = search.run(Schedule(count))[0]
        return _measured(search, best.recipe, best.exposure, work, spec, watch)


# -- on members -------------------------------------------------------------------------------------------------------


def _target_on_members(target: PrivacyTarget, mean: float, trials: int | None) -> PrivacyTarget:
    if trials is not None:
        raise InvalidArgument(
            "is a fixed number, and on members it has to be random",
            argument="trials",
            value=trials,
            remedy="leave it out",
        )
    if target.notion != "gdp":
        raise InvalidArgument(
            "is accounted for by differential privacy alone: all runs share the members",
            argument="on_members",
            value=mean,
            remedy="set `notion` to 'gdp'",
        )
    return dataclasses.replace(target, best_of=mean)


def _space_on_members(own: Recipe, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """One number of steps: all runs have the same trade-off curve then, which `best_of` asks for."""
    space = {"num_steps": own.num_steps, **(given or {})}
    steps = space["num_steps"]
    if isinstance(steps, (tuple, list, range)) and len(steps) != 1:
        raise InvalidArgument(
            "has several num_steps, and on members all runs need the same",
            argument="space",
            value=tuple(steps),
            remedy="name one",
        )
    return space


def _best_on_members(search: Search, work: TrialWork, spec: str, watch: Watch) -> TuneResult:
    """The best of a random number of independent runs on the members (docs/theory/trials.md).

    Recipes are drawn beforehand from one distribution and have the same curve; their number is geometric; ties of the
    metric are broken by a coin. Neither seeds nor anything about the other runs leaves this function.
    """
    task, target, rng = work.task, search.target, np.random.default_rng(secrets.randbits(256))
    assert target.best_of is not None
    number = int(rng.geometric(1.0 / target.best_of))
    points = [tuple(rng.random(search.space.dimension).tolist()) for _ in range(number)]
    records = records_on_members(task, search.own.dataset_size, seed=0, split_seed=work.split_seed)
    ranked: list[tuple[float, float]] = []
    best: tuple[Recipe, nn.Module] | None = None
    progress = watch("runs on members")
    made = search.calibrated([search.space.recipe_at(point) for point in points], target)
    for done, (recipe, _) in enumerate((one for one in made if one is not None), 1):
        try:
            model = fit(task, recipe, records.train, seed=secrets.randbits(63))
            metric = measure(work.metric, task, model, records.validation)
        except Diverged:
            metric = math.nan
        ranked.append((metric if math.isfinite(metric) else -math.inf, float(rng.random())))
        if ranked[-1] == max(ranked) and math.isfinite(metric):
            best = recipe, model
        progress(done, number)
    if best is None:
        raise InvalidArgument(
            "is NaN or infinite for the best run on members",
            argument="metric",
            remedy="narrow `space` to smaller learning rates, and count what was done as one more run",
        )
    recipe, model = best
    return _result(
        search,
        work,
        spec,
        recipe,
        quality=Quality((measure(work.metric, task, model, task.test),)),
        trained_on=len(records.train),
        outsiders=0,
        model=model,
    )


# -- what was found, on test records ----------------------------------------------------------------------------------


def _result(search: Search, work: TrialWork, spec: str, recipe: Recipe, **found: Any) -> TuneResult:
    """The result of a search, with what the accountant says of the recipe."""
    target = search.target
    curve = curve_of(recipe, work.num_params, target)
    claim = curve.claim
    if isinstance(target.susceptibility, tuple):  # measured in other runs: with another clipping norm a guess
        claim = dataclasses.replace(claim, kind="forecast")
    return TuneResult(
        task=work.task.name,
        task_spec=spec,
        target=target,
        metric=metric_name(work.metric),
        recipe=recipe,
        num_params=work.num_params,
        exposure=curve.exposure(target),
        claim=claim,
        own_sampling=search.own.sampling,
        split_seed=work.split_seed,
        **found,
    )


def _measured(search: Search, recipe: Recipe, exposure: float, work: TrialWork, spec: str, watch: Watch) -> TuneResult:
    """The result: the recipe and its neighbours on test records, with seeds of their own."""
    task, target = work.task, search.target
    seeds = [search.trial_seed(1000 + number) for number in range(_TEST_SEEDS)]
    found = {"the target": [(recipe, exposure)], **_neighbours(search, recipe, work.num_params)}
    clipped = search.own.replace(clip_norm=search.own.clip_norm or search.space.typical_norm)
    (own,) = search.calibrated([clipped], target)
    candidates = [made for several in found.values() for made in several] + ([] if own is None else [own])
    tested = _tested(search.pieces, [one for one, _ in candidates], seeds, watch)
    qualities = dict(zip(map(repr, candidates), tested, strict=True))
    points = []
    for name, several in found.items():
        best = max(several, key=lambda made: _nan_last(qualities[repr(made)][0]))
        points.append(FrontierPoint(name, *best, qualities[repr(best)][1]))
    records = search_records(task, recipe.dataset_size, seed=seeds[0], split_seed=work.split_seed)
    return _result(
        search,
        work,
        spec,
        recipe,
        quality=qualities[repr((recipe, exposure))][1],
        own=None if own is None else FrontierPoint("the task's own recipe", *own, qualities[repr(own)][1]),
        frontier=tuple(sorted(points, key=lambda point: point.exposure)),
        tried=tuple(search.tried),
        trainings=len(search.tried) + len(seeds) * len(candidates),
        seconds=sum(one.outcome.seconds for one in search.tried),
        trained_on=len(records.train),
        seed=search.seed,
        outsiders=len(task.pool) - recipe.dataset_size + (0 if task.background is None else len(task.background)),
    )


def _neighbours(search: Search, recipe: Recipe, params: int) -> dict[str, list[tuple[Recipe, float]]]:
    """Name of a point of the frontier -> recipes near this one, and their exposures, of which the best is shown."""
    target = search.target
    found: dict[str, list[tuple[Recipe, float]]] = {}
    for name, scale in _LEVELS.items():
        level = target.scaled(scale)
        # Less noise lets the weights go farther, more noise not as far: try the recipe, and half or twice its pace.
        factor = 2.0 if level.value > target.value else 0.5
        near = [recipe, recipe.replace(learning_rate=factor * recipe.rate)]
        kept = [made for made in search.calibrated(near, level) if made is not None]
        if kept:
            found[name] = kept
    if recipe.noise_std:
        quiet = recipe.replace(noise_std=0.0)
        found["no noise"] = [
            (quiet.replace(learning_rate=f * quiet.rate), _exposure(quiet, params, target)) for f in (1.0, 2.0)
        ]
    return found


def _tested(
    pieces: TrialRunner, recipes: Sequence[Recipe], seeds: Sequence[int], watch: Watch
) -> list[tuple[float, Quality]]:
    """The mean metric and the quality of each recipe on test records, trained with each of the seeds."""
    jobs = [Training(recipe=one, seed=seed, tested=True) for one in recipes for seed in seeds]
    outcomes = pieces.outcomes(jobs, "on test records", watch)
    rows = [outcomes[i : i + len(seeds)] for i in range(0, len(jobs), len(seeds))]
    return [(float(np.mean([o.metric for o in row])), Quality(tuple(o.test for o in row))) for row in rows]


def _members_seed(place: Path | None) -> int:
    """A random seed, which nobody guesses; where there is a folder, the one that is kept there."""
    drawn = secrets.randbits(63)
    if place is None:
        return drawn
    path = place / _SPLIT_SEED
    known = _io.read_if_there(path)
    if known is None:
        _io.make_folder(place)
        _io.write(path, f"{drawn}\n")
        return drawn
    if not known.strip().isdigit():
        raise InvalidArgument(f"{path} holds no seed", remedy="pass `split_seed`, or delete the file")
    return check.seed(int(known))


def _exposure(quiet: Recipe, params: int, target: PrivacyTarget) -> float:
    """The exposure of a run without noise, of which differential privacy says nothing."""
    return math.inf if target.notion == "gdp" else claimed_exposure(quiet, params, target)


def _nan_last(value: float) -> float:
    return -math.inf if math.isnan(value) else value


# -- the file of a recipe ----------------------------------------------------------------------------------------------


_KEYS = ("task", "split_seed", "target", "recipe")


@dataclass(frozen=True)
class RecipeFile:
    """task : a name or path/to/file.py:make_task; split_seed : of its members; target : what its noise keeps.
    The last two are None if the file does not say."""

    task: str
    split_seed: int | None
    recipe: Recipe
    target: PrivacyTarget | None = None

    def kept(self, num_params: int) -> Recipe:
        """The recipe, with more noise where its own does not keep the target: the file may have been edited."""
        if self.target is None or exposure(self.recipe, num_params, self.target) <= self.target.value:
            return self.recipe
        return calibrated(self.recipe, num_params, self.target)


def read_recipe_file(path: str | Path) -> RecipeFile:
    """A recipe with its task, members and target.

    Raises
    ------
    InvalidArgument : the file is not there, not YAML, or not such a recipe.
    """
    given = read_yaml(path)
    for name in given:
        if name not in _KEYS:
            raise _refused(path, f"has {name!r}, which is not known{check.did_you_mean(name, _KEYS)}")
    settings: Any = given.get("recipe")
    if not isinstance(settings, Mapping):
        raise _refused(path, "has no 'recipe' with settings under it")
    known = [field.name for field in fields(Recipe)]
    for name in settings:
        if name not in known:
            raise _refused(path, f"has {name!r} in its recipe, which is not known{check.did_you_mean(name, known)}")
    task = given.get("task")
    if not isinstance(task, str):
        raise _refused(path, "names no 'task'")
    try:
        recipe = Recipe(**settings)
        seed = given.get("split_seed")
        target = given.get("target")
        kept = None if target is None else PrivacyTarget.from_json(target)
        return RecipeFile(task, None if seed is None else check.seed(seed), recipe, kept)
    except InvalidArgument as error:
        raise _refused(path, f"cannot be used: {str(error).rstrip('.')}") from None
    except TypeError as error:  # a setting is missing
        raise _refused(path, f"cannot be used ({str(error).replace('.__init__()', '')})") from None


def _refused(path: str | Path, problem: str) -> InvalidArgument:
    return InvalidArgument(f"{path} {problem}", remedy="take a recipe that gmip tune wrote")
