"""How far long work is: one bar for each stage on a terminal, one line for each elsewhere, all on standard error."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any, Final

from gmip._progress import Progress, Watch, bars
from gmip.errors import GmipWarning

__all__ = ["patience", "stages", "warnings_in_one_line"]

_EVERY: Final = 30.0  # seconds
_SOON: Final = 4.0  # until silence needs a reason


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


@contextlib.contextmanager
def patience(reason: str) -> Iterator[None]:
    """Work that may take long and cannot tell how far it is: after some seconds its reason, then how long it took."""
    done = threading.Event()

    def tell() -> None:
        begun, wait = time.monotonic(), _SOON
        while not done.wait(wait):
            past = time.monotonic() - begun
            print(f"{reason} ({_span(past)} so far).", file=sys.stderr, flush=True)
            wait = max(_EVERY, past)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


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
