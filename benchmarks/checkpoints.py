"""Rehearsal on checkpoints of plain trainings against the loss: AUC, members found at 1% false alarms, and nulls.

python benchmarks/checkpoints.py [NAME ...]    (CIFAR-10 from GMIP_DATA; each training about a CPU minute)
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from gmip.attacks.publications import CheckpointedModel, Moment, Way, flat, state_vectors
from gmip.attacks.rehearsal_attack import Rehearsal
from gmip.attacks.signals import losses
from gmip.errors import GmipError
from gmip.stats.scores import auc
from gmip.tasks import Examples, Task
from gmip.trace import Header, ParameterSpec, ReleasedModel
from gmip.training.models import trainable_parameters
from gmip.vocabulary import Recipe

STRANGERS = 300
RUNS: dict[str, dict[str, Any]] = {
    "cnn-sgd": {"optimizer": "SGD", "learning_rate": 0.05, "batch_size": 20, "epochs": 4},
    "cnn-momentum": {"optimizer": "SGD", "learning_rate": 0.02, "batch_size": 50, "options": {"momentum": 0.9}},
    "cnn-adam": {"optimizer": "Adam", "learning_rate": 4e-3, "batch_size": 50, "epochs": 8},
    "cnn-adamw-cosine": {"optimizer": "AdamW", "learning_rate": 1e-3, "batch_size": 50, "epochs": 4, "cosine": True},
    "mlp-sgd": {"data": "digits", "optimizer": "SGD", "learning_rate": 0.1, "batch_size": 20, "epochs": 4},
    "mlp-adam": {"data": "digits", "optimizer": "Adam", "learning_rate": 5e-3, "batch_size": 20, "epochs": 4},
    "cnn-sgd-strangers": {"optimizer": "SGD", "learning_rate": 0.05, "batch_size": 20, "epochs": 4, "null": True},
}


def cifar() -> tuple[Examples, Any, int]:
    """CIFAR-10 in 16 x 16, a network of 4,040 parameters, and 600 members."""
    raw = np.fromfile(Path(os.environ["GMIP_DATA"]) / "cifar-10-batches-bin" / "data_batch_1.bin", np.uint8)
    rows = raw.reshape(-1, 3073)[:6000]
    x = rows[:, 1:].reshape(-1, 3, 16, 2, 16, 2).astype(np.float32).mean((3, 5))
    x = (x - x.mean((0, 2, 3), keepdims=True)) / x.std((0, 2, 3), keepdims=True)

    def make() -> nn.Module:
        features = nn.Sequential(
            *(nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(12, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten()),
        )
        return nn.Sequential(features, nn.Linear(64, 26), nn.ReLU(), nn.Linear(26, 10))

    return Examples(torch.from_numpy(x), torch.from_numpy(rows[:, 0].astype(np.int64))), make, 600


def digits() -> tuple[Examples, Any, int]:
    """The digits of scikit-learn, a network of 4,810 parameters, and 200 members."""
    x, y = load_digits(return_X_y=True)
    data = Examples(torch.tensor(x / 16.0, dtype=torch.float32), torch.tensor(y))
    return data, lambda: nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10)), 200


def measure(name: str, seed: int = 0) -> None:
    """Train, attack and print a row."""
    run = {"epochs": 3, "options": {}, "data": "cifar", "cosine": False, "null": False} | RUNS[name]
    data, make, size = cifar() if run["data"] == "cifar" else digits()
    recipe = Recipe(
        **{key: run[key] for key in ("optimizer", "learning_rate", "batch_size")},
        dataset_size=size,
        num_steps=1,
        sampling="shuffled",
        optimizer_options=run["options"],
    )
    task = Task(name=name, make_model=make, pool=data, test=data[:10], recipe=recipe)
    order = np.random.default_rng(seed).permutation(len(data))
    inside, outside, strangers, hidden = np.split(order, np.cumsum([size, size, STRANGERS]))
    trained, hidden = (hidden[:size], hidden[size:]) if run["null"] else (inside, hidden)
    model, moments, ways = train(task, trained, run, seed)
    parameters = tuple(ParameterSpec(key, tuple(p.shape)) for key, p in trainable_parameters(model))
    count = sum(p.size for p in parameters)
    header = Header(parameters=parameters, num_params=count, dataset_size=size, batch_size=recipe.batch_size)
    state = {key: value.numpy() for key, value in model.state_dict().items()}
    who = {"members": np.sort(inside), "non_members": np.sort(np.concatenate([outside, strangers]))}
    target = CheckpointedModel(ReleasedModel(Path(name), header, **who, state=state), moments, ways)
    ids = np.sort(np.concatenate([inside, outside, strangers]))
    start = time.process_time()
    with warnings.catch_warnings(action="ignore"):
        try:
            found = Rehearsal(seed=seed).run(task, target, ids, data[hidden])
        except GmipError as error:
            print(f"| {name} | refused: {error} |", flush=True)
            return
    seconds = time.process_time() - start
    member, other = np.isin(found.ids, inside), ~np.isin(found.ids, inside)
    plain = -losses(task, model, data[ids])
    assert found.p_values is not None
    cells = [
        name,
        rates(plain[member], plain[other]),
        rates(found.scores[member], found.scores[other]),
        f"{(found.p_values[other] <= 0.05).mean():.1%}, {(found.p_values[other] <= 0.01).mean():.1%}",
        f"{found.facts.get('self_play_auc', np.nan):.3f}",
        f"{found.facts.get('rho', np.nan):.2f}",
        f"{found.facts['pairs']}",
        f"{seconds / len(ways):.1f}",
    ]
    print(f"| {' | '.join(cells)} |", flush=True)


def rates(inside: Any, outside: Any) -> str:
    """AUC, and members found at 1% false alarms."""
    return f"{auc(inside, outside):.3f} / {(inside > np.quantile(outside, 0.99)).mean():.0%}"


def train(task: Task, rows: Any, run: dict[str, Any], seed: int) -> tuple[nn.Module, list[Moment], list[Way]]:
    """A plain loop, and its weights and optimizer's state before it and after each epoch."""
    torch.manual_seed(seed)
    model, recipe = task.make_model(), task.recipe
    optimizer = getattr(torch.optim, recipe.optimizer)(
        model.parameters(), lr=recipe.learning_rate, **recipe.optimizer_options
    )
    steps = -(-len(rows) // recipe.batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps * run["epochs"]) if run["cosine"] else None
    parameters = list(model.parameters())
    moments, ways = [Moment(flat(parameters))], []
    for _ in range(run["epochs"]):
        rates_used = []
        for batch in torch.randperm(len(rows)).split(recipe.batch_size):
            part = task.pool[rows[batch.numpy()]]
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(part.inputs), part.targets).backward()
            rates_used.append(float(optimizer.param_groups[0]["lr"]))
            optimizer.step()
            if schedule is not None:
                schedule.step()
        first, second, taken = state_vectors(optimizer.state_dict(), parameters)
        moments.append(Moment(flat(parameters), first, second, taken))
        ways.append(Way(recipe, tuple(rates_used)))
    return model.eval(), moments, ways


def main() -> None:
    """All trainings, or those named."""
    torch.set_num_threads(1)
    print("| training | loss | rehearsal | others at p <= 5%, 1% | self-play | rho | pairs | CPU s a pair |")
    print("|---|---|---|---|---|---|---|---|")
    for name in sys.argv[1:] or RUNS:
        measure(name)


if __name__ == "__main__":
    main()
