"""A short name for the contents of arrays, so that an audit against other data than the run's is noticed."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import ArrayLike

from gmip.errors import InvalidArgument

__all__ = ["fingerprint"]


def fingerprint(*arrays: ArrayLike) -> str:
    """SHA-256 over dtype, shape and contents of the arrays, in order (hex, 64 characters)."""
    digest = hashlib.sha256()
    for array in arrays:
        array = np.asarray(array, order="C")
        if array.dtype.hasobject:
            raise InvalidArgument(f"arrays must hold numbers or text of fixed length, not {array.dtype}: convert them.")
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
