"""A small task, and no more than that: two Gaussian clouds."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from gmip.tasks import Examples, Task
from gmip.vocabulary import Recipe


def clouds(size: int, seed: int) -> Examples:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(size) % 2
    inputs = torch.randn(size, 4, generator=generator) + 1.5 * labels[:, None]
    return Examples(inputs, labels)


def toy_task(pool: int = 300, members: int = 60, background: int = 0) -> Task:
    return Task(
        name="toy",
        make_model=partial(nn.Linear, 4, 2),
        pool=clouds(pool, 0),
        test=clouds(100, 1),
        background=clouds(background, 2) if background else None,
        recipe=Recipe(dataset_size=members, batch_size=30, num_steps=12, learning_rate=0.5, clip_norm=1.0),
    )
