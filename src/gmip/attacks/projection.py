"""A random projection to few dimensions that costs no more than reading the vector.

The coordinates are cut into blocks of k. Each coordinate gets a random sign, each block is turned by a random number of
places, and the blocks are added up: y = sum over blocks b of turn(s_b x_b, c_b). That is a CountSketch (Charikar, Chen
and Farach-Colton 2002) whose buckets are equally full. For any x, y, over the random signs and turns:

    E <Rx, Ry> = <x, y>
    Var <Rx, Ry> = ( |x|^2 |y|^2 + <x, y>^2 - sum_b (|x_b|^2 |y_b|^2 + <x_b, y_b>^2) ) / k

since two coordinates of different blocks fall together with probability 1/k, and two of one block never.

Why this one: it takes D additions for a vector, where a dense projection takes D k and a Hadamard one D log D; it
stores D signs; memory is read in order, which random permutations of the blocks would spoil; and its rows are
orthogonal, so that independent noise stays independent noise, on which a likelihood ratio relies.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gmip import _validate as check
from gmip.errors import InvalidArgument

__all__ = ["Projection"]

# Constants of SplitMix64 (Steele, Lea and Flood 2014), written out here because NumPy does not promise that its
# generators give the same numbers in the next version; of SeedSequence, which starts it, it does.
_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX: Final = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
_LAST_SHIFT: Final = np.uint64(31)


class Projection:
    """R: R^size -> R^dims, linear, the same on every machine for the same (size, dims, seed).

    Guarantees
    ----------
    Inner products are kept on average, with the variance given above: the error of <Rx, Ry> relative to |x||y| has a
    standard deviation of at most sqrt(2/dims). R R' is diagonal with the squares of `row_norms` on it: independent
    noise of standard deviation s on the entries of x is the same of standard deviation s row_norms on those of Rx.
    """

    def __init__(self, size: int, dims: int, *, seed: int = 0) -> None:
        self.size, self.dims = check.count("size", size), check.count("dims", dims)
        if self.dims >= self.size:
            raise InvalidArgument(
                f"projection to {self.dims} dimensions is no reduction of {self.size}: lower it, or do without."
            )
        self.seed = check.seed(seed)
        starts = np.random.SeedSequence([self.seed, self.size, self.dims]).generate_state(2, np.uint64)
        signs = np.where(_random_bits(starts[0], self.size) >> np.uint64(63), 1, -1)
        self._signs = torch.from_numpy(signs.astype(np.int8))
        # The remainder prefers small turns by 1 in 2^64/dims: nothing that could be seen.
        turns = _random_bits(starts[1], -(-self.size // self.dims)) % np.uint64(self.dims)
        self._turns: list[int] = turns.tolist()

    @property
    def row_norms(self) -> NDArray[np.float64]:
        """Norm of each row of R, shape (dims,): the square root of how many coordinates fall into it."""
        full, rest = divmod(self.size, self.dims)
        counts = np.full(self.dims, full, dtype=np.float64)
        if rest:
            counts[(np.arange(rest) + self._turns[-1]) % self.dims] += 1.0
        return np.sqrt(counts)

    def __call__(self, vectors: Tensor) -> Tensor:
        """Rx of one vector, shape (size,), or of each row, shape (n, size), in its precision and on its device."""
        if vectors.ndim not in (1, 2) or vectors.shape[-1] != self.size or not vectors.is_floating_point():
            raise InvalidArgument(
                f"vectors of shape {tuple(vectors.shape)} and {vectors.dtype} cannot be projected: pass floating-point "
                f"ones of length {self.size}, shape (n, {self.size})."
            )
        rows = vectors if vectors.ndim == 2 else vectors[None]
        signs = self._signs.to(rows.device)
        result = rows.new_zeros(len(rows), self.dims)
        for block, turn in enumerate(self._turns):
            first = block * self.dims
            end = min(first + self.dims, self.size)
            middle = min(first + self.dims - turn, end)  # from here on, the block goes round to the front
            for place, part in ((turn, slice(first, middle)), (0, slice(middle, end))):
                width = part.stop - part.start
                if width:
                    result[:, place : place + width].addcmul_(rows[:, part], signs[part].to(rows.dtype))
        return result if vectors.ndim == 2 else result[0]


def _random_bits(start: np.uint64, n: int) -> NDArray[np.uint64]:
    """n numbers of 64 random bits: SplitMix64 from `start`."""
    with np.errstate(over="ignore"):
        values = start + _STEP * np.arange(1, n + 1, dtype=np.uint64)
        for shift, factor in _MIX:
            values = (values ^ (values >> shift)) * factor
        mixed: NDArray[np.uint64] = values ^ (values >> _LAST_SHIFT)
    return mixed
