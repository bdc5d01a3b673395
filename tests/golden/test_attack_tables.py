"""The tables of attacks in the docs are what `benchmarks/attacks.py` makes of its rows; null runs find nothing."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the benchmarks of attacks need the extra gmip[train]")

ROOT = Path(__file__).parents[2]


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return import_module("attacks")


def test_docs_show_what_was_measured(benchmark: Any) -> None:
    found = benchmark.tables(benchmark.Book(ROOT / "benchmarks" / "attacks.csv"))
    pages = {path: (ROOT / path).read_text(encoding="utf-8") for path in benchmark.DOCS}
    for path, text in pages.items():
        assert benchmark.written(text, "attacks.py", found) == text, (
            f"{path}: run python benchmarks/attacks.py --show --docs"
        )
    for name in found:
        assert any(f"<!-- attacks.py: {name} -->" in text for text in pages.values()), f"{name} is in no page"


def test_null_runs_find_nothing(benchmark: Any) -> None:
    """Over all null runs of an attack; four standard errors, since there are many attacks. Settings share data, so the
    errors of p-values are larger than they look: a quarter of the level more."""
    book = benchmark.Book(ROOT / "benchmarks" / "attacks.csv")
    for name in {row["attack"] for row in book.found(null=True)}:
        rows = book.found(null=True, attack=name)
        areas = [row["auc"] for row in rows]
        assert abs(sum(areas) / len(areas) - 0.5) <= 4.0 * max(benchmark.error(areas), 0.002), name
        for key, level in benchmark.LEVELS.items():
            shares = benchmark.small_p_values(rows, key)
            if shares:
                assert sum(shares) / len(shares) <= 1.25 * level + 3.0 * max(benchmark.error(shares), 0.001), (
                    name,
                    key,
                )
