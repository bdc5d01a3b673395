"""A project of your own, recorded and audited.

    python examples/my_project.py runs/mine       # your training, with three lines of gmip in it
    gmip audit examples/my_project.py:make_task --run runs/mine

The training loop is plain PyTorch. For the audit, `make_task` says what was trained and on which records.
"""

from __future__ import annotations

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

import gmip
from gmip import Examples, Recipe, Task

MEMBERS, BATCH, EPOCHS, LEARNING_RATE = 200, 50, 3, 0.5


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 10))


def make_task() -> Task:
    """What an audit needs to know: the model, the loss (cross-entropy unless you say otherwise) and the records."""
    pixels, labels = load_digits(return_X_y=True)
    inputs, targets = torch.tensor(pixels / 16.0, dtype=torch.float32), torch.tensor(labels)
    return Task(
        name="my-project",
        make_model=make_model,
        pool=Examples(inputs[:1500], targets[:1500]),  # the members are among these; the others are background
        test=Examples(inputs[1500:], targets[1500:]),
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
    loader = DataLoader(data, batch_size=BATCH, shuffle=True)

    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    about = {"loader": loader, "data": task}  # one: how batches are drawn, and of which records
    who = {"members": members, "non_members": others}  # two
    with gmip.record(model, optimizer, folder, **about, **who):  # three
        for _ in range(EPOCHS):
            for inputs, targets in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(inputs), targets).backward()
                optimizer.step()
    print(f"Trained and recorded. Next: gmip audit {sys.argv[0]}:make_task --run {folder}")


if __name__ == "__main__":
    main(*sys.argv[1:])
