"""The same target with batches drawn in different ways: how much noise it takes, and what is left of the accuracy.

    python benchmarks/samplings.py [--seeds 10]

The recipe is the task's own with as many epochs, one batch size and the least noise that keeps the target by
differential privacy. Neighbours differ between samplings: the table names them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np

from gmip.accounting.account import account
from gmip.tasks import load
from gmip.training.loop import fit
from gmip.training.models import evaluate
from gmip.tuning import num_params_of
from gmip.tuning.search_space import calibrated
from gmip.vocabulary import PrivacyTarget, Recipe, Sampling

SAMPLINGS: tuple[Sampling, ...] = ("poisson", "balls-in-bins", "shuffled", "fixed")
TARGET = PrivacyTarget(target_epsilon=3.0, delta=1.0e-5, notion="gdp")
RECIPES: dict[str, dict[str, Any]] = {
    "digits": {"dataset_size": 1000, "batch_size": 100, "num_steps": 100, "learning_rate": 1.0, "clip_norm": 1.0},
    "breast-cancer": {"dataset_size": 400, "batch_size": 40, "num_steps": 50, "learning_rate": 0.5, "clip_norm": 0.5},
}


def rows(seeds: int) -> Iterator[tuple[str, ...]]:
    """One for each task and sampling."""
    for name, settings in RECIPES.items():
        task = load(name)
        for sampling in SAMPLINGS:
            recipe = calibrated(Recipe(**settings, sampling=sampling), num_params_of(task), TARGET)
            curve = account(recipe.run(num_params_of(task)), notion="gdp")
            found = []
            for seed in range(seeds):
                members = task.pool[task.split(recipe.dataset_size, seed).members]
                found.append(evaluate(task, fit(task, recipe, members, seed=seed), task.test)[1])
            accuracy = np.array(found, dtype=np.float64)
            error = accuracy.std(ddof=1) / np.sqrt(seeds)
            yield (
                name,
                sampling,
                f"{curve.claim.adjacency} ({curve.kind})",
                f"{recipe.noise_multiplier:.3f}",
                f"{100 * accuracy.mean():.1f}% ± {100 * error:.1f}",
            )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    asked = parser.parse_args()
    print(f"{TARGET}\n| task | sampling | neighbours | noise multiplier | accuracy |\n|---|---|---|---|---|")
    for row in rows(asked.seeds):
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
