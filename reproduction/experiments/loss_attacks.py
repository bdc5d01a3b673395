"""The appendix's loss attacks: LiRA on the models of the audit, after few steps and after many, and of the utility."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from gmip._random import Stream
from gmip.accounting.account import account
from gmip.accounting.families import Gaussian
from gmip.accounting.step import corollary_mu
from gmip.attacks import Attack, GLiR, LiRA, Loss, Shadows
from gmip.attacks.glir import Play
from gmip.report.tables import Table
from gmip.tasks import Task
from gmip.trace import Trace
from gmip.training import train
from reproduction import figures
from reproduction.experiment import Cell, Claim, Drawing, Experiment, Row
from reproduction.experiments.audit import ADAM, TITLES, audit_task, check_sizes
from reproduction.paper import AUDIT_SIZES, UTILITY, recipe_for
from reproduction.roc_curves import Curves, area_table, attack_row, by_curve, curve_row, draw_all, legend

TITLE: Final = "Attacks on the loss"

_SEEDS: Final = 5
_UTILITY_SEEDS: Final = 2
_STEPS: Final = 5
_BACKGROUND: Final = 20_000
_CANDIDATES: Final = 1_000  # of each kind, on the models of the utility experiment
STAGES: Final = {
    "five steps": "(a) Audit, 5 steps",
    "long": "(b) Audit, as many steps as utility",
    "utility": "(c) Models of the utility experiment",
}
CURVES: Final[Curves] = {
    "bound": ("Bound, K = d (paper)", {"color": figures.BLACK, "linewidth": 3.0, "alpha": 0.35}),
    "glir": ("GLiR, all steps jointly", {"color": figures.GREEN}),
    "glir-paper": ("GLiR as in the paper", {"color": figures.BLUE}),
    "lira": ("LiRA", {"color": figures.VERMILLION}),
    "loss": ("Loss", {"color": figures.ORANGE, "linestyle": (0, (5, 1.5))}),
}


@dataclass(frozen=True, kw_only=True)
class Target(Cell):
    """A run to attack, with shadow models of its own."""

    stage: str
    seed: int
    shadows: int


def cells(quick: bool) -> list[Target]:
    found = []
    for task in AUDIT_SIZES:
        for stage in ("five steps", "long"):
            for seed in range(1 if quick else _SEEDS):
                found.append(Target(task=task, stage=stage, seed=seed, shadows=16 if quick else 32))
    for task in ("cifar10",) if quick else tuple(UTILITY):
        for seed in range(1 if quick else _UTILITY_SEEDS):
            found.append(Target(task=task, stage="utility", seed=seed, shadows=4 if quick else 12))
    return found


def run(cell: Target) -> list[Row]:
    """A row for each curve."""
    assert cell.task is not None
    task = audit_task(cell.task)
    with tempfile.TemporaryDirectory() as folder:
        curves = _utility(cell, task, Path(folder)) if cell.stage == "utility" else _audit(cell, task, Path(folder))
    facts: Row = {"task": cell.task, "stage": cell.stage, "seed": cell.seed, "shadows": cell.shadows}
    return [facts | {"curve": curve} | rates for curve, rates in curves.items()]


def _audit(cell: Target, task: Task, folder: Path) -> dict[str, Row]:
    """A model of the audit; the bound is of five steps, which is what GLiR uses."""
    d, n = AUDIT_SIZES[task.name]
    check_sizes(task, d, n)
    steps = _STEPS if cell.stage == "five steps" else UTILITY[task.name].run.num_steps
    recipe = task.recipe.replace(dataset_size=n, batch_size=n, num_steps=steps, **ADAM)
    result = train(task, recipe, seed=cell.seed, out=folder / "run")
    trace = Trace.open(folder / "run")
    background = task.pool[result.split.unused[:_BACKGROUND]]
    shadows = Shadows(count=cell.shadows, seed=cell.seed, workers=1, folder=folder / "shadows")
    attacks: dict[str, Attack] = {"lira": LiRA(shadows=shadows), "loss": Loss()}
    if cell.stage == "five steps":
        attacks["glir"] = GLiR(method="joint", play=Play(games=6, tuning_games=6))
        attacks["glir-paper"] = GLiR(method="paper", play=None)
    mu = math.sqrt(_STEPS) * corollary_mu(num_params=d, susceptibility=d, effective_batch_size=n)
    curves = {"bound": curve_row(Gaussian(mu))} if cell.stage == "five steps" else {}
    for name, attack in attacks.items():
        found = attack.run(task, trace, background=background)
        inside = np.isin(found.ids, result.split.members)
        curves[name] = attack_row(found.scores[inside], found.scores[~inside])
    return curves


def _utility(cell: Target, task: Task, folder: Path) -> dict[str, Row]:
    """A model of the utility experiment, without noise. Nearly all records are members: shadow models are filled up
    from those that are no candidates, members among them, as LiRA's own authors draw all models from one pool."""
    plan = UTILITY[task.name].run
    recipe = recipe_for(task, plan)
    # One stored step is enough: the attacks ask the trained model only.
    result = train(task, recipe, seed=cell.seed, out=folder / "run", every=plan.num_steps)
    trace = Trace.open(folder / "run")
    rng = Stream.EXPERIMENT_CANDIDATES.rng(cell.seed)
    count = min(_CANDIDATES, len(result.split.non_members))
    members, others = (
        rng.choice(ids, count, replace=False) for ids in (result.split.members, result.split.non_members)
    )
    candidates = np.sort(np.concatenate([members, others]))
    background = task.pool[np.setdiff1d(np.arange(len(task.pool)), candidates)]
    shadows = Shadows(count=cell.shadows, seed=cell.seed, workers=1, folder=folder / "shadows")
    curves = {"bound": curve_row(account(plan.replace(noise_std=0.0), bound="paper", composition="clt"))}
    for name, attack in (("lira", LiRA(shadows=shadows)), ("loss", Loss())):
        found = attack.run(task, trace, candidates, background)
        inside = np.isin(found.ids, members)
        curves[name] = attack_row(found.scores[inside], found.scores[~inside])
    return curves


