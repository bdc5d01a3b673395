"""Validators: one sentence that names the argument, the value and the remedy; all in this one place."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gmip.errors import InvalidArgument

MAX_COUNT = 10**15
_BYTES: Final = {"": 1, "B": 1} | {
    f"{prefix}{suffix}": base**power
    for power, prefix in enumerate("KMGT", 1)
    for suffix, base in (("B", 1000), ("IB", 1024))
}
Real = NDArray[np.float32] | NDArray[np.float64]


def number(name: str, value: Any) -> float:
    """A real number that is not NaN (infinity is left to the caller)."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InvalidArgument("must be a number", argument=name, value=value, remedy="pass a plain int or float")
    try:
        result = float(value)
    except OverflowError:
        raise InvalidArgument(
            "is too large for a float", argument=name, value=value, remedy="pass a smaller number"
        ) from None
    if math.isnan(result):
        raise InvalidArgument("is NaN", argument=name, remedy="pass a real number")
    return result


def positive(name: str, value: Any) -> float:
    result = number(name, value)
    if not 0.0 < result < math.inf:
        raise InvalidArgument("must be positive and finite", argument=name, value=value, remedy="pass a number above 0")
    return result


def non_negative(name: str, value: Any) -> float:
    result = number(name, value)
    if not 0.0 <= result < math.inf:
        raise InvalidArgument("must be finite and not negative", argument=name, value=value, remedy="pass 0 or more")
    return result


def count(name: str, value: Any) -> int:
    """An integer from 1 to 1e15; integral floats such as 1e6 are taken."""
    result = number(name, value)
    if not (math.isfinite(result) and result >= 1 and result == math.floor(result)):
        raise InvalidArgument("must be a whole number of at least 1", argument=name, value=value)
    if result > MAX_COUNT:
        raise InvalidArgument(
            "is more than this accountant handles", argument=name, value=value, remedy="pass at most 1e15"
        )
    return int(value)


def byte_count(name: str, value: Any) -> int:
    """A number of bytes from a number, or from a string such as "3 GiB" or "500 MB"."""
    if isinstance(value, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)\s*", value)
        unit = None if found is None else _BYTES.get(found[2].upper())
        if found is None or unit is None:
            raise InvalidArgument(
                "is not an amount of memory", argument=name, value=value, remedy="write it as '3 GiB' or '500 MB'"
            )
        value = float(found[1]) * unit
    return int(positive(name, value))


def batch_within(batch_size: int, dataset_size: int) -> None:
    if batch_size > dataset_size:
        raise InvalidArgument(
            f"exceeds `dataset_size` = {dataset_size}",
            argument="batch_size",
            value=batch_size,
            remedy="lower `batch_size`",
        )


def largest_batch(max_batch_size: int, batch_size: int, sampling: str) -> None:
    """A size to which larger Poisson batches are cut."""
    if sampling != "poisson":
        raise InvalidArgument(
            f"cuts Poisson batches, and `sampling` is {sampling!r}",
            argument="max_batch_size",
            value=max_batch_size,
            remedy="leave it out, or draw 'poisson'",
        )
    if max_batch_size < batch_size:
        raise InvalidArgument(
            f"is below `batch_size` = {batch_size}, the mean",
            argument="max_batch_size",
            value=max_batch_size,
            remedy="raise it: batches should almost never reach it",
        )


def seed(value: Any, name: str = "seed") -> int:
    """A whole number from 0 up, of any size."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise InvalidArgument("must be a whole number from 0 up", argument=name, value=value)
    return int(value)


def instance(name: str, value: Any, kind: type) -> None:
    """Raises unless `value` is of that type."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIO" else "a"
        raise InvalidArgument(
            f"must be {article} {kind.__name__}, not {type(value).__name__}", argument=name, value=value
        )


def fields(of: Any, **checks: type | Sequence[str] | Callable[[str, Any], Any]) -> None:
    """Checks fields of a frozen dataclass: a type is what they must be, a sequence has what they may be, a function of
    name and value returns what is kept. None passes where it is the default."""
    for name, one in checks.items():
        value = getattr(of, name)
        if value is None and of.__dataclass_fields__[name].default is None:
            continue
        if isinstance(one, type):
            instance(name, value, one)
        elif callable(one):
            object.__setattr__(of, name, one(name, value))
        else:
            one_of(name, value, one)


def probability(name: str, value: Any, *, open_low: bool = False, open_high: bool = False) -> float:
    """A number in [0, 1], the ends left out where said."""
    result = number(name, value)
    low_ok = result > 0.0 if open_low else result >= 0.0
    high_ok = result < 1.0 if open_high else result <= 1.0
    if not (low_ok and high_ok):
        interval = f"{'(' if open_low else '['}0, 1{')' if open_high else ']'}"
        raise InvalidArgument(f"must lie in {interval}", argument=name, value=value, remedy="pass a probability")
    return result


above_zero = partial(probability, open_low=True)
inside = partial(probability, open_low=True, open_high=True)  # neither 0 nor 1


