"""Shadow training with two workers beside one, as a ratio of models per second measured in the same run.

    python benchmarks/shadows.py [--quick] [--json] [--folder /var/tmp]

The control is what the machine gives at that moment: two processes that each train models in a plain loop, beside one.
benchmarks/README.md tells how to read the table.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from _harness import Row, table
from torch import nn

from gmip.attacks.attack import parties
from gmip.attacks.shadow import Shadows, shadow_set
from gmip.tasks import Examples, Task, load
from gmip.trace import Trace
from gmip.training import fit, train

STEPS = {"short models": 150, "longer models": 600}


@dataclass(frozen=True)
class Clock:
    """Losses, and whose CPU clock says what after each model."""

    key: str = "clock"
    population: bool = False

    def __call__(self, task: Task, model: nn.Module, examples: Examples) -> Any:
        with torch.no_grad():
            losses = task.loss(model(examples.inputs), examples.targets).double().numpy()
        return np.stack([losses, np.full_like(losses, os.getpid()), np.full_like(losses, time.process_time())], axis=1)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))


def make_task(steps: int) -> Task:
    task = load("digits")
    recipe = task.recipe.replace(num_steps=steps, clip_norm=None, learning_rate=0.1, batch_size=100)
    return Task(name="digits-mlp", make_model=mlp, pool=task.pool, test=task.test, recipe=recipe)


# -- measuring --------------------------------------------------------------------------------------------------------


def steady(times: list[float], workers: int) -> float:
    """Models per second once all workers are at work: from the `workers`-th model that is done to the last."""
    return (len(times) - workers) / (times[-1] - times[workers - 1])


def engine(task: Task, trace: Trace, folder: Path, models: int, workers: int) -> Row:
    who = parties(task, trace, None, None)
    times: list[float] = []
    start = time.perf_counter()

    def progress(done: int, total: int) -> None:
        if done:
            times.append(time.perf_counter())

    with tempfile.TemporaryDirectory(dir=folder) as sets:
        settings = Shadows(count=models, folder=sets, workers=workers)
        shadows = shadow_set(task, trace, who.ids, who.background, (Clock(),), settings, progress=progress)
        wall = time.perf_counter() - start
        clocks: dict[float, list[float]] = {}
        for model in shadows:
            _, process, clock = model.signal("clock").candidates[0]
            clocks.setdefault(process, []).append(clock)
    used = [after - before for one in clocks.values() for before, after in pairwise(sorted(one))]
    return {"rate": steady(times, workers), "whole": models / wall, "first": times[0] - start, "cpu": median(used)}


def loop(task: Task, models: int, begin: Any, done: Any) -> None:
    """The plain loop, in a process of its own: no engine, nothing stored."""
    torch.set_num_threads(1)
    members = task.pool[range(task.recipe.dataset_size)]
    fit(task, task.recipe, members, seed=0)  # warm
    begin.wait()
    for index in range(models):
        fit(task, task.recipe, members, seed=index)
        done.put(time.perf_counter())


def control(steps: int, models: int, processes: int) -> float:
    """Models per second of plain loops in so many processes at once."""
    context = multiprocessing.get_context("forkserver")
    begin, done = context.Barrier(processes), context.Queue()
    workers = [
        context.Process(target=loop, args=(make_task(steps), models // processes, begin, done))
        for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    times = sorted(done.get() for _ in range(processes * (models // processes)))
    for worker in workers:
        worker.join()
    return steady(times, processes)


def compare(name: str, steps: int, folder: Path, models: int, rounds: int) -> Row:
    task = make_task(steps)
    torch.set_num_threads(1)
    train(task, seed=0, out=folder / f"run-{steps}")
    trace = Trace.open(folder / f"run-{steps}")
    contestants: dict[str, Callable[[], Any]] = {
        "one": lambda: engine(task, trace, folder, models, 1),
        "two": lambda: engine(task, trace, folder, models, 2),
        "control one": lambda: control(steps, models, 1),
        "control two": lambda: control(steps, models, 2),
    }
    found: dict[str, list[Any]] = {key: [] for key in contestants}
    for number in range(rounds):
        for key in list(contestants)[:: 1 if number % 2 == 0 else -1]:
            found[key].append(contestants[key]())
    rounds_of = list(zip(found["one"], found["two"], found["control one"], found["control two"], strict=True))
    ratios = [two["rate"] / one["rate"] for one, two, _, _ in rounds_of]
    return {
        "what": name,
        "models": models,
        "seconds": 1.0 / median(one["rate"] for one, _, _, _ in rounds_of),
        "ratio": median(ratios),
        "low": min(ratios),
        "high": max(ratios),
        "allowed": median(plain_two / plain_one for _, _, plain_one, plain_two in rounds_of),
        "engine": median(one["rate"] / plain for one, _, plain, _ in rounds_of),
        "whole": median(two["whole"] / one["whole"] for one, two, _, _ in rounds_of),
        "start": median(two["first"] * one["rate"] for one, two, _, _ in rounds_of),
        "cpu": median(two["cpu"] / one["cpu"] for one, two, _, _ in rounds_of),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer models, one round")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--folder", default="/var/tmp", help="where runs and sets go; removed at the end")
    options = parser.parse_args()
    models, rounds = (12, 1) if options.quick else (24, 3)
    start, load_before = time.perf_counter(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        rows = [compare(name, steps, Path(folder), models, rounds) for name, steps in STEPS.items()]
    about = {
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        "versions": f"Python {platform.python_version()}, torch {torch.__version__}, NumPy {np.__version__}",
        "load": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "seconds": round(time.perf_counter() - start),
    }
    if options.json:
        print(json.dumps({"about": about, "rows": rows}, indent=2))
        return
    table(
        f"Models per second, 2 workers to 1 ({models} models, {rounds} rounds)",
        {
            "what": "|s",
            "seconds": "seconds a model|.2f",
            "ratio": "ratio|.2f",
            "cpu": "CPU time a model, 2 to 1|.2f",
            "low": "least|.2f",
            "high": "most|.2f",
            "allowed": "two plain loops to one|.2f",
            "engine": "one worker to a plain loop|.2f",
            "whole": "with start-up|.2f",
            "start": "first model after, in models|.1f",
        },
        rows,
    )
    print("\n" + "; ".join(f"{name} {value}" for name, value in about.items()))


if __name__ == "__main__":
    main()
