"""Per-example gradients of one layer, kept as the layer gives them: as they are, or as factors of outer products."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

__all__ = ["Dense", "Outer", "Piece"]


class Piece(ABC):
    """Gradients g_i of n examples with respect to some entries of the flat vector of length d."""

    @abstractmethod
    def __len__(self) -> int:
        """n."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Memory that the piece holds."""

    @abstractmethod
    def to(self, dtype: torch.dtype) -> Self:
        """The same gradients in another precision."""

    @abstractmethod
    def scaled(self, factor: Tensor) -> Self:
        """factor_i g_i; factor of shape (n,)."""

    @abstractmethod
    def is_finite(self) -> Tensor:
        """Whether each gradient is free of NaN and infinity, shape (n,)."""

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """|g_i|^2, shape (n,)."""

    @abstractmethod
    def products(self, other: Self) -> Tensor:
        """<g_i, h_j> with the n' gradients of `other` for the same entries, shape (n, n')."""

    @abstractmethod
    def against(self, vectors: Tensor) -> Tensor:
        """<g_i, v_j> with the same entries of flat vectors of shape (s, d), shape (n, s)."""

    @abstractmethod
    def write(self, flat: Tensor) -> None:
        """Puts g_i into its columns of `flat`, shape (n, d)."""


@dataclass(frozen=True, eq=False)
class Dense(Piece):
    """The gradients themselves, shape (n, size), and their columns in the flat vector."""

    rows: Tensor
    columns: slice

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes

    def to(self, dtype: torch.dtype) -> Dense:
        return Dense(self.rows.to(dtype), self.columns)

    def scaled(self, factor: Tensor) -> Dense:
        return Dense(self.rows * factor[:, None], self.columns)

    def is_finite(self) -> Tensor:
        return self.rows.sum(1).isfinite()

    def squared_norms(self) -> Tensor:
        norms: Tensor = torch.linalg.vector_norm(self.rows, dim=1)
        return norms.square()

    def products(self, other: Dense) -> Tensor:
        if other.rows is self.rows and self.rows.device.type == "cpu":
            rows = self.rows.numpy()
            return torch.from_numpy(rows @ rows.T)  # NumPy sees that it is symmetric: half of the work
        return self.rows @ other.rows.T

    def against(self, vectors: Tensor) -> Tensor:
        return self.rows @ vectors[:, self.columns].T

    def write(self, flat: Tensor) -> None:
        flat[:, self.columns] = self.rows


@dataclass(frozen=True, eq=False)
class Outer(Piece):
    """Gradients of a linear layer: g_i = sum over positions t of (error_it)(input_it)', of shape (outputs, inputs).

    The gradient of the bias, the sum of the errors, is that of one more input that is always 1: it is the last column
    of `inputs` where `bias` is not None.

    Attributes
    ----------
    inputs : what the layer saw, shape (n, positions, inputs [+ 1]).
    errors : derivative of the loss by what the layer gave, shape (n, positions, outputs).
    weight, bias : their columns in the flat vector; None for one that is not part of the piece.
    """

    inputs: Tensor
    errors: Tensor
    weight: slice | None
    bias: slice | None

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def nbytes(self) -> int:
        return self.inputs.nbytes + self.errors.nbytes

    def to(self, dtype: torch.dtype) -> Outer:
        return Outer(self.inputs.to(dtype), self.errors.to(dtype), self.weight, self.bias)

    def scaled(self, factor: Tensor) -> Outer:
        return Outer(self.inputs, self.errors * factor[:, None, None], self.weight, self.bias)

    def is_finite(self) -> Tensor:
        return self.inputs.sum((1, 2)).isfinite() & self.errors.sum((1, 2)).isfinite()

    def squared_norms(self) -> Tensor:
        inputs, errors = self.inputs, self.errors
        return ((inputs @ inputs.mT) * (errors @ errors.mT)).sum((1, 2))

    def products(self, other: Outer) -> Tensor:
        total = self.inputs.new_zeros(len(self.inputs), len(other.inputs))
        for a, e in zip(self.inputs.unbind(1), self.errors.unbind(1), strict=True):
            for b, f in zip(other.inputs.unbind(1), other.errors.unbind(1), strict=True):
                total += (a @ b.T).mul_(e @ f.T)
        return total

    def against(self, vectors: Tensor) -> Tensor:
        columns = []
        for vector in vectors:
            parts = [vector[part].view(self._outputs, -1) for part in (self.weight, self.bias) if part is not None]
            back = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
            columns.append(((self.errors @ back) * self.inputs).sum((1, 2)))
        return torch.stack(columns, 1)

    def write(self, flat: Tensor) -> None:
        if self.weight is not None:
            inputs = self.inputs if self.bias is None else self.inputs[..., :-1]
            view = flat[:, self.weight].view(len(flat), self._outputs, -1)
            if inputs.shape[1] == 1:  # a plain product: no need of the copy that bmm makes
                torch.mul(self.errors.mT, inputs, out=view)
            else:
                view.copy_(self.errors.mT @ inputs)
        if self.bias is not None:
            flat[:, self.bias] = self.errors.sum(1)

    def multiplied(self) -> list[Dense]:
        """The same gradients, multiplied out: one part for the weight, one for the bias."""
        parts = []
        if self.weight is not None:
            inputs = self.inputs if self.bias is None else self.inputs[..., :-1]
            parts.append(Dense((self.errors.mT @ inputs).flatten(1), self.weight))
        if self.bias is not None:
            parts.append(Dense(self.errors.sum(1), self.bias))
        return parts

    @property
    def _outputs(self) -> int:
        return self.errors.shape[2]
