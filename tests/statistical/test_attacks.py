"""How well attacks do on a network that learned its data by heart, and on one that never saw the candidates.

Digits with a fifth of the labels drawn at random, so that there is much to learn by heart; a network 64-32-10 trained
with full batches on 400 of 800 candidates. Five targets on random halves of the same 800 share one shadow set of 64
models, and attacks are compared target by target. The setting was chosen because differences are plain in it: on digits
without random labels RMIA with 4 models is not above LiRA with 4 (docs/attacks.md). `pytest -rP` shows the numbers.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="attacks on models need the extra gmip[train]")

import torch
from torch import nn

from gmip.attacks import CFD, CFDLRT, RMIA, Attack, GLiR, LiRA, Loss, Shadows
from gmip.stats.scores import auc, tpr_at_fpr
from gmip.tasks import Examples, Task, load
from gmip.trace import Trace
from gmip.training import initial_model, make_optimizer, record, train

pytestmark = pytest.mark.slow

CANDIDATES = np.arange(800)
TARGETS = 5


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def noisy_digits() -> Task:
    task = load("digits")
    rng = np.random.default_rng(0)
    labels = task.pool.targets.numpy().copy()
    drawn = rng.random(len(labels)) < 0.2
    labels[drawn] = rng.integers(0, 10, drawn.sum())
    data = Examples(task.pool.inputs, torch.from_numpy(labels))
    recipe = task.recipe.replace(
        dataset_size=400, sampling="full", num_steps=120, optimizer="Adam", learning_rate=0.03, clip_norm=None
    )
    return dataclasses.replace(
        task,
        make_model=make_model,
        pool=data[CANDIDATES],
        background=data[range(len(CANDIDATES), len(data))],
        recipe=recipe,
    )


@dataclasses.dataclass(frozen=True)
class Scene:
    task: Task
    targets: tuple[Trace, ...]
    strangers: tuple[Trace, ...]  # runs on background records that claim to have been on candidates
    shadows: Path

    def settings(self, count: int, seed: int = 0) -> Shadows:
        return Shadows(count=count, seed=seed, workers=1, folder=self.shadows)

    def measured(self, attack: Attack, traces: tuple[Trace, ...]) -> np.ndarray:
        """(AUC, TPR at 1% FPR) of each run, shape (runs, 2)."""
        rows = []
        for trace in traces:
            found = attack.run(self.task, trace, CANDIDATES, self.task.background)
            inside = np.isin(found.ids, trace.members)
            members, others = found.scores[inside], found.scores[~inside]
            rows.append((auc(members, others), tpr_at_fpr(members, others, 0.01)))
        return np.array(rows)


def stranger(task: Task, folder: Path, seed: int) -> Trace:
    """A run by the task's recipe on background records, written down as one on a random half of the candidates."""
    assert task.background is not None
    rng = np.random.default_rng(seed)
    rows = task.background[rng.choice(len(task.background), task.recipe.dataset_size, replace=False)]
    claimed = np.sort(rng.permutation(CANDIDATES)[: task.recipe.dataset_size])
    model = initial_model(task, seed)
    optimizer = make_optimizer(task.recipe, model)
    sizes: dict[str, Any] = {"dataset_size": 400, "batch_size": 400, "sampling": "full"}
    rest = np.setdiff1d(CANDIDATES, claimed)
    with record(model, optimizer, folder, **sizes, members=claimed, non_members=rest, data=task):
        for _ in range(task.recipe.num_steps):
            optimizer.zero_grad()
            task.loss(model(rows.inputs), rows.targets).mean().backward()
            optimizer.step()
    return Trace.open(folder)


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    folder, task = tmp_path_factory.mktemp("runs"), noisy_digits()
    for seed in range(TARGETS):
        train(task, seed=seed, out=folder / str(seed))
    yield Scene(
        task,
        tuple(Trace.open(folder / str(seed)) for seed in range(TARGETS)),
        tuple(stranger(task, folder / f"stranger-{seed}", seed) for seed in range(3)),
        folder / "shadows",
    )
    torch.set_num_threads(threads)


