"""The CIFAR-100 ResNet-56 whose frozen features the CIFAR-10 task is built on.

The layers are those of He et al., "Deep residual learning for image recognition" (2016), section 4.2, with 1x1
convolutions where the shape changes. They are named as in the published state dict of
github.com/chenyaofo/pytorch-cifar-models (BSD-3), so that it loads without a key left over.
"""

from __future__ import annotations

import io

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gmip._progress import Progress
from gmip.tasks.sources import DataFile, read

__all__ = ["FEATURES", "WEIGHTS", "ResNet56", "features", "pretrained_resnet56"]

FEATURES = 64
WEIGHTS = DataFile(
    title="ResNet-56 for CIFAR-100",
    path="weights/cifar100_resnet56-f2eff4c8.pt",
    checksum="sha256:f2eff4c8461ca1e0d39af83a65f7243bf7d29ec421efee3064bcee93a3caaa73",
    url="https://github.com/chenyaofo/pytorch-cifar-models/releases/download/resnet/cifar100_resnet56-f2eff4c8.pt",
)
# Of the red, green and blue values of CIFAR-100, with which the published weights were trained.
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

    `progress` is told the number of images after every batch.
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
