"""The inverse-Hessian attack against its formula, and where it finds members."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="attacks on models need the extra gmip[train]")

from gmip.attacks import Influence, released_attacks
from gmip.errors import GmipWarning, InvalidArgument
from tests.unit.attacks.released.logistic import L2, MEMBERS, area, gradients, make_released_task, released_trace, train


@pytest.fixture(scope="module")
def task():
    return make_released_task()


@pytest.fixture(scope="module")
def model(task):
    return train(task)


@pytest.fixture(scope="module")
def trace(task, model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("influence") / "trace"
    return released_trace(task, folder, model.coef_, model.intercept_, learning_rate=0.3)


def test_the_score_is_the_formula(task, trace, model):
    """For softmax regression the Hessian is sum_i (diag p - pp') (x) xx'."""
    rest = task.pool[range(2 * MEMBERS, len(task.pool))]
    rows, others = gradients(model, task.pool[range(2 * MEMBERS)]), gradients(model, rest)
    x = np.column_stack([rest.inputs.double().numpy(), np.ones(len(rest))])
    p = model.predict_proba(x[:, :-1])
    inner = p[:, :, None] * (np.eye(p.shape[1]) - p[:, None, :])
    hessian = np.einsum("nab,ni,nj->aibj", inner, x, x) / len(x)
    size, width = rows.shape[1], x.shape[1] - 1
    order = [c * (width + 1) + i for c in range(3) for i in range(width)] + [c * (width + 1) + width for c in range(3)]
    hessian = hessian.reshape(size, size)[np.ix_(order, order)]
    strength = np.append(np.full(3 * width, L2["weight"]), np.zeros(3))
    weights = np.append(model.coef_.ravel(), model.intercept_)
    inverse = np.linalg.inv(hessian + np.diag(strength + 0.01))
    moved, off = rows @ inverse, inverse @ (others.mean(0) + strength * weights)
    listed = task.pool[range(2 * MEMBERS)]
    chances = model.predict_proba(listed.inputs.double().numpy())[np.arange(2 * MEMBERS), listed.targets.numpy()]
    expected = -0.3 * np.log(chances) - (moved**2).sum(1) / MEMBERS - 2.0 * moved @ off
    found = Influence(l2=L2, damping=0.01).run(task, trace)
    np.testing.assert_allclose(found.scores, expected, rtol=1e-4, atol=1e-6)
    assert found.facts["exact"] is True and found.p_values is None


def test_members_are_found(task, trace):
    assert area(Influence(l2=L2).run(task, trace).scores) > 0.6


def test_gauss_newton_and_conjugate_gradients_give_the_same(task, trace, monkeypatch):
    exact = Influence(l2=L2, damping=0.01).run(task, trace)
    monkeypatch.setattr(released_attacks, "_EXACT", 10)
    written = Influence(l2=L2, damping=0.01).run(task, trace)  # the Gauss-Newton matrix: of this model, the Hessian
    assert written.facts["exact"] is True
    np.testing.assert_allclose(written.scores, exact.scores, rtol=1e-6, atol=1e-9)
    monkeypatch.setattr(released_attacks, "_WRITTEN", 10)
    found = Influence(l2=L2, damping=0.01).run(task, trace)
    assert found.facts["exact"] is False and float(found.facts["unsolved"]) < 1e-3
    np.testing.assert_allclose(found.scores, exact.scores, rtol=1e-2, atol=1e-3 * np.ptp(exact.scores))
    with pytest.warns(GmipWarning, match="conjugate gradients left"):
        Influence(l2=L2, damping=0.01, iterations=1).run(task, trace)
    first = Influence(l2=L2, damping=0.01, second_order=False).run(task, trace)
    assert first.facts["second_order"] is False
    monkeypatch.setattr(released_attacks, "_MOST_WORK", 1.0)
    with pytest.warns(GmipWarning, match="second order of attack 'influence' is left out"):
        np.testing.assert_array_equal(Influence(l2=L2, damping=0.01).run(task, trace).scores, first.scores)


def test_what_is_refused():
    for options in ({"damping": 0.0}, {"learning_rate": -1.0}, {"hessian_records": 0}, {"iterations": 0}, {"l2": -1}):
        with pytest.raises(InvalidArgument, match=next(iter(options))):
            Influence(**options)
