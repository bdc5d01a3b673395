"""Training beside the plain loop and stock Opacus: time and memory, as ratios measured in one run.

    python benchmarks/training.py [--quick] [--json] [--threads 1] [--folder /var/tmp] [recording] [noisy] [memory] ...

Contestants take turns in short blocks of steps on the same batches. benchmarks/README.md tells how to read the tables.
"""

from __future__ import annotations

import argparse
import copy
import gc
import mmap
import multiprocessing
import os
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch
from _contestants import (
    LARGE,
    MODES,
    NOISE_MULTIPLIER,
    NOISY,
    PROBLEMS,
    Problem,
    Steps,
    compare,
    count_params,
    opacus_steps,
    plain_steps,
    race,
    sgd,
)
from _harness import Row, report, reset_peak, resident, table
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

from gmip.tasks import Task, load
from gmip.training import evaluate, record, train
from gmip.vocabulary import Recipe

# -- 1. recording -----------------------------------------------------------------------------------------------------


def save_each_step(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path, every: int) -> None:
    """The textbook way to keep what record keeps: a file for each step. Nothing is synced."""
    numbers = count()

    def save(*_: Any) -> None:
        number = next(numbers)
        if number % every == 0:
            torch.save([(p.detach(), p.grad) for p in model.parameters()], folder / f"{number:06d}.pt")

    optimizer.register_step_pre_hook(save)


def recorded_problems(quick: bool) -> list[tuple[Problem, int]]:
    """What is recorded, and every which step."""
    common = [(problem, 1) for problem in PROBLEMS.values()]
    return common if quick else [*common, (PROBLEMS["MLP 784-256-10"], 10), *((problem, 1) for problem in LARGE)]


def recording(quick: bool, folder: Path) -> list[Row]:
    rows = []
    for problem, every in recorded_problems(quick):
        size, batches = problem.batch_size, problem.batches()
        models = {name: problem.model() for name in ("plain", "recorded", "saved")}
        optimizers = {name: sgd(model) for name, model in models.items()}
        contestants = {name: plain_steps(model, optimizers[name], batches) for name, model in models.items()}
        with tempfile.TemporaryDirectory(prefix="gmip-bench-", dir=folder) as out:
            save_each_step(models["saved"], optimizers["saved"], Path(out), every)
            with record(
                models["recorded"],
                optimizers["recorded"],
                Path(out) / "trace",
                dataset_size=100 * size,
                batch_size=size,
                sampling="fixed",
                every=every,
            ):
                laps = race(contestants, problem.block, 2.5 if quick else 10.0)
        params = count_params(models["plain"])
        saved = compare(laps, "saved", "plain", problem.block)
        rows.append(
            {
                "model": problem.name,
                "params": params,
                "every": every,
                "bytes": 8 * params,
                **compare(laps, "recorded", "plain", problem.block),
                "saved_ratio": saved["ratio"],
                "saved_ratio_cpu": saved["ratio_cpu"],
            }
        )
    return rows


def loop_with_loader(folder: Path | None, num_steps: int) -> None:
    """A tiny model, as a user trains it; recorded with who is in each batch, and from beginning to end, if a folder is
    given."""
    torch.manual_seed(0)
    inputs, targets = torch.randn(1000, 20), torch.randint(0, 2, (1000,))
    model = nn.Linear(20, 2)
    optimizer = sgd(model)
    loader = DataLoader(Subset(TensorDataset(inputs, targets), range(640)), batch_size=32, shuffle=True)
    who = {"data": (inputs, targets), "members": range(640), "non_members": range(640, 900)}
    recorded = nullcontext() if folder is None else record(model, optimizer, folder, loader=loader, **who)
    with recorded:
        for _ in range(num_steps // len(loader)):
            for batch, labels in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(batch), labels).backward()
                optimizer.step()


def tiny(quick: bool, folder: Path) -> list[Row]:
    num_steps = 1000 if quick else 5000
    with tempfile.TemporaryDirectory(prefix="gmip-bench-", dir=folder) as out:
        traces = (Path(out) / str(number) for number in count())
        contestants: dict[str, Steps] = {
            "plain": lambda steps: loop_with_loader(None, steps),
            "recorded": lambda steps: loop_with_loader(next(traces), steps),
        }
        laps = race(contestants, num_steps, 2.5 if quick else 30.0)
    return [{"steps": num_steps, **compare(laps, "recorded", "plain", num_steps)}]


# -- 2. noisy steps ---------------------------------------------------------------------------------------------------


