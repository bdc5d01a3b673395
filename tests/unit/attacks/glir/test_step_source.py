"""Within the time that there is, and on from where an attempt was killed."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="attacks on models need the extra gmip[train]")

import torch
from torch import nn

from gmip.attacks import GLiR
from gmip.attacks.glir import Play
from gmip.attacks.glir.glir_attack import Cost, DoubtNoise, GlirPlan, cut_to_fit
from gmip.attacks.work import Speed
from gmip.errors import GmipWarning
from gmip.stats.scores import auc
from gmip.store import Store
from gmip.tasks import Examples, Task, load
from gmip.trace import Trace
from gmip.training import train
from gmip.vocabulary import Recipe

QUICK = Play(games=6, tuning_games=4, grid=((1.0e-12, 1.0e-3), (1.0e-12, 1.0e-1)))
MINI = {"dataset_size": 80, "batch_size": 20, "num_steps": 10, "sampling": "shuffled", "learning_rate": 0.5}
FULL = {"dataset_size": 80, "batch_size": 80, "num_steps": 4, "sampling": "full", "learning_rate": 0.5}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, task = tmp_path_factory.mktemp("runs"), load("digits")
    for name, changes in (("mini", MINI), ("full", FULL)):
        train(task, task.recipe.replace(**changes, clip_norm=None), seed=3, out=folder / name)
    return {name: folder / name for name in ("mini", "full")}


def attack(path: Path, **options: Any) -> Any:
    task, trace = load("digits"), Trace.open(path)
    background = task.pool[np.setdiff1d(np.arange(len(task.pool)), np.concatenate([trace.members, trace.non_members]))]
    return GLiR(play=QUICK).run(task, trace, background=background[:600], **options)


def area(scores: Any, path: Path) -> float:
    inside = np.isin(scores.ids, Trace.open(path).members)
    return auc(scores.scores[inside], scores.scores[~inside])


class Stopped(Exception):
    pass


@pytest.mark.parametrize(("name", "stop"), [("mini", 6), ("full", 3)])
def test_an_attempt_goes_on_where_it_stopped(
    runs: dict[str, Path], tmp_path: Path, name: str, stop: int, monkeypatch: Any
) -> None:
    monkeypatch.setattr("gmip.attacks.step_vectors._KEEP_AFTER", 0.0)
    whole = attack(runs[name])
    seen: list[int] = []

    def interrupt(done: int, total: int) -> None:
        seen.append(done)
        if done == stop:
            raise Stopped

    with pytest.raises(Stopped):
        attack(runs[name], progress=interrupt, parts=Store(tmp_path, "parts"))
    assert seen == list(range(1, stop + 1))
    again: list[int] = []
    found = attack(runs[name], progress=lambda done, total: again.append(done), parts=Store(tmp_path, "parts"))
    assert len(again) <= len(Trace.open(runs[name])) - stop + 1
    np.testing.assert_array_equal(found.scores, whole.scores)
    np.testing.assert_array_equal(found.p_values, whole.p_values)
    assert found.prediction.auc == whole.prediction.auc


def test_a_killed_attempt_keeps_its_steps(runs: dict[str, Path], tmp_path: Path) -> None:
    script = (
        "import sys, tests.unit.attacks.glir.test_step_source as t; "
        "t.attack(t.Path(sys.argv[1]), parts=t.Store(t.Path(sys.argv[2]), 'parts'), progress=t.slow)"
    )
    parts = tmp_path / "parts"
    job = subprocess.Popen([sys.executable, "-c", script, str(runs["mini"]), str(parts)])
    for _ in range(1200):
        if len(list(parts.glob("parts-*/*.entry"))) >= 5:
            break
        time.sleep(0.05)
    job.send_signal(signal.SIGKILL)
    assert job.wait() == -signal.SIGKILL
    kept = len(list(parts.glob("parts-*/*.entry")))
    assert 5 <= kept < 10  # the three that chose the setting, and more
    again: list[int] = []
    found = attack(runs["mini"], progress=lambda done, total: again.append(done), parts=Store(parts, "parts"))
    assert len(again) == 10 - kept
    np.testing.assert_array_equal(found.scores, attack(runs["mini"]).scores)


def slow(done: int, total: int) -> None:
    time.sleep(0.3)


@pytest.mark.usefixtures("quiet_machine")
def test_no_time_leaves_out_steps_and_says_so(runs: dict[str, Path]) -> None:
    for name, used in (("mini", 4), ("full", 1)):  # one more than chose the setting shows how long a step takes
        with pytest.warns(GmipWarning, match="left out .* steps"):
            found = attack(runs[name], budget=1.0e-3)
        assert int(found.facts["steps"]) <= used and found.cut_short
        assert area(found, runs[name]) > 0.6
        assert np.mean(found.p_values[~np.isin(found.ids, Trace.open(runs[name]).members)] <= 0.05) <= 0.15
    assert not attack(runs["mini"], budget="1h").cut_short


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Task, Trace]:
    """Batches of 10 records of noise in 2,410 parameters: everybody is found in the first epochs."""
    generator = torch.Generator().manual_seed(0)
    records = Examples(torch.randn(720, 64, generator=generator), torch.randint(0, 10, (720,), generator=generator))
    recipe = Recipe(dataset_size=40, batch_size=10, num_steps=16, learning_rate=0.05, sampling="shuffled")
    task = Task(name="noise", make_model=network, pool=records[:700], test=records[700:], recipe=recipe)
    path = tmp_path_factory.mktemp("exposed") / "run"
    train(task, seed=3, out=path)
    return task, Trace.open(path)


def test_once_everybody_is_decided_no_step_is_needed(exposed: tuple[Task, Trace], tmp_path: Path) -> None:
    task, trace = exposed
    play = dataclasses.replace(QUICK, stop_when_decided=True)
    found = GLiR(play=play).run(task, trace, parts=Store(tmp_path, "parts"))
    whole = GLiR(play=dataclasses.replace(play, stop_when_decided=False)).run(task, trace)
    assert whole.facts["steps"] == 16 and "not_needed" not in whole.facts
    assert 3 <= int(found.facts["steps"]) <= 10 and found.facts["not_needed"] == 16 - int(found.facts["steps"])
    assert not found.cut_short
    assert area(found, trace.path) > area(whole, trace.path) - 0.01
    assert trace.members is not None and found.p_values is not None
    assert np.mean(found.p_values[~np.isin(found.ids, trace.members)] <= 0.05) <= 0.15
    again: list[int] = []
    same = GLiR(play=play).run(
        task, trace, parts=Store(tmp_path, "parts"), progress=lambda done, total: again.append(done)
    )
    np.testing.assert_array_equal(same.scores, found.scores)
    assert again == [16]  # nothing is computed again, and nothing more


def test_a_run_that_is_not_what_its_games_assume_is_not_decided(exposed: tuple[Task, Trace], tmp_path: Path) -> None:
    """Who believes in no noise plays games without it; the records of the run lie between their members and others."""
    task = exposed[0]
    recipe = task.recipe.replace(num_steps=6, clip_norm=1.0, noise_std=0.05)
    train(task, recipe, seed=4, out=tmp_path / "noisy")
    found = DoubtNoise(play=QUICK).run(task, Trace.open(tmp_path / "noisy"))
    assert found.facts["steps"] == 6 and "not_needed" not in found.facts


def test_a_list_needs_little_background(runs: dict[str, Path]) -> None:
    """More dimensions than records tell those of the list apart: further background is in the way."""
    task, trace = load("digits"), Trace.open(runs["full"])
    assert trace.members is not None
    few, many = (
        GLiR(play=QUICK, background="with-candidates", steps=steps).run(task, trace) for steps in (range(4), [0])
    )
    inside = np.isin(few.ids, trace.members)
    assert few.facts["background"] == 600 and area(few, runs["full"]) > 0.99
    assert few.p_values is not None and np.mean(few.p_values[~inside] <= 0.05) <= 0.15
    assert int(many.facts["background"]) > 1000  # 650 dimensions: fewer than records


def test_what_is_given_up_is_what_costs_least() -> None:
    cost = Cost(Speed(1.0e-3, 1.0e10), params=20_000, candidates=1000, listed=False)
    plan, how = GlirPlan(8000, None), {"tuning": 3, "floor": 1000, "steps": 10}
    assert cut_to_fit(cost, plan, seconds=1.0e6, **how) == plan
    some = cut_to_fit(cost, plan, seconds=300.0, **how)
    assert cost.least(some, 3) <= 300.0
    others = [GlirPlan(size, dims) for size in (8000, 4096, 1000) for dims in (None, 2048)]
    assert cost.best([some, *others], 300.0, 3, 10) == some
    assert some.background > 1000  # a projection costs less than an estimate from few records
    assert cut_to_fit(cost, plan, seconds=1.0e-3, **how) == GlirPlan(1000, 256)


def test_a_projection_writes_gradients_down_and_inner_products_need_not():
    """1.2 million parameters of a linear layer: inner products of its inputs and errors cost a hundredth."""
    how: dict[str, Any] = {"params": 1_200_000, "candidates": 400, "listed": False}
    told, plan = Cost(Speed(1.0e-3, 1.0e10, row=1.0e-2, pair=1.0e-6), **how), GlirPlan(800, None)
    unknown = Cost(Speed(1.0e-3, 1.0e10), **how)
    assert told.view(plan) == pytest.approx(1.2 + 1200**2 * 1.0e-6)
    assert unknown.view(plan) == pytest.approx(1.2 + 1200**2 * 1.2e-4)
    assert told.view(GlirPlan(800, 256)) == pytest.approx(1.2 + 12.0)
    assert cut_to_fit(told, plan, seconds=60.0, tuning=3, floor=800, steps=10) == plan
    assert cut_to_fit(unknown, plan, seconds=60.0, tuning=3, floor=800, steps=10).projection is not None


def test_a_budget_leaves_out_steps_and_not_the_background(runs: dict[str, Path]) -> None:
    """Too little for self-play: all of it is needed for the estimates."""
    task, trace = load("digits"), Trace.open(runs["mini"])
    taken = np.concatenate([trace.members, trace.non_members])
    background = task.pool[np.setdiff1d(np.arange(len(task.pool)), taken)[:150]]
    with pytest.warns(GmipWarning) as said:
        scores = GLiR().run(task, trace, background=background, budget=0.001)
    assert scores.facts["background"] == 150 and scores.facts["steps"] == 1
    assert any("left out 9 of 10 steps" in str(one.message) for one in said)
