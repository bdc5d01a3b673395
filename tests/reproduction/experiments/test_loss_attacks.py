from __future__ import annotations

import numpy as np
import pytest

from gmip import Gaussian, NoisySGD
from gmip.errors import DataUnavailable
from gmip.stats.scores import auc
from gmip.tasks import load
from reproduction import figures, roc_curves
from reproduction.experiments import audit, loss_attacks
from reproduction.paper import Setting


def test_cells():
    cells = loss_attacks.cells(False)
    assert {(c.task, c.stage) for c in cells if isinstance(c, loss_attacks.Fleet)} == {
        (task, stage) for task in ("cifar10", "purchase", "adult") for stage in loss_attacks.STAGES
    }
    fleets = [c for c in cells if isinstance(c, loss_attacks.Fleet) and c.stage == "utility"]
    assert all(c.targets >= 32 and c.shadows >= 160 for c in fleets)
    assert len(loss_attacks.cells(True)) == 3 + 7


@pytest.fixture
def digits(monkeypatch):
    task = load("digits")
    run = NoisySGD(dataset_size=1_200, batch_size=300, num_steps=30, num_params=650, clip_norm=1.0)
    monkeypatch.setattr(loss_attacks, "audit_task", lambda name: task)
    monkeypatch.setattr(loss_attacks, "AUDIT_SIZES", {"digits": (650, 120)})
    monkeypatch.setattr(loss_attacks, "UTILITY", {"digits": Setting(title="Digits", run=run)})
    return run


def test_gradients(digits):
    rows = loss_attacks.run(loss_attacks.Gradients(task="digits", seed=0))
    areas = {row["curve"]: row["auc"] for row in rows}
    assert set(areas) == {"bound", "glir-paper"} and areas["bound"] > areas["glir-paper"] > 0.55


def test_longer_training_is_found(digits):
    """The same candidates after 5 steps and after many more: LiRA finds members only then."""
    areas = {}
    for stage in ("five steps", "long"):
        rows = loss_attacks.run(loss_attacks.Fleet(task="digits", stage=stage, targets=4, shadows=32))
        assert {row["curve"] for row in rows} == {"lira-12", "lira", "loss"}
        assert all(row["candidates"] == 120 for row in rows)
        areas[stage] = np.mean([row["auc"] for row in rows if row["curve"] == "lira"])
    assert abs(areas["five steps"] - 0.5) < 0.06 and areas["long"] > areas["five steps"] + 0.02


def test_utility_models_have_all_other_records(digits):
    rows = loss_attacks.run(loss_attacks.Fleet(task="digits", stage="utility", targets=2, shadows=12))
    assert [row["curve"] for row in rows] == ["bound", "lira", "lira", "loss", "loss"]
    assert rows[1]["candidates"] == len(load("digits").pool) - 1_200


def test_guessing_finds_nothing():
    """The null: confidences that know nothing of who was in."""
    rng = np.random.default_rng(0)
    inside = rng.random((24, 2_000)) < 0.5
    scores = loss_attacks._lira(rng.normal(size=(2_000, 24)), inside, targets=8, shadows=16)
    areas = [float(auc(*pair)) for pair in scores]
    assert abs(np.mean(areas) - 0.5) < 4.0 * (6.0 * 8 * 1_000) ** -0.5


def test_a_set_that_is_too_small_is_no_stand_in(digits, monkeypatch):
    big = Setting(title="Digits", run=digits.replace(dataset_size=10**6))
    monkeypatch.setattr(loss_attacks, "UTILITY", {"digits": big})
    with pytest.raises(DataUnavailable, match="and the run of the paper takes 1000000"):
        loss_attacks.run(loss_attacks.Fleet(task="digits", stage="utility", targets=2, shadows=4))


def made_up(mus, seeds=5, n=500):
    rng = np.random.default_rng(0)
    rows = []
    for (stage, curve), mu in mus.items():
        for seed in range(seeds):
            rates = (
                roc_curves.curve_row(Gaussian(mu))
                if curve == "bound"
                else roc_curves.attack_row(rng.normal(mu, 1.0, n), rng.normal(0.0, 1.0, n))
            )
            rows.append({"task": "cifar10", "stage": stage, "seed": seed, "shadows": 8, "curve": curve} | rates)
    return rows


FIVE = {"bound": 2.54, "glir-paper": 1.0, "lira": 0.0, "loss": 0.0}
GIVEN = {("five steps", curve): mu for curve, mu in FIVE.items()}
GIVEN |= {("long", "lira"): 1.0, ("long", "loss"): 0.5}
GIVEN |= {("utility", "bound"): 0.79, ("utility", "lira"): 0.0, ("utility", "loss"): 0.0}


def test_drawing_and_table():
    rows = [row for row in made_up(GIVEN, seeds=2, n=100) if row["stage"] != "utility"]
    with figures.style():
        (drawing,) = loss_attacks.drawings(rows)
        assert figures.to_svg(drawing.figure).startswith("<?xml")
    assert [text.get_text() for axes in drawing.figure.axes for text in axes.texts] == ["not in this run"]
    assert len(loss_attacks.table(rows).rows) == 6
    assert audit.TITLES["cifar10"] in drawing.alt