def best_mode(problem: Problem, seconds: float) -> tuple[str, dict[str, float]]:
    """Opacus' fastest way to per-example gradients of this model, and the time of each relative to it."""
    batches = problem.batches()
    contestants = {mode: opacus_steps(problem.model(), batches, mode, noise_multiplier=1.0) for mode in MODES}
    block = max(problem.block // 4, 1)
    laps = race(contestants, block, seconds)
    least = {mode: min(lap.wall for lap in laps[mode]) for mode in MODES}
    best = min(MODES, key=lambda mode: least[mode])
    return best, {mode: least[mode] / least[best] for mode in MODES}


def greatest_difference(problem: Problem, mode: str) -> float:
    """Between the parameters after five steps without noise, by gmip and by Opacus, relative to how far they moved."""
    batches, start = problem.batches(), problem.model()
    models = {name: copy.deepcopy(start) for name in NOISY}
    for name, make in NOISY.items():
        make(models[name], batches, mode, noise_multiplier=0.0)(5)
    flat = {
        name: torch.cat([p.detach().flatten() for p in model.parameters()])
        for name, model in (*models.items(), ("start", start))
    }
    moved = (flat["opacus"] - flat["start"]).abs().max()
    return float((flat["gmip"] - flat["opacus"]).abs().max() / moved)


def noisy(quick: bool, folder: Path) -> list[Row]:
    rows = []
    for problem in PROBLEMS.values():
        mode, relative = best_mode(problem, 1.0 if quick else 4.0)
        batches, block = problem.batches(), max(problem.block // 2, 1)
        contestants = {
            name: make(problem.model(), batches, mode, noise_multiplier=NOISE_MULTIPLIER)
            for name, make in NOISY.items()
        }
        laps = race(contestants, block, 2.5 if quick else 10.0)
        rows.append(
            {
                "model": problem.name,
                "params": count_params(problem.model()),
                "mode": mode,
                "modes": ", ".join(f"{name} {ratio:.2f}" for name, ratio in relative.items()),
                "difference": greatest_difference(problem, mode),
                **compare(laps, "gmip", "opacus", block),
            }
        )
    return rows


# -- 3. memory --------------------------------------------------------------------------------------------------------


def growth(contestant: str, problem: str, mode: str, threads: int) -> int:
    """Bytes at the worst moment of a few noisy steps over those held before; run it in a process of its own."""
    torch.set_num_threads(threads)
    quiet()
    chosen, make = PROBLEMS[problem], partial(NOISY[contestant], mode=mode, noise_multiplier=NOISE_MULTIPLIER)
    model, batches = chosen.model(), chosen.batches()
    make(copy.deepcopy(model), [[part[:2].clone() for part in batches[0]]])(2)  # loads what torch loads late
    gc.collect()
    before = reset_peak()
    make(model, batches)(4)
    # A step that fits into memory that is there already counts as a page, the least that can be seen.
    return max(resident("VmHWM") - before, mmap.PAGESIZE)


def memory(quick: bool, folder: Path) -> list[Row]:
    if not sys.platform.startswith("linux"):
        return []
    rows = []
    # Blocks of 64 kB and more go back to the system when they are freed: else what was freed would count, or not.
    os.environ["MALLOC_MMAP_THRESHOLD_"] = str(2**16)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["gmip.training"])  # slow to import, and much the same for all
    with context.Pool(1, maxtasksperchild=1) as pool:
        for problem in PROBLEMS.values():
            for mode in ("hooks", "ghost"):
                found: dict[str, list[int]] = {name: [] for name in NOISY}
                for _ in range(1 if quick else 3):
                    for name in NOISY:
                        found[name].append(pool.apply(growth, (name, problem.name, mode, torch.get_num_threads())))
                middle = {name: statistics.median(values) for name, values in found.items()}
                rows.append(
                    {
                        "model": problem.name,
                        "batch_size": problem.batch_size,
                        "mode": mode,
                        "samples_bytes": 4 * problem.batch_size * count_params(problem.model()),
                        "gmip_bytes": int(middle["gmip"]),
                        "opacus_bytes": int(middle["opacus"]),
                        "ratio": middle["gmip"] / middle["opacus"],
                        "spread": max((max(values) - min(values)) / middle[name] for name, values in found.items()),
                    }
                )
    return rows


# -- 4. whole runs ----------------------------------------------------------------------------------------------------


def by_hand(task: Task, recipe: Recipe) -> None:
    """A loop such as a user would write, evaluated on the training and the test set at the end; nothing is stored."""
    torch.manual_seed(0)
    members = task.pool[torch.randperm(len(task.pool))[: recipe.dataset_size].numpy()]
    model = task.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=recipe.learning_rate)
    trained: nn.Module = model
    if recipe.clip_norm is not None:
        data = DataLoader(TensorDataset(members.inputs, members.targets), batch_size=recipe.batch_size)
        trained, optimizer, _ = PrivacyEngine().make_private(
            module=model,
            optimizer=optimizer,
            data_loader=data,
            noise_multiplier=recipe.noise_std * recipe.batch_size / recipe.clip_norm,
            max_grad_norm=recipe.clip_norm,
            poisson_sampling=False,
        )
    for _ in range(recipe.num_steps):
        ids = torch.randperm(recipe.dataset_size)[: recipe.batch_size]
        optimizer.zero_grad()
        nn.functional.cross_entropy(trained(members.inputs[ids]), members.targets[ids]).backward()
        optimizer.step()
    for examples in (members, task.test):
        evaluate(task, model, examples)


