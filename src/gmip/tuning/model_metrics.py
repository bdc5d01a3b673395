"""How good a model is: a number, the higher the better."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import torch
from torch import nn

from gmip import _validate as check
from gmip.errors import InvalidArgument
from gmip.tasks.inputs import answer, rows_per_pass
from gmip.tasks.task import Examples, Task
from gmip.training.models import evaluate, has_classes

__all__ = ["METRICS", "Metric", "measure", "metric_name"]

Metric = str | Callable[[Task, nn.Module, Examples], float]
_ROWS: Final = 4096


def _accuracy(task: Task, model: nn.Module, examples: Examples) -> float:
    accuracy = evaluate(task, model, examples)[1]
    return math.nan if accuracy is None else accuracy


def _balanced_accuracy(task: Task, model: nn.Module, examples: Examples) -> float:
    """The mean over classes of the share that is recognised."""
    size = rows_per_pass(examples.inputs, _ROWS)
    with torch.no_grad():
        parts = [answer(model, examples[i : i + size].inputs).argmax(-1) for i in range(0, len(examples), size)]
    hits, targets = torch.cat(parts) == examples.targets, examples.targets
    return float(torch.stack([hits[targets == k].double().mean() for k in targets.unique()]).mean())


def _loss(task: Task, model: nn.Module, examples: Examples) -> float:
    return -evaluate(task, model, examples)[0]


METRICS: Final = {"accuracy": _accuracy, "balanced-accuracy": _balanced_accuracy, "loss": _loss}


def metric_name(metric: Metric) -> str:
    """Its name in tables and files."""
    if isinstance(metric, str):
        return check.one_of("metric", metric, tuple(METRICS))
    return getattr(metric, "__name__", type(metric).__name__)


def measure(metric: Metric, task: Task, model: nn.Module, examples: Examples) -> float:
    """The metric of a model in eval mode on these records; "loss" is its negative, so that more is better.

    metric : a name in `METRICS`, or a function of task, model and records.
    """
    name = metric_name(metric)
    if isinstance(metric, str):
        if metric != "loss" and not has_classes(examples.targets):
            raise InvalidArgument(
                "needs classes, and the targets of this task are not",
                argument="metric",
                value=metric,
                remedy="use 'loss'",
            )
        return METRICS[metric](task, model, examples)
    value = metric(task, model, examples)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidArgument(
            f"returned {type(value).__name__}, not a number", argument="metric", value=name, remedy="return a float"
        ) from None
