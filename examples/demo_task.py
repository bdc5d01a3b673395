"""The task of `make demo`: handwritten digits in 16 numbers each, and a linear model of 170 parameters.

    gmip audit examples/demo.yaml

Small tabular data are where noise hurts least. The 16 directions are principal components of records that are neither
members nor candidates, so that choosing them tells nothing about who is in.
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from gmip import Examples, Recipe, Task

DIRECTIONS, TEST, BACKGROUND = 16, 297, 300


def make_task() -> Task:
    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    test, background, pool = np.split(order, [TEST, TEST + BACKGROUND])
    centre = pixels[background].mean(axis=0)
    axes = np.linalg.svd(pixels[background] - centre, full_matrices=False)[2][:DIRECTIONS].T
    scale = np.linalg.norm((pixels[background] - centre) @ axes, axis=1).mean()

    def records(rows: np.ndarray) -> Examples:
        points = (pixels[rows] - centre) @ axes / scale
        return Examples(torch.tensor(points, dtype=torch.float32), torch.tensor(labels[rows]))

    return Task(
        name="digits-16",
        make_model=lambda: nn.Linear(DIRECTIONS, 10),
        pool=records(pool),  # 1,200: half of them are members, the others candidates who are not
        record_names=[f"digit-{row}" for row in pool],  # how the report calls them
        test=records(test),
        background=records(background),
        recipe=Recipe(dataset_size=600, batch_size=300, num_steps=20, learning_rate=60.0, clip_norm=0.3),
    )
