"""Printing of the benchmarks' results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["Row", "table"]

Row = dict[str, Any]


def table(title: str, columns: dict[str, str], rows: Sequence[Row]) -> None:
    """columns : key -> heading|format"""
    print(f"\n{title}")
    heads = [heading.split("|")[0] for heading in columns.values()]
    cells = [[format(row[key], heading.split("|")[1]) for key, heading in columns.items()] for row in rows]
    widths = [max(len(line[i]) for line in [heads, *cells]) for i in range(len(heads))]
    for line in [heads, ["-" * width for width in widths], *cells]:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
