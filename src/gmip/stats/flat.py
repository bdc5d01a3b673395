"""Flat vectors of all parameters, of which a part at a time is in memory in double precision.

Those of a large model are gigabytes each, and a recorded one lies in a mapped file: what is computed of them (products,
norms, sums of squares) goes through them block by block, and pages of the file are given back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gmip._io import give_back

Array = NDArray[np.float64]
BLOCK: Final = 2**22  # entries; sums over vectors of no more are those of NumPy


class Flat:
    """A vector of length d, such as a recorded gradient, or a combination of some: what it is made of is not copied."""

    __array_ufunc__ = None  # a NumPy number times a Flat is a Flat

    def __init__(self, size: int, part: Callable[[slice], Array], given: Sequence[NDArray[Any]]) -> None:
        """`part` : its entries at some places. `given` : the arrays that it is made of."""
        self._size, self._part, self._given = size, part, tuple(given)

    @classmethod
    def of(cls, values: NDArray[Any] | Flat) -> Flat:
        """These values, shape (d,), of any precision."""
        if isinstance(values, Flat):
            return values
        return cls(len(values), lambda place: np.asarray(values[place], dtype=np.float64), [values])

    @classmethod
    def later(cls, size: int, values: Callable[[], NDArray[Any]]) -> Flat:
        """Values that are computed when they are asked for, each time."""
        return cls(size, lambda place: np.asarray(values()[place], dtype=np.float64), [])

    def kept(self) -> Flat:
        """A long vector that is computed later: computed now, in single precision. Any other: itself."""
        return (
            self if self._given or self._size <= BLOCK else Flat.of(self._part(slice(0, self._size)).astype(np.float32))
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Flat.of, (self.array(),)

    def __len__(self) -> int:
        return self._size

    def part(self, place: slice) -> Array:
        """Its entries there, not to be written to."""
        return self._part(place)

    def array(self) -> Array:
        """All entries."""
        return self.part(slice(0, self._size))

    def blocks(self, place: slice | None = None) -> Iterator[slice]:
        """Places from the first to the last of them, in order; None: all."""
        start, stop = (0, self._size) if place is None else (place.start, place.stop)
        for first in range(start, stop, BLOCK):
            yield slice(first, min(first + BLOCK, stop))
        self.rest()

    def rest(self) -> None:
        """Gives memory back that is only a copy of what is in a file; what is asked for again is read again."""
        if self._size > BLOCK:
            for array in self._given:
                give_back(array)

    def __sub__(self, other: Flat) -> Flat:
        return Flat(self._size, lambda place: self.part(place) - other.part(place), (*self._given, *other._given))

    def __mul__(self, factor: float) -> Flat:
        return Flat(self._size, lambda place: self.part(place) * factor, self._given)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Flat:
        return Flat(self._size, lambda place: self.part(place) / divisor, self._given)

    def __matmul__(self, other: Flat) -> float:
        found = [float(self.part(place) @ other.part(place)) for place in self.blocks()]
        other.rest()
        return math.fsum(found)

    @property
    def norm(self) -> float:
        return math.hypot(*(float(np.linalg.norm(self.part(place))) for place in self.blocks()))

    def squares(self, place: slice) -> float:
        """Sum of the squares there."""
        return math.fsum(float(part @ part) for part in map(self.part, self.blocks(place)))

    def is_finite(self) -> bool:
        return all(bool(np.isfinite(self.part(place)).all()) for place in self.blocks())
