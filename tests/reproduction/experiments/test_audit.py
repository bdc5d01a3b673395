from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gmip import Gaussian
from gmip.errors import DataUnavailable
from gmip.tasks import load
from reproduction import figures, roc_curves
from reproduction.experiments import audit


def test_cells_cover_the_paper():
    cells = audit.cells(False)
    real = {(cell.task, cell.seed) for cell in cells if isinstance(cell, audit.Recorded)}
    assert {cell.seed for cell in cells if isinstance(cell, audit.OneStep)} == set(range(5, 20))
    assert real == {(name, seed) for name in ("cifar10", "purchase", "adult", "location") for seed in range(5)}
    simulated = {(cell.sizes_of, cell.seed) for cell in cells if isinstance(cell, audit.Simulated)}
    assert simulated == real and all(cell.task is None for cell in cells if isinstance(cell, audit.Simulated))
    assert {name: size for name, size in audit.SIZES.items() if name != "location"} == {
        "cifar10": (650, 500),
        "purchase": (2580, 1970),
        "adult": (1026, 790),
    }


def test_all_sizes_have_the_same_level():
    for d, n in audit.SIZES.values():
        assert np.sqrt(2 * d / (2 * n + 1)) == pytest.approx(1.14, abs=0.005)


def test_both_figures_have_the_same_rows():
    first, second = audit.EXPERIMENT, audit.LOGLOG
    assert first.source == second.source == "audit" and first.name != second.name
    assert (first.cells, first.run, first.version) == (second.cells, second.run, second.version)


def test_the_simulation_is_as_strong_as_the_bound(monkeypatch):
    monkeypatch.setitem(audit.SIZES, "small", (65, 50))
    rows = audit.run(audit.Simulated(sizes_of="small", runs=100, seed=0))
    areas = {row["curve"]: row["auc"] for row in rows}
    assert areas["likelihood-ratio"] == pytest.approx(areas["records"], abs=0.012)
    assert areas["likelihood-ratio"] >= areas["paper"] - 0.002
    assert rows[-1]["mean_susceptibility"] == pytest.approx(65, rel=0.02) and rows[0]["rank"] is None
    assert rows == audit.run(audit.Simulated(sizes_of="small", runs=100, seed=0))


@pytest.fixture
def digits(monkeypatch):
    """The experiment on digits, which need no download: a softmax head of 64 pixels, rank below d."""
    task = load("digits")
    monkeypatch.setitem(audit.SIZES, "digits", (650, 120))
    monkeypatch.setattr(audit, "audit_task", lambda name: task)
    return task


def test_a_real_run(digits):
    rows = audit.run(audit.Recorded(task="digits", seed=0, games=2))
    curves = {(row["panel"], row["curve"]): row for row in rows}
    assert set(curves) == {("one step", c) for c in audit.CURVES if c != "joint"} | {
        ("five steps", c) for c in audit.CURVES
    }
    assert curves["one step", "rank"]["rank"] < 650
    assert curves["one step", "rank"]["auc"] < curves["one step", "K = d"]["auc"]
    assert curves["five steps", "joint"]["auc"] > 0.7 and curves["five steps", "joint"]["candidates"] == 120
    assert curves["five steps", "K = d"]["auc"] > curves["one step", "K = d"]["auc"]


def test_one_step_is_that_of_a_longer_run(digits):
    (alone,) = audit.run(audit.OneStep(task="digits", seed=0))
    rows = audit.run(audit.Recorded(task="digits", seed=0, games=2))
    (same,) = [row for row in rows if (row["panel"], row["curve"]) == ("one step", "paper")]
    assert alone == same


def test_the_released_setting(digits):
    recipe = audit.recipe_of(digits, 120, 5, "released")
    assert (recipe.clip_norm, recipe.learning_rate, recipe.optimizer) == (None, 2.0e-3, "Adam")
    assert audit.recipe_of(digits, 120, 5).clip_norm == 10.0 and audit.background_of("cifar10", "released") == 10_000


