"""Printing: JSON for programs; for people the answer in one sentence, a small table, and what it assumes. How far long
work is goes to standard error: one bar for each stage on a terminal, one line for each elsewhere."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gmip import _numbers
from gmip._progress import Progress, Watch, bars
from gmip.accounting.tradeoff import DEFAULT_FPR_RANGE, TradeOff
from gmip.errors import GmipWarning
from gmip.report.account_words import standing
from gmip.vocabulary import PrivacyTarget


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
    rows: Sequence[tuple[str, str]], clause: str, curve: TradeOff, *, explain: bool | None, remarks: Sequence[str] = ()
) -> None:
    """An answer of the accountant and for whom it holds, remarks on the table, and in one line what the answer is; with
    `explain` also what it assumes (None: the command has no such option)."""
    line = "\n".join([*remarks, one_line(curve, explained=explain)])
    print_people(rows, f"{clause}, for {curve.for_whom}.", curve.assumptions if explain else (), line)


def one_line(curve: TradeOff, *, explained: bool | None = False) -> str:
    """What the numbers of a curve are, and the caveat that must not be left out."""
    if explained is None:
        return standing(curve)
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


# -- a privacy target --------------------------------------------------------------------------------------------------


def target_as_json(target: PrivacyTarget) -> dict[str, float]:
    """What must not be exceeded, and where."""
    where = {"fpr": target.rate.fpr} if target.rate is not None else {"delta": target.delta} if target.delta else {}
    return {target.measure: target.value, **where}


# -- how far it is -----------------------------------------------------------------------------------------------------

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
    """Warnings for the user on standard error, one line each, and each once."""

    said: set[str] = set()

    def shown(message: Any, *rest: Any, **more: Any) -> None:
        text = " ".join(str(message).split())
        if text not in said:
            said.add(text)
            print(f"Warning: {text}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", GmipWarning)
        warnings.showwarning = shown
        yield
