"""Printing: JSON for programs; for people the answer in one sentence, a small table, and what it assumes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gmip import _numbers
from gmip.accounting.tradeoff import TradeOff

__all__ = ["one_line", "print_answer", "print_json", "print_people"]


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


def print_answer(rows: Sequence[tuple[str, str]], sentence: str, curve: TradeOff, *, explain: bool) -> None:
    """An answer of the accountant, and in one line what it is and for whom; with `explain` also what it assumes."""
    print_people(rows, sentence, curve.assumptions if explain else (), one_line(curve, explained=explain))


def one_line(curve: TradeOff, *, explained: bool = False) -> str:
    """What the numbers of a curve are, and for whom."""
    kind = "a bound" if curve.kind == "bound" else "a forecast, not a bound"
    caveat = "" if curve.claim.caveat is None else f" {curve.claim.caveat}"
    return f"For {curve.for_whom}; {kind}.{caveat} {'It assumes:' if explained else '--explain lists what it assumes.'}"


def print_people(rows: Sequence[tuple[str, str]], sentence: str, notes: Sequence[str], line: str | None = None) -> None:
    """The answer in one sentence, a table of names and values, one line on what they are, and notes."""
    console = Console(highlight=False)
    console.print(Text(sentence, style="bold"), soft_wrap=True)
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    console.print(table)
    if line is not None:
        console.print(Text(line), soft_wrap=True)
    if notes:
        bullets = Table.grid(padding=(0, 1))
        for note in notes:
            bullets.add_row(Text("-", style="dim"), Text(note, style="dim"))
        console.print(bullets)
