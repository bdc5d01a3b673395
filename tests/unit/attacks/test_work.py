"""Time to be done in, and finished parts."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from gmip.attacks.work import Budget, Parts, as_seconds
from gmip.errors import InvalidArgument


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5min", 300.0), ("90s", 90.0), ("1.5 h", 5400.0), (7, 7.0), ("12", 12.0), (None, math.inf), ("none", math.inf)],
)
def test_lengths_of_time(text: object, seconds: float) -> None:
    assert as_seconds("budget", text) == seconds


@pytest.mark.parametrize("text", ["soon", "5 weeks", "-3s", 0, -1.0, "0min"])
def test_others_are_one_sentence(text: object) -> None:
    with pytest.raises(InvalidArgument, match="budget"):
        as_seconds("budget", text)


def test_a_budget_runs_out() -> None:
    assert Budget().left() == math.inf and not Budget().limited
    assert 9.0 < Budget(10.0).left() <= 10.0
    assert Budget(1.0e-9).left() < 0.0


def test_parts_are_whole_or_nothing(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "a")
    assert parts.get(0) is None
    given = {"x": np.arange(6.0).reshape(2, 3), "n": np.array([4])}
    parts.put(0, given)
    parts.put("plan", {"k": np.array([1])})
    found = Parts(tmp_path / "a").get(0)
    assert found is not None
    np.testing.assert_array_equal(found["x"], given["x"])
    assert found["n"].tolist() == [4]
    file = tmp_path / "a" / "part-0.safetensors"
    damaged = bytearray(file.read_bytes())
    damaged[-3] ^= 1
    file.write_bytes(bytes(damaged))
    assert parts.get(0) is None
    parts.clear()
    assert not (tmp_path / "a").exists()
    parts.clear()
