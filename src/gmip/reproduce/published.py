"""What the paper (Gaussian Membership Inference Privacy, NeurIPS 2023) prints: settings, noise, the attacks' needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from gmip.accounting.mechanism import NoisySGD

__all__ = ["ASSUMPTIONS", "AUDIT_SIZES", "NOISE", "TARGET_MUS", "UTILITY", "Setting"]


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

# Table "Summarizing the assumptions": what an attack, by its name here, needs, by the names of gmip.attacks.base.NEEDS.
# "analytical" is the row of that name.
ASSUMPTIONS: Final[dict[str, frozenset[str]]] = {
    "loss": frozenset({"query", "loss", "labels"}),
    "cfd": frozenset({"recourse"}),
    "lira": frozenset({"query", "loss", "population", "labels", "shadows"}),
    "cfd-lrt": frozenset({"recourse", "population", "shadows"}),
    "glir": frozenset({"gradients", "population", "analytical"}),
}
