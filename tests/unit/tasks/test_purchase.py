"""Purchase: the whole way on a small made-up archive in the published format (the real one is not asked for)."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from gmip.errors import DataUnavailable
from gmip.tasks import builtin as module
from gmip.tasks.builtin import PURCHASE_FILE, build_purchase, divide_classes, pretrain, purchase
from gmip.tasks.data_files import DataFile, checksum
from tests.unit.tasks.real import need

COLUMNS = 40
# 25 classes: label k has 20 + 2k rows, so the 20 most frequent are the labels 6 to 25.
LABELS = np.repeat(np.arange(1, 26), 20 + 2 * np.arange(1, 26))


@pytest.fixture
def made_up(data_folder: Path) -> DataFile:
    rng = np.random.default_rng(0)
    labels = rng.permutation(LABELS)
    centres = rng.random((26, COLUMNS)) < 0.5
    bits = centres[labels] ^ (rng.random((len(labels), COLUMNS)) < 0.1)
    bits[:, 0] = 1
    text = "".join(
        f"{label},{','.join(str(int(bit)) for bit in row)}\n" for label, row in zip(labels, bits, strict=True)
    )
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as stream:
        entry = tarfile.TarInfo("made_up")
        entry.size = len(text)
        stream.addfile(entry, io.BytesIO(text.encode()))
    (data_folder / "made_up.tgz").write_bytes(buffer.getvalue())
    return DataFile(
        title="Made up",
        path="made_up.tgz",
        checksum=checksum(buffer.getvalue(), "git-blob"),
        url="http://127.0.0.1:9/made_up.tgz",
    )


def test_the_most_frequent_classes_are_kept() -> None:
    labels = np.array([*range(30, 0, -1), *range(11, 31), 5])
    private, public = divide_classes(labels)
    # Twice: 11 to 30, and 5; of these 21 the smaller labels win.
    assert set(labels[private]) == {5, *range(11, 30)}
    assert set(labels[public]) == set(range(1, 31)) - {5, *range(11, 30)}
    assert sorted([*private, *public]) == list(range(len(labels)))
    assert np.array_equal(private, np.sort(private)) and np.array_equal(public, np.sort(public))


def test_the_whole_way(made_up: DataFile) -> None:
    task = build_purchase(made_up, test_rows=200)
    kept = LABELS[LABELS > 5]
    assert task.name == "purchase"
    assert len(task.test) == 200 and len(task.pool) == len(kept) - 200
    assert task.pool.inputs.shape[1] == 128 and task.pool.inputs.dtype == torch.float32
    counts = torch.bincount(torch.cat([task.pool.targets, task.test.targets]))
    assert counts.tolist() == [20 + 2 * label for label in range(6, 26)]
    assert sum(p.numel() for p in task.make_model().parameters()) == 2580
    assert task.recipe.dataset_size == len(task.pool) * 99 // 100  # the paper's 54,855 would leave nobody outside
    assert task.recipe.num_steps == 3 * task.recipe.dataset_size // task.recipe.batch_size

    # The classes are far apart, so features that keep what the columns say tell them apart linearly.
    inputs = torch.cat([task.pool.inputs, torch.ones(len(task.pool), 1)], dim=1)
    weights = torch.linalg.lstsq(inputs, torch.nn.functional.one_hot(task.pool.targets).float()).solution
    guesses = (task.test.inputs @ weights[:-1] + weights[-1]).argmax(dim=1)
    assert float((guesses == task.test.targets).float().mean()) > 0.8


def test_computed_once_and_the_same_again(
    made_up: DataFile, data_folder: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = torch.get_rng_state()
    first = build_purchase(made_up, test_rows=200).fingerprints
    assert torch.equal(before, torch.get_rng_state())
    (stored,) = cache_folder.rglob("*.entry")
    stored.unlink()
    assert build_purchase(made_up, test_rows=200).fingerprints == first
    (data_folder / "made_up.tgz").unlink()
    assert build_purchase(made_up, test_rows=200).fingerprints == first


def test_pool_and_test_have_no_part_in_the_features(made_up: DataFile, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def watched(inputs: torch.Tensor, targets: torch.Tensor, *, seed: int) -> torch.nn.Sequential:
        seen.append(len(inputs))
        assert inputs.mean(dim=0).abs().max() < 1e-5  # scaled with the statistics of these rows
        assert sorted(set(inputs.std(dim=0, correction=0).round(decimals=3).tolist())) == [0.0, 1.0]
        assert torch.bincount(targets).tolist() == [22, 24, 26, 28, 30]
        return pretrain(inputs, targets, seed=seed)

    monkeypatch.setattr(module, "pretrain", watched)
    build_purchase(made_up, test_rows=200)
    assert seen == [130]


def test_pretraining_learns_and_follows_its_seed() -> None:
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(400) % 4
    inputs = torch.randn(4, 10, generator=generator)[targets] + 0.1 * torch.randn(400, 10, generator=generator)
    body = pretrain(inputs, targets, seed=0)
    assert body(inputs).shape == (400, 128)
    assert torch.equal(body(inputs), pretrain(inputs, targets, seed=0)(inputs))
    assert not torch.equal(body(inputs), pretrain(inputs, targets, seed=1)(inputs))


def test_where_it_is_missing(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        module, "PURCHASE_FILE", DataFile(**{**vars(PURCHASE_FILE), "url": "http://127.0.0.1:9/dataset_purchase.tgz"})
    )
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    place = data_folder / "purchase" / "dataset_purchase.tgz"
    with pytest.raises(DataUnavailable, match=f"Purchase-100 is not on this machine.*put it at {place}"):
        purchase()


@pytest.mark.slow
def test_real(monkeypatch: pytest.MonkeyPatch) -> None:
    need(monkeypatch, PURCHASE_FILE)
    task = purchase()
    assert len(task.test) == 10_000 and len(task.pool) > 54_000
    assert int(torch.bincount(task.pool.targets).numel()) == 20
