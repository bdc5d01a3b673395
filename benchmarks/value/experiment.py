"""What the notion is worth: the best model under each privacy target, on small and large data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from torch import nn

from benchmarks.value.claims import (
    MIDDLE,
    TARGETS,
    TITLES,
    accuracies,
    all_claims,
    error_of,
    gains,
    percent,
    places,
    select,
)
from benchmarks.value.search import CONSTANTS, FPR, ChosenRecipe, Grid, Search, multiplier
from gmip.report.tables import Cell as TableCell
from gmip.report.tables import Table
from gmip.tasks.task import Task
from gmip.training import evaluate, fit, initial_model
from gmip.tuning import num_params_of
from gmip.tuning.search_space import calibrated, exposure
from gmip.vocabulary import PrivacyTarget, Recipe
from reproduction import figures
from reproduction.experiment import Cell, Drawing, Experiment, Row, Study
from reproduction.linear_heads import train_heads
from reproduction.paper import load_task

TITLE: Final = "What the notion is worth, and what a good recipe is worth"

_CLIPS, _MOVES = (0.1, 0.3, 1.0), (0.5, 2.0, 8.0, 32.0)
# Features of each task: few of them, and (almost) all.
_COMPONENTS: Final = {
    "digits": (16, 64),
    "breast-cancer": (5, 30),
    "adult": (16, 64),
    "location": (16, 64),
    "cifar10": (16, 64),
}
_SIZES: Final = {
    "digits": (250, 500, 1_000),
    "breast-cancer": (250, 400),
    "adult": (250, 1_000, 4_000, 43_000),
    "location": (1_000, 4_000),
    "cifar10": (250, 1_000, 4_000, 48_000),
}
_OWN: Final = {"digits": 250, "breast-cancer": 250, "adult": 43_000}  # sizes for the task's recipe
_ANY: Final = (("digits", 250),)  # where any record is looked at, which takes long to calibrate
_SMALL, _LARGE = 1_000, 10_000


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
        small = [("digits", 250), ("breast-cancer", 250), ("digits", 500)]
        return [_place(task, size, quick=True) for task, size in small]
    return [_place(task, size, quick=False) for task, sizes in _SIZES.items() for size in sizes]


def _place(task: str, size: int, *, quick: bool) -> Place:
    grid = Grid(
        components=_COMPONENTS[task][:1] if quick else _COMPONENTS[task],
        shares=(0.5,) if quick else _shares(size),
        steps=(10, 30) if quick else (10, 30, 100),
        clip_norms=_CLIPS[:2] if quick else _CLIPS,
        moves=_MOVES[1:3] if quick else _MOVES,
        rungs=3 if quick else 4,
        tuning_seeds=1 if quick or size > _SMALL else 4,
    )
    return Place(
        task=task,
        dataset_size=size,
        grid=grid,
        targets=TARGETS[1:2] if quick else TARGETS,
        seeds=3 if quick else 10 if size <= _SMALL else 5,
        any_record=(task, size) in _ANY and not quick,
        own=_OWN.get(task) == size and not quick,
    )


def _shares(size: int) -> tuple[float, ...]:
    """Shares of the members in a batch; full batches of many records take long, and their noise is small as it is."""
    if size > _LARGE:
        return (1 / 64, 1 / 8)
    return (1 / 8, 1 / 2) if size > _SMALL else (1 / 8, 1 / 2, 1.0)


def run(cell: Place) -> list[Row]:
    """Find the recipes and measure them on fresh seeds; a row for each arm, target and seed."""
    assert cell.task is not None
    task = load_task(cell.task)
    search = Search(task, cell.dataset_size, cell.grid, cell.targets)
    chosen = search.chosen()
    found = {(one.arm, one.target): one for one in chosen}
    for target in cell.targets:
        ours = found["gmip", target]
        chosen.append(search.again(ours, "measured", susceptibility=search.measured(ours)))
        chosen.append(search.again(ours, "gdp-same", notion="gdp"))  # what the notion alone costs
    if cell.any_record:
        for arm, like in (("any", "gdp"), ("any-fixed", "gdp-fixed")):
            chosen.append(search.again(found[like, search.middle], arm, susceptibility="any"))
    rows = []
    reached = [search.reported(chosen, seed) for seed in range(cell.seeds)]
    for place, one in enumerate(chosen):
        facts = _facts(cell, search, one)
        rows += [facts | {"seed": s, "test_accuracy": float(a[place])} for s, a in enumerate(reached)]
    return rows + (_own(cell, task, search.middle) if cell.own else [])


def _facts(cell: Place, search: Search, one: ChosenRecipe) -> Row:
    params = search.features[one.components].num_params
    typical = search.again(one, "gmip").recipe if one.arm == "gdp" else None  # what the same recipe needs under GMIP
    return _row(cell, one.arm, one.target, one.recipe, params, one.privacy) | {
        "components": one.components,
        "typical_multiplier": None if typical is None else _short(multiplier(typical)),
        "expected_accuracy": _short(one.expected),
        "seen_members": search.seen_members,
    }


def _row(cell: Place, arm: str, target: float | None, recipe: Recipe, params: int, privacy: PrivacyTarget) -> Row:
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
        "learning_rate": _short(recipe.rate),
        "noise_multiplier": _short(multiplier(recipe)),
        "exposure": _short(exposure(recipe, params, privacy)),
        "typical_multiplier": None,
        "expected_accuracy": None,
        "seen_members": None,
    }


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def _own(cell: Place, task: Task, target: float) -> list[Row]:
    """The task's own recipe and model, as `gmip train` takes them, with the noise that either notion needs."""
    params = num_params_of(task)
    rows = []
    plans = {}
    for arm, notion in (("own-gmip", "gmip"), ("own-gdp", "gdp")):
        wanted = PrivacyTarget(target_tpr=(target, FPR), notion=notion)  # type: ignore[arg-type]
        plans[arm] = (wanted, calibrated(task.recipe.replace(dataset_size=cell.dataset_size), params, wanted))
    for seed in range(cell.seeds):
        members = task.pool[task.split(cell.dataset_size, seed).members]
        model: Any = initial_model(task, seed)
        recipes = [recipe for _, recipe in plans.values()]
        if isinstance(model, nn.Linear):
            start = (model.weight.detach(), model.bias.detach())
            heads = train_heads(members, recipes, seed=seed, classes=model.out_features, initial=start)
            reached = heads.accuracy(task.test)
        else:
            reached = np.array([evaluate(task, fit(task, r, members, seed=seed), task.test)[1] for r in recipes])
        for (arm, (wanted, recipe)), accuracy in zip(plans.items(), reached, strict=True):
            rows.append(
                _row(cell, arm, target, recipe, params, wanted) | {"seed": seed, "test_accuracy": float(accuracy)}
            )
    return rows


