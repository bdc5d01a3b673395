"""Rehearsal on arrays: what a training published, and how it publishes other records -> a score for each record.

An attacker who has the training code and records of his own publishes pseudo-members himself, compares with the mean of
their per-record vectors, and so learns how what was published follows the records and by how much it misses
(docs/rehearsal.md). Nothing but NumPy: what was published, and how it is replayed, is `gmip.attacks.publications`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

Array = NDArray[np.float64]
Response = Literal["one", "scalar", "diagonal"]

_LOG_SCALES: Final = (-14.0, 14.0)  # in which the scale of the error is looked for, against that of the rehearsals


class Shape(NamedTuple):
    """What is taken for granted about the response and the error; self-play chooses among `SHAPES`.

    `response` : the same gain for all entries (1, or one that is learned), or one of each entry; `shrink` : of the
    diagonal of the error to its mean.
    """

    response: Response
    shrink: float


SHAPES: Final = (Shape("scalar", 0.1), Shape("one", 0.1), Shape("diagonal", 0.1), Shape("diagonal", 0.5))


class Rehearsed(NamedTuple):
    """Rehearsals: what each published, and the mean of the vectors of its records; shapes (s, d)."""

    published: Array
    means: Array


@dataclass(frozen=True, eq=False)
class ErrorModel:
    """What is published is `response` * (mean vector of the records) + an error of covariance D + B'B.

    Attributes
    ----------
    response : shape (d,).
    deviations : square roots of D, shape (d,).
    basis, shrinks : orthonormal rows (r, d), in units of `deviations`, and by how much each is shrunk, (r,).
    """

    response: Array
    deviations: Array
    basis: Array
    shrinks: Array

    def whitened(self, vectors: Array) -> Array:
        """The vectors in units of the error, whose covariance is the identity then; shape (n, d)."""
        scaled = vectors / self.deviations
        return np.asarray(scaled - (scaled @ self.basis.T * self.shrinks) @ self.basis)


def error_model(seen: Rehearsed, slopes: Array | None = None, shape: Shape = SHAPES[1]) -> ErrorModel:
    """The error of some rehearsals: few directions, which they span, and a diagonal for the rest.

    `slopes`, shape (r, d), are further rows of B: how much records' vectors change while they are published.
    """
    gains = _response(seen, shape.response)
    errors = seen.published - gains * seen.means
    count = len(errors)
    # The square of an error off the span of the others is 1/(G^-1)_ss: what a new error has outside of the span.
    gram = errors @ errors.T
    gram += np.eye(count) * (1.0e-10 * np.trace(gram) / count + np.finfo(np.float64).tiny)
    inverse = np.linalg.inv(gram)
    left = (inverse @ errors) / np.diag(inverse)[:, None]  # residuals of each error on the others
    squares = (left**2).mean(axis=0)
    level = squares.mean() * errors.shape[1] / max(errors.shape[1] - count + 1, 1)
    diagonal = (1.0 - shape.shrink) * squares * (level / squares.mean()) + shape.shrink * level
    deviations = np.sqrt(np.maximum(diagonal, np.finfo(np.float64).tiny))
    rows = errors / np.sqrt(count)
    if slopes is not None:
        rows = np.concatenate([rows, slopes])
    rows = rows / deviations
    values, vectors = np.linalg.eigh(rows @ rows.T)
    kept = values > 1.0e-9 * values.max(initial=0.0)
    basis = (vectors[:, kept].T @ rows) / np.sqrt(values[kept])[:, None]
    return ErrorModel(gains, deviations, basis, 1.0 - 1.0 / np.sqrt(1.0 + values[kept]))


def _response(seen: Rehearsed, response: Response) -> Array:
    dimensions = seen.means.shape[1]
    if response == "one":
        return np.ones(dimensions)
    if response == "scalar":
        return np.full(dimensions, float((seen.published * seen.means).sum() / (seen.means**2).sum()))
    moved = seen.means - seen.means.mean(axis=0)
    products, squares = (seen.published * moved).sum(axis=0), (moved**2).sum(axis=0)
    common = products.sum() / squares.sum()
    return np.asarray((products + common * squares.mean()) / (squares + squares.mean()))


@dataclass(frozen=True, eq=False)
class ListScores:
    """Log-likelihood ratios of c listed records, shape (c,), and the scale of the error that explains what was
    published, in units of the model's."""

    scores: Array
    scale: float


def list_scores(model: ErrorModel, published: Array, vectors: Array, centre: Array, members: int) -> ListScores:
    """Which of the listed records are in what was published?

    Parameters
    ----------
    published : shape (d,), of `members` records.
    vectors : of the listed records, shape (c, d).
    centre : mean vector of records that are not listed, shape (d,).
    """
    rows = model.whitened((vectors - centre) * model.response) / members
    seen = model.whitened((published - centre * model.response)[None])[0]
    prior = min(members / len(rows), 0.5)
    spread = prior * (1.0 - prior)
    rest = seen - prior * rows.sum(axis=0)
    values, turned = np.linalg.eigh(rows @ rows.T)
    values = np.maximum(values, 1.0e-12 * values.max())
    along = turned.T @ (rows @ rest)
    inside = along**2 / values
    outside = max(float(rest @ rest - inside.sum()), 0.0)
    free = max(rows.shape[1] - len(rows), 0)

    def surprise(log_scale: float) -> float:
        scale = np.exp(log_scale)
        variances = scale + spread * values
        return float((inside / variances + np.log(variances)).sum() + free * log_scale + outside / scale)

    scale = float(np.exp(minimize_scalar(surprise, bounds=_LOG_SCALES, method="bounded").x))
    shares = 1.0 / (scale + spread * values)
    own = (turned**2) @ (values * shares)
    fit = turned @ (along * shares)
    # Without record i: Sherman and Morrison. 1 - spread own is summed as it is: where the list explains nearly all that
    # was published, the difference would be rounding.
    return ListScores((fit + (prior - 0.5) * own) / ((turned**2) @ (scale * shares)), float(np.sqrt(scale)))


def summed(parts: Sequence[tuple[int, float, Array]]) -> Array:
    """Log-likelihood ratios of membership from those of being in each of several publications, shape (c,).

    `parts` : (epoch, chance that a member is in it, log-likelihood ratios). A member is in one publication of an epoch,
    or in one that is not here; epochs are independent.
    """
    total = np.zeros(len(parts[0][2]))
    for epoch in sorted({part[0] for part in parts}):
        own = [part for part in parts if part[0] == epoch]
        left = 1.0 - sum(chance for _, chance, _ in own)
        terms = [np.log(chance) + ratios for _, chance, ratios in own]
        terms += [np.full(len(total), np.log(left))] if left > 1.0e-9 else []
        total += np.logaddexp.reduce(terms, axis=0)
    return total
