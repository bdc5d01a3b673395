"""NoisySGD: what it takes, what it refuses, what follows from its fields."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from gmip.errors import GmipError, InvalidArgument
from gmip.vocabulary import NoisySGD, Recipe

SIZES: dict[str, Any] = {"dataset_size": 1000, "batch_size": 100, "num_steps": 50, "num_params": 650}


def test_fields_that_follow() -> None:
    run = NoisySGD(**SIZES, clip_norm=2.0, noise_std=0.01)
    assert run.sample_rate == 0.1
    assert run.noise_multiplier == pytest.approx(0.01 * 100 / 2.0)  # tau = s C/n
    assert run.effective_batch_size == pytest.approx(100 + (0.01 * 100 / 2.0) ** 2)


def test_without_clipping_there_is_no_multiplier() -> None:
    run = NoisySGD(**SIZES)
    assert run.noise_multiplier is None
    assert run.effective_batch_size == 100.0
    with pytest.raises(InvalidArgument, match="clip_norm"):
        run.with_noise_multiplier(1.0)


def test_noise_multiplier_there_and_back() -> None:
    run = NoisySGD(**SIZES, clip_norm=0.5).with_noise_multiplier(1.3)
    assert run.noise_std == pytest.approx(1.3 * 0.5 / 100)
    assert run.noise_multiplier == pytest.approx(1.3)


def test_is_frozen_and_by_keyword() -> None:
    run = NoisySGD(**SIZES)
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.num_steps = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        NoisySGD(1000, 100, 50, 650)  # type: ignore[call-arg]
    assert run == NoisySGD(**SIZES) and hash(run) == hash(NoisySGD(**SIZES))


@pytest.mark.parametrize("kind", [NoisySGD, Recipe])
def test_epochs_are_said_in_steps(kind: type) -> None:
    with pytest.raises(InvalidArgument, match="epochs is not a setting here: pass num_steps, which is epochs"):
        kind(dataset_size=10, batch_size=5, epochs=3)


def test_replace_checks_again() -> None:
    run = NoisySGD(**SIZES)
    assert run.replace(num_steps=7).num_steps == 7
    with pytest.raises(InvalidArgument, match="num_steps"):
        run.replace(num_steps=0)


def test_numbers_become_plain() -> None:
    run = NoisySGD(dataset_size=1e3, batch_size=np.int64(100), num_steps=50.0, num_params=np.float32(650))
    assert run == NoisySGD(**SIZES)
    assert all(type(getattr(run, name)) is int for name in SIZES)


@pytest.mark.parametrize("name", list(SIZES))
@pytest.mark.parametrize("wrong", [0, -1, 1.5, math.nan, math.inf, "10", None, True])
def test_sizes_are_counts(name: str, wrong: object) -> None:
    with pytest.raises(InvalidArgument, match=name):
        NoisySGD(**{**SIZES, name: wrong})


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"batch_size": 1001}, "batch_size = 1001 exceeds dataset_size = 1000"),
        ({"sampling": "full"}, "needs batch_size = dataset_size = 1000, not 100"),
        ({"sampling": "sorted"}, "sampling = 'sorted'.*'fixed', 'poisson', 'full'"),
        ({"noise_std": 0.1}, "noise_std = 0.1 without clip_norm"),
        ({"noise_std": -0.1, "clip_norm": 1.0}, "noise_std = -0.1"),
        ({"noise_std": math.inf, "clip_norm": 1.0}, "noise_std"),
        ({"clip_norm": 0.0}, "clip_norm = 0.0"),
        ({"clip_norm": -1.0}, "clip_norm"),
        ({"clip_norm": math.nan}, "clip_norm"),
        ({"rank": 651}, "rank = 651 exceeds num_params = 650"),
        ({"rank": 0}, "rank"),
    ],
)
def test_refusals_name_the_argument_and_the_value(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidArgument, match=match):
        NoisySGD(**{**SIZES, **changes})


def test_full_batches() -> None:
    run = NoisySGD(**{**SIZES, "batch_size": 1000, "sampling": "full"})
    assert run.sample_rate == 1.0


def test_refusals_are_value_errors_too() -> None:
    with pytest.raises(ValueError, match="num_steps"):
        NoisySGD(**{**SIZES, "num_steps": 0})
    assert issubclass(InvalidArgument, GmipError)


def test_a_clip_norm_that_underflows_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="clip_norm = 5e-324 is too small"):
        NoisySGD(dataset_size=100, batch_size=10, num_steps=5, num_params=5, clip_norm=5.0e-324, noise_std=1.0)
