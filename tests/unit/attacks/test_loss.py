"""The loss attack: minus the loss, nothing else."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="attacks on models need the extra gmip[train]")

import torch

from gmip.attacks import Loss, loss
from gmip.tasks.task import cross_entropy
from gmip.trace import Trace
from gmip.training import train
from tests.contracts.attacks import make_task


def test_score_is_minus_the_loss_of_the_trained_model(tmp_path):
    task = make_task()
    result = train(task, seed=1, out=tmp_path / "a")
    found = Loss().run(task, Trace.open(tmp_path / "a"))
    rows = task.pool[found.ids]
    with torch.no_grad():
        expected = -cross_entropy(result.model(rows.inputs), rows.targets).numpy()
    np.testing.assert_allclose(found.scores, expected, rtol=1e-5, atol=1e-7)
    assert found.p_values is None and found.calibration is None


def test_infinite_losses_are_the_lowest_scores(tmp_path, monkeypatch):
    task = make_task()
    train(task, seed=1, out=tmp_path / "a")
    monkeypatch.setattr(loss, "losses", lambda *_: np.array([1.0, np.inf, -2.0]))
    scores = Loss().run(task, Trace.open(tmp_path / "a"), candidates=[5, 6, 7]).scores
    assert np.isfinite(scores).all() and scores.argmin() == 1 and scores.argmax() == 2
