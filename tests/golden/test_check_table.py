"""The table in docs/evidence/check.md is what `benchmarks/check.py` makes of its rows; nothing in it is silent."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the benchmark of the run check needs the extra gmip[train]")

ROOT = Path(__file__).parents[2]


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return import_module("check")


def test_docs_show_what_was_measured(benchmark: Any) -> None:
    rows = benchmark.read(ROOT / "benchmarks" / "check.csv")
    text = (ROOT / "docs" / "evidence" / "check.md").read_text(encoding="utf-8")
    assert benchmark.written(text, "check.py", benchmark.tables(rows)) == text, (
        "run python benchmarks/check.py --show --docs"
    )


def test_every_fault_was_tried_where_it_applies(benchmark: Any) -> None:
    rows = benchmark.read(ROOT / "benchmarks" / "check.csv")
    tried = {(row.fault, row.setting) for row in rows}
    wanted = {
        (name, where)
        for name, fault in benchmark.FAULTS.items()
        for where, setting in benchmark.SETTINGS.items()
        if benchmark.applies(name, fault, setting)
    }
    assert wanted <= tried and len(benchmark.FAULTS) >= 67


def test_nothing_is_silent_and_sound_runs_are_not_accused(benchmark: Any) -> None:
    rows = benchmark.read(ROOT / "benchmarks" / "check.csv")
    assert [row for row in rows if row.outcome == "silent"] == []
    sound = [row for row in rows if row.fault == benchmark.SOUND]
    assert len(sound) >= 200 and sum(row.outcome == "found" for row in sound) <= len(sound) / 200
