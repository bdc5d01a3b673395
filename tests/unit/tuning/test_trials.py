"""One training on outsiders, and how good its model is."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from gmip.errors import InvalidArgument
from gmip.tuning import measure, search_records, train_once
from tests.unit.tuning.toy import toy_task


def test_a_training_learns_and_follows_from_its_seed():
    task = toy_task()
    records = search_records(task, 60, seed=0)
    first, again, other = (train_once(task, task.recipe, records, seed=s, metric="accuracy") for s in (0, 0, 1))
    assert first > 0.8 and first == again != other


def test_what_diverges_has_no_metric():
    task = toy_task()
    recipe = task.recipe.replace(learning_rate=1e38, num_steps=30, clip_norm=None)
    assert math.isnan(train_once(task, recipe, search_records(task, 60, seed=0), seed=0, metric="accuracy"))


class Sure(torch.nn.Module):
    """Always says class 0."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.scale * torch.tensor([[1.0, 0.0]]).expand(len(x), 2)


def test_metrics():
    words: Any = lambda task, model, examples: "good"  # noqa: E731
    task = toy_task()
    examples = task.pool[[0, 2, 4, 1]]  # three of class 0, one of class 1
    assert measure("accuracy", task, Sure(), examples) == 0.75
    assert measure("balanced-accuracy", task, Sure(), examples) == 0.5
    low, high = math.log(1 + math.exp(-1.0)), math.log(1 + math.exp(1.0))
    assert measure("loss", task, Sure(), examples) == pytest.approx(-(3 * low + high) / 4, rel=1e-6)
    assert measure(lambda task, model, examples: len(examples), task, Sure(), examples) == 4.0
    with pytest.raises(InvalidArgument, match="did you mean 'accuracy'"):
        measure("acuracy", task, Sure(), examples)
    with pytest.raises(InvalidArgument, match="not a number"):
        measure(words, task, Sure(), examples)
