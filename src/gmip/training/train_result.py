"""What a finished run was: how it did, as JSON beside its trace, and the recipe that a trace was trained by."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from gmip import _io
from gmip._numbers import percent
from gmip.accounting.account import account
from gmip.accounting.tradeoff import DEFAULT_FPR_RANGE, TradeOff
from gmip.errors import TraceMismatch
from gmip.tasks.task import Split, Task
from gmip.trace import ModelRecord, Trace
from gmip.vocabulary import Recipe

__all__ = ["RESULT", "TrainResult", "recipe_of", "write_result"]

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

    def __repr__(self) -> str:
        accuracy = "" if self.test_accuracy is None else f", test accuracy {percent(self.test_accuracy, 'nearest')}"
        return f"<TrainResult of {self.task.name}: {self.recipe.num_steps} steps{accuracy}>"

    def summary(self) -> dict[str, Any]:
        """Plain JSON: the recipe, how well the model does, and what a membership attacker finds."""
        run = self.recipe.run(self.num_params)
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
    _io.write(path, json.dumps(result.summary(), indent=2) + "\n")
    return path


def recipe_of(task: Task, target: ModelRecord) -> Recipe:
    """How a model was trained: as it was written down, else the task's recipe, if its trace agrees.

    A loop of the user's own records sizes, sampling, clipping and noise. The task's recipe must say the same of these;
    optimizer and learning rate cannot be compared.
    """
    trained = target.header.provenance.task
    if trained not in (None, task.name):
        raise TraceMismatch(
            f"{target.path} is a run of task {trained!r}, not of {task.name!r}", remedy="pass the run's own task"
        )
    if target.header.recipe is not None:
        return target.header.recipe
    recipe = task.recipe
    seen: dict[str, Any] = {
        "dataset_size": target.header.dataset_size,
        "batch_size": target.header.batch_size,
        "sampling": target.header.sampling,
        "clip_norm": target.header.clip_norm,
    }
    if isinstance(target, Trace):
        seen["num_steps"] = target.num_steps
        if target.infos:
            seen["noise_std"] = max(info.noise_std for info in target.infos)
    for name, value in seen.items():
        ours = getattr(recipe, name)
        near = isinstance(value, float) and isinstance(ours, float) and math.isclose(value, ours, rel_tol=1.0e-6)
        if value != ours and not near:
            raise TraceMismatch(
                f"{target.path} was trained with `{name}` = {value!r}, and the recipe of task {task.name!r} says "
                f"{ours!r}",
                remedy="give the task the recipe of the run",
            )
    return recipe


def _exposure(curve: TradeOff) -> dict[str, Any]:
    return {
        "kind": curve.kind,
        "for_whom": curve.for_whom,
        "caveat": curve.claim.caveat,
        "adjacency": curve.claim.adjacency,
        "mu": curve.equivalent_mu(),
        "mu_fpr_range": list(DEFAULT_FPR_RANGE),
        "gdp_mu": curve.gdp_mu if curve.claim.adjacency is not None else None,
        "tpr_at_fpr": {str(fpr): curve.tpr_at(fpr) for fpr in _FPRS},
        "advantage": curve.advantage(),
        "assumptions": list(curve.assumptions),
    }
