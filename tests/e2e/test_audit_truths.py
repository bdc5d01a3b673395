"""Audits of runs whose truth is known: sound ones are called consistent, planted faults are found.

Sample sizes are those that docs/audit.md names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import opacus.optimizers.optimizer_fast_gradient_clipping as ghost
import pytest
import torch
from torch import nn

import gmip
from gmip.accounting.calibrate import with_least_noise
from gmip.auditing.schema import AuditResult, RunAudit
from gmip.tasks import Examples, Task, load
from gmip.training import noisy_stepper, train
from gmip.vocabulary import Recipe

pytestmark = pytest.mark.slow

SECRET = 8_233_915_446_201  # as good as one that gmip draws, and the same in every test
NOISY = {"dataset_size": 160, "sampling": "full", "num_steps": 5, "learning_rate": 0.5, "clip_norm": 0.1}


def only_run(result: AuditResult) -> RunAudit:
    (run,) = result.runs
    return run


def outcome(run: RunAudit, name: str) -> Any:
    return next(one for one in run.attacks if one.attack == name)


# -- a run without a leak ---------------------------------------------------------------------------------------------


def few_parameters() -> Task:
    """4 parameters, batches of 1,000: mu^2 = 4/1000 in one step."""
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(7000, 3, generator=generator)
    targets = (inputs @ torch.tensor([1.0, -0.5, 0.2]) + torch.randn(7000, generator=generator)).unsqueeze(1)
    return Task(
        name="few-parameters",
        make_model=lambda: nn.Linear(3, 1),
        pool=Examples(inputs[:6000], targets[:6000]),
        test=Examples(inputs[6000:], targets[6000:]),
        recipe=Recipe(dataset_size=1000, batch_size=1000, sampling="full", num_steps=2, learning_rate=0.1),
        loss=lambda outputs, labels: (outputs - labels).square().sum(1),
    )


def test_no_leak_is_consistent_and_near_chance(tmp_path: Path) -> None:
    task = few_parameters()
    train(task, seed=SECRET, out=tmp_path / "run")
    run = only_run(gmip.audit(task, runs=[tmp_path / "run"], seed=1))
    assert run.verdict.kind == "consistent"
    assert {one.attack for one in run.attacks} == {"glir", "decode", "loss", "seed"}
    for one in run.attacks:
        assert abs(one.auc.value - 0.5) < 0.05, one.attack
        assert one.auc.lower < 0.52
    assert run.claims[0].mu is not None
    assert run.claims[0].mu < 0.15
    assert outcome(run, "seed").auc.value == 0.5


def test_a_seed_that_leaks_members_is_found(tmp_path: Path) -> None:
    task = few_parameters()
    train(task, seed=42, out=tmp_path / "run")
    run = only_run(gmip.audit(task, runs=[tmp_path / "run"], seed=1))
    assert run.verdict.kind == "exposed"
    assert run.verdict.attack == "seed"
    assert outcome(run, "seed").auc.value == 1.0
    assert "seed-guessed" in [advice.kind for advice in run.advice]


# -- noise and clipping -----------------------------------------------------------------------------------------------


@contextmanager
def noise_shared_across_rows() -> Iterator[None]:
    """One row of noise for all rows of a weight: the right size on every entry, and no independence."""
    right = ghost._generate_noise

    def shared(std: float, reference: torch.Tensor, *rest: Any, **more: Any) -> torch.Tensor:
        return right(std, reference[:1], *rest, **more).expand_as(reference).clone()

    with mock.patch.object(ghost, "_generate_noise", shared):
        yield


@contextmanager
def clipping_forgotten() -> Iterator[None]:
    with mock.patch.object(noisy_stepper, "_clip_factor", lambda norms, clip_norm: torch.ones_like(norms)):
        yield


@contextmanager
def nothing_wrong() -> Iterator[None]:
    yield


@pytest.fixture(scope="module")
def digits() -> Task:
    task = load("digits")
    recipe = with_least_noise(task.recipe.replace(**NOISY), 650, target_mu=0.3)
    return dataclasses.replace(task, recipe=recipe)


@pytest.mark.parametrize(
    ("fault", "kind", "by"),
    [
        (nothing_wrong, "consistent", ""),
        (noise_shared_across_rows, "exposed", "glir-no-noise"),
        (clipping_forgotten, "exposed", "glir-no-clip"),
    ],
    ids=["sound", "noise shared across rows", "clipping forgotten"],
)
def test_planted_faults_are_found(digits: Task, tmp_path: Path, fault: Any, kind: str, by: str) -> None:
    with fault():
        train(digits, seed=SECRET, out=tmp_path / "run")
    run = only_run(gmip.audit(digits, runs=[tmp_path / "run"], seed=1))
    assert run.verdict.kind == kind
    exceeded = {one.attack: one.claim_p_value for one in run.attacks if one.exceeds_claim}
    if by:
        assert min(exceeded, key=exceeded.__getitem__) == by
    else:
        assert not exceeded
        assert all(abs(one.auc.value - 0.5) < 0.1 for one in run.attacks)
