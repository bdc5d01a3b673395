"""The noise is tested while training runs: sound runs are hardly ever stopped, others soon."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="canaries need the extra gmip[train]")

import torch
from torch import nn

import gmip
from gmip.canaries import DirectionCanaries
from gmip.canaries.planted import NoiseTest
from gmip.errors import GmipWarning, InvalidArgument


def watched(rng: np.random.Generator, *, noise: float, steps: int, drift: float = 0.0, count: int = 40) -> NoiseTest:
    """Steps whose projections are noise of this multiple of the declared 1.5, and what records add."""
    test = NoiseTest()
    for _ in range(steps):
        test.add(1.5 * noise * rng.standard_normal(count) + drift * rng.standard_t(2, count), 1.5)
    return test


@pytest.mark.parametrize(("noise", "drift"), [(1.0, 0.0), (1.0, 0.3), (1.2, 0.0)])
def test_sound_runs_are_stopped_in_at_most_5_per_cent(noise, drift):
    """Looked at after every one of 40 steps. 500 runs: more than 38 would have a chance of 1% at a rate of 5%."""
    rng = np.random.default_rng(0)
    runs = [watched(rng, noise=noise, steps=40, drift=drift) for _ in range(500)]
    assert sum(run.refuted_at is not None for run in runs) <= 38
    assert sum(run.p_value <= 0.2 for run in runs) <= 121  # likewise, at 20%
    assert sum(run.share_upper() < noise for run in runs) <= 38


def test_less_noise_is_stopped_soon():
    rng = np.random.default_rng(1)
    half = [watched(rng, noise=0.5, steps=5).refuted_at for _ in range(50)]
    assert half == [1] * 50
    tenth_less = [watched(rng, noise=0.9, steps=60).refuted_at for _ in range(50)]
    assert sum(at is not None for at in tenth_less) >= 45
    assert np.median([at for at in tenth_less if at is not None]) <= 20


def test_the_capital_is_a_mean_of_likelihood_ratios():
    """Against brute force over the bets."""
    rng = np.random.default_rng(2)
    test, x = NoiseTest(), 0.8 * rng.standard_normal((3, 5))
    for row in x:
        test.add(2.0 * row, 2.0)
    shares = [0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99]
    each = [np.prod(np.exp(-(x**2) / 2 * (1 / r**2 - 1)) / r) for r in shares]
    assert np.exp(test.log_capital) == pytest.approx(np.mean(each))
    assert test.share_upper(0.5) < test.share_upper(0.99)
    with pytest.raises(InvalidArgument, match="error"):
        NoiseTest(0.0)


def dp_sgd(canaries: DirectionCanaries, *, noise: float, declared: float | None, planted: int = 6) -> None:
    """A plain loop with records that all pull one way; it divides by 10."""
    torch.manual_seed(0)
    model = nn.Linear(3000, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    said = {"clip_norm": 2.0, "batch_size": 10, "noise_multiplier": declared}
    with canaries.attached(model, optimizer, sample_rate=0.3, **said):
        for _ in range(planted):
            total = 20.0 * torch.ones(1, 3000) / np.sqrt(3000)  # ten records of the clip norm
            model.weight.grad = (total + 2.0 * noise * torch.randn(1, 3000)) / 10
            optimizer.step()


def test_a_loop_is_warned_at_the_step():
    canaries = DirectionCanaries(400, seed=0)
    with pytest.warns(GmipWarning, match=r"smaller than the declared multiplier 1\.5, as step 1 shows"):
        dp_sgd(canaries, noise=0.75, declared=1.5)
    assert canaries.noise.refuted_at == 1 and canaries.noise.p_value < 1.0e-10
    sound = DirectionCanaries(400, seed=0)
    dp_sgd(sound, noise=1.5, declared=1.5)  # a warning would be an error
    assert sound.noise.refuted_at is None and 1.0 <= sound.noise.share_upper() < 1.1
    silent = DirectionCanaries(400, seed=0)
    dp_sgd(silent, noise=0.1, declared=None)  # nobody said how much noise there is
    assert silent.noise.steps == 0 and silent.noise.p_value == 1.0


def test_gmip_train_tells_its_own_noise():
    task = gmip.tasks.load("digits")
    recipe = task.recipe.replace(dataset_size=100, batch_size=50, num_steps=5, clip_norm=1.0, noise_std=0.03)
    canaries = DirectionCanaries(100, seed=0)
    gmip.train(task, recipe, seed=0, canaries=canaries)
    assert canaries.noise.steps == 5 and canaries.noise.refuted_at is None


def test_distributed_opacus_divides_by_its_ranks():
    """What its optimizer hands on: noise of one rank, divided by the batch of a rank and by their number."""
    torch.manual_seed(0)
    model = nn.Linear(3000, 1, bias=False)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    told = {"loss_reduction": "mean", "expected_batch_size": 5, "accumulated_iterations": 1, "world_size": 4}
    outer: Any = SimpleNamespace(original_optimizer=inner, max_grad_norm=2.0, noise_multiplier=1.5, **told)
    canaries = DirectionCanaries(400, seed=0)
    with canaries.attached(model, outer, sample_rate=0.5):
        for _ in range(3):
            model.weight.grad = 2.0 * 1.5 * torch.randn(1, 3000) / 20
            inner.step()
    assert canaries.noise.refuted_at is None and canaries.noise.share_upper() == pytest.approx(1.0, abs=0.1)
