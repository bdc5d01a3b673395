"""Arrays that come from outside: shapes and finite entries, one sentence each."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gmip.errors import InvalidArgument

__all__ = ["matrix", "vector"]

Real = NDArray[np.float32] | NDArray[np.float64]


def _reals(name: str, value: ArrayLike) -> Real:
    """float32 stays (wide gradients are stored so), everything else becomes float64."""
    try:
        array = np.asarray(value)
        return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)
    except (TypeError, ValueError):
        raise InvalidArgument(f"must be an array of numbers, not {type(value).__name__}", argument=name) from None


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
    array = _reals(name, value).astype(np.float64, copy=False)
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