def by_gmip(task: Task, recipe: Recipe, folder: str | None) -> None:
    train(task, recipe, seed=0, out=None if folder is None else tempfile.mkdtemp(dir=folder))


def repeated(run: Callable[[], None]) -> Steps:
    def runs(number: int) -> None:
        for _ in range(number):
            run()

    return runs


def whole_runs(quick: bool, folder: Path) -> list[Row]:
    task = load("digits")
    recipes = {
        "plain": task.recipe.replace(clip_norm=None, noise_std=0.0),
        "noisy": task.recipe.replace(clip_norm=4.0, noise_std=0.05),
    }
    rows = []
    for num_steps in (200,) if quick else (200, 2000):
        for kind, recipe in recipes.items():
            chosen = recipe.replace(num_steps=num_steps)
            with tempfile.TemporaryDirectory(prefix="gmip-bench-", dir=folder) as out:
                contestants = {
                    "by hand": repeated(partial(by_hand, task, chosen)),
                    "None": repeated(partial(by_gmip, task, chosen, None)),
                    "a folder": repeated(partial(by_gmip, task, chosen, out)),
                }
                laps = race(contestants, 1, 1.5 if quick else 8.0)
            rows += [
                {"kind": kind, "steps": num_steps, "out": name, **compare(laps, name, "by hand", num_steps)}
                for name in ("None", "a folder")
            ]
    return rows


# -- showing ----------------------------------------------------------------------------------------------------------

TIMES = {
    "rounds": "rounds|d",
    "ratio": "ratio|.3f",
    "ratio_low": "25%|.3f",
    "ratio_high": "75%|.3f",
    "ratio_least": "of the fastest|.3f",
    "ratio_total": "of the totals|.3f",
    "ratio_cpu": "of CPU time|.3f",
}


TABLES: dict[str, tuple[str, dict[str, str]]] = {
    "recording": (
        "1. A plain loop inside record(...) to the same loop without it (aim: 1.25 from 200,000 parameters on)",
        {
            "model": "model|s",
            "params": "parameters|,d",
            "every": "every|d",
            "bytes": "bytes|,d",
            "step_us": "plain step, us|.0f",
            **TIMES,
            "saved_ratio": "torch.save's|.3f",
            "saved_ratio_cpu": "of CPU time|.3f",
        },
    ),
    "tiny": (
        "   The same from beginning to end: 42 parameters, batches of 32 from a DataLoader, who is in each is recorded",
        {"steps": "steps|,d", "step_us": "plain step, us|.0f", **TIMES},
    ),
    "noisy": (
        "2. NoisyStepper to stock Opacus in its fastest mode (aim: 1.05)",
        {
            "model": "model|s",
            "mode": "mode|s",
            "step_us": "Opacus' step, us|.0f",
            **TIMES,
            "difference": "difference|.0e",
            "modes": "Opacus' modes to its fastest|s",
        },
    ),
    "memory": (
        "3. Peak memory of noisy steps, gmip to stock Opacus (aim: 1.00)",
        {
            "model": "model|s",
            "batch_size": "batch|d",
            "mode": "mode|s",
            "samples_bytes": "all gradients|,d",
            "gmip_bytes": "gmip bytes|,d",
            "opacus_bytes": "Opacus' bytes|,d",
            "ratio": "ratio|.3f",
            "spread": "spread|.3f",
        },
    ),
    "whole_runs": (
        "4. train(digits, recipe, out=...) to a loop written by hand, which stores nothing",
        {
            "kind": "run|s",
            "steps": "steps|d",
            "out": "out|s",
            "step_us": "by hand, us a step|.0f",
            **TIMES,
        },
    ),
}


def show(results: Row) -> None:
    for part, (title, columns) in TABLES.items():
        if part in results:
            table(title, columns, results[part])


def quiet() -> None:
    """Without what Opacus, in its stock loop, makes torch warn of."""
    warnings.filterwarnings("ignore", "Full backward hook is firing")
    warnings.filterwarnings("ignore", "Secure RNG turned off")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="gmip's training beside the plain loop and Opacus, as ratios.")
    parser.add_argument("--quick", action="store_true", help="fewer models and rounds")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--threads", type=int, default=1, help="of torch (default 1)")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="on a real disk; traces go there")
    parts = {part.__name__: part for part in (recording, tiny, noisy, memory, whole_runs)}
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(parts)} (default all)")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.parts if name not in parts]
    if unknown:
        parser.error(f"no part {unknown[0]}")
    quiet()
    torch.set_num_threads(options.threads)
    report(
        [partial(parts[name], options.quick, options.folder) for name in options.parts or parts],
        show,
        packages=("torch", "opacus", "numpy"),
        setting={"torch threads": options.threads, "cores": os.cpu_count()},
        as_json=options.json,
    )


if __name__ == "__main__":
    main()
