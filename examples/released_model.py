"""Audit a model that was released without a trace: its weights, and who was in its training data.

    python examples/released_model.py released
    gmip audit examples/released_model.py:make_task --model released/weights.safetensors \
        --members released/members.csv --non-members released/others.csv

The training could have been anywhere, in any loop; here it is a small network on 250 digits. `make_task` says what the
model and the records are. Rows of its pool that are in neither file are taken to be outside and serve attacks that need
records of the same distribution. The recipe is for shadow models alone: --attacks loss,lira.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import nn

from gmip import Examples, Recipe, Task

MEMBERS, STEPS, LEARNING_RATE = 250, 300, 1.0


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Linear(32, 10))


def make_task() -> Task:
    """The released model and all records that may be asked about; the groups are thick and thin writing."""
    pixels, labels = load_digits(return_X_y=True)
    inputs, targets = torch.tensor(pixels / 16.0, dtype=torch.float32), torch.tensor(labels)
    pool = Examples(inputs[:1500], targets[:1500])
    thick = inputs[:1500].mean(1) > inputs.mean()
    return Task(
        name="released",
        make_model=make_model,
        pool=pool,
        test=Examples(inputs[1500:], targets[1500:]),
        recipe=Recipe(
            dataset_size=MEMBERS, batch_size=MEMBERS, sampling="full", num_steps=STEPS, learning_rate=LEARNING_RATE
        ),
        groups={"writing": ["thick" if one else "thin" for one in thick]},
    )


def main(folder: str) -> None:
    torch.manual_seed(0)
    task, model = make_task(), make_model()
    order = torch.randperm(len(task.pool))
    members, others = order[:MEMBERS], order[MEMBERS : 2 * MEMBERS]
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    records = task.pool[members]
    for _ in range(STEPS):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(records.inputs), records.targets).backward()
        optimizer.step()
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    save_file(model.state_dict(), out / "weights.safetensors")
    for name, rows in (("members", members), ("others", others)):
        with (out / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([["id"], *([row] for row in rows.tolist())])
    files = f"--model {out}/weights.safetensors --members {out}/members.csv --non-members {out}/others.csv"
    print(f"Trained. Next: gmip audit examples/released_model.py:make_task {files}")


if __name__ == "__main__":
    main(*sys.argv[1:])
