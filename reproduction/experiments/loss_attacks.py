"""The appendix's loss attacks: LiRA on the models of the audit, after few steps and after many, and of the utility."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gmip._random import Stream
from gmip.accounting.account import account
from gmip.accounting.families import Gaussian
from gmip.accounting.step import corollary_mu
from gmip.attacks import GLiR
from gmip.attacks.arrays import Moments, likelihood_ratios
from gmip.report.tables import Table
from gmip.tasks import Task, load
from gmip.trace import Trace
from gmip.training import train
from gmip.vocabulary import Recipe
from reproduction import figures
from reproduction.experiment import Cell, Claim, Drawing, Experiment, Row, judged
from reproduction.experiments.audit import ADAM, TITLES, audit_task, check_sizes, recipe_of
from reproduction.linear_heads import start_of, train_apart
from reproduction.paper import AUDIT_SIZES, UTILITY, UTILITY_SIZES, recipe_for
from reproduction.roc_curves import Band, Curves, area_table, attack_row, by_curve, curve_row, draw_all, legend

TITLE: Final = "Attacks on the loss"

_SEEDS: Final = 5
_STEPS: Final = 5
_BACKGROUND: Final = 20_000
STAGES: Final = {
    "five steps": "(a) Audit, 5 steps",
    "long": "(b) Audit, as many steps as utility",
    "utility": "(c) Models of the utility experiment",
}
# Targets and shadow models of each stage, and of fewer shadow models what they would have found.
_MODELS: Final = {"five steps": (16, 64), "long": (16, 64), "utility": (32, 160)}
_FEWER: Final = (12, 64)
CURVES: Final[Curves] = {
    "bound": ("Bound, K = d (paper)", {"color": figures.BLACK, "linewidth": 3.0, "alpha": 0.35}),
    "glir-paper": ("GLiR as in the paper", {"color": figures.BLUE}),
    "lira": ("LiRA", {"color": figures.VERMILLION}),
    "lira-64": ("LiRA, 64 of the shadow models", {"color": figures.PURPLE, "linestyle": (0, (5, 1.5))}),
    "lira-12": ("LiRA, 12 of the shadow models", {"color": figures.GREEN, "linestyle": (0, (1, 1.3))}),
    "loss": ("Loss", {"color": figures.ORANGE, "linestyle": (0, (5, 1.5))}),
}
_CLEAR, _HINT = 3.0, 1.64  # standard errors above chance: works, may work
_NOTHING: Final = 0.005  # above an AUC of one half: if more is excluded, an attack does not work


@dataclass(frozen=True, kw_only=True)
class Gradients(Cell):
    """A run of five steps, attacked by its gradients."""

    seed: int


@dataclass(frozen=True, kw_only=True)
class Fleet(Cell):
    """Models that are trained side by side: some are attacked, the others are the shadow models of all of them."""

    stage: str
    targets: int
    shadows: int


def cells(quick: bool) -> list[Cell]:
    found: list[Cell] = []
    for task in AUDIT_SIZES:
        found += [Gradients(task=task, seed=seed) for seed in range(1 if quick else _SEEDS)]
        for stage, (targets, shadows) in _MODELS.items():
            if quick:
                targets, shadows = 4, 16
            if not (quick and stage == "utility" and task != "cifar10"):
                found.append(Fleet(task=task, stage=stage, targets=targets, shadows=shadows))
    return found


def run(cell: Cell) -> list[Row]:
    """A row for each curve, and of the attacks on the loss for each target."""
    assert cell.task is not None
    task = audit_task(cell.task)
    if isinstance(cell, Gradients):
        about: Row = {"task": task.name, "stage": "five steps", "seed": cell.seed, "shadows": 0}
        return [about | {"curve": curve} | rates for curve, rates in _gradient_curves(cell, task).items()]
    assert isinstance(cell, Fleet)
    return [{"task": task.name, "stage": cell.stage} | row for row in _fleet(cell, task)]


def _audit_recipe(task: Task, steps: int) -> Recipe:
    d, n = AUDIT_SIZES[task.name]
    check_sizes(task, d, n)
    return recipe_of(task, n, steps)


def _gradient_curves(cell: Gradients, task: Task) -> dict[str, Row]:
    d, n = AUDIT_SIZES[task.name]
    with tempfile.TemporaryDirectory() as folder:
        result = train(task, _audit_recipe(task, _STEPS), seed=cell.seed, out=folder)
        background = task.pool[result.split.unused[:_BACKGROUND]]
        found = GLiR(method="paper", play=None).run(task, Trace.open(folder), background=background)
    inside = np.isin(found.ids, result.split.members)
    mu = math.sqrt(_STEPS) * corollary_mu(num_params=d, susceptibility=d, effective_batch_size=n)
    return {
        "bound": curve_row(Gaussian(mu)),
        "glir-paper": attack_row(found.scores[inside], found.scores[~inside]),
    }


def _fleet(cell: Fleet, task: Task) -> list[Row]:
    """LiRA as its authors evaluate it: a set of candidates, of which each model has a random half, and shadow models
    that are trained like the targets. In the utility experiment all other records are members of every model, which
    makes its N."""
    rows: list[Row] = []
    if cell.stage == "utility":
        plan = UTILITY[task.name].run
        recipe = recipe_for(task, plan)
        count = 2 * (len(task.pool) - recipe.dataset_size)
        bound = curve_row(account(plan.replace(noise_std=0.0), bound="paper", composition="clt"))
        rows.append({"seed": 0, "shadows": 0, "curve": "bound"} | bound)
    else:
        recipe = _audit_recipe(task, _STEPS if cell.stage == "five steps" else UTILITY[task.name].run.num_steps)
        count = 2 * recipe.dataset_size
    rng = Stream.EXPERIMENT_CANDIDATES.rng(0)
    order = rng.permutation(len(task.pool))
    candidates, rest = order[:count], order[count:] if cell.stage == "utility" else order[:0]
    models = cell.targets + cell.shadows
    inside = _halves(rng, models, cell.targets, count)
    heads = train_apart(
        task.pool,
        [np.concatenate([candidates[row], rest]) for row in inside],
        recipe,
        seeds=range(models),
        classes=int(task.pool.targets.max()) + 1,
        initial=lambda seed: start_of(task, seed),
    )
    phi = heads.confidences(task.pool[candidates])
    for shadows in sorted({n for n in (*_FEWER, cell.shadows) if n <= cell.shadows}):
        name = "lira" if shadows == cell.shadows else f"lira-{shadows}"
        rows += [
            {"seed": target, "shadows": shadows, "curve": name} | attack_row(*scores)
            for target, scores in enumerate(_lira(phi, inside, cell.targets, shadows))
        ]
    return rows + [
        {"seed": t, "shadows": 0, "curve": "loss"} | attack_row(phi[inside[t], t], phi[~inside[t], t])
        for t in range(cell.targets)
    ]


def _halves(rng: np.random.Generator, models: int, targets: int, count: int) -> NDArray[np.bool_]:
    """Which candidates are members of which model, shape (models, count): half of them."""
    inside = np.zeros((models, count), dtype=np.bool_)
    for row in inside:
        row[rng.permutation(count)[: count // 2]] = True
    inside[targets + 1 :: 2] = ~inside[targets:-1:2]  # in pairs: each candidate is in half of the shadow models
    return inside


def _lira(
    phi: NDArray[np.float64], inside: NDArray[np.bool_], targets: int, shadows: int
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Scores of members and of non-members of each target; phi : shape (candidates, models)."""
    moments = Moments((len(phi), 1)), Moments((len(phi), 1))
    for model in range(targets, targets + shadows):
        for one, rows in zip(moments, (inside[model], ~inside[model]), strict=True):
            one.add(phi[:, model, None], rows)
    found = [likelihood_ratios(phi[:, target, None], *moments) for target in range(targets)]
    return [(scores[inside[t]], scores[~inside[t]]) for t, scores in enumerate(found)]


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


