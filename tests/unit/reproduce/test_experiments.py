from __future__ import annotations

import json
from pathlib import Path

import pytest

import gmip.reproduce
from gmip.attacks import attack_table as attacks
from gmip.attacks.attack import NEEDS
from gmip.errors import InvalidArgument
from gmip.reproduce import experiment, names
from gmip.reproduce.experiments import Cell, Experiment, assumptions, convergence, tau_table, utility
from gmip.reproduce.paper_settings import ASSUMPTIONS, NOISE, TARGET_MUS, UTILITY
from gmip.tasks import names as tasks

KNOWN: list[Experiment] = [convergence, utility, tau_table, assumptions]  # mypy compares them with the protocol
GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "tau_table.json").read_text())


def test_public_names():
    assert all(hasattr(gmip.reproduce, name) for name in gmip.reproduce.__all__)


@pytest.mark.parametrize("name", names())
def test_every_experiment_is_complete(name):
    found = experiment(name)
    assert name == found.NAME
    assert all(text.strip() for text in (found.TITLE, found.PAPER, found.CLAIM, found.QUICK)) and found.VERSION >= 1
    assert found.CLAIM.endswith(".") and found.QUICK.endswith(".")
    full, quick = found.cells(False), found.cells(True)
    assert 0 < len(quick) <= len(full) == len(set(full))
    assert all(isinstance(cell, Cell) and cell.task in (None, *tasks()) for cell in full)
    for method in ("run", "drawings", "table", "claims"):
        assert callable(getattr(found, method))


def test_unknown_experiment():
    with pytest.raises(InvalidArgument, match="'tau' is not an experiment, did you mean 'tau-table'"):
        experiment("tau")


def test_published_noise_is_that_of_the_golden_file():
    for task, setting in UTILITY.items():
        sizes = GOLDEN["runs"][setting.title]
        assert {name: getattr(setting.run, name) for name in sizes} == sizes
        assert {notion: list(NOISE[task][notion]) for notion in NOISE[task]} == GOLDEN["noise_std"][setting.title]
        assert len(NOISE[task]["gdp"]) == len(NOISE[task]["gmip"]) == len(TARGET_MUS)
    printed = (
        "0.40 0.52 0.66 0.86 1.11 1.43 1.84 2.37 3.05 3.94 5.08 6.55 8.44 10.88 14.03 18.09 23.33 30.08 38.78 50.00"
    )
    assert [f"{mu:.2f}" for mu in TARGET_MUS] == printed.split()


def test_published_assumptions_speak_of_known_attacks():
    assert set(ASSUMPTIONS) <= set(attacks.names())
    assert all(needs <= {*NEEDS, "analytical"} for needs in ASSUMPTIONS.values())
