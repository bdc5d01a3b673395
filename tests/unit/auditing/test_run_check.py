"""Noise of recorded steps, on arrays: what repeats, what is missing in a column, what comes from one seed."""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
import pytest

from gmip.auditing.noise_check import WIDER, Clippings, Layer, RecomputedStep, judge_noise, limits, look
from gmip.auditing.schema import CheckOutcome
from gmip.report.check_words import sentence
from gmip.stats.flat import Flat

LAYERS = [
    Layer(name="0.weight", place=slice(0, 200), shape=(10, 20)),
    Layer(name="0.bias", place=slice(200, 210), shape=(10,)),
    Layer(name="2.weight", place=slice(210, 410), shape=(10, 20)),
]


def steps(noise: np.ndarray) -> list[RecomputedStep]:
    """Steps of nothing but noise, declared as of size 1."""
    zero = Flat.of(np.zeros(noise.shape[1]))
    return [
        RecomputedStep(
            index=index,
            published=Flat.of(row),
            expected=zero,
            otherwise=None,
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


@pytest.mark.parametrize("shape", ["uniform", "rounded"])
def test_noise_that_is_not_normal_in_a_short_run(shape):
    rng = np.random.default_rng(1)
    noise = rng.uniform(-(3**0.5), 3**0.5, (4, 410)) if shape == "uniform" else np.round(rng.normal(size=(4, 410)))
    noise /= np.sqrt(np.mean(noise**2))
    assert failed(noise)["noise-size"].finding == "noise-not-normal"


def test_noise_that_is_missing_to_the_last_bit():
    found = failed(np.zeros((2, 410)))
    assert found["noise-size"].finding == "no-noise" and found["noise-size"].value == 0.0


def _reordered(noise: np.ndarray) -> np.ndarray:
    noise[1::2] = -noise[::2, ::-1]
    return noise


@pytest.mark.parametrize(
    "change",
    [lambda noise: noise.astype(np.float16).astype(float), lambda noise: np.clip(noise, -2.7, 2.7), _reordered],
    ids=["half precision", "cut off", "used again in another order"],
)
def test_noise_whose_values_repeat(change):
    noise = np.random.default_rng(5).normal(size=(36, 410))
    assert not failed(noise)
    published = change(noise) + 1.0e-3 * np.random.default_rng(6).normal(size=410)  # and the gradient is not zero
    made = steps(published)
    mean = 1.0e-3 * np.random.default_rng(6).normal(size=410)
    found = {one.check: one for one in judge_noise(made, [Flat.of(mean)] * len(made), LAYERS)}
    assert found["noise-size"].finding == "noise-values-repeat"


def test_a_record_in_half_precision_is_no_fault_of_the_noise():
    assert not failed(np.random.default_rng(5).normal(size=(36, 410)).astype(np.float16).astype(float))


def test_a_column_without_noise():
    noise = drawn(0)
    noise[:, :200].reshape(6, 10, 20)[:, :, 7] = 0.0
    found = failed(noise)["noise-rows"]
    assert (found.finding, found.line, found.layers, found.value) == ("odd-column", 7, ("0.weight",), 0.0)


@pytest.mark.parametrize("times", [0.0, 0.001, 0.1])
def test_one_entry_with_less_noise(times):
    """The other entries hide it, a thousandth of the squares; it shows a record that alone moves it."""
    noise = drawn(2, 40)
    noise[:, 137] *= times
    found = failed(noise)["noise-rows"]
    assert (found.finding, found.line, found.layers) == ("odd-entry", 137, ("0.weight",))


@pytest.mark.parametrize("times", [0.0, 0.5])
def test_one_step_of_many_with_less_noise(times):
    """The steps together would not show it: a fiftieth of the squares."""
    noise = drawn(3, 50)
    noise[17] *= times
    found = failed(noise, compared=400)
    assert set(found) == {"noise-size"} and found["noise-size"].at_steps == (17,)
    assert "The noise of step 17 is 0" in sentence(found["noise-size"])


@pytest.mark.parametrize("standardised", [False, True])
def test_noise_that_is_centred(standardised):
    noise = drawn(4)
    noise[:, 200:210] -= noise[:, 200:210].mean(axis=1, keepdims=True)
    if standardised:
        noise[:, 200:210] /= noise[:, 200:210].std(axis=1, keepdims=True)
    found = failed(noise)
    assert set(found) == {"noise-rows"} and found["noise-rows"].finding == "noise-cancels"
    assert found["noise-rows"].layers == ("0.bias",) and found["noise-rows"].value == pytest.approx(0.0, abs=1e-6)
    assert "The noise of 0.bias cancels" in sentence(found["noise-rows"])


_TURN = np.linalg.qr(np.random.default_rng(9).normal(size=(20, 20)))[0]


def _half_rank(block: np.ndarray, bias: np.ndarray) -> None:
    block[:] = 2**0.5 * block[:, :, :10] @ _TURN[:10]


def _turned_columns(block: np.ndarray, bias: np.ndarray) -> None:
    block[:, :, 10:] = block[:, :, :10] @ np.linalg.qr(_TURN[:10, :10])[0]


def _turned_rows(block: np.ndarray, bias: np.ndarray) -> None:
    block[:, 5:] = np.linalg.qr(_TURN[:5, :5])[0] @ block[:, :5]


def _sums(block: np.ndarray, bias: np.ndarray) -> None:
    bias[:] = block.sum(axis=2) / 20**0.5


@pytest.mark.parametrize("change", [_half_rank, _turned_columns, _turned_rows, _sums])
def test_noise_that_follows_from_other_noise(change):
    """Each entry alone is as declared, and no two parameters, rows or columns are alike."""
    noise = drawn(7)
    change(noise[:, :200].reshape(6, 10, 20), noise[:, 200:210])
    found = failed(noise)
    assert set(found) == {"noise-rows"} and found["noise-rows"].finding == "noise-depends"
    assert found["noise-rows"].value == pytest.approx(0.0, abs=1e-6) and "0.weight" in found["noise-rows"].layers
    assert "depend on each other" in sentence(found["noise-rows"])


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


def clipped_steps(seed: int, *, scale: float, times: float, noise: float, count: int = 12) -> list[RecomputedStep]:
    """Steps of 20 records with gradients of norms from 0.5 to 4 times the clip norm 1, each fault of its size."""
    rng = np.random.default_rng(seed)
    made = []
    for index in range(count):
        rows = rng.normal(size=(20, 410)) / 410**0.5 + rng.normal(size=410) / 410**0.5
        rows *= (rng.uniform(0.5, 4.0, size=20) / np.linalg.norm(rows, axis=1))[:, None]
        norms = np.linalg.norm(rows, axis=1)

        def mean(norm: float, rows: np.ndarray = rows, norms: np.ndarray = norms) -> np.ndarray:
            return np.minimum(1.0, norm / norms) @ rows / 20

        by_layer = np.concatenate(
            [
                np.minimum(1.0, 1.0 / np.linalg.norm(rows[:, layer.place], axis=1)) @ rows[:, layer.place] / 20
                for layer in LAYERS
            ]
        )
        wider = tuple(Flat.of(mean(wide)) for wide in WIDER)
        made.append(
            RecomputedStep(
                index=index,
                published=Flat.of(scale * mean(times) + noise * 0.02 * rng.normal(size=410)),
                expected=Flat.of(mean(1.0)),
                otherwise=partial(Clippings, Flat.of(mean(np.inf)), Flat.of(by_layer), wider),
                noise_std=0.02,
                size=20,
                divisor=20.0,
                contribution=1.0,
                largest=0.05,
                tolerance=1e-9,
            )
        )
    return made


@pytest.mark.parametrize(
    ("scale", "times", "noise"),
    [(1.0, 1.0, 1.0), (1.1, 1.0, 1.0), (1.0, 1.2, 1.0), (1.1, 1.1, 1.0), (1.0, 1.0, 0.9), (1.02, 1.04, 0.98)],
)
def test_limits_have_room_for_the_fault_that_is_there(scale: float, times: float, noise: float) -> None:
    """Each errs with a chance of a third of a per cent, and is not much wider than it must be."""
    found = []
    for seed in range(25):
        looks = [look(one, LAYERS, 1.0) for one in clipped_steps(seed, scale=scale, times=times, noise=noise)]
        found.append(limits(looks, clip_norm=1.0))
    share = noise / (scale * times)
    assert sum(one.least_noise > share for one in found) <= 1
    assert np.mean([one.least_noise for one in found]) > 0.85 * share


def test_expected_limits_do_not_depend_on_the_noise() -> None:
    made = [clipped_steps(0, scale=1.0, times=1.0, noise=noise) for noise in (1.0, 2.0)]
    first, second = (limits([look(one, LAYERS, 1.0) for one in some], clip_norm=1.0, expected=True) for some in made)
    assert first == second and not first.precise
    twice = [look(one, LAYERS, 1.0) for one in made[0] * 30]
    assert limits(twice, clip_norm=1.0, expected=True).precise


def test_nothing_is_known_of_clipping_that_noise_hides() -> None:
    looks = [look(one, LAYERS, 1.0) for one in clipped_steps(0, scale=1.0, times=1.0, noise=1.0, count=1)]
    loud = [dataclasses.replace(one, toward=one.toward / 100, gram=one.gram / 1e4) for one in looks]
    assert limits(loud, clip_norm=1.0).least_noise == 0.0
