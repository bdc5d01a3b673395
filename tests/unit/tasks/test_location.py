"""Location-30: a made-up archive in its format, and the real one."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from gmip.tasks import builtin as module
from gmip.tasks.builtin import LOCATION_FILE, location
from gmip.tasks.data_files import DataFile, checksum
from tests.unit.tasks.real import need


def test_labels_stay_with_their_rows(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Row i has label i % 30 + 1, published between quotation marks, and a single 1 in column i % 30.
    rows = np.eye(446, dtype=int)[np.arange(1_060) % 30]
    text = "".join(f'"{i % 30 + 1}",{",".join(map(str, row))}\n' for i, row in enumerate(rows))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as stream:
        entry = tarfile.TarInfo("made_up")
        entry.size = len(text)
        stream.addfile(entry, io.BytesIO(text.encode()))
    (data_folder / "made_up.tgz").write_bytes(buffer.getvalue())
    made_up = DataFile(title="Made up", path="made_up.tgz", checksum=checksum(buffer.getvalue(), "sha256"), url="")
    monkeypatch.setattr(module, "LOCATION_FILE", made_up)
    task = location()
    assert len(task.pool) == 60 and len(task.test) == 1_000
    for part in (task.pool, task.test):
        assert torch.equal(part.inputs.argmax(dim=1), part.targets)


def test_real(monkeypatch: pytest.MonkeyPatch) -> None:
    need(monkeypatch, LOCATION_FILE)
    task = location()
    assert task.pool.inputs.shape == (4_010, 446) and task.test.inputs.shape == (1_000, 446)
    assert torch.equal(task.pool.inputs.unique(), torch.tensor([0.0, 1.0]))
    counts = torch.bincount(torch.cat([task.pool.targets, task.test.targets]))
    # Counted with awk in the published file: the rarest class is its 5, the most frequent its 8.
    assert len(counts) == 30 and counts[4] == counts.min() == 97 and counts[7] == counts.max() == 308
