from __future__ import annotations

import os

import pytest

from gmip.trace import _shards
from tests.unit.trace.build import D


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fsync adds is seen only after a power cut, which these tests put on by damaging the files."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def three_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of three rows of the float32 traces in these tests."""
    monkeypatch.setattr(_shards, "SHARD_BYTES", 3 * 2 * D * 4)
