"""fingerprint: what it is made of, and what it tells apart."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from gmip.errors import InvalidArgument
from gmip.trace import fingerprint


def test_known_answer() -> None:
    array = np.array([[1.0, 2.0, 3.0]])
    text = b"<f8(1, 3)" + bytes.fromhex("000000000000f03f00000000000000400000000000000840")
    assert fingerprint(array) == hashlib.sha256(text).hexdigest()
    assert fingerprint() == hashlib.sha256(b"").hexdigest()


@pytest.mark.parametrize(
    "other",
    [
        [np.array([1, 2, 3, 5])],
        [np.array([[1, 2], [3, 4]])],
        [np.array([1, 2, 3, 4], dtype=np.int32)],
        [np.array([1.0, 2.0, 3.0, 4.0])],
        [np.array([1, 2]), np.array([3, 4])],
        [np.array([4, 3, 2, 1])],
        [np.array([1, 2, 3, 4]), np.zeros(0)],
    ],
)
def test_tells_apart(other: list[np.ndarray]) -> None:
    assert fingerprint(*other) != fingerprint(np.array([1, 2, 3, 4]))


def test_shape_counts_even_for_one_number() -> None:
    assert len({fingerprint(np.array(1.0)), fingerprint(np.array([1.0])), fingerprint(np.array([[1.0]]))}) == 3


def test_memory_layout_does_not_count() -> None:
    array = np.arange(12.0).reshape(3, 4)
    assert fingerprint(np.asfortranarray(array)) == fingerprint(array)
    assert fingerprint(np.repeat(array, 2, axis=1)[:, ::2]) == fingerprint(array)
    assert fingerprint(array.tolist()) == fingerprint(array)


@pytest.mark.parametrize("array", [np.array([True, False]), np.array([1 + 2j]), np.array(["a", "b"]), np.zeros((0, 3))])
def test_any_kind_of_array(array: np.ndarray) -> None:
    assert fingerprint(array) == fingerprint(array.copy())
    assert len(fingerprint(array)) == 64


def test_refuses_objects() -> None:
    with pytest.raises(InvalidArgument, match="object"):
        fingerprint(np.array([{}, []], dtype=object))
