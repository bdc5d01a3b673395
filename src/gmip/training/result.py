"""What a finished run was and how it did, as JSON beside its trace."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from gmip.accounting.account import account
from gmip.accounting.tradeoff import TradeOff
from gmip.tasks.base import Recipe, Split, Task
from gmip.trace._files import replacing
from gmip.training.plan import run_of

__all__ = ["RESULT", "TrainResult", "write_result"]

RESULT: Final = "result.json"
_FPRS: Final = (0.001, 0.01, 0.1)


@dataclass(frozen=True, eq=False)
class TrainResult:
    """A trained model (in eval mode), who was in, and how well it does.

    Accuracies are None where targets are not classes.
    """

    task: Task
    model: nn.Module
    recipe: Recipe
    seed: int
    split: Split
    num_params: int
    train_loss: float
    train_accuracy: float | None
    test_loss: float
    test_accuracy: float | None

    def summary(self) -> dict[str, Any]:
        """Plain JSON: the recipe, how well the model does, and the most that a membership attacker finds."""
        run = run_of(self.recipe, self.num_params)
        gdp = account(run, notion="gdp") if run.noise_std > 0.0 else None
        return {
            "format": "gmip-result",
            "version": 1,
            "task": self.task.name,
            "recipe": dataclasses.asdict(self.recipe),
            "seed": self.seed,
            "num_params": self.num_params,
            "noise_multiplier": run.noise_multiplier,
            "train": {"size": len(self.split.members), "loss": self.train_loss, "accuracy": self.train_accuracy},
            "test": {"size": len(self.task.test), "loss": self.test_loss, "accuracy": self.test_accuracy},
            "privacy": {"gmip": _exposure(account(run)), "gdp": None if gdp is None else _exposure(gdp)},
            "data": self.task.fingerprints,
            "versions": {"gmip": version("gmip"), "torch": torch.__version__, "threads": torch.get_num_threads()},
        }


def write_result(folder: Path, result: TrainResult) -> Path:
    """Write the summary beside the trace, atomically."""
    path = folder / RESULT
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(result.summary(), indent=2) + "\n", encoding="utf-8")
    return path


def _exposure(curve: TradeOff) -> dict[str, Any]:
    return {
        "mu": curve.equivalent_mu(),
        "tpr_at_fpr": {str(fpr): curve.tpr_at(fpr) for fpr in _FPRS},
        "advantage": curve.advantage(),
        "assumptions": list(curve.assumptions),
    }
