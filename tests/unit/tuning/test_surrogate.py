"""A model of trials: finds the best of a noisy function with offsets by seed."""

from __future__ import annotations

import numpy as np

from gmip.tuning.recipe_search import Surrogate


def test_the_peak_is_found_through_noise_and_offsets_of_seeds():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2.0, 2.0, (60, 2))
    seeds = np.arange(60) % 4
    offset = np.array([0.0, 0.3, -0.3, 0.1])
    y = -((x - 0.5) ** 2).sum(1) + offset[seeds] + 0.05 * rng.normal(size=60)
    grid = np.stack(np.meshgrid(*[np.linspace(-2.0, 2.0, 41)] * 2), -1).reshape(-1, 2)
    mean, std = Surrogate(x, seeds, y).predict(grid)
    assert np.abs(grid[np.argmax(mean)] - 0.5).max() < 0.35
    far = Surrogate(x, seeds, y).predict(np.array([[9.0, 9.0]]))[1]
    assert (std > 0.0).all() and far[0] > 3.0 * np.median(std)


def test_bad_values_do_not_bend_what_is_good():
    x = np.linspace(-1.0, 1.0, 21)[:, None]
    y = 1.0 - x[:, 0] ** 2
    worse = np.where(np.abs(x[:, 0]) > 0.8, -1.0e6, y)
    seeds = np.zeros(21, dtype=np.int64)
    assert np.allclose(Surrogate(x, seeds, y).predict(x)[0], Surrogate(x, seeds, worse).predict(x)[0])


def test_equal_values():
    mean, _ = Surrogate(np.zeros((3, 1)), np.zeros(3, dtype=np.int64), np.full(3, 0.7)).predict(np.zeros((1, 1)))
    assert mean[0] == 0.7