def one_of(name: str, value: Any, options: Sequence[str]) -> str:
    if value not in options:
        raise InvalidArgument(
            f"is not known{did_you_mean(value, options)}",
            argument=name,
            value=value,
            remedy=f"pass one of {', '.join(map(repr, options))}",
        )
    return str(value)


def did_you_mean(given: object, known: Iterable[str]) -> str:
    """ ", did you mean 'x'", or nothing where no known name is near."""
    spelled = {name.lower(): name for name in known}
    typed = str(given).lower()
    near = difflib.get_close_matches(typed, spelled, n=1, cutoff=0.6)
    if not near and len(typed) >= 3:
        near = [name for name in spelled if name.startswith(typed)]
    return f", did you mean {spelled[near[0]]!r}" if near else ""


def listed(names: Iterable[str], last: str = "and") -> str:
    """ "a, b and c"."""
    *most, end = names
    return f"{', '.join(most)} {last} {end}" if most else end


def real(value: ArrayLike) -> NDArray[Any]:
    """An array; `TypeError` for complex numbers, of which NumPy would drop half."""
    array = np.asarray(value)
    if np.iscomplexobj(array) or (array.dtype == object and any(isinstance(one, complex) for one in array.flat)):
        raise TypeError
    return array


def _reals(name: str, value: ArrayLike) -> Real:
    """float32 stays (wide gradients are stored so), everything else becomes float64."""
    try:
        array = real(value)
        return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)
    except (TypeError, ValueError):
        raise InvalidArgument(
            f"must be a number or an array of numbers, not {type(value).__name__}", argument=name
        ) from None


def _array(name: str, value: ArrayLike) -> NDArray[np.float64]:
    return _reals(name, value).astype(np.float64, copy=False)


def positive_array(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """A non-empty array of shape (n,) of positive finite numbers."""
    result = np.atleast_1d(_array(name, value))
    if result.ndim != 1 or result.size == 0:
        raise InvalidArgument(
            f"must be a non-empty one-dimensional array, not one of shape {result.shape}", argument=name
        )
    bad = ~((result > 0.0) & np.isfinite(result))
    if bad.any():
        raise InvalidArgument(
            f"has {int(bad.sum())} entries that are not positive and finite, the first is {result[bad][0]}",
            argument=name,
            remedy="drop or fix them",
        )
    return result


def probability_array(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """An array of any shape with entries in [0, 1]."""
    result = _array(name, value)
    bad = ~((result >= 0.0) & (result <= 1.0))
    if bad.any():
        first = np.atleast_1d(result)[np.atleast_1d(bad)][0]
        raise InvalidArgument("must lie in [0, 1]", argument=name, value=first, remedy="pass a probability")
    return result


def susceptibilities(value: ArrayLike) -> NDArray[np.float64]:
    """One or more susceptibilities, array of shape (n,)."""
    result = positive_array("susceptibility", value)
    if result.min() < 1.0e-9 or result.max() > 1.0e18:
        raise InvalidArgument(
            f"has values from {result.min():g} to {result.max():g}, which is out of range",
            argument="susceptibility",
            remedy="pass values from 1e-9 to 1e18",
        )
    return result


def matrix(name: str, value: ArrayLike, *, columns: int | None = None) -> Real:
    """A two-dimensional array of finite numbers, with the number of columns asked for."""
    array = _reals(name, value)
    if array.ndim != 2:
        raise InvalidArgument(
            f"must have two dimensions, one row for each vector, not shape {array.shape}", argument=name
        )
    if columns is not None and array.shape[1] != columns:
        raise InvalidArgument(
            f"has {array.shape[1]} columns where {columns} are needed",
            argument=name,
            remedy="take all gradients over the same parameters",
        )
    bad = ~np.isfinite(array).all(axis=1)
    if bad.any():
        raise InvalidArgument(
            f"has {int(bad.sum())} rows with NaN or infinite entries, the first is row {int(bad.argmax())}",
            argument=name,
            remedy="drop or fix them",
        )
    return array


def vector(name: str, value: ArrayLike, *, length: int | None = None) -> NDArray[np.float64]:
    """A one-dimensional float64 array of finite numbers, of the length asked for."""
    array = _array(name, value)
    if array.ndim != 1:
        raise InvalidArgument(f"must have one dimension, not shape {array.shape}", argument=name)
    if length is not None and array.size != length:
        raise InvalidArgument(f"has {array.size} entries where {length} are needed", argument=name)
    bad = ~np.isfinite(array)
    if bad.any():
        raise InvalidArgument(
            f"has {int(bad.sum())} NaN or infinite entries, the first at position {int(bad.argmax())}",
            argument=name,
            remedy="drop or fix them",
        )
    return array


def fields_at(model: Any, place: Iterable[int | str]) -> list[str]:
    """The fields of the pydantic model at a place in another, such as ("runs", 0)."""
    for part in place:
        if part in model.model_fields:
            model = next(iter(_models_in(model.model_fields[part].annotation)), model)
    return list(model.model_fields)


def _models_in(annotation: Any) -> list[Any]:
    if hasattr(annotation, "model_fields"):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]
