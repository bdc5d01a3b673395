"""More records than memory has room for: few directions, and what they leave out."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="attacks on models need the extra gmip[train]")

import torch
from torch import nn

from gmip.attacks import GLiR
from gmip.attacks.glir import GlirOutcome, Play, View
from gmip.attacks.glir.glir_attack import GlirPlan, sketches
from gmip.attacks.glir.selfplay import PlayedRun, set_apart
from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.step_vectors import collect, has_room, sketched
from gmip.stats.scores import auc
from gmip.tasks import Examples, Task
from gmip.trace import Trace
from gmip.training import train
from gmip.vocabulary import Recipe

MEMBERS, OTHERS, REST, WIDTH = 150, 1500, 4850, 12
PLAY = Play(games=12, tuning_games=4, grid=((1e-12, 0.0), (1e-12, 1e-2)))


def crowd(**changes: Any) -> Task:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(MEMBERS + OTHERS + REST, WIDTH, generator=generator) * torch.arange(1, WIDTH + 1) ** -0.5
    targets = (
        inputs @ torch.randn(WIDTH, 3, generator=generator) + torch.randn(len(inputs), 3, generator=generator)
    ).argmax(1)
    recipe = Recipe(dataset_size=MEMBERS, batch_size=MEMBERS, num_steps=1, learning_rate=0.5, sampling="full")

    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(WIDTH, 16), nn.Tanh(), nn.Linear(16, 3))  # 259 parameters

    pool = Examples(inputs, targets)
    return Task(name="crowd", make_model=model, pool=pool, test=pool[:10], recipe=recipe.replace(**changes))


def run_of(folder: Any, **changes: Any) -> tuple[Task, Trace, np.ndarray, np.ndarray]:
    """The task, its run, members with others, and the rest."""
    task = crowd(**changes)
    train(task, seed=1, out=folder / "run")
    trace = Trace.open(folder / "run")
    members = np.asarray(trace.members)
    others = np.setdiff1d(np.arange(len(task.pool)), members)
    return task, trace, np.r_[members, others[:OTHERS]], others[OTHERS:]


def played(task: Task, trace: Trace, asked: np.ndarray, rest: np.ndarray, rank: int | None) -> GlirOutcome:
    """The first step, with as many directions; None: by all gradients as they are."""
    torch.manual_seed(0)
    gradients = PerExampleGradients(task.make_model(), task.loss, clip_norm=trace.header.clip_norm)
    run = PlayedRun(
        background=len(rest),
        candidates=len(asked),
        dataset_size=MEMBERS,
        method="likelihood-ratio" if trace.header.sampling == "full" else "mixture",
        play=PLAY,
        grid=list(PLAY.grid),
        shrinkage=None,
        seed=0,
        listed=False,
    )
    step, sets, n = trace[0], (task.pool[rest], task.pool[asked]), trace.header.batch_size
    sampling: Any = "poisson" if trace.header.sampling == "poisson" else "full"
    how: dict[str, Any] = {"batch_size": n, "sample_rate": n / MEMBERS, "sampling": sampling}
    how["noise_std"] = step.info.noise_std
    left = None
    if rank is None:
        found = collect(gradients, step, *sets, by_rows=True)
    else:
        found, left = sketched(gradients, [step], *sets, rank=rank, apart=run.apart)
    view = View(mean=found.mean, candidates=found.candidates, background=found.background, sketch=left, **how)
    return run.run([lambda: view])


HOW = [
    {},
    {"clip_norm": 1.0, "noise_std": 0.01},
    {"sampling": "poisson", "batch_size": 75, "clip_norm": 1.0, "noise_std": 0.002},
]


@pytest.mark.parametrize("changes", HOW, ids=["plain", "noise", "poisson"])
def test_with_all_directions_it_is_exact_and_with_fewer_it_comes_near(tmp_path: Any, changes: dict[str, Any]) -> None:
    found = run_of(tmp_path, **changes)
    exact, whole, half, few = (played(*found, rank) for rank in (None, 259, 200, 20))
    # Noise that games draw is another in other axes, and with it the scale of the scores a little.
    error = 1e-8 if not changes else 5e-3
    np.testing.assert_allclose(whole.scores, exact.scores, rtol=error, atol=error * np.abs(exact.scores).max())
    np.testing.assert_allclose(
        whole.null_scores, exact.null_scores, rtol=error, atol=error * np.abs(exact.null_scores).max()
    )
    near = [np.corrcoef(one.scores, exact.scores)[0, 1] for one in (few, half)]
    assert 0.2 < near[0] < near[1] < 0.99999999 and near[1] > 0.8
    assert few.told < half.told


@pytest.mark.parametrize("changes", HOW, ids=["plain", "noise", "poisson"])
def test_what_is_left_out_counts_and_games_know_by_how_much(tmp_path: Any, changes: dict[str, Any]) -> None:
    """20 directions alone would tell as much as 20; p-values of strangers are uniform, and the forecast is right."""
    task, trace, asked, rest = run_of(tmp_path, **changes)
    found = played(task, trace, asked, rest, 20)
    inside = np.isin(asked, trace.members)
    error = np.sqrt(0.05 * 0.95 * (1 / OTHERS + 1 / found.null_scores.size))
    assert np.mean(np.asarray(found.p_values)[~inside] <= 0.05) <= 0.05 + 2.0 * error
    area = auc(found.scores[inside], found.scores[~inside])
    spread = np.sqrt(area * (1.0 - area) / MEMBERS)  # at most
    assert found.prediction is not None and abs(found.prediction.auc - area) <= 0.02 + 2.0 * spread
    if not changes:
        assert found.told > 25.0  # 20 would be all


@pytest.mark.parametrize("changes", HOW[:2], ids=["plain", "noise"])
def test_an_audit_without_room_sketches_and_says_so(tmp_path: Any, changes: dict[str, Any]) -> None:
    task, trace, asked, rest = run_of(tmp_path, **changes)
    sets = task.pool[rest]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = GLiR(play=PLAY, memory_limit="14 MB").run(task, trace, asked, sets)
    (said,) = (str(one.message) for one in caught if "no room or time" in str(one.message))
    exact = GLiR(play=PLAY).run(task, trace, asked, sets)
    rank = found.facts["sketched"]
    assert rank in (32, 64, 128) and "sketched" not in exact.facts
    assert (f"projects gradients to {rank} dim" if not changes else f"takes {rank} of ") in said
    inside = np.isin(found.ids, trace.members)
    areas = [auc(one.scores[inside], one.scores[~inside]) for one in (found, exact)]
    assert areas[0] < areas[1] + 0.03
    if not changes:
        most = float(said.split("at most about ")[1].split(". ")[0])
        assert areas[0] > 0.6 and most == pytest.approx(areas[1], abs=0.1)


def test_a_sketch_is_as_large_as_there_is_room_and_leaves_records_to_learn_from() -> None:
    plan = GlirPlan(95_000, None)
    how: dict[str, Any] = {"noisy": True, "size": 5_000, "share": 0.15, "steps": 1}
    large, small = (sketches(plan, 10_000, 5_000, room=room, **how) for room in (8 * 2**30, 2**30))
    assert large[0] == GlirPlan(95_000, None, 2048)
    assert small[0].rank is not None and small[0].rank < 2048
    assert small[0].projection is not None and small[0].projection < 10_000
    plain = sketches(plan, 10_000, 5_000, room=2**31, **(how | {"noisy": False}))
    assert plain[0] == GlirPlan(95_000, 2048, 2048)
    assert sketches(plan._replace(background=2_100), 10_000, 100, room=2**33, **(how | {"size": 100})) == []
    assert sketches(plan, 10_000, 5_000, room=10**6, **how) == []
    assert sketches(plan, 10_000, 5_000, room=2**31, **(how | {"steps": 1_000})) == []
    run = PlayedRun(
        background=2_500,
        candidates=1,
        dataset_size=100,
        method="mixture",
        play=PLAY,
        grid=list(PLAY.grid),
        shrinkage=None,
        seed=0,
        listed=False,
    )
    assert len(run.apart) == set_apart(2_500, 100, PLAY.share)


def test_memory_tells_whether_there_is_room() -> None:
    gradients = PerExampleGradients(nn.Linear(10, 10), memory_limit="1 MiB")
    assert has_room(gradients, 500, 1) and not has_room(gradients, 5_000, 1)
    assert has_room(gradients, 5_000, 1, 10)
