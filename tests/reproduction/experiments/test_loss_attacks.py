from __future__ import annotations

import numpy as np
import pytest

from gmip import Gaussian, NoisySGD
from gmip.errors import DataUnavailable
from gmip.tasks import load
from reproduction import figures, roc_curves
from reproduction.experiments import audit, loss_attacks
from reproduction.paper import Setting


def test_cells():
    cells = loss_attacks.cells(False)
    assert {(c.task, c.stage) for c in cells} == {
        (task, stage) for task in ("cifar10", "purchase", "adult") for stage in loss_attacks.STAGES
    }
    assert len(loss_attacks.cells(True)) == 7


@pytest.fixture
def digits(monkeypatch):
    task = load("digits")
    run = NoisySGD(dataset_size=1_200, batch_size=300, num_steps=30, num_params=650, clip_norm=1.0)
    monkeypatch.setattr(loss_attacks, "audit_task", lambda name: task)
    monkeypatch.setattr(loss_attacks, "AUDIT_SIZES", {"digits": (650, 120)})
    monkeypatch.setattr(loss_attacks, "UTILITY", {"digits": Setting(title="Digits", run=run)})
    return run


def test_five_steps(digits):
    rows = loss_attacks.run(loss_attacks.Target(task="digits", stage="five steps", seed=0, shadows=4))
    areas = {row["curve"]: row["auc"] for row in rows}
    assert set(areas) == set(loss_attacks.CURVES)
    assert areas["glir"] > 0.7 and abs(areas["loss"] - 0.5) < 0.1


def test_long_and_utility(digits):
    long = loss_attacks.run(loss_attacks.Target(task="digits", stage="long", seed=0, shadows=4))
    assert [row["curve"] for row in long] == ["lira", "loss"] and long[0]["candidates"] == 120
    utility = loss_attacks.run(loss_attacks.Target(task="digits", stage="utility", seed=0, shadows=4))
    assert [row["curve"] for row in utility] == ["bound", "lira", "loss"]
    assert utility[1]["candidates"] < 120 and 0.3 < utility[1]["auc"] < 0.7


def test_a_set_that_is_too_small_is_no_stand_in(digits, monkeypatch):
    big = Setting(title="Digits", run=digits.replace(dataset_size=10**6))
    monkeypatch.setattr(loss_attacks, "UTILITY", {"digits": big})
    with pytest.raises(DataUnavailable, match="and the run of the paper takes 1000000"):
        loss_attacks.run(loss_attacks.Target(task="digits", stage="utility", seed=0, shadows=4))


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


FIVE = {"bound": 2.54, "glir": 1.8, "glir-paper": 1.0, "lira": 0.0, "loss": 0.0}
GIVEN = {("five steps", curve): mu for curve, mu in FIVE.items()}
GIVEN |= {("long", "lira"): 1.0, ("long", "loss"): 0.5}
GIVEN |= {("utility", "bound"): 0.79, ("utility", "lira"): 0.0, ("utility", "loss"): 0.0}


def test_claims():
    found = [claim.agrees for claim in loss_attacks.claims(made_up(GIVEN))]
    assert found == ["yes", "yes", "yes", "differs"]
    changed = GIVEN | {("five steps", "lira"): 1.0, ("long", "lira"): 0.0, ("utility", "lira"): 0.5}
    assert [claim.agrees for claim in loss_attacks.claims(made_up(changed))] == ["no", "differs", "no", "yes"]


def test_drawing_and_table():
    rows = [row for row in made_up(GIVEN, seeds=2, n=100) if row["stage"] != "utility"]
    with figures.style():
        (drawing,) = loss_attacks.drawings(rows)
        assert figures.to_svg(drawing.figure).startswith("<?xml")
    assert [text.get_text() for axes in drawing.figure.axes for text in axes.texts] == ["not in this run"]
    assert len(loss_attacks.table(rows).rows) == 7
    assert audit.TITLES["cifar10"] in drawing.alt
