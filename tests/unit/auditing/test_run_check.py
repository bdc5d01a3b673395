"""Noise of recorded steps, on arrays: what repeats, what is missing in a column, what comes from one seed."""

from __future__ import annotations

import numpy as np
import pytest

from gmip.auditing.run_check import Layer, RecomputedStep, judge_noise
from gmip.auditing.schema import CheckOutcome

LAYERS = [
    Layer(name="0.weight", place=slice(0, 200), shape=(10, 20)),
    Layer(name="0.bias", place=slice(200, 210), shape=(10,)),
    Layer(name="2.weight", place=slice(210, 410), shape=(10, 20)),
]


def steps(noise: np.ndarray) -> list[RecomputedStep]:
    """Steps of nothing but noise, declared as of size 1."""
    zero = np.zeros(noise.shape[1])
    return [
        RecomputedStep(
            index=index,
            published=row,
            expected=zero,
            unclipped=zero,
            by_layer=zero,
            wider=zero,
            noise_std=1.0,
            size=10,
            divisor=10.0,
            contribution=1.0,
            largest=1.0,
            tolerance=1e-9,
        )
        for index, row in enumerate(noise)
    ]


def failed(noise: np.ndarray, compared: int = 0) -> dict[str, CheckOutcome]:
    made = steps(noise)
    found = judge_noise(made, [one.expected for one in made], LAYERS, compared)
    return {one.check: one for one in found if one.status == "failed"}


def drawn(seed: int, count: int = 6) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 410))


def test_independent_noise_is_not_accused():
    assert sum(bool(failed(drawn(seed), compared=400)) for seed in range(60)) <= 3  # the level is 1%


def test_a_column_without_noise():
    noise = drawn(0)
    noise[:, :200].reshape(6, 10, 20)[:, :, 7] = 0.0
    found = failed(noise)["noise-rows"]
    assert (found.finding, found.line, found.layers, found.value) == ("odd-column", 7, ("0.weight",), 0.0)


def test_layers_drawn_from_one_seed():
    noise = drawn(1)
    noise[:, 210:410] = noise[:, :200]
    found = failed(noise)["noise-rows"]
    assert (found.finding, found.layers) == ("layers-share-noise", ("0.weight", "2.weight"))
    assert found.value == pytest.approx(1.0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_steps_that_share_noise_even_among_many(sign):
    noise = drawn(2)
    noise[4] = sign * noise[1]
    found = failed(noise, compared=10_000)["noise-steps"]
    assert (found.finding, found.at_steps) == ("noise-repeats", (1, 4)) and found.value == pytest.approx(sign)
