"""Inner products on several workers: the matrix of one process, and the same bits for any number of workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gmip import Recipe, Task
from gmip.attacks import GLiR, step_vectors
from gmip.attacks.decode_attack import Decode
from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.step_vectors import StripWork, _strips_of, gram, strip_runner
from gmip.parallel import Workers, pools, worker
from gmip.store import Store
from gmip.tasks import Examples
from gmip.trace import Trace
from gmip.training import train

ROOT = Path(__file__).parents[3]
PATHS = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *map(str, sys.path)])}


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
    with strip_runner(StripWork(gradients, tuple(sets)), Workers(workers=1)) as runner:
        assert runner is not None
        shared = gram(gradients, [one for one in sets if len(one)], vectors, runner=runner)
    np.testing.assert_allclose(shared, whole, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(shared, shared.T)


def test_nobody_is_started_unasked_or_for_few_records():
    gradients = PerExampleGradients(model())
    for count, workers in ((2_000, None), (100, Workers(workers=2))):
        with strip_runner(StripWork(gradients, (examples(count, 1),)), workers) as runner:
            assert runner is None


def recorded(folder: Path, *, records: int, wide: int, **recipe: Any) -> tuple[Task, Trace, np.ndarray, Examples]:
    """A run, candidates and background."""
    made = Recipe(dataset_size=60, learning_rate=0.1, **recipe)
    pool, test = examples(records, 5, wide), examples(50, 6, wide)
    task = Task(name="shared", make_model=lambda: model(wide), pool=pool, test=test, recipe=made)
    train(task, seed=1, out=folder / "run")
    trace = Trace.open(folder / "run")
    ids = np.union1d(np.arange(records // 4), trace.members)
    return task, trace, ids, pool[np.setdiff1d(np.arange(records), ids)]


def scores_of(attack: Any, run: tuple[Any, ...], *workers: Workers | None) -> list[np.ndarray]:
    return [attack.run(*run, workers=one).scores for one in workers]


@pytest.fixture
def kinds(monkeypatch):
    """What workers of this process were asked for."""
    found: list[str] = []

    def heard(work: Any, job: Any) -> Any:
        found.append(type(job).__name__)
        return worker.attempt(work, job)

    monkeypatch.setattr(pools, "attempt", heard)
    monkeypatch.setattr(step_vectors, "_WORTH", 0.0)
    return found


# More parameters than records, so that products are taken.
FULL = {"records": 900, "wide": 160, "batch_size": 60, "sampling": "full"}
BATCHES = {"records": 900, "wide": 160, "batch_size": 15, "num_steps": 6, "sampling": "shuffled"}
TUNING = {"StripJob"}
SHAPES = {
    "strips": (FULL | {"num_steps": 2}, {"StripJob"}, {"WholeJob"}),  # decode needs candidates and decoys alone
    "whole steps": (FULL | {"num_steps": 3}, {"WholeJob"}, {"WholeJob"}),
    "batches": (BATCHES, {"StripJob", "StepJob"}, {"SumJob"}),  # GLiR chooses a setting, by three steps
    "few parameters": (BATCHES | {"wide": 6}, {"StepJob"}, {"SumJob"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_attacks_score_alike_for_any_number_of_workers(tmp_path, kinds, shape):
    sizes, *asked = SHAPES[shape]
    run = recorded(tmp_path, **sizes)
    for attack, expected in zip((GLiR(), Decode()), asked, strict=True):
        kinds.clear()
        two = (Workers(workers=2),) if shape == "batches" else ()
        alone, *shared = scores_of(attack, run, None, Workers(workers=1), *two)
        assert set(kinds) == expected
        plan = attack.planned(*run)  # GLiR's strips of the steps that choose a setting are not counted
        assert plan is not None and plan.pieces == max(map(kinds.count, expected - TUNING if two else expected))
        assert plan.piece == ("strip" if expected == {"StripJob"} else "step")
        assert plan.seconds(1) > plan.seconds(4) > plan.alone and plan.bytes_moved(1) == 0 < plan.bytes_moved(2)
        for scores in shared:
            np.testing.assert_array_equal(scores, shared[0])
            np.testing.assert_allclose(scores, alone, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("attack", [GLiR(), Decode()], ids=["glir", "decode"])
def test_what_workers_have_finished_is_not_computed_again(tmp_path, monkeypatch, kinds, attack):
    """Who goes on computes the other steps alone, and gets the scores of an undisturbed attack."""
    run, parts, one = recorded(tmp_path, **BATCHES | {"wide": 6}), Store(tmp_path, "parts", {}), Workers(workers=1)
    [expected] = scores_of(attack, run, one)
    whole, attempt = len(kinds), vars(pools)["attempt"]
    kinds.clear()

    def disturbed(work: Any, job: Any) -> Any:
        if len(kinds) == 2:
            raise KeyboardInterrupt
        return attempt(work, job)

    monkeypatch.setattr(pools, "attempt", disturbed)
    with pytest.raises(KeyboardInterrupt):
        attack.run(*run, workers=one, parts=parts)
    monkeypatch.setattr(pools, "attempt", attempt)
    again = attack.run(*run, workers=one, parts=parts).scores
    np.testing.assert_array_equal(again, expected)
    assert len(kinds) == whole == {"glir": 3, "decode": 6}[attack.name]  # GLiR has chosen its setting by three others


PEAK = """
import sys, torch
from pathlib import Path
from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.step_vectors import StripJob, StripWork, _strips_of
from gmip.stats.flat import Flat
from tests.unit.attacks.test_strips import examples, model

def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1e3

torch.set_num_threads(1)
gradients = PerExampleGradients(model(2_000), memory_limit=sys.argv[1])
values, vectors = gradients.values, [Flat.of(torch.zeros(gradients.num_params).numpy())]
for number, work in enumerate(StripWork(gradients, (examples(count, 1, 2_000),)) for count in (300, 4_000)):
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of making the records
    before = peak()
    work.strip(StripJob(values, vectors, 0, _strips_of(work.total)[0].stop))
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not tell the peak of its memory")
def test_a_worker_keeps_within_its_memory_limit():
    """Held at once, what makes the gradients of 4,000 records takes 64 MB; a strip of the matrix takes 4."""

    def more(limit: str) -> float:
        done = subprocess.run([sys.executable, "-c", PEAK, limit], cwd=ROOT, env=PATHS, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return float(done.stdout)

    limited, free = more("16 MB"), more("1 GB")
    assert limited < 40.0 < 60.0 < free
