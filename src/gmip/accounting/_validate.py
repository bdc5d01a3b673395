"""Validators: one sentence that names the argument, the value and the remedy; all in this one place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gmip.errors import InvalidArgument

MAX_COUNT = 10**15

__all__ = [
    "count",
    "non_negative",
    "number",
    "one_of",
    "positive",
    "positive_array",
    "probability",
    "probability_array",
    "susceptibilities",
]


def number(name: str, value: Any) -> float:
    """A real number that is not NaN (infinity is left to the caller)."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InvalidArgument(f"{name} must be a number, not {value!r}: pass a plain int or float.")
    try:
        result = float(value)
    except OverflowError:
        raise InvalidArgument(f"{name} = {value} is too large for a float: pass a smaller number.") from None
    if math.isnan(result):
        raise InvalidArgument(f"{name} is NaN: pass a real number.")
    return result


def positive(name: str, value: Any) -> float:
    result = number(name, value)
    if not 0.0 < result < math.inf:
        raise InvalidArgument(f"{name} = {value} must be positive and finite: pass a number above 0.")
    return result


def non_negative(name: str, value: Any) -> float:
    result = number(name, value)
    if not 0.0 <= result < math.inf:
        raise InvalidArgument(f"{name} = {value} must be finite and not negative: pass 0 or more.")
    return result


def count(name: str, value: Any) -> int:
    """An integer from 1 to 1e15; integral floats such as 1e6 are taken."""
    result = number(name, value)
    if not (math.isfinite(result) and result >= 1 and result == math.floor(result)):
        raise InvalidArgument(f"{name} = {value} must be a whole number of at least 1.")
    if result > MAX_COUNT:
        raise InvalidArgument(f"{name} = {value} is more than this accountant handles: pass at most 1e15.")
    return int(value)


def probability(name: str, value: Any, *, open_low: bool = False, open_high: bool = False) -> float:
    """A number in [0, 1], the ends left out where said."""
    result = number(name, value)
    low_ok = result > 0.0 if open_low else result >= 0.0
    high_ok = result < 1.0 if open_high else result <= 1.0
    if not (low_ok and high_ok):
        interval = f"{'(' if open_low else '['}0, 1{')' if open_high else ']'}"
        raise InvalidArgument(f"{name} = {value} must lie in {interval}: pass a probability.")
    return result


def one_of(name: str, value: Any, options: Sequence[str]) -> str:
    if value not in options:
        raise InvalidArgument(f"{name} = {value!r} is not known: pass one of {', '.join(map(repr, options))}.")
    return str(value)


def _array(name: str, value: ArrayLike) -> NDArray[np.float64]:
    try:
        result = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgument(f"{name} must be a number or an array of numbers, not {type(value).__name__}.") from None
    return result


def positive_array(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """A non-empty array of shape (n,) of positive finite numbers."""
    result = np.atleast_1d(_array(name, value))
    if result.ndim != 1 or result.size == 0:
        raise InvalidArgument(f"{name} must be a non-empty one-dimensional array, not one of shape {result.shape}.")
    bad = ~((result > 0.0) & np.isfinite(result))
    if bad.any():
        raise InvalidArgument(
            f"{name} has {int(bad.sum())} entries that are not positive and finite, the first is {result[bad][0]}: "
            "drop or mend them."
        )
    return result


def probability_array(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """An array of any shape with entries in [0, 1]."""
    result = _array(name, value)
    bad = ~((result >= 0.0) & (result <= 1.0))
    if bad.any():
        first = np.atleast_1d(result)[np.atleast_1d(bad)][0]
        raise InvalidArgument(f"{name} = {first} must lie in [0, 1]: pass a probability.")
    return result


def susceptibilities(value: ArrayLike) -> NDArray[np.float64]:
    """One or more susceptibilities, array of shape (n,)."""
    result = positive_array("susceptibility", value)
    if result.min() < 1.0e-9 or result.max() > 1.0e18:
        raise InvalidArgument(
            f"susceptibility from {result.min():g} to {result.max():g} is out of range: pass values from 1e-9 to 1e18."
        )
    return result
