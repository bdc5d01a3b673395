"""How far long work is: one bar for each stage on a terminal, one line for each elsewhere, all on standard error."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from gmip.errors import GmipWarning

__all__ = ["stages", "warnings_in_one_line"]

Stage = Callable[[int, int], None]


@contextlib.contextmanager
def stages() -> Iterator[Callable[[str], Stage]]:
    """Gives a function that opens a stage by its name, and itself gives what the stage reports (done, total) to."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _line
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bars:

        def begin(words: str) -> Stage:
            task = bars.add_task(words, total=None)
            return lambda done, total: bars.update(task, completed=done, total=total)

        yield begin


def _line(words: str) -> Stage:
    print(words, file=sys.stderr, flush=True)
    return lambda done, total: None


@contextlib.contextmanager
def warnings_in_one_line() -> Iterator[None]:
    """Warnings for the user, one line each on standard error."""

    def shown(message: Any, *rest: Any, **more: Any) -> None:
        print(f"Warning: {' '.join(str(message).split())}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", GmipWarning)
        warnings.showwarning = shown
        yield
