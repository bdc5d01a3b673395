"""Inner products on several workers: the matrix of one process, and the same bits for any number of workers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from gmip import Recipe, Task
from gmip.attacks import GLiR
from gmip.attacks.decode_attack import Decode
from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.step_vectors import _strips_of, gram, strip_runner
from gmip.parallel import Workers
from gmip.tasks import Examples
from gmip.trace import Trace
from gmip.training import train


def examples(count: int, seed: int, wide: int = 6) -> Examples:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, wide)).astype(np.float32)
    return Examples(torch.from_numpy(x), torch.from_numpy(rng.integers(0, 3, count)))


def model(wide: int = 6) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(wide, 8), nn.Tanh(), nn.Linear(8, 3))


def test_strips_cover_every_record_once_and_cost_about_the_same():
    for total in (1, 255, 600, 5_000, 123_457):
        strips = _strips_of(total)
        assert [one.start for one in strips] == [0, *(one.stop for one in strips[:-1])] and strips[-1].stop == total
        areas = [(one.stop - one.start) * (2 * total - one.start - one.stop) for one in strips]
        assert max(areas) < 1.1 * min(areas) + 4 * total


@pytest.mark.parametrize("limit", ["1 GiB", "400 kB"])
def test_the_matrix_of_workers_is_that_of_one_process(limit):
    gradients = PerExampleGradients(model(), memory_limit=limit)
    sets = examples(400, 1), examples(0, 2), examples(133, 3)
    vectors = np.random.default_rng(4).normal(size=(2, gradients.num_params))
    whole = gram(gradients, [one for one in sets if len(one)], vectors)
    with strip_runner(gradients, sets, Workers(workers=1)) as runner:
        assert runner is not None
        shared = gram(gradients, [one for one in sets if len(one)], vectors, runner=runner)
    np.testing.assert_allclose(shared, whole, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(shared, shared.T)


def test_nobody_is_started_unasked_or_for_few_records():
    gradients = PerExampleGradients(model())
    for count, workers in ((2_000, None), (100, Workers(workers=2))):
        with strip_runner(gradients, [examples(count, 1)], workers) as runner:
            assert runner is None


@pytest.mark.slow
def test_attacks_score_alike_for_any_number_of_workers(tmp_path):
    wide = 160  # more parameters than records, so that inner products are taken
    recipe = Recipe(dataset_size=60, batch_size=60, num_steps=2, learning_rate=0.1, sampling="full")
    task = Task(
        name="wide",
        make_model=lambda: model(wide),
        pool=examples(900, 5, wide),
        test=examples(50, 6, wide),
        recipe=recipe,
    )
    train(task, seed=1, out=tmp_path / "run")
    trace = Trace.open(tmp_path / "run")
    ids = np.union1d(np.arange(250), trace.members)
    background = task.pool[np.setdiff1d(np.arange(900), ids)]
    for attack, settings in ((GLiR(), (1,)), (Decode(), (1, 2))):
        alone, *shared = (
            attack.run(task, trace, ids, background, workers=workers).scores
            for workers in (None, *(Workers(workers=count) for count in settings))
        )
        for scores in shared:
            np.testing.assert_array_equal(scores, shared[0])
            np.testing.assert_allclose(scores, alone, rtol=1e-5, atol=1e-6)
