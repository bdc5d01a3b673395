"""Stochastic composition (Definition 4.1 of the paper): records differ in how exposed they are.

The attacker faces a random record x and chooses how to spend the false positives over records. At the optimum all tests
have one slope, that is, one global likelihood-ratio threshold (docs/theory/trade-offs.md): so the losses of all
records are pooled.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gmip import _validate as check
from gmip.accounting.composition import Composed
from gmip.accounting.tradeoff import TradeOff
from gmip.errors import InvalidArgument
from gmip.vocabulary import Claim

__all__ = ["group_susceptibilities", "stochastic_composition"]

MAX_GROUPS = 128


def stochastic_composition(curves: Sequence[TradeOff], weights: ArrayLike | None = None) -> TradeOff:
    """The curve of an attacker who faces a random one of `curves` and knows which.

    weights : array-like of shape (n,), how often each is faced (evenly if left out).

    Guarantees
    ----------
    A lower bound on the stochastic composition of the given curves (each is replaced by its pessimistic
    discretisation), and never below the lowest of them: f >= f* for the worst record's f*. A bound only if all curves
    are bounds.
    """
    if not curves:
        raise InvalidArgument("is empty", argument="curves", remedy="pass at least one trade-off curve")
    shares = np.ones(len(curves)) if weights is None else check.positive_array("weights", weights)
    if shares.size != len(curves):
        raise InvalidArgument(
            f"has {shares.size} entries for {len(curves)} curves", argument="weights", remedy="pass one for each"
        )
    shares = shares / shares.sum()
    pooled = Composed([(float(share), curve._parts()) for share, curve in zip(shares, curves, strict=True)])
    pooled.claim = Claim.of_all([curve.claim for curve in curves])
    return pooled


def group_susceptibilities(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """At most MAX_GROUPS susceptibilities and their shares: each value counts as the largest of its group.

    values : array of shape (n,). Groups are of equal width in the logarithm, so heavy tails keep their resolution;
    rounding up is in the attacker's favour, because exposure grows with susceptibility.
    """
    unique, counts = np.unique(values, return_counts=True)
    if unique.size > MAX_GROUPS:
        edges = np.geomspace(unique[0], unique[-1], MAX_GROUPS + 1)[1:]
        group = np.minimum(np.searchsorted(edges, unique), MAX_GROUPS - 1)
        used = np.unique(group)
        tops = np.array([unique[np.searchsorted(group, g, side="right") - 1] for g in used])
        counts = np.bincount(group, weights=counts)[used]
        unique = tops
    return unique, counts / counts.sum()
