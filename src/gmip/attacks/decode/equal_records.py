"""Candidates with the same gradients, or nearly so: a sum tells how many are in, never who (docs/attacks.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import expit, gammaln, logsumexp

from gmip.attacks.decode.listed_sum import PublishedSum

__all__ = ["Counted", "counted", "equal_groups"]

Array = NDArray[np.float64]

_EQUAL: Final = 1.0e-11  # a squared distance, of the squared lengths: what single precision leaves
_NEAR: Final = 2.5e-3  # or this, if it is no more than
_UNSEEN: Final = 25.0  # squared, in units of the noise, over all steps: sweeps would choose one of the two too surely
_PAIRWISE: Final = 5000  # candidates: of more, only neighbours are compared
_BLOCK: Final = 1024
_ORDERS: Final = 3  # in which neighbours are compared


class Counted(NamedTuple):
    """Of g equal candidates: what the sum says on each being in; the mean and variance of how many are; log E exp L."""

    llr: float
    mean: float
    variance: float
    log_mean: float


def equal_groups(steps: Sequence[PublishedSum]) -> list[NDArray[np.intp]]:
    """The candidates who cannot be told apart, or hardly, in groups of two or more."""
    label = np.zeros(steps[0].count, dtype=np.intp)
    for step in steps:
        one, other = np.array(_equal_pairs(step, _UNSEEN / len(steps)), dtype=np.intp).reshape(-1, 2).T
        links = coo_array((np.ones(len(one)), (one, other)), shape=(step.count, step.count))
        _, here = connected_components(links, directed=False)
        _, label = np.unique(np.column_stack([label, here]), axis=0, return_inverse=True)
        if label.max() == len(label) - 1:
            return []
    order = np.argsort(label, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(label[order])) + 1)
    return [group for group in groups if len(group) > 1]


def _equal_pairs(step: PublishedSum, unseen: float) -> list[tuple[int, int]]:
    count = step.count
    found: list[tuple[int, int]] = []
    rows = step.rows[:count]
    own = np.einsum("ij,ij->i", rows, rows) if step.products is None else np.diag(step.products)[:count]
    if step.products is not None or count <= _PAIRWISE:
        for first in range(0, count, _BLOCK):
            some = slice(first, min(first + _BLOCK, count))
            both = own[some, None] + own
            inner = rows[some] @ rows.T if step.products is None else step.products[some, :count]
            near = both - 2.0 * inner <= _limit(both, unseen)
            # A chain through all that are equal is enough: each with the next.
            for i, row in enumerate(near, first):
                later = np.flatnonzero(row[i + 1 :])[:1]
                if later.size:
                    found.append((i, i + 1 + int(later[0])))
        return found
    for way in np.random.default_rng(0).normal(size=(_ORDERS, rows.shape[1])):
        order = np.argsort(rows @ way, kind="stable")
        one, other = order[:-1], order[1:]
        near = ((rows[one] - rows[other]) ** 2).sum(1) <= _limit(own[one] + own[other], unseen)
        found += zip(one[near].tolist(), other[near].tolist(), strict=True)
    return found


def _limit(lengths: Array, unseen: float) -> Array:
    return np.asarray(np.maximum(_EQUAL * lengths, np.minimum(_NEAR * lengths, unseen)))


def counted(size: int, precision: float, pull: float, log_odds: float) -> Counted:
    """If s of `size` are in, the log-likelihood is L = pull s - precision s^2/2; each is in with these log-odds before,
    by itself."""
    among = np.arange(size + 1.0)
    like = pull * among - precision * among**2 / 2.0
    joint = like + _binomial(size, log_odds)
    others = _binomial(size - 1, log_odds)
    log_mean = float(logsumexp(joint))
    weight = np.exp(joint - log_mean)
    mean = float(weight @ among)
    return Counted(
        float(logsumexp(others + like[1:]) - logsumexp(others + like[:-1])),
        mean,
        float(weight @ (among - mean) ** 2),
        log_mean,
    )


def _binomial(size: int, log_odds: float) -> Array:
    k = np.arange(size + 1.0)
    ways = gammaln(size + 1.0) - gammaln(k + 1.0) - gammaln(size - k + 1.0)
    tiny = np.finfo(float).tiny
    return np.asarray(ways + k * np.log(max(expit(log_odds), tiny)) + (size - k) * np.log(max(expit(-log_odds), tiny)))
