"""A LightningModule, trained by Lightning's Trainer, recorded and audited.

python examples/lightning_trainer.py runs/lit
gmip audit examples/lightning_trainer.py:make_task --run runs/lit
"""

from __future__ import annotations

import sys

import lightning.pytorch as pl
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset, TensorDataset

from gmip import Examples, Recipe, Task
from gmip.integrations.lightning import GmipCallback

MEMBERS, BATCH, EPOCHS, LEARNING_RATE = 50, 25, 4, 0.5


class Classifier(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = make_model()

    def training_step(self, batch: tuple[Tensor, Tensor], number: int) -> Tensor:
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=LEARNING_RATE)


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 10))


def make_task() -> Task:
    pixels, labels = load_digits(return_X_y=True)
    records = Examples(torch.tensor(pixels / 16.0, dtype=torch.float32), torch.tensor(labels))
    return Task(
        name="lit",
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
    recording = GmipCallback(folder, task=task, module="net", members=members, non_members=others)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(max_epochs=EPOCHS, accelerator="cpu", callbacks=[recording], gradient_clip_val=1.0, **quiet)
    trainer.fit(Classifier(), DataLoader(data, batch_size=BATCH, shuffle=True))
    print(f"Trained and recorded. Next: gmip audit {sys.argv[0]}:make_task --run {folder}")


if __name__ == "__main__":
    main(*sys.argv[1:])
