"""Norms of single records' gradients along a run, against autograd, one record at a time."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

import gmip
from gmip._progress import Progress, silent
from gmip.accounting.individual import mu_by_noise
from gmip.auditing.attack_runs import own_norms
from gmip.report import sentences
from gmip.report.sentences import individual
from gmip.tasks import Task, load
from gmip.trace import Trace
from gmip.training import train

RECIPE = {"dataset_size": 40, "batch_size": 40, "sampling": "full", "num_steps": 3, "clip_norm": 2.5, "noise_std": 0.01}


def begin() -> Progress:
    return silent("")


@pytest.fixture(scope="module")
def task() -> Task:
    digits = load("digits")
    return dataclasses.replace(digits, recipe=digits.recipe.replace(**RECIPE))


@pytest.fixture(scope="module")
def run(task: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "noisy"
    train(task, seed=5, out=folder)
    return folder


def test_norms_are_autograds(task: Task, run: Path, tmp_path: Path) -> None:
    trace, ids = Trace.open(run), np.array([3, 17, 200])
    found = own_norms(task, trace, ids, tmp_path, begin)
    assert found is not None
    model = task.make_model()
    want = np.empty((3, len(trace)))
    for t, step in enumerate(trace):
        torch.nn.utils.vector_to_parameters(torch.tensor(np.array(step.parameters)), model.parameters())
        for i, row in enumerate(ids):
            one = task.pool[[row]]
            model.zero_grad()
            task.loss(model(one.inputs), one.targets).sum().backward()
            total = sum(float((p.grad**2).sum()) for p in model.parameters() if p.grad is not None)
            want[i, t] = min(total**0.5, 2.5)
    np.testing.assert_allclose(found.largest, want.max(axis=1), rtol=1e-4)
    np.testing.assert_allclose(found.replaced, np.sqrt((((want + 2.5) / (40 * 0.01)) ** 2).sum(axis=1)), rtol=1e-4)
    assert (found.largest >= want.max(axis=1)).all()
    again = own_norms(task, trace, ids, tmp_path, lambda: pytest.fail("computed twice"))
    assert again is not None and np.array_equal(again.largest, found.largest)


def test_in_results_and_tables(task: Task, run: Path, tmp_path: Path) -> None:
    from gmip.auditing import make_config, run_audit
    from gmip.report import write_report

    config = make_config({"task": "digits", "runs": [str(run)], "attacks": ["loss"], "seed": 0, "out": str(tmp_path)})
    audited = run_audit(config, task=task)
    (one,) = audited.runs
    own, trace = one.individual, Trace.open(run)
    assert own is not None and own.kind == "bound" and own.members == 40 and own.beyond == 0.0
    assert trace.members is not None and trace.non_members is not None
    ids = np.sort(np.concatenate([trace.members, trace.non_members]))
    norms = own_norms(task, trace, ids, tmp_path, begin)
    assert norms is not None
    mu = mu_by_noise(trace.runs(), norms)
    assert mu is not None
    by_id = dict(zip(ids.tolist(), mu.values.tolist(), strict=True))
    assert all(record.own_mu == by_id[int(record.id)] for record in one.exposed)
    assert own.median_mu == np.median([by_id[i] for i in trace.members.tolist()])
    assert own.claimed_mu == pytest.approx(gmip.account(list(trace.runs()), notion="gdp").equivalent_mu())
    write_report(audited, tmp_path / "report")
    lines = (tmp_path / "report" / f"exposed-{one.name}.csv").read_text().splitlines()
    cells = lines[1].split(",")
    assert lines[0].endswith(",own_mu") and float(cells[-1]) == by_id[int(cells[0])]
    said = individual(one)
    assert said is not None and "exceed the guarantee by noise alone" in said
    for name in ("report.md", "report.html"):
        assert "Exposure of single records by their own gradients" in (tmp_path / "report" / name).read_text("utf-8")


def test_an_audit_does_without_gradients_that_cannot_be_computed(
    task: Task, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: object, **options: object) -> None:
        raise gmip.UnsupportedModel("No record has a gradient of its own")

    monkeypatch.setattr("gmip.auditing.attack_runs.own_norms", fails)
    (one,) = gmip.audit(task, runs=[run], attacks=["loss"], seed=0).runs
    assert one.individual is None and one.limits[-1].kind == "own-gradients"
    assert "Own mus by noise alone are not known: No record" in sentences.cautions(one)[-1]


def test_what_a_trace_does_not_tell(task: Task, tmp_path: Path) -> None:
    quiet = task.recipe.replace(noise_std=0.0)
    train(task, quiet, seed=5, out=tmp_path / "quiet")
    assert own_norms(task, Trace.open(tmp_path / "quiet"), np.array([0]), tmp_path, begin) is None
    train(task, seed=5, out=tmp_path / "some", every=2)
    assert own_norms(task, Trace.open(tmp_path / "some"), np.array([0]), tmp_path, begin) is None