# -- what came out ----------------------------------------------------------------------------------------------------

_LOOKS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "none": ("No noise", {"color": figures.GREY, "marker": "o", "linestyle": (0, (1, 1.5))}),
    "gmip": ("GMIP, typical record", {"color": figures.GREEN, "marker": "^", "linestyle": "solid"}),
    "half": ("GMIP, attacker holds half", {"color": figures.BLUE, "marker": "d", "linestyle": (0, (5, 2))}),
    "gdp": ("GDP", {"color": figures.VERMILLION, "marker": "s", "linestyle": (0, (3, 1.5))}),
    "gdp-fixed": ("GDP, batches of fixed size", {"color": figures.ORANGE, "marker": "v", "linestyle": "none"}),
    "own-gdp": ("GDP, the task's own recipe", {"color": figures.BLACK, "marker": "x", "linestyle": "none"}),
}
_GAIN_LOOKS: Final[tuple[dict[str, Any], ...]] = (
    {"color": figures.PURPLE, "marker": "o"},
    {"color": figures.BLUE, "marker": "^"},
    {"color": figures.ORANGE, "marker": "s"},
)


def drawings(rows: Sequence[Row]) -> list[Drawing]:
    from matplotlib.figure import Figure

    shown = places(rows)
    figure = Figure(figsize=(2.5 * max(len(shown), 2), 5.4), layout="constrained")
    panels = figure.subplots(2, len(shown), squeeze=False, sharex="col", sharey="row")
    told = []
    for column, (task, sizes) in enumerate(shown.items()):
        _draw_levels(panels[0][column], rows, task, sizes)
        told += _draw_gains(panels[1][column], rows, task)
        panels[0][column].set_title(TITLES[task])
        panels[1][column].set_xlabel("Members N")
        panels[1][column].set_xscale("log")
        panels[1][column].set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=45)
        panels[1][column].minorticks_off()
    panels[0][0].set_ylabel("Test accuracy, %\n(5% found)")
    panels[1][0].set_ylabel("GMIP over GDP,\npoints, both tuned")
    handles = {str(line.get_label()): line for panel in panels.ravel() for line in panel.get_legend_handles_labels()[0]}
    figure.legend(
        handles=list(handles.values()),
        title="Mean over seeds; bars: two standard errors",
        loc="outside lower center",
        ncols=4,
    )
    return [Drawing("", figure, f"{TITLE}. Gains of GMIP over GDP: {'; '.join(told)}.")]


