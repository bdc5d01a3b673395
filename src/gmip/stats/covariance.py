"""A Gaussian model of vectors, kept as the eigen-decomposition of its covariance.

Singular covariances are normal here: the class gradients of a softmax head sum to zero (docs/theory/errata.md, 7), and
there may be fewer samples than dimensions. Directions below the eigenvalue cut-off are dropped, or kept with a ridge.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import blas, lapack

from gmip import _validate as check
from gmip.errors import InvalidArgument

Array = NDArray[np.float64]
Shrinkage = Literal["ledoit-wolf", "oas"]

DEFAULT_CUTOFF = 1.0e-12
_CHUNK = 1024  # rows turned to float64 at a time


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianModel:
    """Mean and covariance of D-dimensional vectors; make one with `fit` or `known`.

    Attributes
    ----------
    mean : array of shape (D,).
    directions : array of shape (D, R) with orthonormal columns, every direction in which the samples vary.
    spectrum : array of shape (R,), the sample variance along each of them, falling.
    num_samples : m, how many vectors the model was estimated from; infinity when it is known.
    cutoff : directions whose variance is at most `cutoff` times the largest are left out of the basis.
    ridge : added to every variance, in units of the mean of `spectrum` over its positive entries.
    scale, floor : shrinkage: the variance of a direction is scale * spectrum + floor + ridge.
    """

    mean: Array
    directions: Array
    spectrum: Array
    num_samples: float
    cutoff: float = DEFAULT_CUTOFF
    ridge: float = 0.0
    scale: float = 1.0
    floor: float = 0.0

    def __post_init__(self) -> None:
        check.fields(self, cutoff=partial(check.probability, open_high=True), ridge=check.non_negative)

    @classmethod
    def fit(
        cls,
        background: NDArray[Any] | Iterable[ArrayLike],
        *,
        cutoff: float = DEFAULT_CUTOFF,
        ridge: float = 0.0,
        shrinkage: Shrinkage | None = None,
        extra_dims: int = 0,
    ) -> GaussianModel:
        """Estimate from samples: divisor m - 1, float64 throughout.

        background : array of shape (m, D), or an iterable of such arrays (chunks of the same samples), which is
            accumulated as one D x D matrix. An array with D > m goes through its m x m Gram matrix instead.
        shrinkage : towards a multiple of the identity, with the intensity of Ledoit and Wolf (2004) or of the oracle
            approximating estimator of Chen et al. (2010), as in scikit-learn.
        extra_dims : dimensions of the original space that were left out because no vector has a part in them; they
            count in the target of the shrinkage.
        """
        if shrinkage is not None:
            check.one_of("shrinkage", shrinkage, ("ledoit-wolf", "oas"))
        if isinstance(background, np.ndarray):
            return cls._of(_array_sums(check.matrix("background", background)), cutoff, ridge, shrinkage, extra_dims)
        return cls._of(_primal(_stream_sums(background)), cutoff, ridge, shrinkage, extra_dims)

    @classmethod
    def _of(
        cls, sums: Decomposition, cutoff: float, ridge: float, shrinkage: Shrinkage | None, extra_dims: int
    ) -> GaussianModel:
        mean, directions, spectrum, samples, fourth = sums
        scale, floor = 1.0, 0.0
        if shrinkage is not None:
            total, squares = float(spectrum.sum()), float(spectrum @ spectrum)
            share = shrinkage_of(shrinkage, total, squares, fourth, samples, mean.size + extra_dims)
            scale, floor = 1.0 - share, share * float(spectrum.sum()) / (mean.size + extra_dims)
        return cls(
            mean=mean,
            directions=directions,
            spectrum=spectrum,
            num_samples=float(samples),
            cutoff=cutoff,
            ridge=ridge,
            scale=scale,
            floor=floor,
        )

    @classmethod
    def known(cls, mean: ArrayLike, covariance: ArrayLike) -> GaussianModel:
        """Given parameters: `covariance` of shape (D, D), or (D,) for a diagonal one."""
        centre = check.vector("mean", mean)
        if np.ndim(covariance) == 1:
            variances = check.vector("covariance", covariance, length=centre.size)
            order = np.argsort(-variances, kind="stable")
            values, vectors = variances[order], np.eye(centre.size)[:, order]
        else:
            square = check.matrix("covariance", covariance, columns=centre.size).astype(np.float64, copy=False)
            if square.shape[0] != centre.size or not np.allclose(square, square.T, rtol=1.0e-8, atol=0.0):
                raise InvalidArgument(
                    f"must be symmetric, of shape {(centre.size, centre.size)}", argument="covariance"
                )
            values, vectors = _falling(np.linalg.eigh(square))
        if values.size == 0 or values[0] <= 0.0 or values[-1] < -1.0e-8 * values[0]:
            raise InvalidArgument("must have no negative and at least one positive eigenvalue", argument="covariance")
        return cls(
            mean=centre,
            directions=vectors,
            spectrum=np.maximum(values, 0.0),
            num_samples=math.inf,
        )

    def retuned(self, *, cutoff: float | None = None, ridge: float | None = None) -> GaussianModel:
        """The same decomposition with another cut-off or ridge."""
        return dataclasses.replace(
            self, cutoff=self.cutoff if cutoff is None else cutoff, ridge=self.ridge if ridge is None else ridge
        )

    def plus_mean(self, weight: float) -> GaussianModel:
        """The model of covariance Sigma + weight * mean mean', weight >= 0: sums of a random number of vectors."""
        inside = self.mean @ self.directions
        rest = self.mean - self.directions @ inside
        basis, values = self.directions, self.spectrum
        length = float(np.linalg.norm(rest))
        if length > 1.0e-10 * float(np.linalg.norm(self.mean)):
            basis = np.column_stack([basis, rest / length])
            inside, values = np.append(inside, length), np.append(values, 0.0)
        values, rotation = _falling(np.linalg.eigh(np.diag(values) + weight * np.outer(inside, inside)))
        return dataclasses.replace(self, directions=basis @ rotation, spectrum=np.maximum(values, 0.0))

    @property
    def dimension(self) -> int:
        """D."""
        return int(self.mean.size)

    @property
    def rank(self) -> int:
        """r, the directions above the cut-off."""
        return int(np.count_nonzero(self.spectrum > self.cutoff * self.spectrum[0]))

    @property
    def basis(self) -> Array:
        """The directions above the cut-off, shape (D, r)."""
        return self.directions[:, : self.rank]

    @property
    def eigenvalues(self) -> Array:
        """Variances along `basis`, shape (r,), shrinkage and ridge included."""
        return self.scale * self.spectrum[: self.rank] + self.outside

    @property
    def outside(self) -> float:
        """The variance given to every direction outside `basis`: 0 means that they are dropped."""
        if self.ridge == 0.0:
            return self.floor
        varied = self.spectrum > np.finfo(np.float64).eps * self.dimension * self.spectrum[0]
        return self.floor + self.ridge * float(self.spectrum[varied].mean())

    def coordinates(self, vectors: ArrayLike) -> Array:
        """Vectors (k, D) minus the mean, in `basis`: shape (k, r)."""
        return self.embed(vectors, columns=self.rank)

    def embed(
        self, vectors: ArrayLike, *, columns: int | None = None, residual: bool = False, centred: bool = True
    ) -> Array:
        """Vectors (k, D) minus the mean (if `centred`), along the first `columns` (all R) directions: (k, columns).

        With `residual` the parts outside all directions follow as D further columns: inner products are then those
        of the vectors themselves.
        """
        rows = check.matrix("vectors", vectors, columns=self.dimension)
        basis = self.directions[:, :columns]
        width = basis.shape[1]
        out = np.empty((rows.shape[0], width + (self.dimension if residual else 0)))
        for part, chunk in _chunks(rows):
            moved = chunk - self.mean if centred else chunk
            np.matmul(moved, basis, out=out[part, :width])
            if residual:
                out[part, width:] = moved - out[part, :width] @ basis.T
        return out


