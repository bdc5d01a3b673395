"""Killed at random moments (15 in all) and resumed, a run equals one left alone; its trace can always be read."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs the extra gmip[train]")

import torch
from torch import nn

from gmip.tasks import Examples, Task
from gmip.trace import Trace
from gmip.training import train
from gmip.vocabulary import Recipe

KILLS = {"noisy, Adam, Poisson": 10, "plain, momentum, shuffled": 5}
RECIPES = {
    "noisy, Adam, Poisson": {"optimizer": "Adam", "sampling": "poisson", "clip_norm": 1.0, "noise_std": 0.05},
    "plain, momentum, shuffled": {"optimizer_options": {"momentum": 0.9}, "sampling": "shuffled"},
}
SIZES = {"dataset_size": 100, "batch_size": 30, "num_steps": 200, "learning_rate": 0.05}


def make_task() -> Task:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(300, 8, generator=generator)
    data = Examples(inputs, (inputs[:, 0] > 0).long())
    # Dropout draws from torch's global generator, whose state must survive too.
    return Task(
        name="small",
        make_model=lambda: nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.Linear(16, 2)),
        pool=data[range(200)],
        test=data[range(200, 300)],
        recipe=Recipe(**SIZES),
    )


def work(name: str, folder: str, started) -> None:
    torch.set_num_threads(1)
    started.set()
    task = make_task()
    train(task, task.recipe.replace(**RECIPES[name]), seed=7, out=folder, resume=True, checkpoint_seconds=0.05)


def contents(folder: Path) -> tuple[list, dict | None]:
    trace = Trace.open(folder)
    trace.verify()
    assert trace.complete and trace.final_arrays() is not None
    return [(s.info, s.parameters.copy(), s.gradient.copy()) for s in trace], trace.final_arrays()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Privacy amplification by subsampling does not cover")
@pytest.mark.parametrize("name", RECIPES)
def test_killed_and_resumed_equals_left_alone(tmp_path, name):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["gmip.training"])

    def launch(folder: Path):
        started = context.Event()
        child = context.Process(target=work, args=(name, str(folder), started), daemon=True)
        child.start()
        started.wait(60)
        return child

    begin = time.monotonic()
    child = launch(tmp_path / "alone")
    child.join(120)
    duration = time.monotonic() - begin
    assert child.exitcode == 0
    expected, final = contents(tmp_path / "alone")
    assert len(expected) == SIZES["num_steps"]

    window = min(0.6 * duration, 1.5)  # most of a run, start included; on a busy machine its first part
    rng = random.Random(1)
    kills, finished, folder = 0, 0, tmp_path / "run-0"
    while kills < KILLS[name] or finished == 0:
        child = launch(folder)
        child.join(rng.uniform(0.0, window) if kills < KILLS[name] else 120)
        if child.exitcode is None:
            os.kill(child.pid, signal.SIGKILL)
            child.join()
            kills += 1
            if (folder / "trace.json").exists():
                left = Trace.open(folder)
                left.verify()
                for step, (info, parameters, gradient) in zip(left, expected, strict=False):
                    assert step.info == info
                    np.testing.assert_array_equal(step.parameters, parameters)
                    np.testing.assert_array_equal(step.gradient, gradient)
            continue
        assert child.exitcode == 0
        steps, state = contents(folder)
        for step, wanted in zip(steps, expected, strict=True):
            assert step[0] == wanted[0]
            np.testing.assert_array_equal(step[1], wanted[1])
            np.testing.assert_array_equal(step[2], wanted[2])
        assert state is not None and final is not None and state.keys() == final.keys()
        for key in state:
            np.testing.assert_array_equal(state[key], final[key])
        assert (folder / "result.json").read_text() == (tmp_path / "alone" / "result.json").read_text()
        finished += 1
        folder = tmp_path / f"run-{finished}"
    assert kills == KILLS[name]
