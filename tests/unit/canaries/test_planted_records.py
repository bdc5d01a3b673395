"""Canaries that are records: labels, coins, and a model that learns them by heart."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="canaries need the extra gmip[train]")

import torch
from torch import nn

import gmip
from gmip.attacks import Loss
from gmip.canaries import RecordCanaries
from gmip.errors import InvalidArgument
from gmip.tasks import Examples, Task
from gmip.vocabulary import Recipe


def records(count: int, seed: int) -> Examples:
    generator = torch.Generator().manual_seed(seed)
    return Examples(torch.randn(count, 40, generator=generator), torch.randint(0, 4, (count,), generator=generator))


@pytest.fixture(scope="module")
def task() -> Task:
    return Task(
        name="noise",
        make_model=lambda: nn.Sequential(nn.Linear(40, 64), nn.Tanh(), nn.Linear(64, 4)),
        pool=records(300, 0),
        test=records(50, 1),
        recipe=Recipe(dataset_size=100, batch_size=100, num_steps=150, learning_rate=1.0, sampling="full"),
    )


def test_labels_are_wrong_and_any_other_one():
    given = records(2000, 3)
    canaries = RecordCanaries(given, seed=0)
    shift = (canaries.records.targets - given.targets) % 4
    assert set(shift.tolist()) == {1, 2, 3}
    assert torch.equal(canaries.records.inputs, given.inputs)
    assert abs(float((shift == 1).double().mean()) - 1 / 3) < 4.0 * np.sqrt(2 / 9 / 2000)
    assert RecordCanaries(given, num_classes=9, seed=0).records.targets.max() > 3


def test_training_set_holds_those_that_are_in(task):
    canaries = RecordCanaries(records(40, 3), seed=0)
    whole = canaries.training_set(task.pool)
    assert len(whole) == 300 + canaries.inside.sum()
    assert torch.equal(whole.targets[300:], canaries.records.targets[torch.from_numpy(canaries.inside.copy())])


def test_a_model_that_learns_by_heart_is_caught_and_an_untrained_one_is_not(task):
    canaries = RecordCanaries(records(120, 3), seed=0)
    planted = canaries.planted(task)
    assert planted.recipe.dataset_size == 100 + canaries.inside.sum()
    found = gmip.train(planted, seed=0)
    ids = canaries.ids(planted)
    np.testing.assert_array_equal(np.intersect1d(found.split.members, ids), ids[canaries.inside])
    np.testing.assert_array_equal(found.split.non_members, ids[~canaries.inside])
    assert len(found.split.unused) == 200
    result = canaries.audit(found.model, claim=(0.5, 1e-5))
    assert result.runs[0].verdict.kind == "exposed" and result.runs[0].attacks[0].mu_lower > 1.0
    torch.manual_seed(0)
    fresh = canaries.audit(task.make_model(), claim=(0.5, 1e-5))
    assert fresh.runs[0].verdict.kind != "exposed"


def test_scores_of_an_attack(task, tmp_path):
    canaries = RecordCanaries(records(60, 3), seed=0)
    planted = canaries.planted(task)
    gmip.train(planted, planted.recipe.replace(num_steps=20), seed=0, out=tmp_path)
    trace = gmip.Trace.open(tmp_path)
    scores = Loss().run(planted, trace, canaries.ids(planted))
    first = canaries.audit(scores).runs[0].attacks[0]
    assert first.members + first.non_members == 60
    with pytest.raises(InvalidArgument, match="not of the 60 canaries"):
        canaries.audit(Loss().run(planted, trace, canaries.ids(planted)[:-1]))
    with pytest.raises(InvalidArgument, match="task is not planted with these canaries"):
        canaries.ids(task)


def test_what_is_refused(task):
    with pytest.raises(InvalidArgument, match="need classes"):
        RecordCanaries(Examples(torch.randn(20, 3), torch.randn(20)))
    with pytest.raises(InvalidArgument, match="num_classes = 2 is below the 4"):
        RecordCanaries(records(20, 3), num_classes=2)
    canaries = RecordCanaries(records(40, 3), seed=0)
    with pytest.raises(InvalidArgument, match="scores has 3 entries where 40"):
        canaries.audit(np.zeros(3))
    with pytest.raises(InvalidArgument, match="dataset_size = 5 counts"):
        canaries.planted(task).split(5, 0)
