"""The experiments of the paper, one module each (`audit` has two figures of the same rows)."""

from __future__ import annotations

from typing import Final

from reproduction.experiment import Study
from reproduction.experiments import ablations, assumptions, audit, convergence, loss_attacks, tau_table, utility
from reproduction.experiments.released import RELEASED
from reproduction.experiments.stand_in import STANDING_IN

__all__ = ["PAPER", "SETTINGS"]

PAPER: Final = Study(
    "Experiments of the paper, repeated",
    "Gaussian Membership Inference Privacy (NeurIPS 2023)",
    (
        convergence.EXPERIMENT,
        audit.EXPERIMENT,
        audit.LOGLOG,
        utility.EXPERIMENT,
        tau_table.EXPERIMENT,
        assumptions.EXPERIMENT,
        ablations.EXPERIMENT,
        loss_attacks.EXPERIMENT,
    ),
)
SETTINGS: Final = {"ours": PAPER, "released": RELEASED, "stand-in": STANDING_IN}  # of --setting
