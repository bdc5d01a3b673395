"""`train`: everything random follows from the seed, and the caller's own random state is left alone."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="training needs the extra gmip[train]")

import torch
from torch import nn

from gmip.errors import InvalidArgument
from gmip.tasks import Examples, Task
from gmip.training import evaluate, initial_model, train
from gmip.vocabulary import Recipe

RECIPE = Recipe(dataset_size=40, batch_size=10, num_steps=12, learning_rate=0.2)


def make_task(targets: torch.Tensor | None = None, **parts) -> Task:
    inputs = torch.randn(120, 5, generator=torch.Generator().manual_seed(0))
    data = Examples(inputs, (inputs[:, 0] > 0).long() if targets is None else targets)
    layers = {"make_model": lambda: nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.Linear(8, 2)), **parts}
    return Task(name="small", pool=data[range(100)], test=data[range(100, 120)], recipe=RECIPE, **layers)


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("changes", [{}, {"clip_norm": 1.0, "noise_std": 0.1}])
def test_the_seed_decides_everything(changes):
    task = make_task()
    found = []
    for seed, outside in [(1, 10), (1, 11), (2, 10)]:
        torch.manual_seed(outside)  # dropout must not draw from the caller's state
        before = torch.get_rng_state()
        result = train(task, task.recipe.replace(**changes), seed=seed)
        assert torch.equal(torch.get_rng_state(), before)
        assert not result.model.training
        found.append(weights(result.model))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_drawn_seeds_differ():
    task = make_task()
    first, second = train(task), train(task)
    assert first.seed != second.seed and not torch.equal(weights(first.model), weights(second.model))
    assert torch.equal(weights(initial_model(task, first.seed)), weights(initial_model(task, first.seed)))


def test_targets_that_are_no_classes():
    task = make_task(
        targets=torch.linspace(0, 1, 120),
        make_model=lambda: nn.Linear(5, 1),
        loss=lambda outputs, targets: (outputs[:, 0] - targets) ** 2,
    )
    result = train(task, seed=0)
    assert result.test_accuracy is None and result.train_loss < 1.0


def test_evaluation_is_in_eval_mode_and_leaves_the_mode():
    task = make_task()
    model = task.make_model().train()
    with torch.no_grad():
        outputs = model.eval()(task.test.inputs)
        expected = nn.functional.cross_entropy(outputs, task.test.targets)
    model.train()
    loss, accuracy = evaluate(task, model, task.test)
    assert loss == pytest.approx(float(expected), rel=1e-6)
    assert accuracy == int((outputs.argmax(1) == task.test.targets).sum()) / 20
    assert model.training


def test_resume_needs_a_folder():
    with pytest.raises(InvalidArgument, match="resume needs out"):
        train(make_task(), resume=True)


def test_a_task_by_its_name_and_how_far_it_is():
    told: list[Any] = []
    seen: list[Any] = []
    result = train("digits", seed=1, progress=lambda *now: told.append(now), on_batch=seen.append)
    assert result.task.name == "digits" and (result.test_accuracy or 0.0) > 0.8
    assert told[-1] == (40, 40) and told == sorted(told) and len(seen) == len(told)
    assert seen[-1].loss < 1.0 and 0.5 < seen[-1].accuracy <= 1.0
    with pytest.raises(InvalidArgument, match="did you mean 'digits'"):
        train("digit")
