"""Attacks on a trace that holds the released model and no step: logistic regression of scikit-learn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="attacks on models need the extra gmip[train]")

from torch import nn

from gmip.attacks import Optimum, OptimumDecode
from gmip.attacks.glir import Play
from gmip.attacks.optimality import decode_optimum
from gmip.errors import GmipWarning, InvalidArgument
from gmip.tasks import load
from gmip.trace import Trace
from gmip.training import train as fit
from tests.unit.attacks.released.logistic import CLASSES, L2, MEMBERS, area, gradients, make_released_task, train
from tests.unit.attacks.released.logistic import released_trace as release


@pytest.fixture(scope="module")
def task():
    return make_released_task()


@pytest.fixture(scope="module")
def model(task):
    return train(task)


@pytest.fixture(scope="module")
def trace(task, model, tmp_path_factory):
    return release(task, tmp_path_factory.mktemp("released") / "trace", model.coef_, model.intercept_)


def test_members_are_found_without_a_step(task, trace):
    glir = Optimum(l2=L2, play=Play(games=4, tuning_games=2)).run(task, trace)
    decoded = OptimumDecode(l2=L2).run(task, trace)
    assert glir.facts["at_optimum"] is True and decoded.facts["at_optimum"] is True
    assert area(glir.scores) > 0.6 and glir.p_values is not None and glir.prediction is not None
    assert area(decoded.scores) > area(glir.scores)
    assert float(decoded.facts["bits"]) > 0.1


def test_arrays_give_the_same(task, trace, model):
    rows = gradients(model, task.pool[range(2 * MEMBERS)])
    penalty = np.append(L2["weight"] * model.coef_.ravel(), np.zeros(CLASSES))
    found = decode_optimum(rows, penalty_gradient=penalty, dataset_size=MEMBERS)
    np.testing.assert_allclose(OptimumDecode(l2=L2).run(task, trace).scores, found.log_odds, rtol=1e-3, atol=1e-3)


def test_a_wrong_penalty_is_said(task, trace):
    with pytest.warns(GmipWarning, match="is not an optimum of its loss and penalty"):
        found = OptimumDecode(l2=1.0).run(task, trace)
    assert found.facts["at_optimum"] is False and float(found.facts["distance"]) > 2.0


def test_the_penalty_of_the_recipe_is_taken(task, model, tmp_path):
    options = {"weight_decay": 1.0 / MEMBERS}
    said = release(task, tmp_path / "a", model.coef_, model.intercept_, optimizer="SGD", optimizer_options=options)
    usual = OptimumDecode().run(task, said)
    np.testing.assert_allclose(usual.scores, OptimumDecode(l2=1.0 / MEMBERS).run(task, said).scores)
    odd = release(task, tmp_path / "b", model.coef_, model.intercept_, optimizer="AdamW", optimizer_options=options)
    with pytest.raises(InvalidArgument, match="AdamW, decays weights apart from the loss"):
        OptimumDecode().run(task, odd)


def test_candidates_in_the_background(task, trace):
    """A list attack, as an audit judges it; its p-values are ranks among the background."""
    play = Play(games=4, tuning_games=2)
    usual, listed = (Optimum(l2=L2, play=play, background=one) for one in ("alone", "with-candidates"))
    assert listed.holds_list and not usual.holds_list
    found = listed.run(task, trace)
    assert area(found.scores) > area(usual.run(task, trace).scores)
    assert found.p_values is not None and np.mean(found.p_values[MEMBERS:] <= 0.1) < 0.2


def test_a_list_of_strangers_is_said(task, trace):
    with pytest.warns(GmipWarning, match="the released model is not an optimum|a random draw from the list does not"):
        found = OptimumDecode(l2=L2).run(task, trace, candidates=range(500, 500 + 2 * MEMBERS))
    assert found.facts["decoded"] == 0.0 and found.p_values is not None and found.p_values.min() > 0.05


def test_a_network_that_interpolates_is_said(tmp_path):
    """Its members' gradients are small and unlike others': decoding has no list to draw from, and decides nobody."""
    digits = load("digits")
    changes = {"dataset_size": 150, "batch_size": 150, "num_steps": 300, "learning_rate": 0.01, "clip_norm": None}
    recipe = digits.recipe.replace(sampling="full", optimizer="Adam", **changes)
    network = replace(digits, make_model=lambda: nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
    fit(network, recipe, seed=3, out=tmp_path / "run", every=1000)
    with pytest.warns(GmipWarning, match="So no candidate counts as decided"):
        found = OptimumDecode().run(network, Trace.open(tmp_path / "run"))
    assert found.facts["explained"] is False and found.facts["decoded"] == 0.0 and np.abs(found.scores).max() <= 1.0


def test_what_is_refused(task, trace):
    with pytest.raises(InvalidArgument, match="background = 'with-candidates' needs self-play"):
        Optimum(background="with-candidates", play=None)
    with pytest.raises(InvalidArgument, match="background"):
        Optimum(background="with")
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
