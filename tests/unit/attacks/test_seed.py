from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

import gmip
from gmip.attacks.seed import Seed
from gmip.errors import InvalidArgument
from gmip.tasks import Task, load
from gmip.trace import Trace
from gmip.training import train


@pytest.fixture(scope="module")
def task() -> Task:
    digits = load("digits")
    return dataclasses.replace(digits, recipe=digits.recipe.replace(dataset_size=50, batch_size=25, num_steps=2))


@pytest.mark.parametrize("seed", [0, 42, 2**31 - 1])
def test_a_guessed_seed_names_the_members(task: Task, tmp_path: Path, seed: int) -> None:
    noisy = task.recipe.replace(noise_std=10.0)  # no noise hides them
    train(task, noisy, seed=seed, out=tmp_path / "a")
    trace = Trace.open(tmp_path / "a")
    found = Seed(tries=50).run(task, trace)
    assert found.guessed_seed == seed
    np.testing.assert_array_equal(np.sort(found.ids[found.scores == 1.0]), trace.members)


def test_a_secret_seed_is_not_found(task: Task, tmp_path: Path) -> None:
    train(task, out=tmp_path / "a")
    calls: list[tuple[int, int]] = []
    found = Seed(tries=60).run(task, Trace.open(tmp_path / "a"), progress=lambda *now: calls.append(now))
    assert found.guessed_seed is None and found.facts["tries"] == 72
    assert not found.scores.any()
    assert calls[-1] == (72, 72)


def test_a_guessed_seed_of_the_members_names_them(task: Task, tmp_path: Path) -> None:
    for split_seed, guessed in ((0, True), (2**62 + 7, False)):
        place = tmp_path / str(split_seed)
        train(task, seed=1, split_seed=split_seed, out=place)
        found = Seed(tries=5).run(task, Trace.open(place))
        assert found.guessed_seed == (split_seed if guessed else None)
        inside = task.split(50, split_seed).members.tolist() if guessed else []
        assert np.sort(found.ids[found.scores == 1.0]).tolist() == inside


def test_the_torch_generator_is_left_as_it_was(task: Task, tmp_path: Path) -> None:
    train(task, out=tmp_path / "a")
    before = torch.get_rng_state()
    Seed(tries=3).run(task, Trace.open(tmp_path / "a"))
    assert torch.equal(before, torch.get_rng_state())


def test_a_loop_of_ones_own_is_refused(task: Task, tmp_path: Path) -> None:
    model = task.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    members = np.arange(40)
    about = {"dataset_size": 40, "batch_size": 40, "data": task, "members": members, "non_members": members + 40}
    with gmip.record(model, optimizer, tmp_path / "r", **about):
        optimizer.zero_grad()
        task.loss(model(task.pool.inputs[:40]), task.pool.targets[:40]).mean().backward()
        optimizer.step()
    with pytest.raises(InvalidArgument, match="not a run of gmip train"):
        Seed().run(task, Trace.open(tmp_path / "r"))


def test_weights_before_the_first_step_are_needed(task: Task, tmp_path: Path) -> None:
    train(task, seed=1, out=tmp_path / "a", every=2)
    trace = Trace.open(tmp_path / "a")
    if trace.recorded[0] == 0:  # every second step from the first on
        trace.recorded = trace.recorded + 1
    with pytest.raises(InvalidArgument, match="weights before the first step"):
        Seed().run(task, trace)


def test_bad_options() -> None:
    with pytest.raises(InvalidArgument, match="tries"):
        Seed(tries=0)