@dataclass(frozen=True, kw_only=True, eq=False)
class WhiteModel(GaussianModel):
    """A model whose `directions` are not orthonormal but uncorrelated and of variance 1; make one with `fit_white`.

    covariance : array of shape (D, D), upper triangle of the sample covariance.
    """

    covariance: Array


def fit_white(background: NDArray[Any], *, cutoff: float = DEFAULT_CUTOFF) -> GaussianModel:
    """What `GaussianModel.fit` gives for m > D, by a Cholesky factor where the covariance is regular: much faster.

    The directions of a WhiteModel are as good as eigenvectors to whoever asks for inner products under the inverse
    covariance only. Noise, a ridge and `plus_mean` need more. Where an eigenvalue may be near the cut-off, or is zero,
    the model is an ordinary one.
    """
    cutoff = check.probability("cutoff", cutoff, open_high=True)
    rows = check.matrix("background", background)
    mean, covariance, _ = _sums_of(rows, _mean_of(rows), powers=False).result()
    covariance *= 1.0 / (rows.shape[0] - 1)
    common: dict[str, Any] = {"mean": mean, "num_samples": float(rows.shape[0]), "cutoff": cutoff}
    directions = _whitening(covariance, cutoff)
    if directions is not None:
        return WhiteModel(directions=directions, spectrum=np.ones(mean.size), covariance=covariance, **common)
    values, vectors = _falling(np.linalg.eigh(covariance, UPLO="U"))
    _needs_variance(float(values[0]), mean)
    return GaussianModel(directions=vectors, spectrum=np.maximum(values, 0.0), **common)


