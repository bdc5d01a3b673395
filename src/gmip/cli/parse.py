"""From what was typed to numbers. Every complaint names the option, the value and the remedy."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gmip._validate import did_you_mean
from gmip.cli.errors import BadRequest

__all__ = [
    "MAX_COUNT",
    "count",
    "delta",
    "epsilon_at_delta",
    "non_negative",
    "number_file",
    "one_of",
    "positive",
    "probability",
    "seed",
    "settings",
]

T = TypeVar("T", bound=str)

MAX_COUNT = 10**18
_NPY_MAGIC = b"\x93NUMPY"
_FORMATS = "pass text with one number a line, or a .npy file"


def count(option: str, text: str) -> int:
    """A whole number from 1 to MAX_COUNT: 48000, 48_000 or 4.8e4."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal("nan")
    if not (value.is_finite() and 1 <= value <= MAX_COUNT and value == value.to_integral_value()):
        raise _refused(option, "a whole number from 1 to 1e18", text, "48000")
    return int(value)


def positive(option: str, text: str, what: str = "a finite number above 0") -> float:
    value = _float(text)
    if not 0.0 < value < math.inf:
        raise _refused(option, what, text, "0.5")
    return value


def non_negative(option: str, text: str) -> float:
    value = _float(text)
    if not 0.0 <= value < math.inf:
        raise _refused(option, "a finite number, 0 or more", text, "0.5")
    return value


def probability(option: str, text: str) -> float:
    value = _float(text)
    if not 0.0 <= value <= 1.0:
        raise _refused(option, "a number from 0 to 1", text, "0.01")
    return value


def delta(option: str, text: str) -> float:
    value = _float(text)
    if not 0.0 < value < 1.0:
        raise _refused(option, "a number between 0 and 1", text, "1e-6")
    return value


def epsilon_at_delta(option: str, text: str) -> tuple[float, float]:
    """EPS@DELTA, such as 3@1e-5; EPS alone has a delta of 0."""
    left, at, right = text.partition("@")
    epsilon, delta = _float(left), _float(right) if at else 0.0
    if not (0.0 <= epsilon < math.inf and 0.0 <= delta <= 1.0):
        raise _refused(option, "EPS@DELTA, an epsilon of 0 or more and a delta from 0 to 1", text, "3@1e-5")
    return epsilon, delta


def seed(option: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 40):
        raise _refused(option, "a whole number from 0", text, "1")
    return int(text)


def settings(option: str, texts: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE pairs; a value is JSON (0.9, true, [0.9, 0.99]) or plain text."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (equals and name.isidentifier()) or name in found:
            raise _refused(option, "NAME=VALUE, each name once", text, "momentum=0.9")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def one_of(option: str, text: str, options: Sequence[T]) -> T:
    for known in options:
        if text == known:
            return known
    raise BadRequest(f"must be one of {', '.join(options)}, not {text!r}{did_you_mean(text, options)}", argument=option)


def _refused(option: str, what: str, text: str, example: str) -> BadRequest:
    return BadRequest(f"must be {what}, not {text!r}", argument=option, remedy=f"pass one such as {example}")


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


# -- files --


def number_file(option: str, path: str) -> NDArray[np.float64]:
    """Positive numbers, array of shape (n,), from a .npy file or a text file with one number a line.

    A text file may start with a line of column name, as CSV does; blank lines are skipped. Nothing is ever unpickled.
    """
    try:
        content = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a valid path"
        raise _bad_file(option, path, f"cannot be read ({reason.lower()})", _FORMATS) from None
    entries = _npy(option, path, content) if content.startswith(_NPY_MAGIC) else _text(option, path, content)
    if not entries:
        raise _bad_file(option, path, "holds no numbers", "pass a file with at least one")
    for place, shown, value in entries:
        if not 0.0 < value < math.inf:
            problem = f"has {shown} in {place}, which is not a positive finite number"
            raise _bad_file(option, path, problem, "fix or remove it")
    return np.array([value for _, _, value in entries])


def _bad_file(option: str, path: str, problem: str, remedy: str) -> BadRequest:
    return BadRequest(problem, argument=f"{option} {path!r}", remedy=remedy)


def _text(option: str, path: str, content: bytes) -> list[tuple[str, str, float]]:
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        lines = ["\0"]
    if any("\0" in line for line in lines):
        raise _bad_file(option, path, "is neither text nor .npy", _FORMATS)
    entries = [
        (f"line {i}", ascii(line.strip()[:40]), _float(line)) for i, line in enumerate(lines, start=1) if line.strip()
    ]
    name = entries[0][1].strip("'\"") if entries else ""
    return entries[1:] if name.isidentifier() and name.lower() not in ("nan", "inf", "infinity") else entries


def _npy(option: str, path: str, content: bytes) -> list[tuple[str, str, float]]:
    try:
        array = np.load(io.BytesIO(content), allow_pickle=False)
    except Exception:  # a damaged or hostile header raises almost anything, MemoryError included
        array = None
    if array is None or array.dtype.kind not in "fiu" or array.size != max(array.shape, default=1):
        problem = "is not a .npy file of plain numbers in one row"
        raise _bad_file(option, path, problem, "save a one-dimensional float array")
    return [(f"entry {i}", f"{value:g}", value) for i, value in enumerate(array.astype(np.float64).ravel().tolist())]
