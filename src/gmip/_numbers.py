"""Numbers for people, in one format wherever they are shown: report, command line, notebooks, messages.

Every call says how it rounds: "up" for what holds at most (a bound, the noise to add), "down" for what holds at least
(a measured lower bound, a budget), "nearest" for a plain measurement. Three significant digits unless the caller needs
more; trailing zeros are dropped.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from typing import Final, Literal

Rounding = Literal["up", "down", "nearest"]
_MODES: Final = {"nearest": ROUND_HALF_EVEN, "up": ROUND_CEILING, "down": ROUND_FLOOR}
_DIGITS: Final = 3


def number(value: float, rounding: Rounding, digits: int = _DIGITS) -> str:
    """`digits` significant digits; an exponent only where people could not count the zeros."""
    return _rounded(_decimal(value), rounding, digits)


def setting(value: float) -> str:
    """What somebody set (a clip norm, a learning rate): five digits, so that it can be copied."""
    return number(value, "nearest", 5)


def noise(value: float) -> str:
    """The noise of a run (std or multiplier): five digits, rounded up, so that whoever copies it keeps a target."""
    return number(value, "up", 5)


def percent(share: float, rounding: Rounding) -> str:
    """A share as a percentage. Only rounding up turns what is not all into 100%, and nothing into more than that."""
    value = min(_decimal(share) * 100, Decimal(100))
    text = _rounded(value, rounding, _DIGITS)
    if text == "100" and value < 100 and rounding == "nearest":
        return f"over {_rounded(value, 'down', _DIGITS)}%"
    return f"{text}%"


def rate(share: str | float) -> str:
    """A rate as it was asked for, unrounded, as a percentage: "0.001" -> "0.1%"."""
    return _rounded(Decimal(str(share).strip()) * 100, "nearest", 12) + "%"


def rate_key(fpr: float) -> str:
    """How results name a false-alarm rate in their keys: 0.001 -> "0.001"."""
    return f"{fpr:g}"


def chance(probability: float) -> str:
    """A p-value as a percentage, rounded up."""
    return "below 0.01%" if probability < 1.0e-4 else percent(probability, "up")


def interval(lower: float, upper: float, *, share: bool) -> str:
    """ "8.1% to 14.1%" or "0.678 to 0.722", rounded outwards."""
    write = percent if share else number
    return f"{write(lower, 'down')} to {write(upper, 'up')}"


def count(value: int) -> str:
    return f"{value:,}"


def byte_size(size: float) -> str:
    """A number of bytes, such as '1.5 GiB'."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def duration(seconds: float) -> str:
    if seconds < 0.1:
        return "under 0.1 s"
    if seconds < 60:
        return f"{number(seconds, 'nearest', 2)} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def real(value: float) -> float:
    """The value unless it is NaN, which an overflow on the way leaves: then there is no answer to show."""
    if math.isnan(value):
        raise OverflowError("not a number")
    return float(value)


def _decimal(value: float) -> Decimal:
    """The shortest decimal that reads back as this float: 1.3 rounded up stays 1.3."""
    return Decimal(repr(real(value)))


def _rounded(value: Decimal, rounding: Rounding, digits: int) -> str:
    if value.is_infinite():
        return "infinite" if value > 0 else "-infinite"
    if value == 0:
        return "0"
    rounded = value.quantize(Decimal(1).scaleb(value.adjusted() - digits + 1), rounding=_MODES[rounding]).normalize()
    if -5 <= rounded.adjusted() < 7:
        return f"{rounded:f}"
    return f"{rounded:e}".replace("e+", "e")


def typed(value: float) -> str:
    """A number as somebody would type it, exactly."""
    return repr(float(value)).removesuffix(".0")