def _whitening(covariance: Array, cutoff: float) -> Array | None:
    """W of shape (D, D) with W' covariance W = I; None unless all eigenvalues are well above the cut-off."""
    factor, failed = lapack.dpotrf(covariance)
    if failed:
        return None
    # The trace bounds the largest eigenvalue; the 1-norm of the inverse, of which this is an estimate, the smallest.
    share, _ = lapack.dpocon(factor, float(np.trace(covariance)))
    if not share > max(100.0 * cutoff, 1.0e-10):
        return None
    return np.asarray(lapack.dtrtri(factor, overwrite_c=True)[0])


def _chunks(rows: NDArray[Any]) -> Iterator[tuple[slice, Array]]:
    for start in range(0, rows.shape[0], _CHUNK):
        part = slice(start, start + _CHUNK)
        yield part, rows[part].astype(np.float64, copy=False)


def _falling(pair: tuple[Array, Array]) -> tuple[Array, Array]:
    values, vectors = pair
    return values[::-1].copy(), np.ascontiguousarray(vectors[:, ::-1])


class _Sums:
    """Sums over samples x minus a shift: of x, x x' (its upper triangle) and, as `powers`, |x|^2, |x|^4, |x|^2 x."""

    def __init__(self, shift: Array, *, powers: bool = True) -> None:
        if shift.size == 0:
            raise InvalidArgument(
                "has no columns", argument="background", remedy="pass gradients of at least one parameter"
            )
        self.shift, self.count, self.powers = shift, 0, powers
        self.first, self.second = np.zeros(shift.size), np.zeros((shift.size, shift.size), order="F")
        self.square, self.fourth, self.third = 0.0, 0.0, np.zeros(shift.size)

    def add(self, rows: Array) -> None:
        moved = rows - self.shift
        self.count += rows.shape[0]
        self.first += moved.sum(axis=0)
        self.second = blas.dsyrk(1.0, moved.T, beta=1.0, c=self.second, overwrite_c=True)
        if self.powers:
            norms = np.einsum("ij,ij->i", moved, moved)
            self.square += float(norms.sum())
            self.fourth += float(norms @ norms)
            self.third += norms @ moved

    def result(self) -> tuple[Array, Array, float]:
        """Mean (D,), upper triangle of the scatter about it (D, D), sum of the fourth powers of the distances to it.

        Ask once: the scatter takes the place of the sum.
        """
        d = self.first / self.count
        c = float(d @ d)
        # |x - d|^4 = (|x|^2 - 2 x.d + c)^2, summed
        fourth = self.fourth + 4.0 * d @ blas.dsymv(1.0, self.second, d) + self.count * c * c
        fourth += -4.0 * d @ self.third + 2.0 * c * self.square - 4.0 * c * d @ self.first
        return self.shift + d, blas.dsyr(-float(self.count), d, a=self.second, overwrite_a=True), float(fourth)


def _too_few(examples: int) -> InvalidArgument:
    return InvalidArgument(
        f"has {examples} examples and a covariance needs at least 2", argument="background", remedy="pass more"
    )


def _mean_of(rows: NDArray[Any]) -> Array:
    if rows.shape[0] < 2:
        raise _too_few(rows.shape[0])
    return np.asarray(np.add.reduce([chunk.sum(axis=0) for _, chunk in _chunks(rows)]) / rows.shape[0])


