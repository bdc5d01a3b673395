"""`gmip app`: the calculator in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gmip.cli import parse
from gmip.cli.errors import needs_extra

__all__ = ["app"]


def app(
    folder: Annotated[
        str | None,
        typer.Argument(metavar="FOLDER", show_default=False, help="Folder whose audits a second page lists and opens."),
    ] = None,
    port: Annotated[
        str | None,
        typer.Option(
            "--port", metavar="N", help="Port on this machine (default 8642, or a free one).", show_default=False
        ),
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
) -> None:
    """Open a calculator in the browser: move the sizes of a run and see how exposed it is.

    Example: gmip app runs/

    It answers to this machine only, at 127.0.0.1, and ends with Ctrl-C.
    """
    number = None if port is None else parse.count("--port", port)
    with needs_extra("app", "gmip app"):
        from gmip.app import serve
    serve(
        None if folder is None else Path(folder),
        port=number,
        browser=not no_browser,
        say=lambda text: print(text, flush=True),
    )
