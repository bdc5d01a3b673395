"""Purchase: which of 20 kinds of customer, from 600 products; a head on a network trained on the other 80 kinds."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gmip._progress import bars
from gmip.store import Entry
from gmip.tasks import cache
from gmip.tasks.records import labelled_bits, scaling
from gmip.tasks.sources import DataFile, only_member, read
from gmip.tasks.task import Examples, Task, cross_entropy
from gmip.vocabulary import Recipe

__all__ = ["FILE", "build", "divide", "pretrain", "purchase"]

FILE = DataFile(
    title="Purchase-100",
    path="purchase/dataset_purchase.tgz",
    checksum="git-blob:3efa7476ad5ed7ac3e558d28585a186b38fc5f19",
    url="https://github.com/privacytrustlab/datasets/raw/master/dataset_purchase.tgz",
)
_CLASSES = 20
_FEATURES = 128
_TEST_ROWS = 10_000
_EPOCHS = 5
_BATCH = 256
_VERSION = "1"  # to be raised when the features of the same file change


def purchase() -> Task:
    """Rows of the 20 most frequent classes, the first 10,000 of them as test; linear head on 128 features, d = 2580."""
    return build(FILE, test_rows=_TEST_ROWS)


def build(file: DataFile, *, test_rows: int) -> Task:
    """The task from a file in the format of Purchase-100.

    The features come from a network that was trained on the rows of the other classes, and from their scaling: no
    record of pool or test has a part in them. They are computed once (less than a minute) and kept in the cache folder.
    """
    records = _examples(file)
    pool = Examples(records.inputs[test_rows:], records.targets[test_rows:])
    # The paper's utility experiment, 3 epochs; but at least 1% of the pool must stay outside.
    members = min(54_855, len(pool) * 99 // 100)
    batch = min(795, members)
    return Task(
        name="purchase",
        make_model=partial(nn.Linear, _FEATURES, _CLASSES),
        pool=pool,
        test=Examples(records.inputs[:test_rows], records.targets[:test_rows]),
        recipe=Recipe(
            dataset_size=members,
            batch_size=batch,
            num_steps=3 * members // batch,
            learning_rate=5.0e-3,
            optimizer="Adam",
            clip_norm=2000.0,
        ),
    )


def divide(labels: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row numbers of the 20 most frequent classes (of equally frequent ones those with the smaller label), and of the
    others, both in the order of the file."""
    values, counts = np.unique(labels, return_counts=True)
    kept = values[np.argsort(-counts, kind="stable")[:_CLASSES]]
    inside = np.isin(labels, kept)
    return np.flatnonzero(inside), np.flatnonzero(~inside)


def pretrain(inputs: Tensor, targets: Tensor, *, seed: int) -> nn.Sequential:
    """A three-layer network on the public part, without its last layer: inputs of shape (n, k) -> (n, 128).

    The same arguments give the same network (up to the rounding of another machine or number of threads); torch's
    global generator is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        body = nn.Sequential(nn.Linear(inputs.shape[1], 256), nn.Tanh(), nn.Linear(256, _FEATURES), nn.Tanh())
        model = nn.Sequential(body, nn.Linear(_FEATURES, int(targets.max()) + 1))
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0e-3)
    with bars() as watch:
        progress = watch("Purchase: pre-training")
        for epoch in range(_EPOCHS):
            order = torch.randperm(len(inputs), generator=generator)
            for start in range(0, len(inputs), _BATCH):
                rows = order[start : start + _BATCH]
                optimizer.zero_grad()
                torch.autograd.backward(cross_entropy(model(inputs[rows]), targets[rows]).mean())
                optimizer.step()
                progress(epoch * len(inputs) + start + len(rows), _EPOCHS * len(inputs))
    return body.requires_grad_(False).eval()


def _examples(file: DataFile) -> Examples:
    """Records of the kept classes, in the order of the file."""

    def make() -> Entry:
        (archive,) = read(file)
        labels, bits = labelled_bits(only_member(archive, file), file.title)
        private, public = divide(labels)
        mean, std = scaling(bits[public])
        model = pretrain(_scaled(bits[public], mean, std), _codes(labels[public]), seed=0)
        features = model(_scaled(bits[private], mean, std))
        return Entry({"features": features.numpy(), "labels": _codes(labels[private]).numpy()})

    found = cache.store("purchase", {"file": file.checksum}, _VERSION).compute("examples", make)
    return Examples(torch.from_numpy(found.arrays["features"]), torch.from_numpy(found.arrays["labels"]))


def _scaled(bits: NDArray[np.uint8], mean: NDArray[np.float64], std: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy((bits - mean.astype(np.float32)) / std.astype(np.float32))


def _codes(labels: NDArray[np.int64]) -> Tensor:
    """Labels as 0, 1, 2, ... in ascending order."""
    return torch.from_numpy(np.unique(labels, return_inverse=True)[1].astype(np.int64))
