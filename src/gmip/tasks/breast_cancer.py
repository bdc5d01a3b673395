"""Wisconsin breast cancer (diagnostic): a small medical table, which scikit-learn brings."""

from __future__ import annotations

from torch import nn

from gmip.tasks.records import examples, random_split, scaling
from gmip.tasks.task import Task
from gmip.vocabulary import Recipe

__all__ = ["breast_cancer"]


def _make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(30, 16), nn.Tanh(), nn.Linear(16, 2))


def breast_cancer() -> Task:
    """569 patients: pool of 455, test of 114, 30 columns standardised with the pool's statistics, tanh network with one
    hidden layer of 16, d = 530."""
    from sklearn.datasets import load_breast_cancer

    table, labels = load_breast_cancer(return_X_y=True)
    pool, test = random_split(len(labels), 114, seed=0)
    mean, std = scaling(table[pool])
    table = (table - mean) / std
    return Task(
        name="breast-cancer",
        make_model=_make_model,
        pool=examples(table[pool], labels[pool]),
        test=examples(table[test], labels[test]),
        recipe=Recipe(dataset_size=200, batch_size=40, num_steps=150, learning_rate=0.2, clip_norm=2.0),
    )
