"""Handwritten digits, 8x8 pixels: the task that is always there, since scikit-learn brings the data."""

from __future__ import annotations

from functools import partial

from torch import nn

from gmip.tasks.records import examples, random_split
from gmip.tasks.task import Task
from gmip.vocabulary import Recipe

__all__ = ["digits"]


def digits() -> Task:
    """1,797 digits: pool of 1,437, test of 360, pixels from 0 to 1, linear softmax model with d = 650."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    pool, test = random_split(len(labels), 360, seed=0)
    return Task(
        name="digits",
        make_model=partial(nn.Linear, 64, 10),
        pool=examples(pixels[pool] / 16.0, labels[pool]),
        test=examples(pixels[test] / 16.0, labels[test]),
        # Few enough members that the rest of the pool can serve an audit as non-members and background.
        recipe=Recipe(dataset_size=250, batch_size=125, num_steps=40, learning_rate=3.0, clip_norm=1.0),
    )
