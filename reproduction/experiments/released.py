"""The settings of the authors' released code (named in the paper's footnote), and what three of its defects do.

Settings: Adam at 1e-3 (CIFAR-10) and 2e-3 (tables), no clipping in the audit, 10,000 background records, shuffled
epochs. Its crops and flips of CIFAR-10 are not repeated: features are computed once for each image here. The defects
are rebuilt in code of our own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from gmip.accounting.noncentral_chi2 import log_cdf
from gmip.report.tables import Cell as TableCell
from gmip.report.tables import Table
from gmip.stats.scores import auc
from gmip.tasks import Task, load
from reproduction import figures
from reproduction.experiment import Cell, Claim, Drawing, Experiment, Row, Study, judged
from reproduction.experiments import audit, utility
from reproduction.linear_heads import Heads, start_of, train_heads
from reproduction.paper import AUDIT_SIZES, READ_OFF, TARGET_MUS, UTILITY, UTILITY_SIZES, recipe_for

TITLE: Final = "What three defects of the released code do"

Array = NDArray[np.float64]
_SEEDS: Final = 5
_AUDIT_SEEDS: Final = 3
_STEPS: Final = 5
_FLOOR: Final = -250.0  # of a log p-value, as there
_FLAT: Final = 1.0e-9  # eigenvalues below this share of the largest are rounding
_TASKS: Final = ("cifar10", "adult")
_PARTS: Final = ("one step", "five steps", "noise", "condition")
_FREE: Final = TARGET_MUS[5]  # the first level at which GMIP takes no noise on Adult


@dataclass(frozen=True, kw_only=True)
class Whitening(Cell):
    """The paper's attack with the inverse of the covariance, and with that of the covariance taken for its own Cholesky
    factor, as torch.cholesky_inverse(covariance) does."""

    seed: int


@dataclass(frozen=True, kw_only=True)
class SharedNoise(Cell):
    """Noise of the right size for each weight, drawn for each class, and drawn once for all classes."""

    seed: int
    mu: float


@dataclass(frozen=True, kw_only=True)
class Condition(Cell):
    """GMIP with its own noise, and with that of GDP, which a condition that is always true gives to tables."""

    seed: int
    mu: float


def cells(quick: bool) -> list[Cell]:
    seeds = range(1 if quick else _SEEDS)
    found: list[Cell] = [Whitening(task=task, seed=seed) for task in _TASKS for seed in seeds]
    found += [SharedNoise(task=task, seed=seed, mu=TARGET_MUS[0]) for task in _TASKS for seed in seeds]
    return found + [Condition(task="adult", seed=seed, mu=_FREE) for seed in seeds]


def run(cell: Cell) -> list[Row]:
    assert cell.task is not None
    task = audit.audit_task(cell.task)
    if isinstance(cell, Whitening):
        return whitened(task, AUDIT_SIZES[cell.task][1], cell.seed)
    assert isinstance(cell, (SharedNoise, Condition))
    shares = isinstance(cell, SharedNoise)
    recipe = recipe_for(task, UTILITY[cell.task].run)
    recipe = recipe.replace(learning_rate=audit.released_rate(task), sampling="shuffled")
    members = task.pool[task.split(recipe.dataset_size, cell.seed).members]
    start = start_of(task, cell.seed)
    rows = []
    for defect in (False, True):
        accounting = "gdp" if shares or defect else "gmip-paper"
        heads = train_heads(
            members,
            [recipe.replace(noise_std=utility.noise_of(cell.task, accounting, cell.mu))],
            seed=cell.seed,
            classes=len(start[1]),
            initial=start,
            shared_noise=shares and defect,
        )
        value = float(heads.accuracy(task.test)[0])
        part = "noise" if shares else "condition"
        rows.append(_row(cell.task, part, "accuracy", cell.seed, defect=defect, value=value))
    return rows


def _row(task: str, part: str, measure: str, seed: int, *, defect: bool, value: float) -> Row:
    return {"task": task, "part": part, "measure": measure, "seed": seed, "defect": defect, "value": value}


def whitened(task: Task, n: int, seed: int) -> list[Row]:
    """AUC of the attack after one step and after five, without and with the defect."""
    split = task.split(n, seed)
    start = start_of(task, seed)
    members, others = task.pool[split.members], task.pool[split.non_members[:n]]
    background = task.pool[split.unused[: audit.background_of(task.name, "released")]]
    recipes = [audit.recipe_of(task, n, steps, "released") for steps in range(1, _STEPS)]
    later = train_heads(members, recipes, seed=seed, classes=len(start[1]), initial=start)
    first = torch.cat([start[0].T, start[1][None]])[:, :, None]
    heads = Heads(torch.cat([first, later.weights], dim=2))
    totals: dict[bool, list[Array]] = {False: [], True: []}
    for step in range(_STEPS):
        inside, outside, known = (
            heads.gradients(part, step, float("inf")).double().numpy() for part in (members, others, background)
        )
        candidates, published = np.concatenate([inside, outside]), inside.mean(axis=0)
        for defect, kept in totals.items():
            kept.append(log_p_values(published, candidates, known, n, defect=defect))
    rows = []
    for defect, kept in totals.items():
        for part, steps in (("one step", 1), ("five steps", _STEPS)):
            scores = -np.sum(kept[:steps], axis=0)
            found = float(auc(scores[:n], scores[n:]))
            rows.append(_row(task.name, part, "AUC", seed, defect=defect, value=found))
    return rows


def log_p_values(published: Array, candidates: Array, background: Array, n: int, *, defect: bool) -> Array:
    """Algorithm 1 of the paper for one step, shape (candidates,).

    defect : the covariance is taken for its own Cholesky factor, of which only the lower triangle is read.
    """
    varies = background.var(axis=0) > 0.0
    published, candidates, background = published[varies], candidates[:, varies], background[:, varies]
    mean = background.mean(axis=0)
    centred = background - mean
    covariance = centred.T @ centred / len(background)
    if defect:
        root = np.linalg.inv(np.tril(covariance))  # of the inverse: (L L')^-1 = root' root
        rank = len(covariance)
    else:
        values, vectors = np.linalg.eigh(covariance)
        kept = values > _FLAT * values[-1]
        root, rank = (vectors[:, kept] / np.sqrt(values[kept])).T, int(kept.sum())
    statistic = (n - 1) * np.square((published - candidates) @ root.T).sum(axis=1)
    susceptibility = np.square((candidates - mean) @ root.T).sum(axis=1)
    return np.maximum(log_cdf(statistic, rank, n * susceptibility), _FLOOR)


# -- what came out ----------------------------------------------------------------------------------------------------


def _values(rows: Sequence[Row], task: str, part: str, *, defect: bool) -> Array:
    mine = [row for row in rows if (row["task"], row["part"], row["defect"]) == (task, part, defect)]
    return np.array([row["value"] for row in sorted(mine, key=lambda row: int(row["seed"]))], dtype=np.float64)


def _present(rows: Sequence[Row]) -> list[tuple[str, str]]:
    places = [(task, part) for task in _TASKS for part in _PARTS]
    return [place for place in places if _values(rows, *place, defect=True).size]


def drawings(rows: Sequence[Row]) -> list[Drawing]:
    figure, panels = figures.panels(2, width=7.6, height=3.4)
    for axes, noise in zip(panels, (False, True), strict=True):
        mine = [(task, part) for task, part in _present(rows) if (part in _PARTS[2:]) == noise]
        for place, (task, part) in enumerate(mine):
            for defect, colour in ((False, figures.BLUE), (True, figures.VERMILLION)):
                values = _values(rows, task, part, defect=defect) * (100.0 if noise else 1.0)
                label = ("with the defect" if defect else "without it") if place == 0 else None
                axes.plot([place] * values.size, values, "x" if defect else "o", color=colour, alpha=0.8, label=label)
        axes.set_xticks(range(len(mine)), [f"{UTILITY[task].title}\n{part}" for task, part in mine])
        axes.set(ylabel="Test accuracy, %" if noise else "AUC of GLiR", xlim=(-0.6, len(mine) - 0.4))
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    told = "; ".join(claim.measured for claim in claims(rows))
    return [Drawing("", figure, f"{TITLE}. {told}.")]


def table(rows: Sequence[Row]) -> Table:
    body = []
    for task, part in _present(rows):
        told = [f"{_values(rows, task, part, defect=defect).mean():.4f}" for defect in (False, True)]
        body.append(tuple(map(TableCell, (UTILITY[task].title, part, *told))))
    caption = "AUC of the attack, or share of test records that are right: means over seeds"
    return Table(caption, ("Data set", "Part", "Without the defect", "With it"), tuple(body), frozenset({0, 1}))


def claims(rows: Sequence[Row]) -> list[Claim]:
    return [_claim(rows, task, part) for task, part in _present(rows)]


def _claim(rows: Sequence[Row], task: str, part: str) -> Claim:
    right, wrong = (_values(rows, task, part, defect=defect) for defect in (False, True))
    sign = 1.0 if part == "noise" else -1.0
    change = sign * (wrong - right)
    error = float(change.std(ddof=1) / np.sqrt(change.size)) if change.size > 1 else np.inf
    expected, changed = "a weaker attack", f"{100 * right.mean():.1f}% to {100 * wrong.mean():.1f}%"
    if part == "noise":
        what = "noise that all classes share costs less accuracy than noise that the accounting is about"
        expected, told = "higher accuracy", f"{changed} at μ = {TARGET_MUS[0]:.2f} (GDP)"
    elif part == "condition":
        what = "a condition that is always true gives GMIP the noise of GDP, and takes its gain away"
        expected, told = "lower accuracy", f"{changed}, which is GDP's, at μ = {_FREE:.2f} (GMIP)"
    else:
        what = f"a covariance taken for its own Cholesky factor weakens the attack ({part})"
        told = f"AUC {right.mean():.3f} to {wrong.mean():.3f}"
        shown = READ_OFF.get((task, part))
        if shown:
            told += f"; the authors' notebook shows about {audit.read_off_area(shown):.2f}"
    moved = float(change.mean())
    return Claim(
        what=f"{UTILITY[task].title}: {what}",
        published=expected,
        measured=f"{told}; {change.size} seed{'s' * (change.size > 1)}",
        verdict=judged(agrees=moved > 2.0 * error, differs=moved > -2.0 * error),
        words="" if moved > 2.0 * error else "Not clear from these seeds." if moved > -2.0 * error else "The reverse.",
        ours=True,
    )


def probe() -> list[Row]:
    return whitened(load("digits"), 120, 0)


def _audit_cells(quick: bool) -> list[Cell]:
    seeds = range(1 if quick else _AUDIT_SEEDS)
    return [
        audit.Recorded(task=task, seed=seed, games=6 if quick else 12, setting="released")
        for task in AUDIT_SIZES
        for seed in seeds
    ]


def _utility_cells(quick: bool) -> list[Cell]:
    return [dataclasses.replace(cell, setting="released") for cell in utility.cells(quick)]


AUDIT: Final = dataclasses.replace(
    audit.EXPERIMENT,
    name="audit-released",
    title="GLiR against the bounds, settings of the released code",
    quick="1 of the 3 seeds, which leaves no bands, and less self-play.",
    cells=_audit_cells,
)
ACCURACY: Final = dataclasses.replace(
    utility.EXPERIMENT,
    name="utility-released",
    title="Accuracy at a level of privacy, settings of the released code",
    cells=_utility_cells,
)
DEFECTS: Final = Experiment(
    name="defects",
    title=TITLE,
    paper="Not in the paper",
    claim=(
        "The released code inverts the covariance as if it were its own Cholesky factor, draws one noise vector for "
        "all classes, and has a condition that gives tables the noise of GDP whatever the notion. Each is rebuilt "
        "here, and compared with the same run without it."
    ),
    quick="1 of the 5 seeds.",
    version=1,
    cells=cells,
    run=run,
    drawings=drawings,
    table=table,
    claims=claims,
    probe=probe,
    constants={"audit": audit.CONSTANTS, "utility": UTILITY_SIZES},
)
RELEASED: Final = Study(
    "Experiments of the paper in the settings of its released code",
    "Adam at 1e-3 or 2e-3, no clipping in the audit, 10,000 background records, shuffled epochs; no crops and flips",
    (AUDIT, ACCURACY, DEFECTS),
)
