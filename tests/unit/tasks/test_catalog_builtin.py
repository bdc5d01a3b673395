"""What holds for every built-in task."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
import torch

from gmip.tasks import Task, builtin, load, names
from tests.unit.tasks.real import CACHE, need

# Sizes of pool and test, d and classes. Of Purchase, which few machines have, only the last two are known for sure.
EXPECTED = {
    "digits": (1_437, 360, 650, 10),
    "breast-cancer": (455, 114, 530, 2),
    "cifar10": (50_000, 10_000, 650, 10),
    "adult": (43_842, 5_000, 1_026, 2),
    "purchase": (None, 10_000, 2_580, 20),
    "location": (4_010, 1_000, 30_558, 30),
}
FILES = {
    "cifar10": builtin.CIFAR10_FILES,
    "adult": builtin.ADULT_FILES,
    "purchase": (builtin.PURCHASE_FILE,),
    "location": (builtin.LOCATION_FILE,),
}
# The paper's table of the utility experiment: N, n, T (its epochs times N/n), C.
PAPER = {"cifar10": (48_000, 400, 1_200, 500.0), "adult": (43_000, 1_000, 860, 800.0)}


def real_task(name: str, monkeypatch: pytest.MonkeyPatch) -> Task:
    """The task, or a skipped test where its data (for CIFAR-10: its features) are not on this machine."""
    if name in FILES:
        need(monkeypatch, *FILES[name])
    if name == "cifar10":
        if CACHE is None:
            pytest.skip("GMIP_CACHE is not set: the features of CIFAR-10 would take minutes")
        monkeypatch.setenv("GMIP_CACHE", CACHE)
        monkeypatch.setattr(
            builtin, "pretrained_resnet56", lambda: pytest.skip(f"GMIP_CACHE = {CACHE} lacks the features of CIFAR-10")
        )
    return _first_load(name)


@lru_cache
def _first_load(name: str) -> Task:
    return load(name)


@pytest.mark.parametrize("name", names())
def test_sizes_model_and_recipe(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task = real_task(name, monkeypatch)
    pool, test, num_params, classes = EXPECTED[name]
    assert task.name == name
    assert pool in (None, len(task.pool)) and len(task.test) == test
    assert torch.equal(task.pool.targets.unique(), torch.arange(classes))
    assert torch.equal(task.test.targets.unique(), torch.arange(classes))

    model = task.make_model()
    assert sum(p.numel() for p in model.parameters()) == num_params
    some = task.pool[range(7)]
    losses = task.loss(model(some.inputs), some.targets)
    assert losses.shape == (7,) and bool(torch.isfinite(losses).all())
    torch.autograd.backward(losses.sum())  # the data must not be inference tensors
    assert not task.pool.inputs.requires_grad and not task.test.inputs.requires_grad

    recipe = task.recipe
    sizes = recipe.dataset_size, recipe.batch_size, recipe.num_steps, recipe.clip_norm
    assert PAPER.get(name, sizes) == sizes
    assert recipe.clip_norm is not None and recipe.noise_std == 0.0
    getattr(torch.optim, recipe.optimizer)(model.parameters(), lr=recipe.learning_rate, **recipe.optimizer_options)
    split = task.split(recipe.dataset_size, seed=0)
    assert len(split.members) == recipe.dataset_size and len(split.non_members) > 0
    everybody = np.concatenate([split.members, split.non_members, split.unused])
    assert np.array_equal(np.sort(everybody), np.arange(len(task.pool)))


@pytest.mark.parametrize("name", names())
def test_the_same_data_every_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = real_task(name, monkeypatch)
    torch.rand(3)  # whatever the state of torch's generator
    assert load(name).fingerprints == first.fingerprints


@pytest.mark.parametrize(
    ("name", "pool"),
    [
        ("digits", "55b18413e34f3e0a3c29833e6b95f3f2fde28e125c8a72798b3b6ef97b88bf23"),
        ("location", "74744207c1d234e250c96f7382bbd2c84f6012d815bd2d6771c03e5995e4d292"),
    ],
)
def test_data_without_arithmetic_are_the_same_on_every_machine(
    name: str, pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert real_task(name, monkeypatch).fingerprints["pool"] == pool
