"""Reads numbers from what was typed. Every complaint names the option, the value and the remedy."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeVar

from gmip._validate import did_you_mean
from gmip.cli.errors import BadRequest

T = TypeVar("T", bound=str)

MAX_COUNT = 10**18


def count(option: str, text: str) -> int:
    """A whole number from 1 to MAX_COUNT: 48000, 48_000 or 4.8e4."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal("nan")
    if not (value.is_finite() and 1 <= value <= MAX_COUNT and value == value.to_integral_value()):
        raise _refused(option, "a whole number from 1 to 1e18", text, "48000")
    return int(value)


def _within(allowed: Callable[[float], bool], what: str, example: str) -> Callable[..., float]:
    """A reader of numbers that are `allowed`; `what` they are can be said otherwise."""

    def read(option: str, text: str, what: str = what) -> float:
        value = _float(text)
        if not allowed(value):
            raise _refused(option, what, text, example)
        return value

    return read


positive: Final = _within(lambda x: 0.0 < x < math.inf, "a finite number above 0", "0.5")
non_negative: Final = _within(lambda x: 0.0 <= x < math.inf, "a finite number, 0 or more", "0.5")
probability: Final = _within(lambda x: 0.0 <= x <= 1.0, "a number from 0 to 1", "0.01")
delta: Final = _within(lambda x: 0.0 < x < 1.0, "a number between 0 and 1", "1e-6")


def seed(option: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 40):
        raise _refused(option, "a whole number from 0", text, "1")
    return int(text)


def optimizer(option: str, text: str) -> tuple[str, dict[str, Any]]:
    """A name, and NAME=VALUE pairs after commas; a value is JSON (0.9, true, [0.9, 0.99]) or plain text."""
    name, *pairs = re.split(r",(?![^\[]*\])", text)
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not (equals and key.isidentifier()) or key in found:
            raise _refused(option, "NAME,OPTION=VALUE,..., each option once", text, "SGD,momentum=0.9")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return name.strip(), found


def columns(
    option: str, texts: Sequence[str], roles: Sequence[str], *, of_values: bool = False
) -> dict[str, list[str]]:
    """Names by role, from ROLE=NAME; with `of_values` a role may say of which value or class, as member:train."""
    found: dict[str, list[str]] = {}
    for text in texts:
        said, equals, name = text.partition("=")
        if not (equals and name):
            raise BadRequest(
                f"must be ROLE=NAME, not {text!r}", argument=option, remedy=f"write such as {roles[0]}=NAME"
            )
        role, colon, value = said.partition(":") if of_values else (said, "", "")
        found.setdefault(one_of(option, role, roles) + colon + value, []).append(name)
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
