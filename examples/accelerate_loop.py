"""A loop of accelerate, recorded and audited.

python examples/accelerate_loop.py runs/accelerate       # or: accelerate launch ...
gmip audit examples/accelerate_loop.py:make_task --run runs/accelerate
"""

from __future__ import annotations

import sys

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

import gmip
from gmip import Examples, Recipe, Task

MEMBERS, BATCH, EPOCHS, LEARNING_RATE = 50, 25, 4, 0.5


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 10))


def make_task() -> Task:
    pixels, labels = load_digits(return_X_y=True)
    records = Examples(torch.tensor(pixels / 16.0, dtype=torch.float32), torch.tensor(labels))
    return Task(
        name="accelerated",
        make_model=make_model,
        pool=records[:1500],
        test=records[1500:],
        recipe=Recipe(
            dataset_size=MEMBERS,
            batch_size=BATCH,
            num_steps=EPOCHS * MEMBERS // BATCH,
            learning_rate=LEARNING_RATE,
            sampling="shuffled",
        ),
    )


def main(folder: str) -> None:
    task = make_task()
    order = torch.randperm(len(task.pool))
    members, others = order[:MEMBERS], order[MEMBERS : 2 * MEMBERS]
    data = Subset(TensorDataset(task.pool.inputs, task.pool.targets), members.tolist())
    model = make_model()
    accelerator = Accelerator(cpu=True)
    model, optimizer, loader = accelerator.prepare(
        model,
        torch.optim.SGD(model.parameters(), lr=LEARNING_RATE),
        DataLoader(data, batch_size=BATCH, shuffle=True),
    )
    with gmip.record(model, optimizer, folder, loader=loader, members=members, non_members=others, data=task):
        for _ in range(EPOCHS):
            for inputs, targets in loader:
                optimizer.zero_grad()
                accelerator.backward(nn.functional.cross_entropy(model(inputs), targets))
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
    print(f"Trained and recorded. Next: gmip audit {sys.argv[0]}:make_task --run {folder}")


if __name__ == "__main__":
    main(*sys.argv[1:])
