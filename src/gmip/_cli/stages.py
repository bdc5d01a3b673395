"""How far long work is: one bar for each stage on a terminal, one line for each elsewhere, all on standard error."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from gmip._progress import Progress, Watch, bars
from gmip.errors import GmipWarning

__all__ = ["stages", "warnings_in_one_line"]


def stages() -> contextlib.AbstractContextManager[Watch]:
    """Gives the watch of a command."""
    return bars(otherwise=_line)


def _line(stage: str, /) -> Progress:
    print(stage, file=sys.stderr, flush=True)
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
