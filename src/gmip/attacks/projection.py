"""A random projection to few dimensions that costs no more than reading the vector.

The coordinates are cut into blocks of k. Each block is permuted at random, each coordinate gets a random sign, and the
blocks are added up: y = sum over blocks b of P_b S_b x_b. That is a CountSketch (Charikar, Chen and Farach-Colton 2002,
feature hashing) whose buckets are equally full. Why this and not a dense or a Hadamard one: D additions for a vector
instead of D k or D log D; nothing larger than D is stored; memory is read in order, in pieces that fit the cache; and
the rows are orthogonal, so that independent noise stays independent noise, which a likelihood ratio relies on.

For any x, y, over the random signs and permutations:

    E <Rx, Ry> = <x, y>
    Var <Rx, Ry> = ( |x|^2 |y|^2 + <x, y>^2 - sum_b (|x_b|^2 |y_b|^2 + <x_b, y_b>^2) ) / k

since two coordinates fall together with probability 1/k if they are of different blocks, and never otherwise.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gmip.accounting import _validate as check
from gmip.errors import InvalidArgument
from gmip.training.samplers import check_seed

__all__ = ["Projection"]

_SLAB: Final = 2**20  # numbers moved at a time
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
    Inner products are kept on average, with the variance given above: the relative error of <Rx, Ry> against |x||y| has
    standard deviation at most sqrt(2/dims). R R' is diagonal with the squares of `row_norms` on it: noise of standard
    deviation s on every entry of x is noise of standard deviation s row_norms on the entries of Rx.
    """

    def __init__(self, size: int, dims: int, *, seed: int = 0) -> None:
        self.size, self.dims = check.count("size", size), check.count("dims", dims)
        if self.dims >= self.size:
            raise InvalidArgument(
                f"projection to {self.dims} dimensions is no reduction of {self.size}: lower it, or do without."
            )
        self.seed = check_seed(seed)
        blocks = -(-self.size // self.dims)
        self._full = self.size // self.dims
        starts = np.random.SeedSequence([self.seed, self.size, self.dims]).generate_state(2, np.uint64)
        keys = _mixed(starts[0], blocks * self.dims).reshape(blocks, self.dims)
        # Row b, column j: which coordinate of block b falls into bucket j.
        order = np.argsort(keys, axis=1, kind="stable") + self.dims * np.arange(blocks)[:, None]
        signs = np.where(_mixed(starts[1], self.size) >> np.uint64(63), 1, -1).astype(np.int8)
        full, last = order[: self._full].reshape(-1), order[self._full :].reshape(-1)
        self._buckets = torch.from_numpy(np.flatnonzero(last < self.size))
        last = last[last < self.size]
        self._order = torch.from_numpy(np.concatenate([full, last]).astype(np.int32 if size < 2**31 else np.int64))
        self._signs = torch.from_numpy(signs[np.concatenate([full, last])])

    @property
    def row_norms(self) -> NDArray[np.float64]:
        """Norm of each row of R, shape (dims,)."""
        counts = np.full(self.dims, self._full, dtype=np.float64)
        counts[self._buckets.numpy()] += 1.0
        return np.sqrt(counts)

    def __call__(self, vectors: Tensor) -> Tensor:
        """Rx of one vector, shape (size,), or of each row, shape (n, size), in its precision and on its device."""
        if vectors.ndim not in (1, 2) or vectors.shape[-1] != self.size or not vectors.is_floating_point():
            raise InvalidArgument(
                f"vectors of shape {tuple(vectors.shape)} and {vectors.dtype} cannot be projected: pass floating-point "
                f"ones of length {self.size}, shape (n, {self.size})."
            )
        rows = vectors if vectors.ndim == 2 else vectors[None]
        result = rows.new_zeros(len(rows), self.dims)
        width = self.dims * max(1, _SLAB // (self.dims * max(1, len(rows))))
        end = self._full * self.dims
        for first in range(0, end, width):
            moved = self._moved(rows, slice(first, min(first + width, end)))
            result += moved.view(len(rows), -1, self.dims).sum(1)
        if end < self.size:
            result[:, self._buckets.to(rows.device)] += self._moved(rows, slice(end, self.size))
        return result if vectors.ndim == 2 else result[0]

    def _moved(self, rows: Tensor, places: slice) -> Tensor:
        order, signs = self._order[places].to(rows.device), self._signs[places].to(rows.device)
        return rows.index_select(1, order).mul_(signs)


def _mixed(start: np.uint64, n: int) -> NDArray[np.uint64]:
    """n numbers of 64 random bits: SplitMix64 from `start`."""
    with np.errstate(over="ignore"):
        values = start + _STEP * np.arange(1, n + 1, dtype=np.uint64)
        for shift, factor in _MIX:
            values = (values ^ (values >> shift)) * factor
        mixed: NDArray[np.uint64] = values ^ (values >> _LAST_SHIFT)
    return mixed
