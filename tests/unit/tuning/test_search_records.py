"""A search trains on nobody who will be a member."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gmip.errors import InvalidArgument
from gmip.tasks import Task
from gmip.tuning import search_records
from gmip.tuning.trials import outsider_fingerprints, records_on_members
from tests.unit.tuning.toy import toy_task


def rows(examples) -> set:
    return {tuple(row) for row in examples.inputs.tolist()}


def test_fingerprints_of_a_search_do_not_look_at_members():
    members = toy_task().split(60, 7).members

    def changed(rows: np.ndarray) -> Task:
        task = toy_task()
        task.pool.inputs[torch.from_numpy(rows)] += 1.0
        return task

    others = np.setdiff1d(np.arange(len(toy_task().pool)), members)
    nobody, member, other = (changed(rows) for rows in (members[:0], members[:1], others[:1]))
    assert nobody.fingerprints != member.fingerprints
    assert outsider_fingerprints(nobody, members) == outsider_fingerprints(member, members)
    assert outsider_fingerprints(nobody, members) != outsider_fingerprints(other, members)


@pytest.mark.parametrize("background", [0, 50])
def test_members_are_neither_trained_nor_measured_on(background: int):
    task = toy_task(background=background)
    members = rows(task.pool[task.split(60, 7).members])
    for seed in range(3):
        found = search_records(task, 60, seed=seed, split_seed=7)
        train, validation = rows(found.train), rows(found.validation)
        assert len(train) == 60 and len(validation) == 300 + background - 120
        assert not train & validation and not (train | validation) & members and not validation & rows(task.test)


def test_outsiders_are_divided_anew_for_each_seed():
    task = toy_task()
    first, again, other = (search_records(task, 60, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.train.inputs, again.train.inputs)
    assert rows(first.train) != rows(other.train)


def test_few_outsiders_stand_in_for_many_members():
    task = toy_task()
    found = search_records(task, 240, seed=0)
    assert len(found.train) == 45 and len(found.validation) == 15
    recipe = task.recipe.replace(dataset_size=240, batch_size=100, noise_std=0.3)
    stand_in = found.recipe(recipe)
    assert (stand_in.dataset_size, stand_in.batch_size, stand_in.num_steps) == (45, 45, recipe.num_steps)
    assert stand_in.noise_std == recipe.noise_std
    full = found.recipe(recipe.replace(sampling="full", batch_size=240))
    assert full.batch_size == 45


def test_on_members():
    task = toy_task()
    found = records_on_members(task, 60, seed=3, split_seed=7)
    assert rows(found.train) == rows(task.pool[task.split(60, 7).members])
    assert not rows(found.train) & rows(found.validation)


def test_a_task_without_background_is_refused():
    with pytest.raises(InvalidArgument, match="10 records that will not be members at dataset_size = 290"):
        search_records(toy_task(), 290, seed=0)
    assert len(search_records(toy_task(background=200), 290, seed=0).train) == 157
