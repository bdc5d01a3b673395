"""What a search tries: clipping norm, learning rate, batch size, steps, optimizer and sampling."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gmip import _validate as check
from gmip.accounting.account import account
from gmip.accounting.calibrate import calibrate, with_least_noise
from gmip.accounting.claims import ADJACENCY
from gmip.accounting.tradeoff import TradeOff
from gmip.errors import InvalidArgument
from gmip.vocabulary import SAMPLINGS, NoisySGD, PrivacyTarget, Recipe, Sampling

Point = tuple[float, ...]  # a place in the unit cube
Unit = NDArray[np.float64]
RANGES: Final = ("clip_norm", "learning_rate")
CHOICES: Final = ("num_steps", "optimizer")
SIZES: Final = ("batch_size", "sampling")
_MOST_STEPS: Final = 400  # by default, unless the recipe has more
_LARGEST_BATCH: Final = 4096  # by default: time grows with it, and noise hardly falls any more


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """What is tried; each field is a range, or the choices.

    Parameters
    ----------
    recipe : what is not searched for, such as dataset_size.
    clip_norm : (lowest, highest).
    pace : (lowest, highest) length of the way that the weights can go: with SGD learning_rate x steps x the norm of a
        clipped gradient. It decides how far noise carries the weights, whatever the number of steps, so that a good
        pace at one C or number of steps is a good one at another. With other optimizers, which take steps of
        the length learning_rate, learning_rate x steps x sqrt(parameters).
    learning_rate : (lowest, highest) instead of the pace, if not None.
    batch_size, num_steps, optimizer, sampling : what to choose from. "fixed" batches of all records are "full".
    typical_norm : of a gradient.
    best : (steps, batch size, sampling) for each number of steps: see `with_least_noise`.
    """

    recipe: Recipe
    num_params: int
    typical_norm: float
    clip_norm: tuple[float, float]
    pace: tuple[float, float]
    batch_size: tuple[int, ...]
    num_steps: tuple[int, ...]
    optimizer: tuple[str, ...]
    sampling: tuple[Sampling, ...]
    learning_rate: tuple[float, float] | None = None
    best: tuple[tuple[int, int, Sampling], ...] = ()

    @classmethod
    def around(
        cls,
        recipe: Recipe,
        *,
        num_params: int,
        typical_norm: float,
        target: PrivacyTarget,
        given: Mapping[str, Any] | None = None,
    ) -> SearchSpace:
        """The default space around a task's recipe, with what was `given` in its place.

        given : name -> (lowest, highest) of clip_norm and learning_rate, choices of the others; one value fixes it.
        """
        N = recipe.dataset_size
        largest = max(_LARGEST_BATCH, recipe.batch_size)
        sizes = {n for n in (N // 16, N // 8, N // 4, N // 2, N) if min(8, N) <= n <= largest}
        T = recipe.num_steps
        steps = {max(1, T // 8), max(1, T // 4), max(1, T // 2), T} | {k * T for k in (2, 4) if k * T <= _MOST_STEPS}
        if isinstance(target.susceptibility, str):  # accounting takes half a minute for each number of steps
            steps = {T, max(1, T // 4)}
        own = recipe.sampling
        samplings: set[Sampling] = {"fixed", "poisson"}
        if target.notion == "gdp" and target.adjacency != "replace-one":  # with other neighbours there is no comparison
            samplings = {name for name in {own, *samplings} if ADJACENCY[name] == ADJACENCY[own]}
        if recipe.max_batch_size is not None:  # made for this size of Poisson batches
            samplings, sizes = {own}, set()
        reach = _pace(recipe, typical_norm, num_params)
        made: dict[str, Any] = {
            "clip_norm": (0.03 * typical_norm, 1.5 * typical_norm),
            "learning_rate": None,
            "batch_size": tuple(sorted(sizes | {recipe.batch_size})),
            "num_steps": tuple(sorted(steps)),
            "optimizer": tuple(dict.fromkeys(("SGD", "Adam", recipe.optimizer))),
            "sampling": tuple(name for name in SAMPLINGS if name in samplings),
        }
        for name, value in (given or {}).items():
            if name not in made:
                raise InvalidArgument(
                    f"has {name!r}, which is not searched for{check.did_you_mean(name, made)}",
                    argument="space",
                    remedy=f"name some of {', '.join(made)}",
                )
            made[name] = _range(name, value) if name in RANGES else _choices(name, value)
        return cls(
            recipe=recipe, num_params=num_params, typical_norm=typical_norm, pace=(reach / 30.0, 10.0 * reach), **made
        )

    def __post_init__(self) -> None:
        for name in (*CHOICES, *SIZES):
            if not getattr(self, name):
                raise InvalidArgument(f"leaves no {name}", argument="space", remedy="name at least one")
        for size in self.batch_size:
            check.batch_within(check.count("batch_size", size), self.recipe.dataset_size)
        for steps in self.num_steps:
            check.count("num_steps", steps)
        for sampling in self.sampling:
            check.one_of("sampling", sampling, SAMPLINGS)

    @property
    def dimension(self) -> int:
        return 2 + len(CHOICES)

    def sizes(self) -> list[Recipe]:
        """A recipe for every number of steps, batch size and sampling, with a clip norm of 1 and no noise."""
        N, found = self.recipe.dataset_size, {}
        for steps, size, sampling in itertools.product(self.num_steps, self.batch_size, self.sampling):
            if sampling == "full" or (sampling == "fixed" and size == N):
                size, sampling = N, "full"
            elif size == N:
                continue
            made = self.recipe.replace(
                num_steps=steps, batch_size=size, sampling=sampling, clip_norm=1.0, noise_std=0.0
            )
            found[steps, size, sampling] = made
        return list(found.values())

    def with_least_noise(self, calibrated: Sequence[Recipe | None]) -> SearchSpace:
        """The space with the batch size and sampling that disturb the mean gradient least, for each number of steps.

        calibrated : `sizes`, each with its noise, None where none keeps the target. With C and steps given, batch size
        and sampling act on training through the noise that they need and through their own randomness, about
        C^2 (1 - p)/(d n) in each coordinate: no training is needed to choose them.
        """
        best: dict[int, tuple[float, Recipe]] = {}
        for recipe in calibrated:
            if recipe is not None:
                rate = recipe.batch_size / recipe.dataset_size
                disturbance = recipe.noise_std**2 + (1.0 - rate) / (self.num_params * recipe.batch_size)
                if disturbance < best.get(recipe.num_steps, (math.inf, recipe))[0]:
                    best[recipe.num_steps] = disturbance, recipe
        chosen = tuple((steps, r.batch_size, r.sampling) for steps, (_, r) in sorted(best.items()))
        return dataclasses.replace(
            self, num_steps=tuple(steps for steps, _, _ in chosen) or self.num_steps, best=chosen
        )

    def recipe_at(self, point: Point) -> Recipe:
        """The recipe at a place in the unit cube, without noise."""
        clip = _round(_between(self.clip_norm, point[0]))
        steps, optimizer = (_pick(getattr(self, name), place) for name, place in zip(CHOICES, point[2:], strict=True))
        _, size, sampling = next(one for one in self.best if one[0] == steps)
        own = optimizer == self.recipe.optimizer
        changed = self.recipe.replace(
            clip_norm=clip,
            batch_size=size,
            num_steps=steps,
            optimizer=optimizer,
            optimizer_options=self.recipe.optimizer_options if own else {},
            sampling=sampling,
            noise_std=0.0,
        )
        if self.learning_rate is not None:
            rate = _between(self.learning_rate, point[1])
        else:
            unit = _pace(changed.replace(learning_rate=1.0), self.typical_norm, self.num_params)
            rate = _between(self.pace, point[1]) / unit
        return changed.replace(learning_rate=_round(rate))

    def place_of(self, recipe: Recipe) -> Point:
        """The place in the unit cube that is nearest to a recipe."""
        pace = _pace(recipe, self.typical_norm, self.num_params)
        second = _share(self.pace, pace) if self.learning_rate is None else _share(self.learning_rate, recipe.rate)
        near = [abs(math.log(steps / recipe.num_steps)) for steps in self.num_steps]
        kind = self.optimizer.index(recipe.optimizer) if recipe.optimizer in self.optimizer else 0
        return (
            _share(self.clip_norm, recipe.clip_norm or self.clip_norm[1]),
            second,
            (int(np.argmin(near)) + 0.5) / len(self.num_steps),
            (kind + 0.5) / len(self.optimizer),
        )

    def features(self, points: list[Point]) -> Unit:
        """Places for a model of the metric, shape (n, k): distance 1 is about where recipes have little in common."""
        rows = []
        for point in points:
            recipe = self.recipe_at(point)
            pace = point[1] * (math.log(self.pace[1] / self.pace[0]) if self.learning_rate is None else 5.0)
            rows.append(
                [
                    math.log(recipe.clip_norm or 1.0) / 2.0,
                    pace / 1.5,
                    math.log(recipe.num_steps) / 3.0,
                    *(0.8 * (recipe.optimizer == name) for name in self.optimizer),
                ]
            )
        return np.array(rows)


def _pace(recipe: Recipe, typical_norm: float, num_params: int) -> float:
    length = recipe.rate * recipe.num_steps
    if recipe.optimizer.lower() != "sgd":
        return length * math.sqrt(num_params)
    norm = typical_norm if recipe.clip_norm is None else min(recipe.clip_norm, typical_norm)
    return length * norm / (1.0 - min(0.99, float(recipe.optimizer_options.get("momentum", 0.0))))


def _range(name: str, value: Any) -> tuple[float, float]:
    low, high = value if isinstance(value, (tuple, list)) and len(value) == 2 else (value, value)
    low, high = check.positive(name, low), check.positive(name, high)
    if low > high:
        raise InvalidArgument("must be (lowest, highest)", argument=name, value=value, remedy="swap them")
    return low, high


def _choices(name: str, value: Any) -> tuple[Any, ...]:
    several = tuple(value) if isinstance(value, (tuple, list, range)) else (value,)
    return tuple(check.count(name, one) for one in several) if name in ("batch_size", "num_steps") else several


def _between(limits: tuple[float, float], share: float) -> float:
    return limits[0] * float((limits[1] / limits[0]) ** share)


def _share(limits: tuple[float, float], value: float) -> float:
    if limits[0] == limits[1]:
        return 0.5
    return min(1.0, max(0.0, math.log(value / limits[0]) / math.log(limits[1] / limits[0])))


def _pick(options: tuple[Any, ...], place: float) -> Any:
    return options[min(len(options) - 1, int(place * len(options)))]


def _round(value: float) -> float:
    return float(f"{value:.2g}")


# -- recipes with the least noise that keeps a target -----------------------------------------------------------------


_HAIR: Final = 1.0 + 1.0e-12  # so that rounding while noise is scaled by C leaves it on the safe side


def calibrated(recipe: Recipe, num_params: int, target: PrivacyTarget) -> Recipe:
    """The recipe with the least noise; its own is ignored.

    The noise multiplier depends on sizes, steps and sampling only, and is computed once for each of them in a process:
    recipes that differ in clipping norm, learning rate or optimizer share it.

    Guarantees
    ----------
    The recipe keeps the target by `gmip.account` with the same notion, susceptibility and attacker.

    Raises
    ------
    UnreachableTarget : no noise meets the target.
    InvalidArgument : noise is needed, and the recipe does not clip.
    """
    quiet = recipe.replace(noise_std=0.0)
    if recipe.clip_norm is None:
        return with_least_noise(quiet, num_params, target)
    unit = _least_noise(target, quiet.run(num_params).replace(clip_norm=1.0))
    return recipe.replace(noise_std=noise_at(recipe.clip_norm, unit))


def curve_of(recipe: Recipe, num_params: int, target: PrivacyTarget) -> TradeOff:
    """What an attacker faces, for whom the target is about."""
    return account(recipe.run(num_params), **target.whose)


def exposure(recipe: Recipe, num_params: int, target: PrivacyTarget) -> float:
    """The number that the target is about: at most `target.value` if the recipe keeps it."""
    if recipe.clip_norm is None:
        return curve_of(recipe, num_params, target).exposure(target)
    # Noise in units of C, so that recipes that differ in C are measured once.
    run = recipe.run(num_params)
    return _exposure(target, run.replace(clip_norm=1.0, noise_std=run.noise_std / recipe.clip_norm))


def noise_at(clip_norm: float, unit: float) -> float:
    """The noise_std at that clip norm of a run that needs `unit` at a clip norm of 1."""
    return unit * clip_norm * _HAIR


@lru_cache(maxsize=4096)
def _least_noise(target: PrivacyTarget, run: NoisySGD) -> float:
    return calibrate(run, target).noise_std


@lru_cache(maxsize=4096)
def _exposure(target: PrivacyTarget, run: NoisySGD) -> float:
    return account(run, **target.whose).exposure(target)
