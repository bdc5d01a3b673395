"""CIFAR-10: a new last layer on the frozen features of a ResNet-56 that was trained on CIFAR-100."""

from __future__ import annotations

import io
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gmip._progress import Progress, bars
from gmip.store import Entry
from gmip.tasks import cache
from gmip.tasks.sources import DataFile, read
from gmip.tasks.task import Examples, Task
from gmip.vocabulary import Recipe

__all__ = [
    "FEATURES",
    "FILES",
    "WEIGHTS",
    "ResNet56",
    "cifar10",
    "features",
    "parse_images",
    "pretrained_resnet56",
]


# -- the cifar-100 resnet-56 whose frozen features the cifar-10 task is built on --------------------------------------


FEATURES = 64
WEIGHTS = DataFile(
    title="ResNet-56 for CIFAR-100",
    path="weights/cifar100_resnet56-f2eff4c8.pt",
    checksum="sha256:f2eff4c8461ca1e0d39af83a65f7243bf7d29ec421efee3064bcee93a3caaa73",
    url="https://github.com/chenyaofo/pytorch-cifar-models/releases/download/resnet/cifar100_resnet56-f2eff4c8.pt",
)
# Mean and std of the red, green and blue values of CIFAR-100, with which the published weights were trained.
MEAN = (0.5070, 0.4865, 0.4409)
STD = (0.2673, 0.2564, 0.2761)
_BATCH = 100


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = (
            nn.Identity()
            if inputs == outputs
            else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        )

    def forward(self, x: Tensor) -> Tensor:
        inner = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(inner + self.downsample(x))


def _stage(inputs: int, outputs: int) -> nn.Sequential:
    """Nine blocks; the first halves the image where it widens the channels."""
    first = _Block(inputs, outputs, stride=1 if inputs == outputs else 2)
    return nn.Sequential(first, *(_Block(outputs, outputs, stride=1) for _ in range(8)))


class ResNet56(nn.Module):
    """Normalised images of shape (n, 3, 32, 32) -> logits of shape (n, classes)."""

    def __init__(self, classes: int = 100) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16)
        self.layer2 = _stage(16, 32)
        self.layer3 = _stage(32, FEATURES)
        self.fc = nn.Linear(FEATURES, classes)

    def embed(self, x: Tensor) -> Tensor:
        """What the last layer sees, shape (n, 64)."""
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return x.mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.embed(x))
        return logits


def pretrained_resnet56() -> ResNet56:
    """The published weights, frozen and in eval mode: BatchNorm uses its stored statistics and mixes no examples."""
    (content,) = read(WEIGHTS)
    model = ResNet56()
    model.load_state_dict(torch.load(io.BytesIO(content), map_location="cpu", weights_only=True), strict=True)
    return model.requires_grad_(False).eval()


def features(model: ResNet56, images: NDArray[np.uint8], *, progress: Progress | None = None) -> Tensor:
    """Features of images of shape (n, 3, 32, 32) with values 0 to 255: float32, shape (n, 64).

    `progress` is called with the number of images after every batch.
    """
    mean, std = torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]
    parts = []
    with torch.no_grad():
        for start in range(0, len(images), _BATCH):
            batch = images[start : start + _BATCH]
            pixels = torch.from_numpy(batch.astype(np.float32)) / 255.0
            # With channels last, the convolutions take a quarter less time on a CPU.
            parts.append(model.embed(((pixels - mean) / std).contiguous(memory_format=torch.channels_last)))
            if progress is not None:
                progress(start + len(batch), len(images))
    return torch.cat(parts) if parts else torch.empty(0, FEATURES)


# -- cifar-10 ---------------------------------------------------------------------------------------------------------


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


def _overall(progress: Progress, part: int, parts: int, done: int, total: int) -> None:
    """Progress within one part, reported as progress over all parts."""
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
                within = partial(_overall, progress, number, len(missing))
                found = features(model, images[rows], progress=within).numpy()
                parts[place] = part = Entry({"features": found, "labels": labels[rows]})
                store.put(keys[place], *part)
    done = [part.arrays for part in parts.values() if part is not None]
    inputs, targets = (np.concatenate([part[name] for part in done]) for name in ("features", "labels"))
    return Examples(torch.from_numpy(inputs), torch.from_numpy(targets))
