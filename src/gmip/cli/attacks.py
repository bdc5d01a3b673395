"""`gmip attacks`: the attacks, and what each needs."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gmip._validate import listed
from gmip.cli import show
from gmip.cli.errors import needs_extra

__all__ = ["attacks"]


def attacks(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """List the attacks and what an attacker needs for each.

    JSON keys: attacks (name -> title, needs, analytical: whether its error
    rates are known in closed form), needs (what each need stands for), note.
    """
    known = _known()
    if json:
        show.print_json(_answer(known))
        return
    console = Console(highlight=False)
    rows = known.table()
    lines = Table.grid(padding=(0, 1))  # more attacks than a terminal has columns for
    for name, title in known.titles().items():
        lines.add_row(Text(name, style="bold"), Text(title))
        if name in known.names():
            needed = [row.what for row in rows[:-1] if row.attacks[name]]
            known_rates = f"; {rows[-1].what}" if rows[-1].attacks[name] else ""
            lines.add_row("", Text(f"needs {listed(needed)}{known_rates}", style="dim"))
    console.print(lines)
    console.print(Text(known.NOTE, style="dim"), soft_wrap=True)


def _answer(known: Any) -> dict[str, Any]:
    from gmip.attacks.attack import NEEDS

    return {
        "attacks": {
            name: {
                "title": known.kind(name).title,
                "needs": [need for need in NEEDS if need in known.kind(name).needs],
                "analytical": known.kind(name).analytical,
            }
            for name in known.names()
        },
        "needs": dict(NEEDS),
        "note": known.NOTE,
    }


def _known() -> Any:
    """The attacks' classes, which say what they need, are torch programs; loaded only when asked for."""
    with needs_extra("train", "gmip attacks"):
        from gmip.attacks import attack_table

        attack_table.table()
    return attack_table
