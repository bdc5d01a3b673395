"""CIFAR-10: the binary format, features that are computed once in parts, and the real images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gmip.errors import DataUnavailable, GmipWarning
from gmip.tasks import builtin as module
from gmip.tasks.builtin import (
    CIFAR10_FILES,
    RESNET56_WEIGHTS,
    ResNet56,
    parse_images,
    pretrained_resnet56,
    resnet56_features,
)
from gmip.tasks.data_files import DataFile, checksum, read_files
from tests.unit.tasks.real import need


def content(seed: int, rows: int) -> bytes:
    return np.random.default_rng(seed).integers(0, 10, (rows, 3073), dtype=np.uint8).tobytes()


def test_the_binary_format() -> None:
    row = bytearray(3073)
    row[0] = 7
    row[1], row[1 + 1024], row[1 + 2048] = 10, 20, 30  # red, green and blue of the first pixel
    row[1 + 33] = 40  # red of line 1, column 1
    images, labels = parse_images(bytes(row) * 2)
    assert images.shape == (2, 3, 32, 32) and labels.tolist() == [7, 7]
    assert images[1, :, 0, 0].tolist() == [10, 20, 30] and images[1, 0, 1, 1] == 40


@pytest.fixture
def small(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Two files of four images, in parts of two. Returns a list to which each part of features adds its first label."""
    contents = {"cifar-10-batches-bin/one.bin": content(0, 4), "cifar-10-batches-bin/two.bin": content(1, 4)}
    files = []
    for path, data in contents.items():
        (data_folder / path).parent.mkdir(exist_ok=True)
        (data_folder / path).write_bytes(data)
        files.append(DataFile(title="Toy", path=path, checksum=checksum(data, "md5"), url="http://127.0.0.1:9/x"))
    monkeypatch.setattr(module, "CIFAR10_FILES", tuple(files))
    monkeypatch.setattr(module, "_PER_FILE", 4)
    monkeypatch.setattr(module, "_PER_PART", 2)
    monkeypatch.setattr(module, "pretrained_resnet56", ResNet56)
    computed: list[int] = []

    def cheap(model: ResNet56, images: Any, *, progress: Any) -> torch.Tensor:
        computed.append(int(images[0, 0, 0, 0]))
        return torch.from_numpy(images[:, 0, :2].reshape(len(images), 64).astype(np.float32))

    monkeypatch.setattr(module, "resnet56_features", cheap)
    return computed


def expected() -> tuple[torch.Tensor, list[int]]:
    parsed = [parse_images(content(seed, 4)) for seed in (0, 1)]
    inputs = np.concatenate([images[:, 0, :2].reshape(4, 64) for images, _ in parsed]).astype(np.float32)
    return torch.from_numpy(inputs), [int(label) for _, labels in parsed for label in labels]


def test_features_are_computed_once(small: list[int], data_folder: Path) -> None:
    inputs, labels = expected()
    records = module._cifar10_examples()
    assert torch.equal(records.inputs, inputs) and records.targets.tolist() == labels
    assert len(small) == 4
    for path in (data_folder / "cifar-10-batches-bin").iterdir():
        path.unlink()
    again = module._cifar10_examples()
    assert len(small) == 4 and again.fingerprint == records.fingerprint


def test_an_interruption_loses_one_part(small: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    whole: Any = vars(module)["resnet56_features"]

    def interrupted(*args: Any, **kwargs: Any) -> torch.Tensor:
        if len(small) == 3:
            raise KeyboardInterrupt
        return whole(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(module, "resnet56_features", interrupted)
        with pytest.raises(KeyboardInterrupt):
            module._cifar10_examples()
    records = module._cifar10_examples()
    assert len(small) == 4
    assert torch.equal(records.inputs, expected()[0])


def test_a_damaged_part_is_computed_again(small: list[int], cache_folder: Path) -> None:
    module._cifar10_examples()
    part = sorted(cache_folder.rglob("*.entry"))[2]
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.warns(GmipWarning, match="damaged"):
        records = module._cifar10_examples()
    assert len(small) == 5
    assert torch.equal(records.inputs, expected()[0])


def test_files_in_another_order_keep_their_features(
    small: list[int], data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module._cifar10_examples()
    monkeypatch.setattr(module, "CIFAR10_FILES", module.CIFAR10_FILES[::-1])
    records = module._cifar10_examples()
    assert len(small) == 4
    assert torch.equal(records.inputs, torch.cat([expected()[0][4:], expected()[0][:4]]))


def test_without_images_there_is_a_sentence(
    small: list[int], data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    (data_folder / "cifar-10-batches-bin" / "two.bin").unlink()
    with pytest.raises(DataUnavailable, match=r"two\.bin"):
        module._cifar10_examples()


# Labels of CIFAR-100, in alphabetical order of its classes: bicycle, bus, lawn mower, motorcycle, pickup truck, rocket,
# streetcar, tank, tractor, train.
VEHICLES = [8, 13, 41, 48, 58, 69, 81, 85, 89, 90]


@pytest.mark.slow
def test_real_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Good only if pixels, layers and weights all fit: turned images lose 14 points, a random network 40."""
    need(monkeypatch, RESNET56_WEIGHTS, CIFAR10_FILES[0], CIFAR10_FILES[-1])
    from sklearn.linear_model import LogisticRegression

    train, test = (parse_images(data) for data in read_files(CIFAR10_FILES[0], CIFAR10_FILES[-1]))
    model = pretrained_resnet56()
    inputs, test_inputs = resnet56_features(model, train[0][:1000]).numpy(), resnet56_features(model, test[0][:600])
    labels, test_labels = train[1][:1000], test[1][:600]

    mean, std = inputs.mean(axis=0), inputs.std(axis=0)
    probe = LogisticRegression(C=0.01, max_iter=1000).fit((inputs - mean) / std, labels)
    assert probe.score((test_inputs.numpy() - mean) / std, test_labels) > 0.61

    vehicle = np.isin(model.fc(test_inputs).argmax(dim=1).numpy(), VEHICLES)
    assert vehicle[np.isin(test_labels, [1, 9])].mean() > 0.8  # automobile, truck
    assert vehicle[np.isin(test_labels, [2, 3, 4, 5, 6, 7])].mean() < 0.05  # bird, cat, deer, dog, frog, horse
