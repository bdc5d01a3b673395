"""How long work tells how far it is: one protocol for training, attacks, shadow models, audits and experiments."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """Called with how much of a piece of work is done, out of how much."""

    def __call__(self, done: int, total: int, /) -> None: ...


class Watch(Protocol):
    """Called with the name of each stage of long work; returns that stage's own progress."""

    def __call__(self, stage: str, /) -> Progress: ...


def silent(stage: str, /) -> Progress:
    """A watch that does nothing."""
    return lambda done, total: None


@contextmanager
def bars(otherwise: Watch = silent) -> Iterator[Watch]:
    """A bar on standard error for each stage, where that is a terminal; else `otherwise`."""
    if not sys.stderr.isatty():
        yield otherwise
        return
    from rich import progress as rich
    from rich.console import Console

    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TimeElapsedColumn(),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns, console=Console(stderr=True)) as shown:

        def begin(stage: str, /) -> Progress:
            bar = shown.add_task(stage, total=None)
            return lambda done, total: shown.update(bar, completed=done, total=total)

        yield begin
