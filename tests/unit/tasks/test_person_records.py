"""Persons as records: gradients, clipping, training and audits of somebody's rows together."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import gmip
from gmip.attacks.gradients import PerExampleGradients
from gmip.errors import InvalidArgument
from gmip.tasks import Examples, Task, by_person
from gmip.training.loop import fit, initial_model
from gmip.training.models import evaluate
from gmip.vocabulary import Recipe

PERSONS, CLIP = 60, 0.6


def conv() -> nn.Module:
    return nn.Sequential(nn.Conv1d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4, 2))


def linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 2))


def persons_of(seed: int) -> np.ndarray:
    """1 to 5 rows for each person, in no order."""
    rng = np.random.default_rng(seed)
    return rng.permutation(np.repeat(np.arange(PERSONS) + 1000 * seed, rng.integers(1, 6, PERSONS)))


def rows(size: int, seed: int) -> Examples:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(size) % 2
    return Examples(torch.randn(size, 1, 4, generator=generator) + labels[:, None, None], labels)


def task_of(make_model, **changes) -> tuple[Task, np.ndarray]:
    who, behind = persons_of(1), persons_of(2)
    task = Task(
        name="patients",
        make_model=make_model,
        pool=rows(len(who), 0),
        test=rows(50, 1),
        background=rows(len(behind), 2),
        recipe=Recipe(
            **{
                "dataset_size": 30,
                "batch_size": 10,
                "num_steps": 1,
                "learning_rate": 1.0,
                "clip_norm": CLIP,
                "sampling": "poisson",
                **changes,
            }
        ),
        groups={"first": [int(x > 1030) for x in who], "row": list(range(len(who)))},
    )
    return by_person(task, who, background=behind), who


def gradient(task: Task, model: nn.Module, rows: Examples) -> torch.Tensor:
    """The mean gradient of some rows, by autograd of the plain model."""
    model.zero_grad()
    nn.functional.cross_entropy(model(rows.inputs), rows.targets).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize("make_model", [linear, conv])
def test_a_person_is_clipped_as_a_whole(make_model):
    task, who = task_of(make_model, sampling="full", batch_size=30)
    plain_pool = rows(len(who), 0)
    members = task.split(30, 0).members
    before = initial_model(task, 5)
    start = torch.cat([p.detach().flatten() for p in before.parameters()]).clone()
    plain = before.get_submodule("model")
    expected, norms = torch.zeros_like(start), []
    for name in task.names_of(members):
        own = gradient(task, plain, plain_pool[np.flatnonzero(who == name)])
        norms.append(float(own.norm()))
        expected += own * min(1.0, CLIP / norms[-1]) / 30
    assert min(norms) < CLIP < max(norms)
    moved = fit(task, task.recipe, task.pool[members], seed=5)
    end = torch.cat([p.detach().flatten() for p in moved.parameters()])
    torch.testing.assert_close(start - end, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("make_model", [linear, conv])
def test_attacks_see_gradients_of_persons_and_accuracy_is_of_rows(make_model):
    task, who = task_of(make_model)
    model = initial_model(task, 5)
    plain, pool = model.get_submodule("model"), rows(len(who), 0)
    pieces = PerExampleGradients(model, task.loss).pieces(task.pool)
    norms = torch.cat([torch.stack([piece.squared_norms() for piece in part]).sum(0).sqrt() for _, part in pieces])
    expected = [
        float(gradient(task, plain, pool[np.flatnonzero(who == name)]).norm()) for name in task.names_of(range(PERSONS))
    ]
    np.testing.assert_allclose(norms.detach(), expected, rtol=1e-4)
    _, accuracy = evaluate(task, model, task.test)
    assert accuracy == pytest.approx(float((plain(task.test.inputs).argmax(1) == task.test.targets).float().mean()))
    assert list(task.groups) == ["first"] and len(task.groups["first"]) == PERSONS == len(task.pool)


def test_a_run_is_recorded_checked_and_audited(tmp_path):
    task, _ = task_of(linear, num_steps=12, noise_std=0.03)
    gmip.train(task, task.recipe, out=tmp_path / "run", seed=3)
    trace = gmip.Trace.open(tmp_path / "run")
    assert gmip.account(trace.runs(), notion="gdp").kind == "bound" and trace.runs()[0].dataset_size == 30
    found = gmip.audit(gmip.Recorded(tmp_path / "run", task))
    check = found.runs[0].check
    assert check is not None and check.passed


def test_bad_persons():
    task, _ = task_of(linear)
    plain = Task(
        name="x", make_model=linear, pool=rows(10, 0), test=rows(5, 1), background=rows(4, 2), recipe=task.recipe
    )
    with pytest.raises(InvalidArgument, match="has 3 entries for 10 rows"):
        by_person(plain, [1, 2, 3])
    with pytest.raises(InvalidArgument, match="the task has a background"):
        by_person(plain, [1] * 10)
    with pytest.raises(InvalidArgument, match="who is in the pool, too"):
        by_person(plain, [1, 2] * 5, background=[2, 3, 4, 5])
