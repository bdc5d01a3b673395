"""Printing: JSON for programs; for people the answer in one sentence, a small table, and what it assumes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from gmip import _numbers
from gmip.accounting.claims import standing
from gmip.accounting.tradeoff import DEFAULT_FPR_RANGE, TradeOff

__all__ = ["claim_as_json", "one_line", "print_answer", "print_json", "print_people"]


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


def claim_as_json(curve: TradeOff) -> dict[str, Any]:
    """What a curve claims, and how far its numbers reach."""
    return {
        "kind": curve.kind,
        "for_whom": curve.for_whom,
        "caveat": curve.claim.caveat,
        "adjacency": curve.claim.adjacency,
        "not_a_member": curve.claim.not_a_member,
        "mu_fpr_range": list(DEFAULT_FPR_RANGE),
        "tpr_error": curve.tpr_error,
        "assumptions": list(curve.assumptions),
    }


def print_answer(
    rows: Sequence[tuple[str, str]], clause: str, curve: TradeOff, *, explain: bool, beside: TradeOff | None = None
) -> None:
    """An answer of the accountant and for whom it holds, and in one line what it is; with `explain` also what it
    assumes. `beside` is another curve whose numbers are in the table."""
    line = one_line(curve, explained=explain)
    if beside is not None and beside.claim.caveat is not None:
        line = f"Differential privacy here: {beside.claim.caveat}\n{line}"
    print_people(rows, f"{clause}, for {curve.for_whom}.", curve.assumptions if explain else (), line)


def one_line(curve: TradeOff, *, explained: bool = False) -> str:
    """What the numbers of a curve are, and the caveat that must not be left out."""
    return f"{standing(curve)} {'It assumes:' if explained else '--explain lists what it assumes.'}"


def print_people(rows: Sequence[tuple[str, str]], sentence: str, notes: Sequence[str], line: str | None = None) -> None:
    """The answer in one sentence, a table of names and values, one line on what they are, and notes."""
    from rich.console import Console  # not for programs, who read JSON
    from rich.table import Table
    from rich.text import Text

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
