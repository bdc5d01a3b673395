"""`gmip attacks`: the attacks, and what each needs; `gmip app`: the calculator in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gmip._validate import listed
from gmip.cli.options import Count, Option, Settings, from_settings


@from_settings(Settings)
def attacks(asked: Settings) -> None:
    """List the attacks and what an attacker needs for each.

    Example: gmip attacks
    """
    from gmip.attacks import attack_table as known

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


class AppSettings(Settings):
    """Settings of `gmip app`."""

    folder: Annotated[
        str | None,
        Option("FOLDER", argument=True),
        Field(description="Folder with audits, which the page Audits lists and opens."),
    ] = None
    port: Annotated[
        Count | None, Option("N"), Field(description="Port on this machine (default 8642, or a free one).")
    ] = None
    no_browser: Annotated[bool, Option(), Field(description="Only print the address.")] = False


@from_settings(AppSettings)
def app(asked: AppSettings) -> None:
    """Open the calculator in the browser, and audit files there.

    Move the sizes of a run and see how exposed it is; or drop a file of scores
    or predictions and see the verdict. Only this machine can reach it, at
    127.0.0.1. Ctrl-C ends it.

    Example: gmip app runs/
    """
    from gmip.app import serve

    serve(
        None if asked.folder is None else Path(asked.folder),
        port=asked.port,
        browser=not asked.no_browser,
        say=lambda text: print(text, flush=True),
    )