# -- what came out ----------------------------------------------------------------------------------------------------


def _present(rows: Sequence[Row], stage: str) -> list[str]:
    return [name for name in AUDIT_SIZES if any((row["task"], row["stage"]) == (name, stage) for row in rows)]


def drawings(rows: Sequence[Row]) -> list[Drawing]:
    from matplotlib.figure import Figure

    names = [name for name in AUDIT_SIZES if any(row["task"] == name for row in rows)]
    figure = Figure(figsize=(9.6, 3.0 * len(names) + 0.9), layout="constrained")
    grid = figure.subplots(len(names), len(STAGES), squeeze=False)
    lines: dict[str, Any] = {}
    told: list[str] = []
    for down, name in enumerate(names):
        for across, (stage, title) in enumerate(STAGES.items()):
            axes = grid[down][across]
            if name not in _present(rows, stage):
                axes.set_axis_off()
                axes.text(0.5, 0.5, "not in this run", ha="center", color=figures.GREY)
                continue
            bands = by_curve(rows, CURVES, task=name, stage=stage)
            lines |= draw_all(axes, bands, CURVES, log=True)
            told += [f"{TITLES[name]}, {stage}, {curve}: AUC {found.auc:.3f}" for curve, found in bands.items()]
            axes.set_title(f"{title}\n{TITLES[name]}" if down == 0 else TITLES[name])
            axes.set_xlabel("False-positive rate")
        grid[down][0].set_ylabel("True-positive rate")
    legend(figure, lines, CURVES, columns=3)
    return [Drawing("", figure, f"{TITLE}. {'; '.join(told)}.")]


def table(rows: Sequence[Row]) -> Table:
    places = [(stage, name) for stage in STAGES for name in _present(rows, stage)]
    parts = ((TITLES[name], stage, by_curve(rows, CURVES, task=name, stage=stage)) for stage, name in places)
    return area_table(parts, CURVES, part="Models")


def claims(rows: Sequence[Row]) -> list[Claim]:
    found = []
    for name in _present(rows, "five steps"):
        found += [_chance(rows, name), _gradients(rows, name)]
    found += [_long(rows, name) for name in _present(rows, "long") if name in _present(rows, "five steps")]
    return found + [_large(rows, name) for name in _present(rows, "utility")]


