"""CFD and CFD-LRT on over-fitted networks: above chance on members, at chance on records never seen.

Errors are taken from the spread between targets, which share one set of shadow models.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="attacks on models need the extra gmip[train]")

import torch
from torch import nn

from gmip.attacks.counterfactual import CFD, CFDLRT
from gmip.attacks.shadow import Shadows
from gmip.stats import ScoreSet, auc
from gmip.tasks.task import Examples, Task
from gmip.trace import Trace
from gmip.training.loop import train
from gmip.vocabulary import Recipe

pytestmark = pytest.mark.slow
TARGETS = 6
CANDIDATES = np.arange(100)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(80, 8), nn.Tanh(), nn.Linear(8, 2))


def noisy_task() -> Task:
    """Labels are noise and there are more columns than records: a network can push each of its records away from the
    boundary, to a distance that records it has not seen rarely have."""
    rng = np.random.default_rng(0)
    table, labels = rng.normal(size=(400, 80)), rng.integers(0, 2, size=400)
    records = Examples(torch.from_numpy(table).float(), torch.from_numpy(labels))
    return Task(
        name="noisy",
        make_model=network,
        pool=records[np.arange(120)],
        test=records[np.arange(300, 400)],
        background=records[np.arange(120, 300)],
        recipe=Recipe(
            dataset_size=60, batch_size=60, num_steps=60, learning_rate=0.02, optimizer="Adam", sampling="full"
        ),
    )


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> dict[str, list[tuple[ScoreSet, np.ndarray]]]:
    """By attack, for every target: its scores, and which candidates are members."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    folder, task = tmp_path_factory.mktemp("runs"), noisy_task()
    found: dict[str, list[tuple[ScoreSet, np.ndarray]]] = {"cfd": [], "cfd-lrt": []}
    for seed in range(TARGETS):
        result = train(task, seed=seed, out=folder / f"{seed}")
        assert result.train_accuracy == 1.0
        trace = Trace.open(folder / f"{seed}")
        shadows = Shadows(count=16, folder=folder / "shadows", workers=1)
        for attack in (CFD(), CFDLRT(shadows=shadows)):
            scores = attack.run(task, trace, CANDIDATES, task.background)
            found[attack.name].append((scores, np.isin(scores.ids, trace.members)))
    torch.set_num_threads(threads)
    return found


@pytest.mark.parametrize("name", ["cfd", "cfd-lrt"])
def test_members_lie_farther_from_the_boundary(outcomes, name):
    aucs = np.array([auc(scores.scores[inside], scores.scores[~inside]) for scores, inside in outcomes[name]])
    error = aucs.std(ddof=1) / np.sqrt(TARGETS)
    print(f"{name}: AUC {aucs.mean():.3f}, standard error {error:.3f}")
    assert aucs.mean() - 3.0 * error > 0.5, aucs
    assert aucs.mean() > 0.58, aucs


@pytest.mark.parametrize("name", ["cfd", "cfd-lrt"])
def test_records_never_seen_score_by_chance(outcomes, name):
    """Split into two at random: each pair of halves is a null target."""
    aucs = []
    for number, (scores, inside) in enumerate(outcomes[name]):
        unseen = np.random.default_rng(number).permutation(scores.scores[~inside])
        aucs.append(auc(unseen[::2], unseen[1::2]))
    n = (~outcomes[name][0][1]).sum() / 2.0
    assert abs(np.mean(aucs) - 0.5) < 3.0 / np.sqrt(6.0 * n * TARGETS)  # the variance of an AUC by chance is 1/(6 n)


def test_p_values_of_records_never_seen(outcomes):
    """Small ones are no more frequent than they say. Distances over trainings are not quite log-normal: models that
    nearly call a record the other class give small ones, so that p-values below a tenth are rarer than they should be
    and those around a half more frequent."""
    parts = [scores.p_values[~inside] for scores, inside in outcomes["cfd-lrt"]]
    for level in (0.01, 0.05, 0.1, 0.2):
        shares = np.array([(part <= level).mean() for part in parts])
        print(f"p-values up to {level}: {shares.mean():.1%} of records never seen")
        error = shares.std(ddof=1) / np.sqrt(TARGETS)
        assert shares.mean() <= level + 3.0 * error + 0.02
    assert 0.4 < np.concatenate(parts).mean() < 0.6


def test_searches_converge(outcomes):
    for name in outcomes:
        for scores, _ in outcomes[name]:
            assert scores.facts["converged"] >= 0.95 and scores.facts["found"] == 1.0
    assert outcomes["cfd-lrt"][0][0].facts["shadows_converged"] >= 0.95
