"""Printing: JSON for programs, a small table and a sentence for people.

What is printed for people is rounded in the safe direction: bounds on the attacker and noise up, budgets down.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["percent", "percent_exact", "print_json", "print_people", "round_down", "round_up"]


def round_up(value: float, digits: int = 3) -> str:
    """`digits` significant digits, never below the value."""
    return _rounded(_decimal(value), digits, ROUND_CEILING)


def round_down(value: float, digits: int = 3) -> str:
    """`digits` significant digits, never above the value."""
    return _rounded(_decimal(value), digits, ROUND_FLOOR)


def percent(share: float) -> str:
    """A bound on a share as a percentage, three significant digits, rounded up but never beyond 100%."""
    if share >= 1.0:
        return "100%"
    return _rounded(_decimal(share) * 100, 3, ROUND_CEILING) + "%"


def percent_exact(share: str | float) -> str:
    """A rate as it was typed, as a percentage."""
    value = Decimal(str(share).strip()) * 100
    return _plain(value.normalize()) + "%"


def _real(value: float) -> float:
    """The value unless it is NaN, which is what an overflow on the way leaves: no answer at all."""
    if math.isnan(value):
        raise OverflowError("not a number")
    return float(value)


def _decimal(value: float) -> Decimal:
    """The shortest decimal that reads back as this float: 1.3, not 1.3000000000000000444."""
    return Decimal(repr(_real(value)))


def _rounded(value: Decimal, digits: int, rounding: str) -> str:
    if value.is_infinite():
        return "infinite"
    if value == 0:
        return "0"
    rounded = value.quantize(Decimal(1).scaleb(value.adjusted() - digits + 1), rounding=rounding)
    if rounded.adjusted() > value.adjusted():  # 9.991 became 10.00: one digit less
        rounded = rounded.quantize(Decimal(1).scaleb(rounded.adjusted() - digits + 1))
    return _plain(rounded)


def _plain(value: Decimal) -> str:
    """Without an exponent where people can read it."""
    if -7 < value.adjusted() < 7:
        return f"{value:f}"
    return f"{value.normalize():e}".replace("e+", "e")


def print_json(answer: Mapping[str, Any]) -> None:
    print(json.dumps(_encoded(answer), indent=2, allow_nan=False))


def _encoded(value: Any) -> Any:
    """JSON has no infinity: the string "Infinity", which float() and JavaScript's Number() read."""
    if isinstance(value, float):
        return ("Infinity" if value > 0 else "-Infinity") if math.isinf(_real(value)) else value
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
