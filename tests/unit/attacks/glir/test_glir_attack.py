"""GLiR on recorded runs: which method, which records, what is refused."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="attacks on models need the extra gmip[train]")

import torch
from torch import nn

from gmip.attacks import GLiR
from gmip.attacks.glir import Play, View, glir_scores
from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.step_vectors import collect
from gmip.errors import GmipWarning, InvalidArgument, TraceMismatch
from gmip.stats import ScoreSet
from gmip.stats.scores import auc
from gmip.tasks import Examples, Task
from gmip.trace import Trace
from gmip.training import record, train
from gmip.vocabulary import Recipe

QUICK = Play(games=10, tuning_games=3, grid=((1e-12, 0.0), (1e-12, 1e-2)))


def make_task(seed: int = 0, classes: int = 3, width: int = 10, rows: int = 900) -> Task:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(rows + 50, width, generator=generator)
    data = Examples(inputs, torch.randint(0, classes, (rows + 50,), generator=generator))
    return Task(
        name="noise",
        make_model=lambda: nn.Linear(width, classes),
        pool=data[range(rows)],
        test=data[range(rows, rows + 50)],
        recipe=Recipe(dataset_size=60, batch_size=60, num_steps=1, learning_rate=0.5, sampling="full"),
    )


def run_of(task: Task, folder, seed: int = 1, **changes: Any) -> Trace:
    train(task, task.recipe.replace(**changes), seed=seed, out=folder)
    return Trace.open(folder)


def area(scores: ScoreSet, trace: Trace) -> float:
    inside = np.isin(scores.ids, trace.members)
    return auc(scores.scores[inside], scores.scores[~inside])


@pytest.mark.parametrize(
    ("changes", "method"),
    [
        ({}, "likelihood-ratio"),
        ({"num_steps": 3}, "joint"),
        ({"num_steps": 4, "sampling": "fixed", "batch_size": 20}, "mixture"),
        ({"num_steps": 4, "sampling": "poisson", "batch_size": 20}, "mixture"),
        ({"num_steps": 2, "clip_norm": 0.5, "noise_std": 0.01}, "joint"),
    ],
)
def test_auto_takes_what_the_trace_calls_for_and_finds_members(tmp_path, changes, method):
    task = make_task()
    trace = run_of(task, tmp_path / "a", **changes)
    scores = GLiR(play=QUICK).run(task, trace)
    assert scores.facts["method"] == method
    assert set(scores.ids) == set(trace.members) | set(trace.non_members)
    # 60 members of a run with 20 free gradient directions: AUC about .66 for one step, more for several.
    assert area(scores, trace) > 0.6
    assert scores.p_values is not None and scores.susceptibility is not None
    assert scores.p_values.min() > 0.0 and scores.p_values.max() <= 1.0
    # E[K] is the number of directions; a ridge drowns some, heavy tails and few samples leave K too large.
    assert 0.2 < scores.susceptibility.mean() / scores.facts["rank"] < 1.6
    posterior = scores.posterior(0.5)
    assert np.all(np.diff(posterior[np.argsort(scores.scores)]) >= 0.0)
    assert scores.posterior(0.01).max() < posterior.max()


@pytest.mark.parametrize("method", ["auto", "paper"])
def test_background_too_small_for_play_and_for_the_model_does_not_hide_members(tmp_path, method):
    """More gradient directions (390) than background records (180): a fixed ridge, and no self-play to mend it."""
    task = make_task(width=40, classes=10, rows=300)
    trace = run_of(task, tmp_path / "a")
    with pytest.warns(GmipWarning, match="the attack runs without self-play"):
        scores = GLiR(method=method).run(task, trace)
    assert float(scores.facts["ridge"]) > 0.0
    assert area(scores, trace) > 0.7


def test_p_values_hold_without_self_play(tmp_path):
    """By the Gaussian model of 500 records 31% of the others had p <= 5% here."""
    task = make_task(rows=4000)
    layers = lambda: nn.Sequential(nn.Linear(10, 85), nn.ReLU(), nn.Linear(85, 3))  # noqa: E731
    task = dataclasses.replace(task, make_model=layers)
    trace = run_of(task, tmp_path / "a", dataset_size=240, batch_size=240)
    rest = np.setdiff1d(np.arange(4000), np.concatenate([trace.members, trace.non_members]))[:500]
    with pytest.warns(GmipWarning, match="the attack runs without self-play"):
        scores = GLiR().run(task, trace, background=task.pool[rest])
    others = ~np.isin(scores.ids, trace.members)
    assert scores.p_values is not None
    for level in (0.05, 0.01):  # two errors, of the share and of the ranks among 125
        assert np.mean(scores.p_values[others] <= level) <= level + 2 * np.sqrt(level / 240 + level / 125)


def test_rank_of_a_softmax_head(tmp_path):
    task = make_task()
    scores = GLiR(play=QUICK, cutoff=1e-12, ridge=0.0).run(task, run_of(task, tmp_path / "a"))
    assert scores.facts["rank"] == (3 - 1) * (10 + 1)  # classes - 1, times inputs and bias


def test_candidates_who_were_never_seen(tmp_path):
    """Nothing to find: AUC .5 within error, p-values no smaller than they should be."""
    task = make_task(rows=4000)
    trace = run_of(task, tmp_path / "a")
    others = np.setdiff1d(np.arange(4000), np.concatenate([trace.members, trace.non_members]))
    scores = GLiR(play=QUICK).run(task, trace, candidates=others[:2000])
    assert scores.p_values is not None
    first, second = scores.scores[:1000], scores.scores[1000:]
    assert abs(auc(first, second) - 0.5) < 4.0 * np.sqrt(1.0 / (12.0 * 500.0))
    for level in (0.01, 0.05, 0.2):
        assert np.mean(scores.p_values <= level) < level + 4.0 * np.sqrt(level * (1.0 - level) * (1 / 2000 + 1 / 450))


def test_scores_do_not_depend_on_who_else_is_asked_about(tmp_path):
    task = make_task()
    trace = run_of(task, tmp_path / "a")
    rest = np.setdiff1d(np.arange(900), np.concatenate([trace.members, trace.non_members]))
    everyone = GLiR(play=QUICK).run(task, trace)
    some = GLiR(play=QUICK).run(task, trace, candidates=everyone.ids[:7], background=task.pool[rest])
    np.testing.assert_allclose(some.scores, everyone.scores[:7], rtol=1e-9)
    assert everyone.p_values is not None
    np.testing.assert_array_equal(some.p_values, everyone.p_values[:7])


def test_same_seed_same_scores_and_the_model_is_left_alone(tmp_path):
    task = make_task()
    trace = run_of(task, tmp_path / "a", num_steps=2)
    state = torch.get_rng_state()
    first, again, other = (GLiR(play=QUICK, seed=seed).run(task, trace) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_array_equal(first.scores, again.scores)
    np.testing.assert_array_equal(first.p_values, again.p_values)
    assert not np.array_equal(first.scores, other.scores)


def test_steps_projection_and_progress(tmp_path):
    task = make_task()
    trace = run_of(task, tmp_path / "a", num_steps=3)
    seen = []
    one = GLiR(play=QUICK, steps=[1]).run(task, trace, progress=lambda done, total: seen.append((done, total)))
    assert one.facts["method"] == "likelihood-ratio" and seen == [(1, 1)]
    projected = GLiR(play=QUICK, projection=16).run(task, trace)
    assert area(projected, trace) > 0.55


def test_last_incomplete_batch_and_other_divisors(tmp_path):
    task = make_task()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GmipWarning)
        trace = run_of(task, tmp_path / "a", sampling="shuffled", batch_size=25, num_steps=3)
    assert [info.batch_size for info in trace.infos] == [25, 25, 10]
    assert area(GLiR(play=QUICK).run(task, trace), trace) > 0.6


def test_too_little_background_for_self_play(tmp_path):
    task = make_task(rows=300)
    trace = run_of(task, tmp_path / "a")
    with pytest.warns(GmipWarning, match="self-play with 60 members needs"):
        scores = GLiR().run(task, trace)
    assert scores.prediction is None and scores.calibration is None
    assert scores.p_values is not None and np.all((scores.p_values > 0.0) & (scores.p_values <= 1.0))


def test_other_data_and_other_models_are_refused(tmp_path):
    task = make_task()
    trace = run_of(task, tmp_path / "a")
    with pytest.raises(TraceMismatch, match="other data"):
        GLiR().run(make_task(seed=1), trace)
    wide = Task(
        name="wide",
        make_model=lambda: nn.Sequential(nn.Linear(10, 4), nn.Linear(4, 3)),
        pool=task.pool,
        test=task.test,
        recipe=task.recipe,
    )
    with pytest.raises(TraceMismatch, match="parameter weight"):
        GLiR().run(wide, trace)


def test_gradients_that_are_not_finite(tmp_path):
    task = make_task()
    model = task.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ids = np.arange(60)
    who = {"dataset_size": 60, "batch_size": 60, "sampling": "full", "members": ids, "data": task}
    with record(model, optimizer, tmp_path / "a", on_nan="record", **who):
        model.weight.grad, model.bias.grad = torch.full((3, 10), torch.nan), torch.zeros(3)
        optimizer.step()
    with pytest.raises(InvalidArgument, match="not finite"):
        GLiR().run(task, Trace.open(tmp_path / "a"))


@pytest.mark.parametrize(
    ("candidates", "words"),
    [([], "non-empty"), ([0.5], "whole numbers"), ([900], "rows 0 to 899"), ([-1], "rows 0 to 899"), ([3, 3], "twice")],
)
def test_bad_candidates(tmp_path, candidates, words):
    task = make_task()
    trace = run_of(task, tmp_path / "a")
    with pytest.raises(InvalidArgument, match=words):
        GLiR(play=QUICK).run(task, trace, candidates=candidates)


def test_bad_settings(tmp_path):
    task = make_task()
    trace = run_of(task, tmp_path / "a")
    with pytest.raises(InvalidArgument, match="method = 'magic' is not known"):
        GLiR(method="magic")
    with pytest.raises(InvalidArgument, match="not all recorded"):
        GLiR(steps=[5]).run(task, trace)
    with pytest.raises(InvalidArgument, match="background must be"):
        GLiR().run(task, trace, background=np.zeros((5, 10)))
    with pytest.raises(InvalidArgument, match="background"):
        GLiR(play=None).run(task, trace, background=task.pool[[0]])
    same = Examples(task.pool.inputs[:1].expand(50, -1), task.pool.targets[:1].expand(50))
    with pytest.raises(InvalidArgument, match="background"):
        GLiR(play=None).run(task, trace, background=same)


def test_wide_models_go_through_inner_products(tmp_path):
    """More parameters than records: the Gram route, for one step and jointly, gives what whole gradients give."""
    task = make_task(rows=420, width=250)  # 753 parameters, 421 vectors
    trace = run_of(task, tmp_path / "a", num_steps=2, dataset_size=40, batch_size=40)
    rest = np.setdiff1d(np.arange(420), np.concatenate([trace.members, trace.non_members]))
    gradients = PerExampleGradients.for_trace(task.make_model(), task.loss, trace.header)
    for steps, method in ([trace[0]], "likelihood-ratio"), (list(trace), "joint"):
        scores = GLiR(play=None, ridge=0.1, steps=[step.info.index for step in steps]).run(task, trace)
        whole = collect(gradients, steps, task.pool[rest], task.pool[scores.ids], by_rows=True)
        view = View(
            mean=whole.mean, candidates=whole.candidates, background=whole.background, batch_size=40, sampling="full"
        )
        expected = glir_scores([view], method="likelihood-ratio", play=None, ridge=0.1)
        assert scores.facts["method"] == method
        np.testing.assert_allclose(scores.scores, expected.scores, rtol=1e-6, atol=1e-6 * np.ptp(expected.scores))
