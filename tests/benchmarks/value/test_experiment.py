from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from benchmarks.value import experiment as value
from benchmarks.value.claims import TARGETS, all_claims, gains, short_table
from reproduction import figures

ARMS = ("none", "gmip", "half", "measured", "gdp", "gdp-same", "gdp-fixed", "any", "any-fixed", "own-gdp")


def test_cells_are_all_places_and_quick_ones_are_few():
    full, quick = value.cells(False), value.cells(True)
    assert len(full) == 15 and {cell.dataset_size for cell in full} >= {250, 48_000}
    assert {cell.targets for cell in full} == {TARGETS}
    assert len(quick) == 3 and all(cell.seeds == 3 and len(cell.targets) == 1 for cell in quick)


def test_a_place_gives_a_row_for_each_claim_and_seed():
    """The smallest search there is, with all arms but the slow guarantee for any record."""
    cell = next(one for one in value.cells(True) if one.task == "breast-cancer")
    grid = cell.grid._replace(components=(2,), steps=(5,), clip_norms=(0.3,), moves=(2.0,))
    rows = value.run(dataclasses.replace(cell, grid=grid, seeds=2, dataset_size=100))
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["arm"], []).append(row)
    assert set(found) == {"none", "gmip", "half", "gdp", "gmip-fixed", "gdp-fixed", "gdp-same", "measured"}
    assert all([row["seed"] for row in mine] == [0, 1] for mine in found.values())
    assert all(row["exposure"] <= 0.05 for arm, mine in found.items() if arm != "none" for row in mine)
    gdp = found["gdp"][0]
    assert gdp["typical_multiplier"] <= gdp["noise_multiplier"] and found["none"][0]["noise_multiplier"] == 0.0
    assert all(claim.ours for claim in all_claims(rows))


def made_up(notion=0.0, recipe=0.1, seeds=5):
    """Rows where GMIP gains `notion` on GDP, and a tuned recipe `recipe`."""
    rng = np.random.default_rng(0)
    more = {"none": 0.2, "gmip": notion, "measured": notion, "gdp-fixed": -0.05, "any-fixed": -0.02, "own-gdp": -recipe}
    rows = []
    for task, size in (("digits", 250), ("adult", 1_000)):
        for seed in range(seeds):
            base = 0.7 + 0.01 * rng.standard_normal()
            for arm in ARMS:
                for target in [None] if arm == "none" else TARGETS:
                    rows.append(
                        {
                            "task": task,
                            "dataset_size": size,
                            "arm": arm,
                            "target": target,
                            "seed": seed,
                            "num_params": 20,
                            "batch_size": 50,
                            "sampling": "poisson",
                            "noise_multiplier": 0.0 if arm == "none" else 2.0,
                            "typical_multiplier": 1.5 if arm == "gdp" else None,
                            "exposure": 0.04 if arm == "none" else target,
                            "test_accuracy": base + more.get(arm, 0.0) + 0.001 * rng.standard_normal(),
                        }
                    )
    return rows


def claim(rows, start):
    (found,) = [each for each in all_claims(rows) if each.what.startswith(start)]
    return found


def test_gains_are_paired():
    (first, *_) = gains(made_up(notion=0.03), "gmip", "gdp")
    assert (first.task, first.size, first.target) == ("digits", 250, 0.03)
    assert first.mean == pytest.approx(3.0, abs=0.2) and first.error < 0.15 and first.p_value < 1e-3


def test_claims_follow_the_numbers():
    better, same = made_up(notion=0.03), made_up(notion=0.0)
    assert claim(better, "Accuracy under GMIP for a typical record, against").verdict == "agrees"
    told = claim(same, "Accuracy under GMIP for a typical record, against")
    assert told.verdict == "differs" and "One point or more: none" in told.measured
    assert "at most 5% in 2 of 2 places" in claim(same, "Exposure of a typical record with the best").measured
    assert claim(same, "GDP with Poisson").verdict == "agrees"


def test_noise_saved_is_held_against_theory():
    """2.0^2 - 1.5^2 = 1.75 times 20 parameters: below the 47.5 (or 40) of a batch of 50, above that of one of 30."""
    assert claim(made_up(), "Noise that data randomness saves").verdict == "agrees"
    small = [row | {"batch_size": 30} for row in made_up()]
    assert claim(small, "Noise that data randomness saves").verdict == "contradicted"


@pytest.mark.parametrize("seeds", [1, 4])
def test_drawing_and_tables(seeds):
    rows = made_up(seeds=seeds)
    with figures.style():
        (drawing,) = value.drawings(rows)
        assert figures.to_svg(drawing.figure).startswith("<?xml")
    assert [axes.get_title() for axes in drawing.figure.axes][:2] == ["Digits", "Adult"]
    assert len(value.table(rows).rows) == 6
    lines = short_table(rows, [("digits", 250)]).splitlines()
    assert len(lines) == 3 and lines[2].startswith("| Digits, 250 members | ")
