"""CFD and CFD-LRT: scores of a linear model in closed form, the log-normal test against SciPy, and what is refused."""

from __future__ import annotations

import dataclasses
import pickle
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("torch", reason="attacks on models need the extra gmip[train]")

import torch
from torch import nn

from gmip.attacks import counterfactual as distance_attacks
from gmip.attacks.counterfactual import CFD, CFDLRT, counterfactuals
from gmip.attacks.shadow import ModelSignal, Shadows
from gmip.attacks.signals import released_model
from gmip.errors import GmipWarning, InvalidArgument
from gmip.tasks.task import Examples, Task
from gmip.trace import Trace
from gmip.training.loop import train
from gmip.vocabulary import Recipe


class Constant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.tensor([0.0, 5.0]))

    def forward(self, inputs):
        return self.scores.expand(len(inputs), 2)


def linear() -> nn.Module:
    return nn.Linear(4, 3)


def small_task(make_model: Any = linear) -> Task:
    rng = np.random.default_rng(1)
    table, labels = rng.normal(size=(60, 4)), rng.integers(0, 3 if make_model is linear else 2, size=60)
    records = Examples(torch.from_numpy(table).float(), torch.from_numpy(labels))
    return Task(
        name="small",
        make_model=make_model,
        pool=records[np.arange(50)],
        test=records[np.arange(50, 60)],
        recipe=Recipe(dataset_size=16, batch_size=16, num_steps=3, learning_rate=0.5, sampling="full"),
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> tuple[Task, Trace]:
    task, out = small_task(), tmp_path_factory.mktemp("run") / "a"
    train(task, seed=0, out=out)
    return task, Trace.open(out)


def test_scores_are_the_distances_of_the_target(run):
    task, trace = run
    ids = np.array([40, 3, 17, 29])
    scores = CFD().run(task, trace, ids)
    model: Any = released_model(task, trace)
    W, b = model.weight.detach().double().numpy(), model.bias.detach().double().numpy()
    for record, score in zip(task.pool.inputs[ids].double().numpy(), scores.scores, strict=True):
        outputs = W @ record + b
        own = outputs.argmax()
        exact = min((outputs[own] - outputs[j]) / np.linalg.norm(W[own] - W[j]) for j in range(3) if j != own)
        assert score == pytest.approx(exact, rel=1.0e-3)
    np.testing.assert_array_equal(scores.ids, ids)
    assert scores.attack == "cfd" and scores.p_values is None
    assert scores.facts["converged"] == scores.facts["found"] == 1.0
    assert "space" not in scores.facts and float(scores.facts["reach"]) > 0.0


def test_everybody_by_default_and_without_the_loss(run):
    task, trace = run

    def forbidden(outputs, targets):
        raise AssertionError("the loss was asked for")

    seen: list[tuple[int, int]] = []
    scores = CFD().run(dataclasses.replace(task, loss=forbidden), trace, progress=lambda *at: seen.append(at))
    np.testing.assert_array_equal(scores.ids, np.sort(np.concatenate([trace.members, trace.non_members])))
    assert seen[-1] == (len(scores), len(scores))
    again = CFD().run(task, trace, scores.ids[::-1])
    np.testing.assert_array_equal(again.scores, scores.scores[::-1])


def test_options_reach_the_search(run, monkeypatch):
    task, trace = run
    given: dict[str, Any] = {}

    def spy(model, inputs, **options):
        given.update(options)
        return counterfactuals(model, inputs)

    monkeypatch.setattr(distance_attacks, "counterfactuals", spy)
    CFD(space="layer", rivals=2, restarts=0, max_steps=7).run(task, trace, [0, 1])
    del given["progress"]
    assert given == {"space": "layer", "rivals": 2, "restarts": 0, "max_steps": 7}


def test_a_model_without_counterfactuals(tmp_path):
    task = small_task(Constant)
    train(task, seed=0, out=tmp_path / "a")
    with pytest.warns(GmipWarning, match=r"Only 0.0% of the searches for counterfactuals converged, over candidates"):
        scores = CFD().run(task, Trace.open(tmp_path / "a"))
    assert (scores.scores == scores.facts["reach"]).all() and scores.facts["found"] == 0.0


@dataclasses.dataclass
class Models:
    """A shadow set in memory: distances of shape (models, c), inside of shape (models, c)."""

    distances: np.ndarray
    inside: np.ndarray
    converged: float = 1.0
    path: Path = Path("nowhere")

    def __len__(self) -> int:
        return len(self.distances)

    def __iter__(self):
        for distances, inside in zip(self.distances, self.inside, strict=True):
            values = np.column_stack([distances, np.full(len(distances), self.converged)])
            yield SimpleNamespace(inside=inside, signal=lambda key, values=values: ModelSignal(values, None))


@pytest.fixture
def made_up(run, monkeypatch):
    """CFD-LRT on distances that are made up."""

    def attacked(target: np.ndarray, models: Models, ids: Any = None, **options: Any):
        task, trace = run
        ids = np.arange(len(target)) if ids is None else np.asarray(ids)
        by_record = dict(zip(task.pool.inputs[np.sort(ids), 0].tolist(), target, strict=True))

        def search(model, inputs, **_):
            found = np.array([by_record[first] for first in inputs[:, 0].tolist()])
            return SimpleNamespace(distances=found, converged=np.ones(len(found), bool), iterations=found, reach=1.0e9)

        monkeypatch.setattr(distance_attacks, "counterfactuals", search)
        monkeypatch.setattr(distance_attacks.CFDLRT, "_models", lambda *_: models)
        return CFDLRT(shadows=Shadows(count=len(models)), **options).run(task, trace, ids)

    return attacked


def halves(rng: np.random.Generator, count: int, c: int) -> np.ndarray:
    drawn = [rng.permutation(c) < c // 2 for _ in range(count // 2)]
    return np.stack([mask for half in drawn for mask in (half, ~half)])


def test_log_normal_test_is_scipys(made_up):
    rng = np.random.default_rng(2)
    inside = halves(rng, 24, 10)
    distances = np.exp(rng.normal(rng.normal(size=10), 0.3, size=(24, 10)))
    target = np.exp(rng.normal(size=10))
    scores = made_up(target, Models(distances, inside), variance="per-example")
    for i in range(10):
        logs = np.log(distances[~inside[:, i], i])
        above = (np.log(target[i]) - logs.mean()) / (logs.std(ddof=1) * np.sqrt(1.0 + 1.0 / 12.0))
        assert scores.scores[i] == pytest.approx(above)
        assert scores.p_values[i] == pytest.approx(stats.t.sf(above, 11))
    assert scores.facts["shadows"] == 24 and scores.facts["shadows_converged"] == pytest.approx(1.0)
    assert scores.attack == "cfd-lrt" and scores.facts["folder"] == "nowhere"


@pytest.mark.parametrize("variance", ["auto", "pooled", "per-example"])
def test_p_values_are_uniform_for_log_normal_distances(made_up, variance):
    rng = np.random.default_rng(3)
    means, p_values = rng.normal(size=50), []
    for _ in range(40):
        distances = np.exp(rng.normal(means, 0.2, size=(17, 50)))
        p_values.append(made_up(distances[0], Models(distances[1:], halves(rng, 16, 50)), variance=variance).p_values)
    assert stats.kstest(np.concatenate(p_values), "uniform").pvalue > 1.0e-3


def test_order_of_candidates(made_up):
    rng = np.random.default_rng(4)
    models = Models(np.exp(rng.normal(size=(8, 5))), halves(rng, 8, 5))
    target = np.array([1.0, 2.0, 3.0, 4.0, 5.0])  # of the ids in order
    ids = np.array([9, 4, 30, 2, 11])
    sorted_scores = made_up(target, models, np.sort(ids))
    scores = made_up(target, models, ids)
    np.testing.assert_array_equal(scores.ids, ids)
    np.testing.assert_array_equal(scores.scores, sorted_scores.scores[ids.argsort().argsort()])


def test_distances_of_zero_and_out_of_reach(made_up):
    rng = np.random.default_rng(5)
    distances = np.exp(rng.normal(0.0, 0.1, size=(8, 6)))
    distances[:, 0] = 0.0
    distances[:, 1] = 1.0e9
    distances[3, 2] = 0.0
    target = np.array([0.0, 1.0e9, 1.0, 0.0, 1.0e9, 1.0])
    scores = made_up(target, Models(distances, halves(rng, 8, 6)))
    assert np.isfinite(scores.scores).all() and np.isfinite(scores.p_values).all()
    assert scores.scores[0] == scores.scores[1] == 0.0  # as all models have it
    assert scores.scores[3] < -1.0 and scores.scores[4] > 1.0


def test_convergence_of_shadows_is_reported(made_up):
    rng = np.random.default_rng(6)
    models = Models(np.exp(rng.normal(size=(8, 5))), halves(rng, 8, 5), converged=0.5)
    with pytest.warns(GmipWarning, match=r"Only 50.0% .* over candidates and shadow models"):
        scores = made_up(np.ones(5), models)
    assert scores.facts["shadows_converged"] == pytest.approx(0.5)


def test_too_few_shadows(made_up):
    rng = np.random.default_rng(7)
    with pytest.raises(InvalidArgument, match=r"No candidate has two shadow models without it.*raise count"):
        made_up(np.ones(4), Models(np.ones((2, 4)), halves(rng, 2, 4)))


def test_real_shadow_models(run, tmp_path):
    task, trace = run
    lrt = CFDLRT(shadows=Shadows(count=4, folder=tmp_path, workers=1))
    scores = lrt.run(task, trace)
    assert len(scores) == len(trace.members) + len(trace.non_members)
    p_values = np.asarray(scores.p_values)
    assert p_values.min() > 0.0 and p_values.max() < 1.0 and scores.facts["converged"] == 1.0
    np.testing.assert_array_equal(lrt.run(task, trace).scores, scores.scores)


def test_a_wrong_space_is_told_before_shadows_are_trained(run, tmp_path):
    task, trace = run
    with pytest.raises(InvalidArgument, match="space = 'head'"):
        CFDLRT(space="head", shadows=Shadows(count=4, folder=tmp_path / "shadows", workers=1)).run(task, trace)
    assert not (tmp_path / "shadows").exists()


def test_signals():
    (signal,) = CFDLRT().signals()
    (other,) = CFDLRT(space="0").signals()
    assert signal.key != other.key and signal.population is False
    assert re.fullmatch(r"[a-z0-9-]+", signal.key) and pickle.loads(pickle.dumps(signal)).key == signal.key
    keys = {CFDLRT(**{name: 3}).signals()[0].key for name in ("rivals", "restarts", "max_steps")}
    assert len(keys | {signal.key, other.key}) == 5


def test_declared():
    assert CFD.needs == {"recourse"} and CFD.name == "cfd" and not CFD.analytical
    assert CFDLRT.needs == {"recourse", "population", "shadows"} and CFDLRT.name == "cfd-lrt"


@pytest.mark.parametrize("kind", [CFD, CFDLRT])
def test_bad_options(kind):
    with pytest.raises(InvalidArgument, match="space = 3 must be the name of a submodule"):
        kind(space=3)
    for name in ("rivals", "restarts", "max_steps"):
        with pytest.raises(InvalidArgument, match=f"{name} = -1"):
            kind(**{name: -1})


def test_bad_variance():
    with pytest.raises(InvalidArgument, match="variance = 'none' is not known"):
        CFDLRT(variance="none")


def test_regression_is_refused(tmp_path):
    task = small_task()
    targets = Examples(task.pool.inputs, torch.linspace(0.0, 3.0, 50)[:, None])
    task = dataclasses.replace(
        task,
        make_model=lambda: nn.Linear(4, 1),
        pool=targets,
        test=targets,
        loss=lambda outputs, wanted: (outputs - wanted).square().sum(1),
    )
    train(task, seed=0, out=tmp_path / "a")
    with pytest.raises(InvalidArgument, match="Task 'small' has targets that are not classes"):
        CFD().run(task, Trace.open(tmp_path / "a"))
