"""What advice costs is measured on nobody who is a member, within its time, and said where it is not."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gmip
from gmip.auditing import advice_trials
from gmip.auditing.attack_runs import AuditedRun
from gmip.auditing.schema import RunAudit, UntriedWay
from gmip.auditing.sources.recorded import repeat_seed
from gmip.trace import Trace
from gmip.training import evaluate, fit, train
from gmip.tuning import SearchRecords, search_records
from tests.unit.tuning.toy import toy_task

TASK = toy_task(background=100)
RECIPE = TASK.recipe.replace(
    dataset_size=100, batch_size=20, num_steps=10, clip_norm=1.0, noise_std=0.05, sampling="fixed"
)
SETTINGS: dict[str, Any] = {"attacks": ["loss"], "seed": 5, "target": "tpr=0.02@0.01"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "recorded"
    train(TASK, RECIPE, seed=77, out=path)
    return path


@pytest.fixture(scope="module")
def audited(folder: Path) -> RunAudit:
    return gmip.audit(TASK, runs=[folder], **SETTINGS).runs[0]


class Trainings:
    """Stands in for `train_once`: remembers what it is asked for, and gives the accuracies that it is told to."""

    def __init__(self, accuracy: Any = lambda recipe, seed: 0.5) -> None:
        self.asked: list[tuple[Any, SearchRecords, int]] = []
        self.accuracy = accuracy

    def __call__(self, task: Any, recipe: Any, records: SearchRecords, *, seed: int, metric: str) -> float:
        self.asked.append((recipe, records, seed))
        return float(self.accuracy(recipe, seed))


def tried(audited: RunAudit, folder: Path, work: Path, seconds: float | None = None) -> RunAudit:
    run = AuditedRun("a", TASK, "recorded", (Trace.open(folder),))
    return advice_trials.try_advice(
        audited, run, folder=work, seed=5, seconds=seconds, begin=lambda: lambda done, total: None
    )


def rows(examples: Any) -> set[tuple[float, ...]]:
    return {tuple(row) for row in examples.inputs.tolist()}


def test_means_errors_and_ranks(audited: RunAudit, folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """Accuracies that are known: the fewer steps the better, and a little of the seed."""
    play = Trainings(lambda recipe, seed: 0.9 - 0.02 * recipe.num_steps - recipe.noise_std + 0.01 * (seed % 7))
    monkeypatch.setattr(advice_trials, "train_once", play)
    run = tried(audited, folder, tmp_path)
    assert run.tried is not None and run.tried.seeds == 5
    assert run.tried.trained_on == 100
    seeds = list(dict.fromkeys(seed for _, _, seed in play.asked))
    assert len(seeds) == 5
    ways = {one.way.change: one.way for one in run.advice if one.way is not None}
    for change, way in ways.items():
        if change == "parameters":
            assert way.accuracy is None
            assert UntriedWay(change="parameters", why="other-model") in run.tried_left_out
            continue
        recipe = RECIPE.replace(**way.changes(run.declared))
        values = [0.9 - 0.02 * recipe.num_steps - recipe.noise_std + 0.01 * (seed % 7) for seed in seeds]
        assert way.accuracy is not None
        assert way.accuracy.mean == pytest.approx(np.mean(values))
        assert way.accuracy.error == pytest.approx(np.std(values, ddof=1) / math.sqrt(5))
    measured = [one.way.accuracy for one in run.advice if one.way is not None]
    means = [one.mean for one in measured if one is not None]
    assert means == sorted(means, reverse=True) and measured[-1] is None


def test_no_member_is_trained_or_measured_on(audited: RunAudit, folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    play = Trainings()
    monkeypatch.setattr(advice_trials, "train_once", play)
    tried(audited, folder, tmp_path)
    members = Trace.open(folder).members
    assert members is not None and len(play.asked) >= 25
    for _, records, _ in play.asked:
        assert not (rows(records.train) | rows(records.validation)) & rows(TASK.pool[members])


def test_the_time_limits_what_is_trained(audited: RunAudit, folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    clock = [0.0]

    def train_for(recipe: Any, seed: int) -> float:
        clock[0] += recipe.num_steps * recipe.batch_size / 200.0  # a second for the run as it is
        return 0.5

    monkeypatch.setattr(advice_trials, "train_once", Trainings(train_for))
    monkeypatch.setattr("gmip.auditing.advice_trials.time.monotonic", lambda: clock[0])
    nothing = tried(audited, folder, tmp_path / "a", seconds=0.5)
    (own,) = (one for one in nothing.tried_left_out if one.change is None)
    assert nothing.tried is None and own.why == "too-slow" and own.seconds == pytest.approx(1.0)
    clock[0] = 0.0
    once = tried(audited, folder, tmp_path / "b", seconds=9.0)
    assert once.tried is not None and 1 <= once.tried.seeds < 5 and clock[0] <= 9.0 + 0.5  # and a probe
    assert once.tried.seeds == 1 or once.tried.error == 0.0


def test_what_was_measured_is_not_measured_again(
    audited: RunAudit, folder: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    first, second = Trainings(lambda recipe, seed: 0.1 + (seed % 100) / 1000), Trainings()
    monkeypatch.setattr(advice_trials, "train_once", first)
    once = tried(audited, folder, tmp_path)
    monkeypatch.setattr(advice_trials, "train_once", second)
    assert tried(audited, folder, tmp_path) == once and second.asked == []
    kept = sorted(tmp_path.glob("trials-*/*.entry"))
    for path in kept[:3]:
        path.write_text("half")
    monkeypatch.setattr(advice_trials, "train_once", first)
    with pytest.warns(gmip.GmipWarning, match="damaged"):
        assert tried(audited, folder, tmp_path) == once and len(first.asked) == len(kept) + 3


def test_divergence_is_said(audited: RunAudit, folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    play = Trainings(lambda recipe, seed: math.nan if recipe.num_steps < 10 else 0.7)
    monkeypatch.setattr(advice_trials, "train_once", play)
    run = tried(audited, folder, tmp_path)
    assert run.tried is not None and UntriedWay(change="steps", why="diverged") in run.tried_left_out
    (steps,) = (one.way for one in run.advice if one.way is not None and one.way.change == "steps")
    assert steps.accuracy is None


def test_a_loop_of_ones_own_that_the_task_does_not_know(audited: RunAudit, folder: Path, tmp_path: Path) -> None:
    other = toy_task(background=100)
    run = AuditedRun("a", other, "recorded", (Trace.open(folder),))
    object.__setattr__(run.target.header, "recipe", None)  # recorded by another loop than `gmip train`
    found = advice_trials.try_advice(
        audited, run, folder=tmp_path, seed=5, seconds=None, begin=lambda: lambda done, total: None
    )
    (left_out,) = found.tried_left_out
    assert found.tried is None and left_out.why == "refused" and left_out.problem
    assert found.advice == audited.advice


def test_an_audit_tries_its_advice(audited: RunAudit, folder: Path, tmp_path: Path) -> None:
    """The run as it is, trained and measured once more by hand with the same seeds."""
    out = tmp_path / "audit"
    one = gmip.audit(TASK, runs=[folder], try_advice=True, out=str(out), **SETTINGS).runs[0]
    assert one.tried is not None and one.tried.seeds == 5
    members = Trace.open(folder).members
    assert members is not None
    accuracies = []
    for turn in range(5):
        seed = repeat_seed(5, advice_trials._STREAM, turn)
        records = search_records(TASK, 100, seed=seed, members=members)
        model = fit(TASK, RECIPE, records.train, seed=seed)
        accuracies.append(evaluate(TASK, model, records.validation)[1])
    assert one.tried.mean == pytest.approx(np.mean(accuracies))
    assert one.tried.error == pytest.approx(np.std(accuracies, ddof=1) / math.sqrt(5))
    assert audited.tried is None and [a.kind for a in audited.advice] == [a.kind for a in one.advice]
