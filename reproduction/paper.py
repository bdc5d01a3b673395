"""What the paper (Gaussian Membership Inference Privacy, NeurIPS 2023) prints, and how experiments follow it.

First the published settings, noise and needs of the attacks; then the four ways of accounting that are compared, with
one name and one look each; then tasks, and recipes with the sizes of the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from gmip.accounting.account import account
from gmip.errors import DataUnavailable
from gmip.tasks import Task, load
from gmip.vocabulary import NoisySGD, Recipe
from reproduction import figures
from reproduction.generated import STAND_IN, stand_in

__all__ = [
    "ACCOUNTINGS",
    "ASSUMPTIONS",
    "AUDIT_SIZES",
    "NOISE",
    "READ_OFF",
    "READ_OFF_AT",
    "TARGET_MUS",
    "UTILITY",
    "UTILITY_SIZES",
    "Accounting",
    "Setting",
    "free_from",
    "load_task",
    "recipe_for",
]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A data set in the paper's words, and the run of its utility experiment."""

    title: str
    run: NoisySGD


def _setting(title: str, size: int, params: int, batch: int, epochs: int, clip_norm: float) -> Setting:
    steps = size // batch * epochs
    return Setting(
        title=title,
        run=NoisySGD(dataset_size=size, batch_size=batch, num_steps=steps, num_params=params, clip_norm=clip_norm),
    )


# Table "Parameters for the utility experiment", by the task's name here.
UTILITY: Final = {
    "cifar10": _setting("CIFAR-10", 48_000, 650, 400, 10, 500.0),
    "purchase": _setting("Purchase", 54_855, 2_580, 795, 3, 2_000.0),
    "adult": _setting("Adult", 43_000, 1_026, 1_000, 20, 800.0),
}
UTILITY_SIZES: Final = {
    name: [setting.run.dataset_size, setting.run.batch_size, setting.run.num_steps, setting.run.clip_norm]
    for name, setting in UTILITY.items()
}
# Table of the verification experiment: (d, n) of one full-batch step.
AUDIT_SIZES: Final = {"cifar10": (650, 500), "purchase": (2_580, 1_970), "adult": (1_026, 790)}

# "20 values of mu between 0.4 and 50 that are linearly spaced in logspace".
TARGET_MUS: Final = tuple(float(mu) for mu in np.geomspace(0.4, 50.0, 20))

# Table "Values of tau obtained for the Utility Experiment": notion -> noise_std at each of TARGET_MUS.
NOISE: Final[dict[str, dict[str, tuple[float, ...]]]] = {
    "cifar10": {
        "gmip": (2.84, 2.44, 2.13) + 17 * (0.0,),
        "gdp": (
            *(2.84, 2.44, 2.13, 1.89, 1.70, 1.55, 1.42, 1.32, 1.24, 1.17),
            *(1.11, 1.06, 1.02, 0.98, 0.94, 0.91, 0.88, 0.85, 0.83, 0.81),
        ),
    },
    "purchase": {
        "gmip": (4.72, 4.14, 3.68, 3.32, 3.04, 2.81) + 14 * (0.0,),
        "gdp": (
            *(4.72, 4.14, 3.68, 3.32, 3.04, 2.81, 2.62, 2.46, 2.32, 2.21),
            *(2.11, 2.02, 1.94, 1.87, 1.81, 1.75, 1.70, 1.65, 1.61, 1.57),
        ),
    },
    "adult": {
        "gmip": (3.38, 2.77, 2.30, 1.93, 1.65) + 15 * (0.0,),
        "gdp": (
            *(3.38, 2.77, 2.30, 1.93, 1.65, 1.43, 1.26, 1.13, 1.02, 0.94),
            *(0.87, 0.81, 0.77, 0.73, 0.69, 0.66, 0.63, 0.61, 0.59, 0.57),
        ),
    },
}

