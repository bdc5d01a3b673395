"""Printing: JSON for programs, a small table and a sentence for people."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gmip import _numbers

__all__ = ["print_json", "print_people"]


def print_json(answer: Mapping[str, Any]) -> None:
    print(json.dumps(_encoded(answer), indent=2, allow_nan=False))


def _encoded(value: Any) -> Any:
    """JSON has no infinity: the string "Infinity", which float() and JavaScript's Number() read."""
    if isinstance(value, float):
        return ("Infinity" if value > 0 else "-Infinity") if math.isinf(_numbers.real(value)) else value
    if isinstance(value, Mapping):
        return {key: _encoded(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encoded(entry) for entry in value]
    return value


def print_people(rows: Sequence[tuple[str, str]], sentence: str, assumptions: Sequence[str]) -> None:
    """A table of names and values, the one sentence to remember, and what it rests on."""
    console = Console(highlight=False)
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    console.print(table)
    console.print(Text(sentence, style="bold"), soft_wrap=True)
    notes = Table.grid(padding=(0, 1))
    for assumption in assumptions:
        notes.add_row(Text("-", style="dim"), Text(assumption, style="dim"))
    console.print(notes)