def _draw_levels(axes: Any, rows: Sequence[Row], task: str, sizes: Sequence[int]) -> None:
    for arm, (title, look) in _LOOKS.items():
        found = [(size, accuracies(rows, task, size, arm, MIDDLE)) for size in sizes]
        found = [(size, values) for size, values in found if values.size]
        if found:
            axes.errorbar(
                [size for size, _ in found],
                [values.mean() for _, values in found],
                yerr=[2.0 * error_of(values) for _, values in found],
                label=title,
                capsize=2.0,
                markersize=3.5,
                **look,
            )


def _draw_gains(axes: Any, rows: Sequence[Row], task: str) -> list[str]:
    axes.axhline(0.0, color=figures.GREY, linewidth=0.9)
    told = []
    targets = sorted({row["target"] for row in rows if row["target"] is not None})
    for place, (target, look) in enumerate(zip(targets, _GAIN_LOOKS, strict=False)):
        mine = [gain for gain in gains(rows, "gmip", "gdp", targets=[target]) if gain.task == task]
        axes.errorbar(
            [gain.size * 1.08 ** (place - 1) for gain in mine],
            [gain.mean for gain in mine],
            yerr=[2.0 * gain.error for gain in mine],
            label=f"{percent(target)} found",
            capsize=2.0,
            markersize=3.5,
            linewidth=1.0,
            **look,
        )
        told += [gain.words for gain in mine]
    return told


def table(rows: Sequence[Row]) -> Table:
    arms = (
        "none",
        "gmip",
        "measured",
        "half",
        "any",
        "gdp",
        "gdp-same",
        "gmip-fixed",
        "gdp-fixed",
        "any-fixed",
        "own-gdp",
    )
    body = []
    for task, sizes in places(rows).items():
        for size in sizes:
            for target in sorted({row["target"] for row in rows if row["target"] is not None}):
                cells = [TableCell(TITLES[task]), TableCell(f"{size:,}"), TableCell(percent(target))]
                for arm in arms:
                    mine = select(rows, task, size, arm, target)
                    if not mine:
                        cells.append(TableCell(""))
                        continue
                    values = 100.0 * np.array([row["test_accuracy"] for row in mine])
                    noise = f"s = {mine[0]['noise_multiplier']:.2f}"
                    claimed = f"exposure {100 * mine[0]['exposure']:.2g}%"
                    details = (f"± {error_of(values):.2f}", claimed if arm == "none" else noise)
                    cells.append(TableCell(f"{values.mean():.2f}%", details))
                body.append(tuple(cells))
    columns = ("Data set", "N", "Target", *arms)
    return Table(
        "Test accuracy, its standard error over seeds, and the noise multiplier", columns, tuple(body), frozenset({0})
    )


def probe() -> list[Row]:
    """A small search, in which noise counts."""
    cell = next(one for one in cells(True) if one.task == "breast-cancer")
    grid = cell.grid._replace(shares=(0.5, 1.0), clip_norms=(0.3,))
    return run(dataclasses.replace(cell, grid=grid, seeds=1, dataset_size=100))


EXPERIMENT: Final = Experiment(
    name="value",
    title=TITLE,
    paper="Not in the paper",
    claim=(
        "Data randomness saves noise. Here every guarantee gets its own best recipe (clipping norm, learning rate, "
        "batches, number of steps and of features), and the question is how much accuracy is left to gain."
    ),
    quick="3 of the 15 settings, 1 of the 3 targets, 3 seeds and a small grid.",
    version=2,
    cells=cells,
    run=run,
    drawings=drawings,
    table=table,
    claims=all_claims,
    probe=probe,
    constants=CONSTANTS,
)
STUDY: Final = Study(TITLE, "Not in the paper; every privacy target has its own best recipe", (EXPERIMENT,))
