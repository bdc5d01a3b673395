from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.value.experiment import STUDY
from gmip.attacks import attack_table as attacks
from gmip.attacks.attack_table import NEEDS
from gmip.errors import InvalidArgument
from gmip.tasks import names as tasks
from reproduction.experiment import Cell
from reproduction.experiments import PAPER
from reproduction.paper import ASSUMPTIONS, NOISE, TARGET_MUS, UTILITY

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "tau_table.json").read_text())
ALL = (*PAPER.experiments, *STUDY.experiments)


@pytest.mark.parametrize("experiment", ALL, ids=[one.name for one in ALL])
def test_every_experiment_is_complete(experiment):
    words = (experiment.name, experiment.title, experiment.paper, experiment.claim, experiment.quick)
    assert all(text.strip() for text in words) and experiment.version >= 1
    assert experiment.claim.endswith(".") and experiment.quick.endswith(".")
    full, quick = experiment.cells(False), experiment.cells(True)
    assert 0 < len(quick) <= len(full) == len(set(full))
    assert all(isinstance(cell, Cell) and cell.task in (None, *tasks()) for cell in full)


def test_experiments_are_selected_by_name():
    assert PAPER.select([]) == PAPER.experiments
    assert [one.name for one in PAPER.select(["utility", "audit", "utility"])] == ["utility", "audit"]
    with pytest.raises(InvalidArgument, match="'tau' is not an experiment, did you mean 'tau-table'"):
        PAPER.select(["tau"])


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
