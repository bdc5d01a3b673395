"""Does a random draw from a list explain a sum, and what is left of the sum if it does?

A sum of vectors less its expectation is N(0, k T + s^2): T the covariance that a random draw gives it, s what it lacks
to an optimum in every direction, k = 1 if members were drawn from the list. Both are fitted by maximum likelihood.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, solve_triangular
from scipy.optimize import minimize_scalar

from gmip.errors import InvalidArgument

__all__ = ["SumFit", "fit_sum"]

Array = NDArray[np.float64]
_NULL: Final = 1.0e-10  # of the largest variance: directions in which no candidate has a part
_LEVELS: Final = (1.0e-5, 10.0)  # of a typical entry: less tells no more, and rounding gets in the way
_EXACT: Final = 2500  # directions: beyond, a Cholesky factor for each level that is tried instead of the spectrum


class SumFit(NamedTuple):
    """Attributes
    ----------
    level : s, the standard deviation of what an entry of the sum lacks to an optimum, at k = 1.
    relative : that by the standard deviation that a random draw gives an entry.
    excess : k of the best fit.
    gain : in log-likelihood by that k: about 1/2 on average if k is 1.
    likelihood : its logarithm at k = 1, up to a constant.
    """

    level: float
    relative: float
    excess: float
    gain: float
    likelihood: float


def fit_sum(
    matrix: Array, gap: Array, *, square: float, dims: int, typical: float, inner: bool, exact: int = _EXACT
) -> SumFit:
    """Fit of a gap g of `dims` entries between a sum and its expectation.

    Parameters
    ----------
    matrix : T itself, or A A' (`inner`) where T = A'A; overwritten.
    gap : g, or A g (`inner`).
    square : g'g.
    typical : size of an entry of the sum, to know which levels to try.
    exact : up to this size the spectrum is computed.
    """
    few = len(matrix) <= exact
    if not np.isfinite(np.diag(matrix)).all() or not np.isfinite(gap).all():
        raise InvalidArgument("have gradients that are not finite", argument="candidates")
    terms = (_Spectrum if few else _Factors)(matrix, gap, square, inner)
    count = max(terms.rank, 1.0)
    # In directions in which no candidate has a part there is nothing but what the sum lacks.
    least = math.sqrt(max(square - terms.inside, 0.0) / max(1.0, dims - terms.rank))
    low = max(_LEVELS[0] * typical, least, 1.0e-150)
    grid = np.linspace(math.log(low), math.log(max(_LEVELS[1] * typical, 2.0 * low)), 120 if few else 7)
    seen: dict[float, tuple[float, float]] = {}

    def found(place: float) -> tuple[float, float]:
        if place not in seen:
            seen[place] = terms.at(math.exp(2.0 * place))
        return seen[place]

    def drawn(place: float) -> float:
        log_det, form = found(place)
        return -0.5 * (log_det + form)

    def scaled(place: float) -> float:  # by the best k
        log_det, form = found(place)
        return -0.5 * (log_det + count * math.log(max(form, 1.0e-300) / count) + count)

    for likelihood in (drawn, scaled) if few else (drawn,):
        best = int(np.argmax([likelihood(float(place)) for place in grid]))
        minimize_scalar(
            lambda place, likelihood=likelihood: -likelihood(float(place)),
            bounds=(grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]),
            method="bounded",
            options={"xatol": 1.0e-3, "maxiter": 30 if few else 6},
        )
    place, loose = max(seen, key=drawn), max(seen, key=scaled)
    return SumFit(
        level=math.exp(place),
        relative=math.exp(place) / math.sqrt(max(terms.trace / count, 1.0e-300)),
        excess=found(loose)[1] / count,
        gain=scaled(loose) - drawn(place),
        likelihood=drawn(place),
    )


class _Spectrum:
    """By the eigenvalues, those of directions in which nobody has a part left out.

    Attributes
    ----------
    rank, trace : of T.
    inside : g'g of the part of the gap that is in its span.
    """

    def __init__(self, matrix: Array, gap: Array, square: float, inner: bool) -> None:
        del square
        values, axes = np.linalg.eigh(matrix)
        kept = values > _NULL * max(float(values[-1]), 0.0)
        self._spread = values[kept]
        self._squares = (gap @ axes[:, kept]) ** 2 / (self._spread if inner else 1.0)
        self.rank, self.trace = float(kept.sum()), float(self._spread.sum())
        self.inside = float(self._squares.sum())

    def at(self, variance: float) -> tuple[float, float]:
        """(log det, quadratic form) of T + variance, in the span of T."""
        total = self._spread + variance
        return float(np.log(total).sum()), float((self._squares / total).sum())


class _Factors:
    """The same by one Cholesky factor for each variance; the directions left out fade instead of ending."""

    def __init__(self, matrix: Array, gap: Array, square: float, inner: bool) -> None:
        self._matrix, self._diagonal, self._gap = matrix, np.diag(matrix).copy(), gap
        self.trace = float(self._diagonal.sum())
        image = matrix @ gap
        largest = float(np.linalg.norm(matrix @ image)) / max(float(np.linalg.norm(image)), 1.0e-300)
        self._null = _NULL * max(largest, self.trace / len(matrix))
        lower = self._lower(self._null)
        solved = self._solve(lower, gap)
        inverse, failed = lapack.dtrtri(lower, lower=1, overwrite_c=1)
        _check(failed)
        rows = (np.tril(inverse[i : i + 512], i) for i in range(0, len(inverse), 512))
        self.rank = len(matrix) - self._null * sum(float(np.einsum("ij,ij->", part, part)) for part in rows)
        # g'P(T + v)^-1 g with P = T (T + null)^-1, nearly the projection on the span
        self._left = solved if inner else gap - self._null * solved
        self.inside = float(gap @ self._left) if inner else square - self._null * float(gap @ solved)

    def _lower(self, variance: float) -> Array:
        work = np.array(self._matrix, order="F")
        work.flat[:: len(work) + 1] = self._diagonal + variance
        lower, failed = lapack.dpotrf(work, lower=1, overwrite_a=1)
        _check(failed)
        return np.asarray(lower)

    @staticmethod
    def _solve(lower: Array, right: Array) -> Array:
        half = solve_triangular(lower, right, lower=True, check_finite=False)
        return np.asarray(solve_triangular(lower, half, lower=True, trans="T", check_finite=False))

    def at(self, variance: float) -> tuple[float, float]:
        """As of `_Spectrum`."""
        lower = self._lower(variance)
        log_det = 2.0 * float(np.log(np.diag(lower)).sum()) - (len(lower) - self.rank) * math.log(variance)
        return log_det, float(self._left @ self._solve(lower, self._gap))


def _check(failed: int) -> None:
    if failed:
        raise InvalidArgument("have inner products that are of no vectors", argument="candidates")