def _above(band: Band) -> float:
    """How far an AUC is above that of guessing, in standard errors."""
    return (band.auc - 0.5) / band.area_error()


def _chance(rows: Sequence[Row], name: str) -> Claim:
    bands = by_curve(rows, task=name, stage="five steps")
    far = max(("lira", "loss"), key=lambda key: _above(bands[key]))
    told = [
        f"{CURVES[key][0]} AUC {bands[key].auc:.4f} ± {bands[key].area_error():.4f}, "
        f"TPR at FPR 1% {100 * bands[key].at(0.01):.1f}%"
        for key in ("lira", "loss")
    ]
    near = _above(bands[far]) <= _CLEAR
    return Claim(
        what=f"{TITLES[name]}: loss attacks are at chance after five steps",
        published="do not work at all",
        measured="; ".join(told),
        verdict=judged(agrees=near, differs=bands[far].auc < 0.55),
        words="" if near else f"{CURVES[far][0]} is above chance by more than three standard errors.",
    )


def _gradients(rows: Sequence[Row], name: str) -> Claim:
    bands = by_curve(rows, task=name, stage="five steps")
    lira, glir = bands["lira"].at(0.01), bands["glir-paper"].at(0.01)
    ratio = glir / max(lira, 1.0 / bands["lira"].size)
    return Claim(
        what=f"{TITLES[name]}: gradient attacks work up to 10 times more reliably at FPR 1%",
        published="up to 10 times",
        measured=f"TPR {100 * lira:.1f}% of LiRA, {100 * glir:.1f}% of GLiR as in the paper: {ratio:.1f} times",
        verdict=judged(agrees=2.0 < ratio <= 15.0, differs=ratio > 1.0),
        words="" if 2.0 < ratio <= 15.0 else "Better, but by another factor." if ratio > 1.0 else "Not better at all.",
    )