def _sums_of(rows: NDArray[Any], mean: Array, *, powers: bool = True) -> _Sums:
    sums = _Sums(mean, powers=powers)
    for _, chunk in _chunks(rows):
        sums.add(chunk)
    return sums


Decomposition = tuple[Array, Array, Array, int, float]


def _array_sums(rows: NDArray[Any]) -> Decomposition:
    """Mean, directions, spectrum, sample count and the sum of |x - mean|^4 of an array of shape (m, D)."""
    count, width = rows.shape
    mean = _mean_of(rows)
    if width <= count:
        return _primal(_sums_of(rows, mean))
    centred = rows - mean
    gram = centred @ centred.T
    values, vectors = _falling(np.linalg.eigh(gram))
    _needs_variance(float(values[0]) / (count - 1), mean)
    values, vectors = (kept := values[values > np.finfo(np.float64).eps * width * values[0]]), vectors[:, : kept.size]
    # Small eigenvalues cost orthogonality (eps * largest/smallest): one QR gives it back.
    directions = np.linalg.qr((centred.T @ vectors) / np.sqrt(values))[0]
    norms = np.diagonal(gram)
    return mean, directions, values / (count - 1), count, float(norms @ norms)


class Scatter:
    """Sums over samples from which models are made, more samples being added later."""

    def __init__(self, sums: _Sums) -> None:
        self._sums = sums

    @classmethod
    def of(cls, chunks: Iterable[ArrayLike]) -> Scatter:
        """The scatter of the samples in arrays of shape (m, D)."""
        return cls(_stream_sums(chunks))

    def plus(self, chunks: Iterable[ArrayLike]) -> Scatter:
        """The scatter with further samples."""
        sums = copy.copy(self._sums)
        sums.first, sums.third, sums.second = sums.first.copy(), sums.third.copy(), sums.second.copy(order="F")
        return Scatter(_stream_sums(chunks, sums))

    def model(self, *, shrinkage: Shrinkage | None, extra_dims: int) -> GaussianModel:
        """The model that `GaussianModel.fit` would make of all samples."""
        return GaussianModel._of(_primal(self.plus([])._sums), DEFAULT_CUTOFF, 0.0, shrinkage, extra_dims)


def _stream_sums(chunks: Iterable[Any], sums: _Sums | None = None) -> _Sums:
    for chunk in chunks:
        rows = check.matrix("background", chunk, columns=None if sums is None else sums.shift.size)
        if rows.shape[0]:
            sums = sums or _Sums(_mean_of(rows) if rows.shape[0] > 1 else rows[0].astype(np.float64))
            for _, part in _chunks(rows):
                sums.add(part)
    if sums is None or sums.count < 2:
        raise _too_few(0 if sums is None else sums.count)
    return sums


def _primal(sums: _Sums) -> Decomposition:
    mean, scatter, fourth = sums.result()
    values, vectors = _falling(np.linalg.eigh(scatter, UPLO="U"))
    _needs_variance(float(values[0]) / (sums.count - 1), mean)
    return mean, vectors, np.maximum(values, 0.0) / (sums.count - 1), sums.count, fourth


def _needs_variance(largest: float, mean: Array) -> None:
    """Rounding alone gives a variance of (eps * mean)^2."""
    if not largest > (64.0 * np.finfo(np.float64).eps * float(np.abs(mean).max())) ** 2:
        raise InvalidArgument(
            "does not vary: all its vectors are the same", argument="background", remedy="pass gradients that differ"
        )


def shrinkage_of(kind: Shrinkage, total: float, squares: float, fourth: float, samples: int, dimension: int) -> float:
    """Weight of the identity, from the sums of the eigenvalues of the covariance and of their squares, and the sum of
    |x - mean|^4 over the samples."""
    divisor = (samples - 1) / samples  # both papers divide by m
    squares, mean = squares * divisor**2, total * divisor / dimension
    if kind == "oas":  # Chen et al. (2010), equation 23, as scikit-learn writes it
        alpha = squares / dimension**2
        spread = (samples + 1.0) * (alpha - mean**2 / dimension)
        return 1.0 if spread <= 0.0 else min((alpha + mean**2) / spread, 1.0)
    spread = squares - dimension * mean**2  # Ledoit and Wolf (2004), lemma 3.2 to 3.4
    error = (fourth / samples - squares) / samples
    return 0.0 if spread <= 0.0 else min(max(error, 0.0), spread) / spread
