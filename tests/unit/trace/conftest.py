from __future__ import annotations

import pytest

from gmip.trace import _shard
from tests.unit.trace.build import D


@pytest.fixture
def three_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of three rows of the float32 traces in these tests."""
    monkeypatch.setattr(_shard, "SHARD_BYTES", 3 * 2 * D * 4)