def _long(rows: Sequence[Row], name: str) -> Claim:
    few, many = (by_curve(rows, task=name, stage=stage)["lira"] for stage in ("five steps", "long"))
    more = many.auc > few.auc
    works = _above(many) > _CLEAR and more
    return Claim(
        what=f"{TITLES[name]}: loss attacks start to work when models are trained longer",
        published="slowly start working",
        measured=f"LiRA on models of {AUDIT_SIZES[name][1]} records: AUC {few.auc:.3f} after {_STEPS} steps, "
        f"{many.auc:.3f} after {UTILITY[name].run.num_steps}; TPR at FPR 1% {100 * many.at(0.01):.1f}%",
        verdict=judged(agrees=works, differs=more and _above(many) > _HINT),
        words="" if works else "Not above chance by three standard errors.",
    )


def _large(rows: Sequence[Row], name: str) -> Claim:
    bands = by_curve(rows, task=name, stage="utility")
    shadows = max(row["shadows"] for row in rows if (row["task"], row["stage"]) == (name, "utility"))
    told = {f"lira-{n}": n for n in _FEWER if f"lira-{n}" in bands} | {"lira": shadows}
    lira = bands["lira"]
    works = _above(lira) > _CLEAR
    areas = [f"{bands[key].auc:.4f} ± {bands[key].area_error():.4f} ({n} shadow models)" for key, n in told.items()]
    few = f"lira-{_FEWER[0]}"
    words = "" if works else "Not above chance by three standard errors, and not excluded."
    if works and few in bands and _above(bands[few]) <= _CLEAR:
        words = f"{_FEWER[0]} shadow models are too few."
    return Claim(
        what=f"{TITLES[name]}: loss attacks on the models of the utility experiment",
        published="slowly start working",
        measured=f"LiRA AUC {', '.join(areas)}; the bound of the run {bands['bound'].auc:.3f}",
        verdict=judged(agrees=works, differs=lira.auc + 2.0 * lira.area_error() > 0.5 + _NOTHING),
        words=f"{lira.seeds} targets of {UTILITY[name].run.dataset_size:,} records. {words}".rstrip(),
    )


def probe() -> list[Row]:
    rng = np.random.default_rng(0)
    inside = _halves(rng, 20, 2, 200)
    scores = _lira(rng.normal(size=(200, 20)) + 0.3 * inside.T, inside, targets=2, shadows=18)
    recipe = load("digits").recipe.replace(dataset_size=100, batch_size=100, num_steps=5, **ADAM)
    task = load("digits")
    heads = train_apart(
        task.pool, [np.arange(100)], recipe, seeds=[0], classes=10, initial=lambda seed: start_of(task, seed)
    )
    phi = heads.confidences(task.pool)[:, 0]
    return [attack_row(*pair) for pair in scores] + [attack_row(phi[:100], phi[100:200])]


EXPERIMENT: Final = Experiment(
    name="loss-attacks",
    title=TITLE,
    paper="Figure of the appendix, additional attacks",
    claim=(
        "The loss-based likelihood-ratio attack (LiRA) does not work at all on models of five steps, where gradient "
        "attacks do, and slowly starts to work on models that were trained longer."
    ),
    quick="1 of the 5 runs that GLiR attacks; 4 targets and 16 shadow models at each stage; of the models of the "
    "utility experiment CIFAR-10 alone.",
    version=2,  # 2: shadow models trained side by side, and enough of them
    cells=cells,
    run=run,
    drawings=drawings,
    table=table,
    claims=claims,
    probe=probe,
    constants={"audit": AUDIT_SIZES, "run": ADAM, "background": _BACKGROUND, "utility": UTILITY_SIZES},
)
