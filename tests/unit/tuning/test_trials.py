"""One trial: calibrated, trained on outsiders, measured."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from gmip.accounting.account import account
from gmip.errors import InvalidArgument
from gmip.tuning import measure, trial
from gmip.vocabulary import PrivacyTarget
from tests.unit.tuning.toy import toy_task

TARGET = PrivacyTarget(target_tpr=(0.1, 0.01))


def test_a_trial_keeps_the_target_and_learns():
    task = toy_task()
    found = trial(task, task.recipe, TARGET, seed=0)
    assert found.num_params == 10 and found.trained_on == 60
    assert found.noise_std > 0.0
    assert account(found.recipe.run(10)).tpr_at(0.01) <= 0.1
    assert 0.099 < found.exposure <= 0.1
    assert found.metric > 0.7
    assert found == trial(task, task.recipe, TARGET, seed=0)
    assert found.metric != trial(task, task.recipe, TARGET, seed=1).metric


def test_without_a_target_the_recipe_is_trained_as_it_is():
    task = toy_task()
    found = trial(task, task.recipe, None, seed=0)
    assert found.noise_std == 0.0 and math.isnan(found.exposure) and found.metric > 0.8


def test_what_diverges_has_no_metric():
    task = toy_task()
    recipe = task.recipe.replace(learning_rate=1e38, num_steps=30, clip_norm=None)
    assert math.isnan(trial(task, recipe, None, seed=0).metric)


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