def gains(better: np.ndarray, worse: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over targets of the paired differences, each (of AUC, of TPR at 1%)."""
    difference = better - worse
    return difference.mean(axis=0), difference.std(axis=0, ddof=1) / np.sqrt(len(difference))


def test_lira_with_64_shadow_models_is_far_above_the_loss(scene):
    """Measured: AUC .825 against .681 (paired difference .144 +- .003), TPR at 1% FPR 26% against 1% (24 +- 1)."""
    loss = scene.measured(Loss(), scene.targets)
    lira = scene.measured(LiRA(shadows=scene.settings(64)), scene.targets)
    mean, error = gains(lira, loss)
    print("AUC and TPR at 1%: loss", loss.mean(0), "LiRA", lira.mean(0), "paired difference", mean, "+-", error)
    assert np.all(mean > 5.0 * error)
    assert mean[0] > 0.08 and mean[1] > 0.10
    assert lira[:, 1].mean() > 5.0 * loss[:, 1].mean()


def test_rmia_with_4_shadow_models_is_above_lira_with_4(scene):
    """Each a mean over three sets of four. Measured: AUC .819 against .797 (paired difference .023 +- .004), TPR at 1%
    FPR 20% against 19% (1.5 +- .4 points)."""
    attacks = [[kind(shadows=scene.settings(4, seed)) for seed in range(3)] for kind in (RMIA, LiRA)]
    rmia, lira = (np.mean([scene.measured(one, scene.targets) for one in kinds], axis=0) for kinds in attacks)
    mean, error = gains(rmia, lira)
    print("AUC and TPR at 1%: LiRA", lira.mean(0), "RMIA", rmia.mean(0), "paired difference", mean, "+-", error)
    assert np.all(mean > 3.0 * error)
    assert mean[0] > 0.01


def test_variances(scene):
    """Own variances pay with many shadow models and cost with few; "auto" is near the better one."""
    found = {
        (variance, count): scene.measured(LiRA(shadows=scene.settings(count), variance=variance), scene.targets).mean(0)
        for variance in ("auto", "per-example", "pooled")
        for count in (8, 64)
    }
    assert found["pooled", 8][1] > found["per-example", 8][1] + 0.03
    assert found["per-example", 64][0] > found["pooled", 64][0]
    for count in (8, 64):
        best = np.maximum(found["pooled", count], found["per-example", count])
        assert np.all(found["auto", count] > best - 0.01)


def test_offline_attacks_know_less_and_still_more_than_the_loss(scene):
    loss = scene.measured(Loss(), scene.targets)
    for kind in (LiRA, RMIA):
        online, offline = (
            scene.measured(kind(shadows=scene.settings(64), online=online), scene.targets) for online in (True, False)
        )
        assert np.all(gains(offline, loss)[0] > 0.02)
        assert gains(online, offline)[0][0] > -0.005


def test_p_values_of_non_members(scene):
    """Offline LiRA's rest on a Gaussian fit, RMIA's on the population: they hold here up to a factor."""
    for kind, online in ((LiRA, False), (RMIA, False), (RMIA, True)):
        attack = kind(shadows=scene.settings(64), online=online)
        false = []
        for trace in scene.targets:
            found = attack.run(scene.task, trace, CANDIDATES, scene.task.background)
            assert found.p_values is not None
            false.append(found.p_values[~np.isin(found.ids, trace.members)])
        rates = [float(np.mean(np.concatenate(false) <= level)) for level in (0.01, 0.05, 0.2)]
        assert rates[0] < 0.02 and rates[1] < 0.075 and rates[2] < 0.25


@pytest.mark.parametrize("name", ["glir", "loss", "lira", "lira-offline", "rmia", "rmia-offline", "cfd", "cfd-lrt"])
def test_nothing_is_found_on_runs_that_never_saw_the_candidates(scene, name):
    attack: Attack = {
        "glir": GLiR(play=None, ridge=1e-3, steps=(0,)),
        "loss": Loss(),
        "lira": LiRA(shadows=scene.settings(64)),
        "lira-offline": LiRA(shadows=scene.settings(64), online=False),
        "rmia": RMIA(shadows=scene.settings(64)),
        "rmia-offline": RMIA(shadows=scene.settings(64), online=False),
        "cfd": CFD(),
        "cfd-lrt": CFDLRT(shadows=scene.settings(4)),
    }[name]
    runs = scene.strangers[:1] if name == "glir" else scene.strangers  # the others are quick
    areas = scene.measured(attack, runs)[:, 0]
    error = np.sqrt((1 / 400 + 1 / 400) / 12.0 / len(areas))
    assert abs(areas.mean() - 0.5) < 4.0 * error