# Table "Summarizing the assumptions": what an attack, by its name here, needs, by the names of gmip.attacks.attack.
# "analytical" is the row of that name.
ASSUMPTIONS: Final[dict[str, frozenset[str]]] = {
    "loss": frozenset({"query", "loss", "labels"}),
    "cfd": frozenset({"recourse"}),
    "lira": frozenset({"query", "loss", "population", "labels", "shadows"}),
    "cfd-lrt": frozenset({"recourse", "population", "shadows"}),
    "glir": frozenset({"gradients", "population", "analytical"}),
}

# GLiR's TPR at these FPRs by (task, part of the figure), read off the pictures in GLiRAttack.ipynb of the released code
# (commit bd8c4f6), to about 0.01; the analytical curve of the same picture is met within 0.007. The text of the paper
# has no numbers of its curves, and its notebooks no other pictures of real runs.
READ_OFF_AT: Final = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
READ_OFF: Final[dict[tuple[str, str], tuple[float, ...]]] = {
    ("cifar10", "one step"): (0.07, 0.25, 0.41, 0.52, 0.62, 0.71, 0.78, 0.86, 0.92, 0.97, 0.99),
    ("cifar10", "five steps"): (0.07, 0.25, 0.42, 0.53, 0.62, 0.72, 0.79, 0.86, 0.92, 0.97, 0.98),
    ("purchase", "five steps"): (0.10, 0.29, 0.45, 0.57, 0.68, 0.76, 0.83, 0.89, 0.94, 0.98, 0.99),
    ("adult", "five steps"): (0.04, 0.16, 0.29, 0.40, 0.50, 0.60, 0.68, 0.76, 0.85, 0.93, 0.97),
}


@dataclass(frozen=True, kw_only=True)
class Accounting:
    """keywords : of `calibrate` and `account`; plot_style : of matplotlib's plot."""

    title: str
    short: str
    keywords: Mapping[str, Any]
    plot_style: Mapping[str, Any]


ACCOUNTINGS: Final = {
    "gdp": Accounting(
        title="GDP, as in the paper (CLT)",
        short="GDP (CLT)",
        keywords={"notion": "gdp", "composition": "clt"},
        plot_style={"color": figures.VERMILLION, "marker": "s", "linestyle": "solid"},
    ),
    "gdp-exact": Accounting(
        title="GDP, exact composition",
        short="GDP (exact)",
        keywords={"notion": "gdp", "composition": "exact"},
        plot_style={"color": figures.ORANGE, "marker": "D", "linestyle": (0, (1.2, 1.2))},
    ),
    "gmip-paper": Accounting(
        title="GMIP, as in the paper (CLT)",
        short="GMIP (paper)",
        keywords={"bound": "paper", "composition": "clt"},
        plot_style={"color": figures.BLUE, "marker": "o", "linestyle": (0, (5, 2))},
    ),
    "gmip-tight": Accounting(
        title="GMIP, tight bound, exact composition",
        short="GMIP (tight, exact)",
        keywords={"bound": "tight", "composition": "exact"},
        plot_style={"color": figures.GREEN, "marker": "^", "linestyle": (0, (6, 2, 1, 2))},
    ),
}


@lru_cache(maxsize=64)
def free_from(run: NoisySGD, accounting: str) -> float:
    """The mu from which the run needs no noise; infinity where it always does."""
    return account(run.replace(noise_std=0.0), **ACCOUNTINGS[accounting].keywords).equivalent_mu()


@lru_cache(maxsize=2)
def load_task(name: str) -> Task:
    """`gmip.tasks.load`, remembered; STAND_IN is the task purchase with generated records."""
    return stand_in() if name == STAND_IN else load(name)


def recipe_for(task: Task, run: NoisySGD, *, noise_std: float = 0.0) -> Recipe:
    """The task's recipe with the sizes of a run of the paper; a smaller pool is no stand-in."""
    if len(task.pool) <= run.dataset_size:
        raise DataUnavailable(
            f"{task.name} has {len(task.pool)} records to train on here, and the run of the paper takes "
            f"{run.dataset_size}",
            remedy="get the whole published file",
        )
    return task.recipe.replace(
        dataset_size=run.dataset_size,
        batch_size=run.batch_size,
        num_steps=run.num_steps,
        clip_norm=run.clip_norm,
        noise_std=noise_std,
    )