def _chance(rows: Sequence[Row], name: str) -> Claim:
    bands = by_curve(rows, task=name, stage="five steps")
    near = all(abs(bands[key].auc - 0.5) <= 3.0 * bands[key].area_error() for key in ("lira", "loss"))
    told = [
        f"{CURVES[key][0]} AUC {bands[key].auc:.3f} ± {bands[key].area_error():.3f}, "
        f"TPR at FPR 1% {100 * bands[key].at(0.01):.1f}%"
        for key in ("lira", "loss")
    ]
    return Claim(
        what=f"{TITLES[name]}: loss attacks are at chance after five steps",
        published="do not work at all",
        measured="; ".join(told),
        agrees="yes" if near else "no",
        words="" if near else "Above chance by more than three standard errors.",
    )


def _gradients(rows: Sequence[Row], name: str) -> Claim:
    bands = by_curve(rows, task=name, stage="five steps")
    lira = bands["lira"].at(0.01)
    ratios = {key: bands[key].at(0.01) / max(lira, 1.0 / bands["lira"].size) for key in ("glir-paper", "glir")}
    return Claim(
        what=f"{TITLES[name]}: gradient attacks work up to 10 times more reliably at FPR 1%",
        published="up to 10 times",
        measured=f"TPR {100 * lira:.1f}% of LiRA; {100 * bands['glir-paper'].at(0.01):.1f}% of GLiR as in the paper, "
        f"{ratios['glir-paper']:.1f} times; {100 * bands['glir'].at(0.01):.1f}% jointly, {ratios['glir']:.1f} times",
        agrees="yes" if ratios["glir-paper"] > 2.0 else "differs" if ratios["glir"] > 2.0 else "no",
        words="A TPR of LiRA near 1% rests on a handful of members, and so does the ratio.",
    )


def _long(rows: Sequence[Row], name: str) -> Claim:
    few, many = (by_curve(rows, task=name, stage=stage)["lira"] for stage in ("five steps", "long"))
    n = AUDIT_SIZES[name][1]
    works = many.auc - 0.5 > 3.0 * many.area_error()
    return Claim(
        what=f"{TITLES[name]}: loss attacks start to work when models are trained longer",
        published="slowly start working",
        measured=f"LiRA on models of {n} records: AUC {few.auc:.3f} after {_STEPS} steps, {many.auc:.3f} after "
        f"{UTILITY[name].run.num_steps}; TPR at FPR 1% {100 * many.at(0.01):.1f}%",
        agrees="yes" if works and many.auc > few.auc else "no",
    )


def _large(rows: Sequence[Row], name: str) -> Claim:
    bands = by_curve(rows, task=name, stage="utility")
    lira, bound, size = bands["lira"], bands["bound"], UTILITY[name].run.dataset_size
    works = lira.auc - 0.5 > 3.0 * lira.area_error()
    shadows = max(row["shadows"] for row in rows if (row["task"], row["stage"]) == (name, "utility"))
    return Claim(
        what=f"{TITLES[name]}: loss attacks on the models of the utility experiment",
        published="slowly start working",
        measured=f"LiRA AUC {lira.auc:.3f} ± {lira.area_error():.3f}, the bound of the run {bound.auc:.3f}",
        agrees="yes" if works else "differs",
        words=""
        if works
        else f"Nothing was found with {shadows} shadow models and {size:,} records; more shadow models were not tried. "
        "The paper's caption names the models of the utility experiment, its text only their number of epochs.",
    )


EXPERIMENT: Final = Experiment(
    name="loss-attacks",
    title=TITLE,
    paper="Figure of the appendix, additional attacks",
    claim=(
        "The loss-based likelihood-ratio attack (LiRA) does not work at all on models of five steps, where gradient "
        "attacks do, and slowly starts to work on models that were trained longer."
    ),
    quick="1 of the 5 seeds, 16 of the 32 shadow models; of the models of the utility experiment CIFAR-10 alone, 4 of "
    "12.",
    version=1,
    cells=cells,
    run=run,
    drawings=drawings,
    table=table,
    claims=claims,
)
