"""`gmip tune` against an exhaustive grid, and with two workers against one.

    python benchmarks/tuning.py grid digits       # or breast-cancer, adult: the grid, kept in --folder and resumed
    python benchmarks/tuning.py search digits     # five searches at a tenth of the grid's cost, on the same space
    python benchmarks/tuning.py table             # what came out, of all that is kept
    python benchmarks/tuning.py workers           # two workers against one, on pieces of a second

Each task is small enough that its grid can be computed: 432 recipes (4 clipping norms, 6 paces, 3 batch sizes, 3
numbers of steps, 2 samplings), once each, and the best 20 of them four times more. A search may try what lies between.
The recipe of the grid and those of the searches are then trained on the members of five other splits and measured on
test records. That a recipe keeps the target is recomputed from the recipe alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from _harness import one_blas_thread, table

from gmip import NoisySGD, account
from gmip.parallel import Workers, job_runner
from gmip.tasks import Task, load
from gmip.training import evaluate, fit
from gmip.tuning import gradient_norms, num_params_of, tune
from gmip.tuning.search_space import calibrated
from gmip.tuning.trials import Training, TrialRunner, TrialWork
from gmip.vocabulary import PrivacyTarget, Recipe

TARGET: dict[str, Any] = {"target_tpr": (0.05, 0.01)}
SEEDS = 5
TRIALS = 46  # and a grid of 432 + 80 trainings
FRESH = 10_000  # splits that no search has seen


def setting(name: str) -> tuple[Task, Recipe, dict[str, tuple[Any, ...]]]:
    """The task, its recipe, and the values of the grid."""
    task = load(name)
    recipe = task.recipe
    if name == "adult":  # few enough members that others are left to search on, and a grid can be computed
        recipe = recipe.replace(dataset_size=2_000, batch_size=500, num_steps=80, learning_rate=1.0, optimizer="SGD")
    N, T = recipe.dataset_size, 80
    norm = float(np.median(gradient_norms(task, N)))
    grid: dict[str, tuple[Any, ...]] = {
        "sampling": ("fixed", "poisson"),
        "batch_size": (N // 8, N // 4, N // 2),
        "num_steps": (T // 4, T // 2, T),
        "clip_norm": tuple(share * norm for share in (0.03, 0.1, 0.35, 1.2)),
        "pace": (10.0, 25.0, 63.0, 160.0, 400.0, 1000.0),
    }
    # As far as the grid reaches, in the units that a search is told: the same space for both.
    return task, recipe.replace(optimizer="SGD", optimizer_options={}), grid | {"norm": (norm,)}


def recipes(recipe: Recipe, grid: dict[str, tuple[Any, ...]]) -> list[Recipe]:
    names = ("sampling", "batch_size", "num_steps", "clip_norm")
    found = []
    for *values, pace in itertools.product(*(grid[name] for name in names), grid["pace"]):
        changed = recipe.replace(**dict(zip(names, values, strict=True)), noise_std=0.0)
        rate = pace / (changed.num_steps * min(changed.clip_norm or 1.0, grid["norm"][0]))
        found.append(changed.replace(learning_rate=rate))
    return found


def run_grid(name: str, folder: Path) -> None:
    task, recipe, grid = setting(name)
    target, params = PrivacyTarget(**TARGET), num_params_of(task)
    work = TrialWork(task=task, num_params=params, metric="accuracy", split_seed=0)
    with job_runner(work, Workers(workers=1), 1) as runner:
        pieces = TrialRunner(runner, {"data": task.fingerprints}, folder / f"grid-{name}")
        all_of_them = [calibrated(one, params, target) for one in recipes(recipe, grid)]
        first = pieces.outcomes([Training(recipe=one, seed=0) for one in all_of_them], "grid")
        values = np.array([one.metric for one in first])
        best = np.argsort(-np.nan_to_num(values, nan=-1.0))[:20]
        more = [Training(recipe=all_of_them[i], seed=seed) for i in best for seed in range(1, 5)]
        rest = pieces.outcomes(more, "the best 20")
    means = [np.mean([first[i].metric, *(one.metric for one in rest[4 * k : 4 * k + 4])]) for k, i in enumerate(best)]
    chosen = all_of_them[int(best[int(np.argmax(means))])]
    keep(folder, f"grid-{name}", task, chosen, params, trainings=len(first) + len(rest))


def run_searches(name: str, folder: Path) -> None:
    task, recipe, grid = setting(name)
    norm = grid["norm"][0]
    space = {
        "sampling": grid["sampling"],
        "batch_size": grid["batch_size"],
        "num_steps": grid["num_steps"],
        "clip_norm": (grid["clip_norm"][0], grid["clip_norm"][-1]),
        "optimizer": "SGD",
    }
    # A pace of 100 in the middle: the default reaches from a thirtieth of the recipe's own pace to ten times it.
    own = recipe.replace(learning_rate=100.0 / (recipe.num_steps * min(recipe.clip_norm or norm, norm)))
    for seed in range(SEEDS):
        if (folder / f"search-{name}-{seed}.json").exists():
            continue
        kept = folder / f"trials-{name}-{seed}"
        found = tune(
            task, **TARGET, recipe=own, space=space, trials=TRIALS, split_seed=0, seed=seed, workers=1, folder=kept
        )
        row = f"search-{name}-{seed}"
        keep(folder, row, task, found.recipe, found.num_params, trainings=len(found.tried))


def keep(folder: Path, name: str, task: Task, recipe: Recipe, params: int, **cost: int) -> None:
    """Accuracy on test records of models of other members, and the exposure of the recipe, recomputed."""
    curve = account(
        NoisySGD(
            dataset_size=recipe.dataset_size,
            batch_size=recipe.batch_size,
            num_steps=recipe.num_steps,
            num_params=params,
            sampling=recipe.sampling,
            clip_norm=recipe.clip_norm,
            noise_std=recipe.noise_std,
        )
    )
    accuracies = []
    for seed in range(FRESH, FRESH + SEEDS):
        members = task.pool[task.split(recipe.dataset_size, seed).members]
        accuracies.append(evaluate(task, fit(task, recipe, members, seed=seed), task.test)[1])
    row = {"name": name, "accuracies": accuracies, "tpr": curve.tpr_at(0.01), "recipe": repr(recipe), **cost}
    (folder / f"{name}.json").write_text(json.dumps(row, indent=1) + "\n")


def show(folder: Path) -> None:
    rows = []
    for path in sorted(folder.glob("grid-*.json")):
        name = path.stem.removeprefix("grid-")
        grid = json.loads(path.read_text())
        for other in sorted(folder.glob(f"search-{name}-*.json")):
            found = json.loads(other.read_text())
            gaps = 100 * (np.array(grid["accuracies"]) - np.array(found["accuracies"]))
            rows.append(
                {
                    "task": other.stem.removeprefix("search-"),
                    "grid": 100 * np.mean(grid["accuracies"]),
                    "search": 100 * np.mean(found["accuracies"]),
                    "gap": float(gaps.mean()),
                    "error": float(gaps.std(ddof=1) / np.sqrt(len(gaps))),
                    "trainings": found["trainings"] / grid["trainings"],
                    "tpr": 100 * found["tpr"],
                }
            )
    columns = {
        "task": "task, seed of the search|",
        "grid": "grid %|.1f",
        "search": "search %|.1f",
        "gap": "grid - search|+.1f",
        "error": "standard error|.1f",
        "trainings": "trainings / grid's|.3f",
        "tpr": "TPR at 1%, target 5%|.6f",
    }
    table("Accuracy on test records, five fresh splits of members each", columns, rows)
    for task in sorted({row["task"].rpartition("-")[0] for row in rows}):
        gaps = [row["gap"] for row in rows if row["task"].rpartition("-")[0] == task]
        print(f"{task}: the grid is better by {np.mean(gaps):+.2f} points on average over {len(gaps)} searches")


def run_workers() -> None:
    """The same 16 trainings of about a second with one worker and with two; both are there and warm before."""
    task = load("adult")
    recipe = task.recipe.replace(dataset_size=20_000, batch_size=1_000, num_steps=300, noise_std=0.01, clip_norm=1.0)
    work = TrialWork(task=task, num_params=num_params_of(task), metric="accuracy", split_seed=0)
    times = {}
    for workers in (1, 2, 1, 2):
        with job_runner(work, Workers(workers=workers), 16) as runner:
            pieces = TrialRunner(runner, {}, None)
            pieces.outcomes([Training(recipe=recipe.replace(num_steps=2), seed=seed) for seed in range(4)], "warm up")
            begun = time.perf_counter()
            found = pieces.outcomes([Training(recipe=recipe, seed=seed) for seed in range(16)], "work")
            times.setdefault(workers, []).append(time.perf_counter() - begun)
        print(f"{workers} workers: pieces of {np.mean([one.seconds for one in found]):.2f} s", flush=True)
    print(f"two workers are {min(times[1]) / min(times[2]):.2f} times as fast as one")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("grid", "search", "table", "workers"))
    parser.add_argument("task", nargs="?", default="digits", choices=("digits", "breast-cancer", "adult"))
    parser.add_argument("--folder", type=Path, default=Path("tuning-benchmark"))
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    if asked.part == "workers":
        run_workers()
    elif asked.part == "table":
        show(asked.folder)
    else:
        (run_grid if asked.part == "grid" else run_searches)(asked.task, asked.folder)


if __name__ == "__main__":
    one_blas_thread()
    main()
