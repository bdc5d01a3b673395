"""CIFAR-10: a new last layer on the frozen features of a ResNet-56 that was trained on CIFAR-100."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gmip._progress import Progress, bars
from gmip.store import Entry
from gmip.tasks import cache
from gmip.tasks.resnet import FEATURES, WEIGHTS, features, pretrained_resnet56
from gmip.tasks.sources import DataFile, read
from gmip.tasks.task import Examples, Task
from gmip.vocabulary import Recipe

__all__ = ["FILES", "cifar10", "parse_images"]

_MD5 = {
    "data_batch_1": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
FILES = tuple(
    DataFile(
        title="CIFAR-10",
        path=f"cifar-10-batches-bin/{name}.bin",
        checksum=f"md5:{digest}",
        url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        archive_checksum="sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    )
    for name, digest in _MD5.items()
)
_PER_FILE = 10_000
_PER_PART = 5_000  # what an interruption loses at most
_VERSION = "1"  # to be raised when the features of the same files change


def parse_images(content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images of shape (n, 3, 32, 32) and labels of shape (n,) from the binary format: a byte of label, then 3,072 of
    red, green and blue rows."""
    rows = np.frombuffer(content, dtype=np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].astype(np.int64)


def cifar10() -> Task:
    """CIFAR-10 on 64 frozen features: pool of 50,000, test of 10,000, linear head with d = 650.

    The features (a few minutes on two cores) are computed once and kept in the cache folder, in parts.
    """
    examples = _examples()
    return Task(
        name="cifar10",
        make_model=partial(nn.Linear, FEATURES, 10),
        pool=Examples(examples.inputs[:50_000], examples.targets[:50_000]),
        test=Examples(examples.inputs[50_000:], examples.targets[50_000:]),
        # Sizes and clip_norm: the paper's utility experiment, 10 epochs.
        recipe=Recipe(
            dataset_size=48_000,
            batch_size=400,
            num_steps=1_200,
            learning_rate=2.0e-3,
            optimizer="Adam",
            clip_norm=500.0,
        ),
    )


def _told(progress: Progress, part: int, parts: int, done: int, total: int) -> None:
    """Images of one part, told as images of all parts."""
    progress(part * total + done, parts * total)


def _examples() -> Examples:
    """All 60,000 records in the order of FILES. Images are read only where a part of the features is missing."""
    store = cache.store("cifar10", {"weights": WEIGHTS.checksum}, _VERSION)
    places = [(file, start) for file in FILES for start in range(0, _PER_FILE, _PER_PART)]
    keys = {place: {"file": place[0].checksum, "rows": [place[1], place[1] + _PER_PART]} for place in places}
    parts = {place: store.get(keys[place]) for place in places}
    missing = [place for place in places if parts[place] is None]
    if missing:
        needed = list(dict.fromkeys(file for file, _ in missing))
        contents = dict(zip(needed, read(*needed), strict=True))
        model = pretrained_resnet56()
        with bars() as watch:
            progress = watch("CIFAR-10: features")
            for number, place in enumerate(missing):
                file, start = place
                images, labels = parse_images(contents[file])
                rows = slice(start, start + _PER_PART)
                told = partial(_told, progress, number, len(missing))
                found = features(model, images[rows], progress=told).numpy()
                parts[place] = part = Entry({"features": found, "labels": labels[rows]})
                store.put(keys[place], *part)
    done = [part.arrays for part in parts.values() if part is not None]
    inputs, targets = (np.concatenate([part[name] for part in done]) for name in ("features", "labels"))
    return Examples(torch.from_numpy(inputs), torch.from_numpy(targets))
