"""Other risks than membership from the trade-off curve: simulated attacks on secrets never exceed it, and come near."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gmip import NoisySGD, account

GAMES = 20_000


def poisson(batch: int, steps: int, noise_multiplier: float) -> NoisySGD:
    run = NoisySGD(
        dataset_size=1000, batch_size=batch, num_steps=steps, num_params=10, clip_norm=1.0, sampling="poisson"
    )
    return run.with_noise_multiplier(noise_multiplier)


def guessed(rate: float, shift: float, steps: int, values: int, games: int, seed: int) -> float:
    """How often the best attacker finds the direction of a record's gradient, one of `values` orthogonal ones."""
    rng = np.random.default_rng(seed)
    right = 0
    for _ in range(games // 500):
        shape = (500, steps, values)
        x = rng.standard_normal(shape)
        x[:, :, 0] += shift * (rng.random(shape[:2]) < rate)
        scores = np.log1p(rate * np.expm1(shift * x - 0.5 * shift**2)).sum(axis=1)
        right += int(np.sum(scores.argmax(axis=1) == 0))
    return right / games


def test_a_secret_of_ten_values_is_guessed_less_often_than_said():
    curve = account(poisson(100, 50, 1.0), notion="gdp")
    said, found = curve.risk(0.1), guessed(0.1, 1.0, 50, 10, GAMES, seed=1)
    error = math.sqrt(found * (1.0 - found) / GAMES)
    assert found - 4.0 * error <= 0.301 <= found + 4.0 * error
    assert found + 4.0 * error < said == pytest.approx(0.341, abs=5e-4)


def test_false_positives_belong_to_the_run_without_the_record():
    """The other direction of the same curve says .0014 where this attack succeeds in 29% of the games."""
    run = poisson(300, 1, 0.2)
    said, found = account(run, notion="gdp").risk(0.001), guessed(0.3, 5.0, 1, 1000, GAMES, seed=2)
    assert 0.27 < found < said == pytest.approx(0.2923, abs=5e-4)
    assert account(run, attacker_knows=1.0).inverse().risk(0.001) < 0.002


def test_one_direction_is_enough_and_tighter_than_both():
    curve = account(poisson(100, 50, 1.0), notion="gdp")
    assert curve.risk([0.01, 0.1, 0.5, 0.8]) == pytest.approx([0.0832, 0.3410, 0.7859, 0.9436], abs=2e-4)
    assert curve.tpr_at(0.5) == pytest.approx(0.8006, abs=2e-4)  # what a symmetric curve says
    assert curve.risk([0.0, 1.0]) == pytest.approx([0.0, 1.0], abs=1e-12)
    for sampling, batch in (("fixed", 100), ("full", 1000)):
        run = poisson(100, 50, 1.0).replace(sampling=sampling, batch_size=batch)
        assert account(run, notion="gdp").risk(0.1) == account(run, notion="gdp").tpr_at(0.1)


def test_who_somebody_is_without_noise_in_the_game_of_the_curve():
    """One of ten candidates of susceptibility at most K was in a full batch; H0 and the prior are the curve's own."""
    n = d = 50
    run = NoisySGD(dataset_size=n, batch_size=n, num_steps=1, num_params=d, sampling="full")
    rng = np.random.default_rng(3)
    candidates = rng.standard_normal((GAMES, 10, d))
    candidates *= math.sqrt(d) / np.linalg.norm(candidates, axis=2, keepdims=True)  # K = d exactly
    mean = (candidates[:, 0] + math.sqrt(n - 1) * rng.standard_normal((GAMES, d))) / n
    # The likelihood of the mean given that candidate i is in it, the others being new.
    distance = np.sum((mean[:, None] - candidates / n) ** 2, axis=2)
    found = float(np.mean(distance.argmin(axis=1) == 0))
    error = math.sqrt(found * (1.0 - found) / GAMES)
    assert 0.30 < found < found + 4.0 * error < account(run, susceptibility=d).risk(0.1) < 0.395
    assert account(run, susceptibility=4 * d).risk(0.1) == pytest.approx(0.767, abs=5e-3)
