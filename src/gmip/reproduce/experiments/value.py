"""What the notion is worth: the best model that each promise allows, on small and large data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from torch import nn

from gmip.reproduce.experiments import Cell, Row
from gmip.reproduce.linear_heads import train_heads
from gmip.reproduce.paper_settings import load_task
from gmip.reproduce.value_search import FPR, Chosen, Grid, Search, multiplier
from gmip.tasks.task import Recipe, Task
from gmip.training import evaluate, fit, initial_model
from gmip.tuning import PrivacyTarget, num_params_of

NAME = "value"
TITLE = "What the notion is worth, and what a good recipe is worth"
PAPER = "Not in the paper"
CLAIM = (
    "Data randomness saves noise. How much accuracy is that worth if every promise gets its own best recipe: clipping "
    "norm, learning rate, batch size, number of steps, number of features?"
)
QUICK = "3 of the 15 settings, 1 of the 3 targets, 3 seeds and a small grid."
VERSION = 1

TARGETS: Final = (0.03, 0.05, 0.1)
_CLIPS, _MOVES = (0.1, 0.3, 1.0), (0.5, 2.0, 8.0, 32.0)
# Features of each task: few of them, and (almost) all.
_COMPONENTS: Final = {
    "digits": (16, 64),
    "breast-cancer": (5, 30),
    "adult": (16, 64),
    "location": (32, 128),
    "cifar10": (16, 64),
}
_SIZES: Final = {
    "digits": (250, 500, 1_000),
    "breast-cancer": (250, 400),
    "adult": (250, 1_000, 4_000, 43_000),
    "location": (1_000, 4_000),
    "cifar10": (250, 1_000, 4_000, 48_000),
}
_OWN: Final = {"digits": 250, "breast-cancer": 250, "adult": 43_000, "cifar10": 48_000}  # sizes for the task's recipe
_ANY: Final = 500  # most members where the promise for any record is looked at, which takes minutes to calibrate
_LARGE: Final = 10_000


@dataclass(frozen=True, kw_only=True)
class Place(Cell):
    """A data set and a number of members; what is tried there, and how often the outcome is measured."""

    dataset_size: int
    grid: Grid
    targets: tuple[float, ...]
    seeds: int
    any_record: bool
    own: bool


def cells(quick: bool) -> list[Place]:
    if quick:
        small = [("digits", 250), ("breast-cancer", 250), ("digits", 1_000)]
        return [_place(task, size, quick=True) for task, size in small]
    return [_place(task, size, quick=False) for task, sizes in _SIZES.items() for size in sizes]


def _place(task: str, size: int, *, quick: bool) -> Place:
    grid = Grid(
        components=_COMPONENTS[task][:1] if quick else _COMPONENTS[task],
        shares=(0.5,) if quick else (1 / 64, 1 / 8) if size > _LARGE else (1 / 8, 1 / 2, 1.0),
        steps=(10, 30) if quick else (10, 30, 100),
        clip_norms=_CLIPS[:2] if quick else _CLIPS,
        moves=_MOVES[1:3] if quick else _MOVES,
        rungs=3 if quick else 4,
        tuning_seeds=1 if quick or size > _LARGE else 2 if size > 1_000 else 4,
    )
    return Place(
        task=task,
        dataset_size=size,
        grid=grid,
        targets=TARGETS[1:2] if quick else TARGETS,
        seeds=3 if quick else 10 if size <= 1_000 else 5,
        any_record=size <= _ANY and not quick,
        own=_OWN.get(task) == size and not quick,
    )


def run(cell: Place) -> list[Row]:
    """Find the recipes and measure them on fresh seeds; a row for each promise, target and seed."""
    assert cell.task is not None
    task = load_task(cell.task)
    search = Search(task, cell.dataset_size, cell.grid, cell.targets)
    chosen = search.chosen()
    found = {(one.arm, one.target): one for one in chosen}
    for target in cell.targets:
        ours = found["gmip", target]
        chosen.append(search.again(ours, "measured", susceptibility=search.measured(ours)))
    if cell.any_record:
        for arm, like in (("any", "gdp"), ("any-fixed", "gdp-fixed")):
            chosen.append(search.again(found[like, search.middle], arm, susceptibility="any"))
    rows = []
    accuracies = [search.reported(chosen, seed) for seed in range(cell.seeds)]
    for place, one in enumerate(chosen):
        facts = _facts(cell, search, one)
        rows += [facts | {"seed": s, "test_accuracy": float(a[place])} for s, a in enumerate(accuracies)]
    return rows + (_own(cell, task, search.middle) if cell.own else [])


def _facts(cell: Place, search: Search, one: Chosen) -> Row:
    params = search.features[one.components].num_params
    typical = search.again(one, "gmip").recipe if one.arm == "gdp" else None  # what the same recipe needs under GMIP
    return _row(cell, one.arm, one.target, one.recipe, params, one.promise) | {
        "components": one.components,
        "typical_multiplier": None if typical is None else _short(multiplier(typical)),
        "expected_accuracy": _short(one.expected),
        "seen_members": search.seen_members,
    }


def _row(cell: Place, arm: str, target: float | None, recipe: Recipe, params: int, promise: PrivacyTarget) -> Row:
    return {
        "task": cell.task,
        "dataset_size": cell.dataset_size,
        "arm": arm,
        "target": target,
        "components": None,
        "num_params": params,
        "batch_size": recipe.batch_size,
        "num_steps": recipe.num_steps,
        "sampling": recipe.sampling,
        "clip_norm": recipe.clip_norm,
        "learning_rate": _short(recipe.learning_rate),
        "noise_multiplier": _short(multiplier(recipe)),
        "promised_tpr": _short(promise.exposure(recipe, params)),
        "typical_multiplier": None,
        "expected_accuracy": None,
        "seen_members": None,
    }


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def _own(cell: Place, task: Task, target: float) -> list[Row]:
    """The task's own recipe and model, as `gmip train --task` takes them, with the noise that either notion needs."""
    params = num_params_of(task)
    rows = []
    plans = {}
    for arm, notion in (("own-gmip", "gmip"), ("own-gdp", "gdp")):
        wanted = PrivacyTarget(target_tpr=(target, FPR), notion=notion)  # type: ignore[arg-type]
        plans[arm] = (wanted, wanted.calibrated(task.recipe.replace(dataset_size=cell.dataset_size), params))
    for seed in range(cell.seeds):
        members = task.pool[task.split(cell.dataset_size, seed).members]
        model: Any = initial_model(task, seed)
        recipes = [recipe for _, recipe in plans.values()]
        if isinstance(model, nn.Linear):
            start = (model.weight.detach(), model.bias.detach())
            heads = train_heads(members, recipes, seed=seed, classes=model.out_features, initial=start)
            accuracies = heads.accuracy(task.test)
        else:
            accuracies = np.array([evaluate(task, fit(task, r, members, seed=seed), task.test)[1] for r in recipes])
        for (arm, (wanted, recipe)), accuracy in zip(plans.items(), accuracies, strict=True):
            rows.append(
                _row(cell, arm, target, recipe, params, wanted) | {"seed": seed, "test_accuracy": float(accuracy)}
            )
    return rows
