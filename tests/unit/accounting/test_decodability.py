"""What `account` says about an attacker with a list, against the map that was measured."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import pytest

from gmip import NoisySGD, account
from gmip.accounting.claims import list_caveat, outlook

MAP = Path(__file__).parents[3] / "docs" / "decoding-map.csv"
CELLS = list(csv.DictReader(MAP.read_text(encoding="utf-8").splitlines()))
QUIET = NoisySGD(dataset_size=1000, batch_size=100, num_steps=20, num_params=1000, sampling="fixed")


def as_run(cell: dict[str, str]) -> NoisySGD:
    sampling: Any = cell["sampling"]
    run = NoisySGD(
        dataset_size=int(cell["size"]),
        batch_size=int(cell["batch"]),
        num_steps=int(cell["steps"]),
        num_params=int(cell["dims"]),
        sampling=sampling,
        clip_norm=1.0,
    )
    noise = float(cell["noise"])
    return run.with_noise_multiplier(noise) if noise else run


def test_the_map_is_whole() -> None:
    assert {cell["panel"] for cell in CELLS} == {"numbers", "steps", "noise", "coverage"}
    assert all(int(cell["runs"]) >= 5 for cell in CELLS)
    assert {outlook(as_run(cell)) for cell in CELLS} == {"likely", "unclear", "unlikely"}


def test_never_reassuring_beyond_what_was_measured() -> None:
    """Where it says "not expected", a quarter of a batch at most was decoded beyond chance; where nearly all of it was,
    it says "could"."""
    for cell in CELLS:
        said, decoded = outlook(as_run(cell)), float(cell["decoded"])
        if said == "unlikely":
            assert decoded < 0.25, cell
        if decoded > 0.8:
            assert said == "likely", cell


def test_likely_is_what_was_decoded() -> None:
    whole = [cell for cell in CELLS if cell["share"] == "1" and outlook(as_run(cell)) == "likely"]
    assert len(whole) > 20
    decoded = sorted(float(cell["decoded"]) for cell in whole)
    assert decoded[0] > 0.1 and decoded[len(decoded) // 4] > 0.7


def test_noisy_runs_kept_their_claims() -> None:
    """All cells with noise: at most as much as differential privacy and `account(attacker_knows=q)` allow."""
    excesses = [float(cell["excess"]) for cell in CELLS if cell["excess"]]
    assert len(excesses) > 50
    assert max(excesses) < 3.5  # standard errors, three rates in each


@pytest.mark.parametrize("factor", [1.0, 2.0, 10.0])
def test_more_numbers_less_noise_more_steps_are_never_safer(factor: float) -> None:
    order = ["unlikely", "unclear", "likely"]
    for params in (2, 20, 200, 2000):
        for multiplier in (0.0, 0.1, 1.0, 5.0):
            run = QUIET.replace(num_params=params, clip_norm=1.0)
            run = run.with_noise_multiplier(multiplier) if multiplier else run
            more = run.replace(num_params=math.ceil(factor * params), num_steps=math.ceil(factor * run.num_steps))
            assert order.index(outlook(more)) >= order.index(outlook(run))
            less = run.replace(noise_std=run.noise_std / factor)
            assert order.index(outlook(less)) >= order.index(outlook(run))


def test_sentences() -> None:
    few = QUIET.replace(num_params=10)
    noisy = QUIET.replace(clip_norm=1.0).with_noise_multiplier(30.0)
    assert "could decode who is in which batch." in list_caveat([QUIET])
    assert "is not expected" in list_caveat([few]) and "not proved" in list_caveat([few])
    assert "could decode" in list_caveat([few, QUIET])  # the phase that tells most
    assert "knows all other members" in list_caveat([noisy]) and "knows all" not in list_caveat([few, noisy])
    assert account(QUIET).claim.caveat == list_caveat([QUIET])
    assert account(noisy, attacker_knows=1.0).claim.caveat is None
    assert account(noisy, notion="gdp").claim.caveat is None
