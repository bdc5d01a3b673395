"""How well the built-in tasks can be learned: their default recipes beside a converged linear model on the same inputs.

    python benchmarks/tasks.py [--seeds 3] [TASK ...]

docs/evidence/training.md shows what it printed. A task whose data are not on this machine is left out, with a sentence
on standard error.
"""

from __future__ import annotations

import argparse
import sys
from statistics import mean

import torch
from torch.func import functional_call, grad, vmap

from gmip.errors import DataUnavailable
from gmip.tasks import Task, load, names
from gmip.training import initial_model, train


def linear_accuracy(task: Task) -> float:
    """Test accuracy of multinomial logistic regression on the whole pool, its inputs standardised."""
    from sklearn.linear_model import LogisticRegression

    pool, test = task.pool.inputs.double().numpy(), task.test.inputs.double().numpy()
    centre, scale = pool.mean(axis=0), pool.std(axis=0)
    scale[scale == 0.0] = 1.0
    model = LogisticRegression(max_iter=2_000).fit((pool - centre) / scale, task.pool.targets.numpy())
    return float(model.score((test - centre) / scale, task.test.targets.numpy()))


def median_gradient_norm(task: Task, seed: int) -> float:
    """The median over 500 records of the pool, before the first step."""
    model = initial_model(task, seed)
    params = {name: p.detach() for name, p in model.named_parameters()}

    def loss(params: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return task.loss(functional_call(model, params, (x[None],)), y[None])[0]

    some = task.pool[torch.linspace(0, len(task.pool) - 1, 500).long()]
    gradients = vmap(grad(loss), in_dims=(None, 0, 0))(params, some.inputs, some.targets)
    return float(torch.cat([g.flatten(1) for g in gradients.values()], dim=1).norm(dim=1).median())


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", metavar="TASK", default=names())
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(argv)
    print("| task | gradient norm at start | C | train accuracy | test accuracy | linear model on the pool |")
    print("|---|---|---|---|---|---|", flush=True)
    for name in options.tasks:
        try:
            task = load(name)
        except DataUnavailable as error:
            print(error, file=sys.stderr)
            continue
        results = [train(task, seed=seed) for seed in range(options.seeds)]
        norm = mean(median_gradient_norm(task, seed) for seed in range(options.seeds))
        inside = mean(result.train_accuracy or 0.0 for result in results)
        outside = mean(result.test_accuracy or 0.0 for result in results)
        row = f"{norm:.1f} | {task.recipe.clip_norm:g} | {inside:.1%} | {outside:.1%} | {linear_accuracy(task):.1%}"
        print(f"| {name} | {row} |", flush=True)


if __name__ == "__main__":
    main()
