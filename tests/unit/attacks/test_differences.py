"""Noise that repeats falls out of differences; a sound run gives nothing away that GLiR does not see."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gmip.attacks import Differences
from gmip.attacks.attack import RunTraits
from gmip.errors import GmipWarning
from gmip.stats.scores import auc
from gmip.tasks import Task
from gmip.trace import Trace
from tests.unit.auditing.faulty_runs import FAULTS, SETTINGS, Fault, make_task, record_run


@pytest.fixture(scope="module")
def task() -> Task:
    return make_task()


def strength(task: Task, folder: Path, fault: Fault) -> float:
    record_run(task, folder, SETTINGS["full, noise"], fault, seed=1)
    trace = Trace.open(folder)
    found = Differences().run(task, trace)
    assert found.p_values is None and found.attack == "differences"
    inside = np.isin(found.ids, trace.members)
    return auc(found.scores[inside], found.scores[~inside])


def test_reused_noise_is_found_and_sound_noise_is_not(task: Task, tmp_path: Path) -> None:
    """120 members and 360 others: the AUC of nothing is 0.5 give or take 0.03."""
    assert strength(task, tmp_path / "reused", FAULTS["reused noise"]) > 0.65
    assert abs(strength(task, tmp_path / "sound", Fault()) - 0.5) < 0.12


def test_mini_batches_and_single_steps(task: Task, tmp_path: Path) -> None:
    record_run(task, tmp_path / "run", SETTINGS["mini-batches, noise"], FAULTS["reused noise"], seed=2)
    trace = Trace.open(tmp_path / "run")
    found = Differences(steps=[0, 1, 2]).run(task, trace)
    assert found.facts["method"] == "mixture" and np.ptp(found.scores) > 0.0
    with pytest.warns(GmipWarning, match="compares two"):
        assert np.ptp(Differences(steps=[0]).run(task, trace).scores) == 0.0


def test_a_budget_leaves_out_steps_and_says_so(task: Task, tmp_path: Path) -> None:
    record_run(task, tmp_path / "run", SETTINGS["full, noise"], FAULTS["reused noise"], seed=1)
    with pytest.warns(GmipWarning, match="uses 2 of"):
        found = Differences().run(task, Trace.open(tmp_path / "run"), budget=1e-3)
    assert found.cut_short and found.facts["steps"] == 2 and np.ptp(found.scores) > 0.0


def test_runs_by_default_on_noisy_runs_of_others() -> None:
    noisy = RunTraits(noisy=True, recorded=True, seeded=False)
    assert Differences.runs_by_default([noisy])
    assert not Differences.runs_by_default([noisy._replace(recorded=False), noisy._replace(noisy=False)])