def test_other_sizes_are_no_stand_in(digits, monkeypatch):
    monkeypatch.setitem(audit.SIZES, "digits", (650, 10**6))
    with pytest.raises(DataUnavailable, match="the audit takes 4000000 and 650"):
        audit.run(audit.Recorded(task="digits", seed=0, games=2))


def made_up(mus, seeds=3, n=500, boost=0.0):
    """Rows of CIFAR-10 whose attacks are Gaussian of these mu: (panel, curve) -> mu."""
    rng = np.random.default_rng(0)
    rows = []
    for (panel, curve), mu in mus.items():
        for seed in range(seeds):
            if curve in audit.ATTACKS:
                members = rng.normal(mu + boost, 1.0, n)
                rates = roc_curves.attack_row(members, rng.normal(0.0, 1.0, n))
            else:
                rates = roc_curves.curve_row(Gaussian(mu))
            rows.append(audit._row("cifar10", panel, curve, seed, {"rank": 585} | rates))
    return rows


BOUNDS = {"K = d": 1.14, "rank": 1.08, "records": 1.08}
SIMULATED = {("simulated", c): 1.14 for c in (*BOUNDS, "paper", "likelihood-ratio")}
ONE = {("one step", c): mu for c, mu in {**BOUNDS, "paper": 1.0, "likelihood-ratio": 1.0}.items()}
FIVE = {("five steps", c): 2.236 * mu for c, mu in BOUNDS.items()}
FIVE |= {("five steps", "paper"): 1.0, ("five steps", "likelihood-ratio"): 1.0, ("five steps", "joint"): 1.8}


@pytest.mark.parametrize("seeds", [1, 2])
def test_drawings_and_tables(seeds):
    rows = made_up({**SIMULATED, **ONE, **FIVE}, seeds=seeds, n=100)
    rows += [row | {"task": "purchase"} for row in rows if row["panel"] == "simulated"]
    for experiment in (audit.EXPERIMENT, audit.LOGLOG):
        with figures.style():
            drawing = experiment.drawings(rows)[0]
            assert len(figures.to_svg(drawing.figure)) < 400_000
        texts = [text.get_text() for axes in drawing.figure.axes for text in axes.texts]
        assert texts == ["Purchase:\nno data here"] * 2
        assert len(experiment.table(rows).rows) == 2 * 5 + 5 + 6


def test_the_papers_figure_is_beside_ours_on_the_same_axes():
    rows = made_up({**SIMULATED, **ONE, **FIVE}, seeds=2, n=100)
    with figures.style():
        drawing = audit.EXPERIMENT.drawings(rows)[1]
    published, here = drawing.figure.axes[:3], drawing.figure.axes[3:]
    assert {(axes.get_xlim(), axes.get_ylim()) for axes in (*published, *here)} == {((0.0, 1.0), (0.0, 1.0))}
    assert [len(axes.get_lines()) for axes in published] == [2, 3, 5]  # guessing, the bound, what was read off
    assert [len(axes.get_lines()) for axes in here] == [3, 3, 3]  # and one data set in these rows
    told = [[text.get_text() for text in axes.texts] for axes in (*published, *here)]
    assert told[0][1:] == ["no numbers: “tight”"]
    assert told[2][1:] == ["CIFAR-10 about 0.66", "Purchase about 0.69", "Adult about 0.57"]  # of the notebook
    assert told[5][0] == "AUC: analytical 0.964" and told[5][2:] == ["Purchase no data here", "Adult no data here"]


@pytest.mark.slow
def test_location_has_the_size_it_says():
    try:
        task = audit.audit_task("location")
    except DataUnavailable as missing:
        pytest.skip(str(missing))
    audit.check_sizes(task, *audit.SIZES["location"])
    assert dataclasses.replace(task).fingerprints == task.fingerprints != load("location").fingerprints
