"""What is computed of a shadow model: train it, and ask it for the signals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from gmip.attacks.shadow.plan import Plan
from gmip.attacks.shadow.settings import Signal
from gmip.errors import InvalidArgument
from gmip.tasks.task import Examples, Recipe, Task
from gmip.training.loop import fit

__all__ = ["Job", "Outputs", "Parts", "Training"]


class Parts(NamedTuple):
    """A signal of one model."""

    candidates: NDArray[Any]  # (c, ...)
    population: NDArray[Any] | None  # (z, ...)


Outputs = Mapping[str, Parts]
Job = tuple[int, frozenset[str]]


@dataclass(frozen=True, eq=False)
class Training:
    """All that training any model of a set takes; a job is an index and the keys of the signals that are wanted.
    `filling` are the background records that the plan calls so."""

    task: Task
    recipe: Recipe
    options: Mapping[str, Any]
    plan: Plan
    candidates: Examples
    filling: Examples
    population: Examples
    signals: tuple[Signal, ...]

    @property
    def name(self) -> str:
        return f"Task {self.task.name!r}"

    def title(self, job: Job) -> str:
        return f"shadow model {job[0]}"

    def compute(self, job: Job) -> dict[str, Parts]:
        index, keys = job
        plan = self.plan
        records = self.candidates[np.flatnonzero(plan.inside(index))].joined(self.filling[plan.fill(index)])
        model = fit(self.task, self.recipe, records, seed=plan.training_seed(index), **self.options)
        found = {}
        for signal in self.signals:
            if signal.key in keys:
                with torch.random.fork_rng():  # a signal's result depends neither on other signals nor on the caller
                    torch.manual_seed(plan.signal_seed(index))
                    candidates = _computed(signal, self.task, model, self.candidates)
                    population = _computed(signal, self.task, model, self.population) if signal.population else None
                found[signal.key] = Parts(candidates, population)
        return found


def _computed(signal: Signal, task: Task, model: torch.nn.Module, examples: Examples) -> NDArray[Any]:
    values = np.ascontiguousarray(signal(task, model.eval(), examples))
    if values.dtype.kind != "f" or values.ndim == 0 or len(values) != len(examples):
        raise InvalidArgument(
            f"Signal {signal.key!r} gave {values.dtype} of shape {values.shape} for {len(examples)} records: return "
            "floats with one row for each record."
        )
    return values
