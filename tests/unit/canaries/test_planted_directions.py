"""Canaries that are gradients: known strength in pure noise, sound and broken runs, Opacus, gmip.train."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="canaries need the extra gmip[train]")

import torch
from scipy.stats import norm
from torch import nn

import gmip
from gmip.canaries import DirectionCanaries
from gmip.errors import InvalidArgument, UnsupportedModel
from gmip.stats.scores import auc
from gmip.training.noisy_stepper import NoisyStepper
from gmip.training.steppers import noise_generator


def noise_run(
    canaries: DirectionCanaries, *, noise: float, steps: int, rate: float = 1.0, size: int = 20_000, seed: int = 0
) -> None:
    """A loop whose gradients are noise on the sum of multiplier `noise`, divided by 10, and no record at all."""
    model = nn.Linear(size, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(seed)
    with canaries.attached(model, optimizer, sample_rate=rate, clip_norm=2.0, batch_size=10):
        for _ in range(steps):
            model.weight.grad = 2.0 * noise / 10.0 * torch.randn(1, size, generator=generator)
            optimizer.step()


def test_coins_are_fair_and_are_the_seeds():
    one, same, other = DirectionCanaries(2000, seed=1), DirectionCanaries(2000, seed=1), DirectionCanaries(2000, seed=2)
    np.testing.assert_array_equal(one.inside, same.inside)
    assert not np.array_equal(one.inside, other.inside)
    assert abs(one.inside.mean() - 0.5) < 4.0 * np.sqrt(0.25 / 2000)
    assert DirectionCanaries(10).seed != DirectionCanaries(10).seed


def test_scores_are_as_good_as_the_mechanism_allows():
    """Full batches, T steps of multiplier s: mu = sqrt(T)/s, and the AUC is Phi(mu/sqrt 2)."""
    canaries = DirectionCanaries(2000, seed=0)
    noise_run(canaries, noise=4.0, steps=16)
    found = auc(canaries.scores[canaries.inside], canaries.scores[~canaries.inside])
    assert abs(found - norm.cdf(1.0 / np.sqrt(2.0))) < 4.0 * np.sqrt(1.0 / 1000 / 6)
    result = canaries.audit(claim=gmip.Gaussian(1.0))
    assert result.runs[0].verdict.kind != "exposed"
    assert 0.7 < result.runs[0].attacks[0].mu_lower <= 1.05
    # Log-likelihood ratios: half the variance is the mean, in both groups.
    assert abs(canaries.scores[canaries.inside].mean() - 0.5) < 0.15


def test_subsampled_steps_are_weaker():
    full, some = DirectionCanaries(1000, seed=0), DirectionCanaries(1000, seed=0)
    noise_run(full, noise=2.0, steps=10, size=5000)
    noise_run(some, noise=2.0, steps=10, size=5000, rate=0.2)
    areas = [auc(one.scores[one.inside], one.scores[~one.inside]) for one in (full, some)]
    assert areas[0] > areas[1] + 0.1 and areas[1] > 0.5


def test_missing_noise_is_accused():
    canaries = DirectionCanaries(400, seed=3)
    noise_run(canaries, noise=0.2, steps=2, size=4000)  # a fifth of what was declared
    result = canaries.audit(claim=gmip.Gaussian(np.sqrt(2.0)))
    assert result.runs[0].verdict.kind == "exposed"


def test_sound_runs_are_not_accused():
    """At 95% confidence at most 1 in 20 sound runs; 4 or more of 15 would be that with a chance of 1% at the most."""
    accused = 0
    for seed in range(15):
        canaries = DirectionCanaries(200, seed=100 + seed)
        noise_run(canaries, noise=1.0, steps=1, size=500, seed=seed)
        accused += canaries.audit(claim=gmip.Gaussian(1.0)).runs[0].verdict.kind == "exposed"
    assert accused <= 3


def test_canaries_do_not_hide_each_other_and_real_gradients_do_not_repeat():
    """Directions are orthogonal and new in each step: a constant gradient is no more than noise."""
    canaries = DirectionCanaries(500, seed=0)
    model = nn.Linear(2000, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with canaries.attached(model, optimizer, sample_rate=1.0, clip_norm=1.0, batch_size=1):
        for _ in range(30):
            model.weight.grad = torch.ones(1, 2000)
            optimizer.step()
    assert auc(canaries.scores[canaries.inside], canaries.scores[~canaries.inside]) > 0.99


def test_what_is_planted_has_the_clip_norm():
    canaries = DirectionCanaries(50, seed=0)
    model = nn.Sequential(nn.Linear(20, 10), nn.Linear(10, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with canaries.attached(model, optimizer, sample_rate=1.0, clip_norm=3.0, batch_size=6):
        optimizer.step()  # without gradients: all that is there is planted
    total = sum(float((p.grad**2).sum()) for p in model.parameters() if p.grad is not None)
    assert total == pytest.approx(canaries.inside.sum() * (3.0 / 6.0) ** 2, rel=1e-5)


@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_opacus_and_the_models_hooks():
    torch.manual_seed(0)
    model, x = nn.Linear(30, 40), torch.randn(16, 30)
    stepper = NoisyStepper(
        model,
        torch.optim.SGD(model.parameters(), lr=0.0),
        lambda z, y: z.sum(1) * 0.0,
        clip_norm=1.0,
        noise_std=0.0,
        generator=noise_generator(0),
        max_physical_batch_size=4,
    )
    canaries = DirectionCanaries(100, seed=0)
    with canaries.attached(stepper.model, stepper.optimizer, sample_rate=0.5):
        for _ in range(8):
            stepper.step(x, torch.zeros(16), divisor=16)
    stepper.step(x, torch.zeros(16), divisor=16)  # detached: not seen
    assert "8 steps" in repr(canaries)
    assert auc(canaries.scores[canaries.inside], canaries.scores[~canaries.inside]) > 0.95


def test_gmip_train(tmp_path):
    task = gmip.tasks.load("digits")
    recipe = task.recipe.replace(dataset_size=100, batch_size=50, num_steps=5, clip_norm=1.0, noise_std=1e-6)
    canaries = DirectionCanaries(100, seed=0)
    gmip.train(task, recipe, seed=0, out=tmp_path / "a", canaries=canaries)
    assert auc(canaries.scores[canaries.inside], canaries.scores[~canaries.inside]) > 0.8
    with pytest.raises(InvalidArgument, match="canaries need a run with a clip norm"):
        gmip.train(task, recipe.replace(clip_norm=None, noise_std=0.0), canaries=canaries)
    with pytest.raises(InvalidArgument, match="resume cannot go on with a run that has canaries"):
        gmip.train(task, recipe, out=tmp_path / "a", resume=True, canaries=canaries)


def test_what_is_refused():
    model = nn.Linear(10, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(InvalidArgument, match="too few"):
        DirectionCanaries(3)
    canaries = DirectionCanaries(10)
    with pytest.raises(InvalidArgument, match="have seen no step"):
        _ = canaries.scores
    for options, words in [
        ({"sample_rate": 0.0}, "sample_rate"),
        ({"sample_rate": 1.0}, "clip_norm is not known"),
        ({"sample_rate": 1.0, "clip_norm": 1.0}, "batch_size is not known"),
        ({"sample_rate": 1.0, "clip_norm": 1.0, "batch_size": 4}, "needs 35 directions, and the model has 22"),
    ]:
        with pytest.raises(InvalidArgument, match=words), canaries.attached(model, optimizer, **options):
            pass
    wide = nn.Linear(100, 2)
    optimizer = torch.optim.SGD(wide.parameters(), lr=0.1)
    with canaries.attached(wide, optimizer, sample_rate=1.0, clip_norm=1.0, batch_size=4):  # noqa: SIM117
        with pytest.raises(UnsupportedModel, match="closure"):
            optimizer.step(lambda: 0.0)
