"""Examples, Recipe, Split and Task: what they take, what they refuse, what follows."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gmip.accounting.calibrate import calibrate, with_least_noise
from gmip.errors import InvalidArgument
from gmip.tasks import Examples, Task, cross_entropy
from gmip.vocabulary import NoisySGD, Recipe

SIZES: dict[str, Any] = {"dataset_size": 6, "batch_size": 3, "num_steps": 2, "learning_rate": 0.1}


def make_task(rows: int = 10, background: int = 0) -> Task:
    records = Examples(torch.arange(rows * 2.0).reshape(rows, 2), torch.arange(rows) % 2)
    return Task(
        name="toy",
        make_model=lambda: nn.Linear(2, 2),
        pool=records,
        test=records[[0]],
        recipe=Recipe(**SIZES),
        background=records[range(background)] if background else None,
    )


def test_examples_are_picked_by_row() -> None:
    picked = make_task().pool[np.array([3, 1])]
    assert len(picked) == 2
    assert picked.inputs.tolist() == [[6.0, 7.0], [2.0, 3.0]] and picked.targets.tolist() == [1, 1]


def test_records_with_several_inputs_by_name() -> None:
    ids, mask, targets = torch.arange(12).reshape(4, 3), torch.ones(4, 3), torch.arange(4)
    records = Examples({"ids": ids, "mask": mask}, targets)
    assert len(records) == 4 and repr(records) == "<Examples: 4 of ids (3,), mask (3,)>"
    for picked in (records[[2, 3]], records[2:]):
        assert list(picked.inputs) == ["ids", "mask"] and picked.inputs["ids"].tolist() == ids[2:].tolist()
        assert picked.targets.tolist() == [2, 3]
    assert records[[0, 1]].joined(records[[2, 3]]).fingerprint == records.fingerprint
    assert Examples({"mask": mask, "ids": ids}, targets).fingerprint == records.fingerprint
    assert Examples({"ids": ids, "mark": mask}, targets).fingerprint != records.fingerprint
    with pytest.raises(InvalidArgument, match="Records with different inputs cannot be joined"):
        records.joined(Examples(ids, targets))


def test_a_fingerprint_follows_the_contents() -> None:
    records = make_task().pool
    same = Examples(records.inputs.clone(), records.targets.clone())
    assert records.fingerprint == same.fingerprint
    changed = records.targets.clone()
    changed[0] += 1
    assert Examples(records.inputs, changed).fingerprint != records.fingerprint
    assert Examples(records.inputs.double(), records.targets).fingerprint != records.fingerprint
    assert set(make_task().fingerprints) == {"pool", "test"}
    assert set(make_task(background=2).fingerprints) == {"pool", "test", "background"}


@pytest.mark.parametrize(
    ("inputs", "targets", "match"),
    [
        (np.zeros((2, 2)), torch.zeros(2), "inputs must be a torch tensor, not ndarray"),
        (torch.zeros(2, 2), [0, 1], "targets must be a torch tensor, not list"),
        (torch.zeros(2, 2), torch.zeros(3), "do not belong together"),
        (torch.tensor(1.0), torch.zeros(1), "do not belong together"),
        ({"a": torch.zeros(2), "b": torch.zeros(3)}, torch.zeros(2), r"different numbers of rows \(a: 2, b: 3\)"),
        ({"a": torch.zeros(2), "b": 1}, torch.zeros(2), "inputs has 'b', which must be a torch tensor with one row"),
        ({}, torch.zeros(2), "inputs is empty"),
        ({"a": torch.zeros(3)}, torch.zeros(2), "do not belong together"),
        (torch.zeros(2), {"a": torch.zeros(2)}, "targets must be one torch tensor, not several"),
    ],
)
def test_examples_refuse(inputs: Any, targets: Any, match: str) -> None:
    with pytest.raises(InvalidArgument, match=match):
        Examples(inputs, targets)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"batch_size": 7}, "batch_size = 7 exceeds dataset_size = 6"),
        ({"num_steps": 0}, "num_steps"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"noise_std": 0.1}, "noise_std = 0.1 without clip_norm"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"sampling": "random"}, "sampling = 'random'"),
    ],
)
def test_recipes_refuse(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidArgument, match=match):
        Recipe(**{**SIZES, **changes})
    with pytest.raises(InvalidArgument, match=match):
        Recipe(**SIZES).replace(**changes)


def test_a_full_batch_is_the_whole_set() -> None:
    assert Recipe(**SIZES, sampling="full").batch_size == 6


@pytest.mark.parametrize("size", [1, 2, 5, 8, 9])
def test_a_split_is_disjoint_sorted_and_repeatable(size: int) -> None:
    task = make_task()
    split = task.split(size, seed=3)
    parts = split.members, split.non_members, split.unused
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(10))
    assert all(np.array_equal(part, np.sort(part)) for part in parts)
    assert len(split.members) == size and 1 <= len(split.non_members) <= size
    again = task.split(size, seed=3)
    assert all(
        np.array_equal(a, b) for a, b in zip(parts, (again.members, again.non_members, again.unused), strict=True)
    )


def test_a_split_depends_on_the_seed() -> None:
    task = make_task(rows=100)
    assert not np.array_equal(task.split(50, seed=0).members, task.split(50, seed=1).members)


def test_a_split_keeps_somebody_outside() -> None:
    with pytest.raises(
        InvalidArgument, match="dataset_size = 10 leaves no non-member among the 10 records of task toy"
    ):
        make_task().split(10, seed=0)


def test_cross_entropy_of_each_example() -> None:
    loss = cross_entropy(torch.tensor([[0.0, 0.0], [3.0, 3.0]]), torch.tensor([0, 1]))
    assert loss.tolist() == pytest.approx([np.log(2.0)] * 2)


def test_the_accountant_is_asked_about_the_same_settings() -> None:
    recipe = Recipe(**SIZES, clip_norm=1.0, noise_std=0.1, sampling="shuffled", optimizer="Adam")
    run = recipe.run(num_params=650)
    assert run == NoisySGD(
        dataset_size=6, batch_size=3, num_steps=2, num_params=650, clip_norm=1.0, noise_std=0.1, sampling="shuffled"
    )


def test_the_least_noise_is_that_of_calibrate() -> None:
    recipe = Recipe(**SIZES, clip_norm=1.0)
    private = with_least_noise(recipe, 50, target_mu=0.3)
    assert private == recipe.replace(noise_std=calibrate(recipe.run(50), target_mu=0.3).noise_std)
    assert private.noise_std > 0.0


def test_names_fit_on_a_line_and_show_no_record() -> None:
    task = make_task()
    assert repr(task) == "<Task toy: 10 records, 1 for testing>"
    assert repr(task.pool) == "<Examples: 10 of shape (2,)>"
    assert repr(task.split(6, seed=1)) == "<Split: 6 members, 2 non-members, 2 unused>"
    assert len(repr(task.recipe)) < 250 and "\n" not in repr(task.recipe)


def test_records_have_names_of_their_own() -> None:
    task = dataclasses.replace(make_task(), record_names=np.array([f"p{i}" for i in range(10)]))
    assert task.names_of(np.array([3, 1])) == ["p3", "p1"] and make_task().names_of([3, 1]) == [3, 1]
    numbered = dataclasses.replace(make_task(), record_names=np.arange(100, 110))
    assert numbered.names_of([9]) == [109] and type(numbered.names_of([9])[0]) is int


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["a"], "has 1 entries, and the pool has 10 records"),
        (["a"] * 10, "names two records alike"),
        ([1.5] * 10, "has 1.5, which is neither a whole number nor a string"),
        ([None] * 10, "has None, which is neither"),
    ],
)
def test_names_that_are_refused(names: Any, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        dataclasses.replace(make_task(), record_names=names)
