"""How far long work is: one bar for each stage on a terminal, one line for each elsewhere, all on standard error."""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any, Final

from gmip._progress import Progress, Watch, bars
from gmip.errors import GmipWarning

__all__ = ["stages", "warnings_in_one_line"]

_EVERY: Final = 30.0  # seconds


def stages() -> contextlib.AbstractContextManager[Watch]:
    """Gives the watch of a command."""
    return bars(otherwise=_line)


def _line(stage: str, /) -> Progress:
    """One line for a stage, and how far it is every half minute."""
    print(stage, file=sys.stderr, flush=True)
    begun = said = time.monotonic()

    def tell(done: int, total: int, /) -> None:
        nonlocal said
        now = time.monotonic()
        if done and now - said >= _EVERY:
            said = now
            left = (now - begun) / done * (total - done)
            print(f"{stage}: {done} of {total}, about {_span(left)} left", file=sys.stderr, flush=True)

    return tell


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90.0 else f"{seconds / 60.0:.0f} min"


@contextlib.contextmanager
def warnings_in_one_line() -> Iterator[None]:
    """Warnings for the user, one line each on standard error."""

    def shown(message: Any, *rest: Any, **more: Any) -> None:
        print(f"Warning: {' '.join(str(message).split())}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", GmipWarning)
        warnings.showwarning = shown
        yield
