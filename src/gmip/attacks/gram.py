"""Inner products of gradients without the gradients: everything that a likelihood ratio needs (docs/theory, scale)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from gmip.attacks._pieces import Piece
from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.memory import as_bytes
from gmip.errors import InvalidArgument
from gmip.tasks.task import Examples

__all__ = ["compress", "gram"]

_WORKING: Final = 4  # 1/4 of the limit is for what passes by
_LEAST: Final = 8  # and 1/8 for what is held, however large the matrix itself is
_NEGATIVE: Final = 1.0e-6  # eigenvalues below this share of the largest, but negative, are no rounding errors

_Block = tuple[slice, list[Piece]]


def gram(
    gradients: PerExampleGradients,
    examples: Examples | Sequence[Examples],
    vectors: ArrayLike | None = None,
    *,
    memory_limit: float | str | None = None,
) -> NDArray[np.float64]:
    """All inner products among the gradients of the examples (set after set) and then `vectors`, shape (P, P).

    Parameters
    ----------
    gradients : at the parameters of one step. For several steps jointly, add their matrices.
    vectors : flat vectors of shape (d,) or (s, d), such as published means; P = number of examples + s.
    memory_limit : bytes, or "3 GiB"; None: that of `gradients`.

    Guarantees
    ----------
    Of a linear layer only its inputs and the errors sent back to it are held, never its gradients; of other layers, and
    of linear layers that see long sequences, the gradients. Sums are float64. Examples whose gradients do not fit into
    memory_limit are computed again for every block of others that does; the result is the same up to rounding.
    """
    limit = gradients.memory_limit if memory_limit is None else as_bytes("memory_limit", memory_limit)
    sets = [examples] if isinstance(examples, Examples) else list(examples)
    total = sum(map(len, sets))
    flat = _vectors(vectors, gradients.num_params).to(gradients.device)
    result = torch.zeros(total + len(flat), total + len(flat), dtype=torch.float64)
    _put(result, slice(total, None), slice(total, None), flat @ flat.T)
    room = max(limit - limit // _WORKING - 2 * result.nbytes, limit // _LEAST)
    gradients = gradients.within(limit // _WORKING)
    start = 0
    while start < total:
        start = _fill_block(result, gradients, sets, flat, start=start, room=room)
    return result.numpy()


def compress(matrix: ArrayLike) -> NDArray[np.float64]:
    """X of shape (P, r) with X X' = matrix, for a matrix of inner products: coordinates in the span of the vectors.

    Guarantees
    ----------
    X is an isometric copy of the P vectors: whatever depends on inner products only gives the same on X. Directions
    whose share of the largest is within rounding error (P eps) of zero are dropped; r is the number of the others.
    """
    values = np.asarray(matrix, dtype=np.float64)
    if values.ndim != 2 or values.shape[0] != values.shape[1]:
        raise InvalidArgument(f"matrix of inner products must be square, not of shape {values.shape}.")
    if not np.isfinite(values).all():
        raise InvalidArgument("matrix of inner products has entries that are not finite: drop the vectors they are of.")
    eigenvalues, axes = np.linalg.eigh(values)
    largest = max(float(eigenvalues[-1]), 0.0) if len(values) else 0.0
    if len(values) and eigenvalues[0] < -_NEGATIVE * largest:
        raise InvalidArgument(
            f"matrix has eigenvalues from {eigenvalues[0]:.3g} to {largest:.3g}, so it holds no inner products: pass "
            "the matrix that gram gives."
        )
    keep = eigenvalues > len(values) * np.finfo(np.float64).eps * largest
    scaled: NDArray[np.float64] = axes[:, keep] * np.sqrt(eigenvalues[keep])
    return scaled


def _fill_block(
    result: Tensor,
    gradients: PerExampleGradients,
    sets: Sequence[Examples],
    flat: Tensor,
    *,
    start: int,
    room: int,
) -> int:
    """Fills the rows and columns of the examples from `start` on that fit into `room`; returns the first that did not.

    Those that fit are held; the examples after them pass by, a few at a time.
    """
    held: list[_Block] = []
    used, full, end = 0, False, start
    others = slice(len(result) - len(flat), None)
    for rows, pieces in _blocks(gradients, sets, start):
        for place, ours in held:
            _put(result, place, rows, _products(ours, pieces))
        size = sum(piece.nbytes for piece in pieces)
        full = full or (bool(held) and used + size > room)
        if not full:
            _put(result, rows, rows, _products(pieces, pieces))
            if len(flat):
                _put(result, rows, others, torch.stack([piece.against(flat) for piece in pieces]).sum(0))
            held.append((rows, pieces))
            used, end = used + size, rows.stop
    return end


def _blocks(gradients: PerExampleGradients, sets: Sequence[Examples], start: int) -> Iterator[_Block]:
    """Pieces of the examples from number `start` on, in float64."""
    first = 0
    for examples in sets:
        skip = min(max(0, start - first), len(examples))
        rest = Examples(examples.inputs[skip:], examples.targets[skip:])
        for rows, pieces in gradients.pieces(rest):
            place = slice(first + skip + rows.start, first + skip + rows.stop)
            yield place, [piece.to(torch.float64) for piece in pieces]
        first += len(examples)


def _products(ours: list[Piece], theirs: list[Piece]) -> Tensor:
    total = ours[0].products(theirs[0])
    for a, b in zip(ours[1:], theirs[1:], strict=True):
        total += a.products(b)
    return total


def _put(result: Tensor, rows: slice, columns: slice, block: Tensor) -> None:
    if rows == columns:
        block = (block + block.T) / 2
    result[rows, columns] = block.to(result.device)
    result[columns, rows] = block.T.to(result.device)


def _vectors(vectors: ArrayLike | None, d: int) -> Tensor:
    if vectors is None:
        return torch.zeros(0, d, dtype=torch.float64)
    flat = np.atleast_2d(np.array(vectors, dtype=np.float64))
    if flat.ndim != 2 or flat.shape[1] != d:
        raise InvalidArgument(f"vectors have shape {flat.shape}: pass flat vectors of length {d}, shape (s, {d}).")
    if not np.isfinite(flat).all():
        raise InvalidArgument(
            "vectors have entries that are not finite: leave out the step at which training diverged."
        )
    return torch.from_numpy(flat)
