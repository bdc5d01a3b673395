"""Attacks on a trace that holds the released model and no step: logistic regression of scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="attacks on models need the extra gmip[train]")

import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from gmip.attacks import Optimum, OptimumDecode
from gmip.attacks.glir import Play
from gmip.attacks.released import decode_optimum
from gmip.errors import GmipWarning, InvalidArgument
from gmip.stats.roc import auc
from gmip.tasks import Examples, Recipe, Task
from gmip.trace import Header, ParameterSpec, Trace, TraceWriter

MEMBERS, WIDTH, CLASSES, ROWS = 80, 20, 3, 1200
L2 = {"weight": 1.0 / MEMBERS}  # of C = 1; the bias is not penalised


@pytest.fixture(scope="module")
def task() -> Task:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, CLASSES, (ROWS,), generator=generator)
    inputs = torch.randn(ROWS, WIDTH, generator=generator)
    inputs[:, :CLASSES] += nn.functional.one_hot(labels, CLASSES)
    data = Examples(inputs, labels)
    return Task(
        name="released",
        make_model=lambda: nn.Linear(WIDTH, CLASSES),
        pool=data[range(ROWS - 50)],
        test=data[range(ROWS - 50, ROWS)],
        recipe=Recipe(dataset_size=MEMBERS, batch_size=MEMBERS, num_steps=1, learning_rate=0.1, sampling="full"),
    )


def released_trace(task: Task, folder: Path, weight: Any, bias: Any, **recipe: Any) -> Trace:
    specs = (ParameterSpec("weight", (CLASSES, WIDTH)), ParameterSpec("bias", (CLASSES,)))
    header = Header(
        parameters=specs,
        num_params=CLASSES * (WIDTH + 1),
        dataset_size=MEMBERS,
        batch_size=MEMBERS,
        sampling="full",
        fingerprints=task.fingerprints,
        recipe=recipe,
    )
    members, others = np.arange(MEMBERS), np.arange(MEMBERS, 2 * MEMBERS)
    writer = TraceWriter.create(folder, header, members=members, non_members=others)
    writer.close({"weight": weight.astype(np.float64), "bias": bias.astype(np.float64)})
    return Trace.open(folder)


@pytest.fixture(scope="module")
def model(task: Task) -> LogisticRegression:
    ours = task.pool[range(MEMBERS)]
    return LogisticRegression(C=1.0, tol=1e-8, max_iter=5000).fit(ours.inputs.numpy(), ours.targets.numpy())


@pytest.fixture(scope="module")
def trace(task: Task, model: LogisticRegression, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return released_trace(task, tmp_path_factory.mktemp("released") / "trace", model.coef_, model.intercept_)


def area(scores: np.ndarray) -> float:
    return auc(scores[:MEMBERS], scores[MEMBERS:])


def test_members_are_found_without_a_step(task, trace):
    glir = Optimum(l2=L2, play=Play(games=4, tuning_games=2)).run(task, trace)
    decoded = OptimumDecode(l2=L2).run(task, trace)
    assert glir.facts["at_optimum"] is True and decoded.facts["at_optimum"] is True
    assert area(glir.scores) > 0.6 and glir.p_values is not None and glir.prediction is not None
    assert area(decoded.scores) > area(glir.scores)
    assert float(decoded.facts["bits"]) > 0.1


def test_arrays_give_the_same(task, trace, model):
    listed = task.pool[range(2 * MEMBERS)]
    x, y = listed.inputs.double().numpy(), listed.targets.numpy()
    errors = model.predict_proba(x)
    errors[np.arange(len(y)), y] -= 1.0
    rows = np.concatenate([(errors[:, :, None] * x[:, None]).reshape(len(x), -1), errors], axis=1)
    penalty = np.append(L2["weight"] * model.coef_.ravel(), np.zeros(CLASSES))
    found = decode_optimum(rows, penalty_gradient=penalty, dataset_size=MEMBERS)
    np.testing.assert_allclose(OptimumDecode(l2=L2).run(task, trace).scores, found.log_odds, rtol=1e-3, atol=1e-3)


def test_a_wrong_penalty_is_said(task, trace):
    with pytest.warns(GmipWarning, match="is no optimum of its loss and penalty"):
        found = OptimumDecode(l2=1.0).run(task, trace)
    assert found.facts["at_optimum"] is False and float(found.facts["distance"]) > 2.0


def test_the_penalty_of_the_recipe_is_taken(task, model, tmp_path):
    options = {"weight_decay": 1.0 / MEMBERS}
    said = released_trace(
        task, tmp_path / "a", model.coef_, model.intercept_, optimizer="SGD", optimizer_options=options
    )
    usual = OptimumDecode().run(task, said)
    np.testing.assert_allclose(usual.scores, OptimumDecode(l2=1.0 / MEMBERS).run(task, said).scores)
    odd = released_trace(
        task, tmp_path / "b", model.coef_, model.intercept_, optimizer="AdamW", optimizer_options=options
    )
    with pytest.raises(InvalidArgument, match="AdamW, decays weights apart from the loss"):
        OptimumDecode().run(task, odd)


def test_what_is_refused(task, trace):
    with pytest.raises(InvalidArgument, match="l2 has 'wieght', which is not a recorded parameter, did you mean"):
        OptimumDecode(l2={"wieght": 0.1}).run(task, trace)
    with pytest.raises(InvalidArgument, match="l2"):
        Optimum(l2=-1.0)
    with pytest.raises(InvalidArgument, match="coverage"):
        OptimumDecode(coverage=1.5)
    with pytest.raises(InvalidArgument, match="play = 3 must be"):
        Optimum(play=3)
    with pytest.warns(GmipWarning, match="self-play"):
        Optimum(l2=L2).run(task, trace, background=task.pool[range(300, 500)])
