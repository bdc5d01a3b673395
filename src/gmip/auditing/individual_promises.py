"""What each record was promised by its own gradients, and how many records the promise does not cover."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gmip.accounting.individual import NEIGHBOURS, GradientNorms, mu_by_noise, mu_by_susceptibility
from gmip.auditing.promises import stacked_run
from gmip.auditing.schema import IndividualPromises, Promise
from gmip.stats import ScoreSet
from gmip.vocabulary import Kind, NoisySGD

__all__ = ["OwnMu", "OwnNorms", "own_mus", "summarised"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class OwnNorms:
    """Gradient norms of the records with these ids, shape (c,)."""

    ids: NDArray[np.int64]
    norms: GradientNorms


@dataclass(frozen=True, eq=False)
class OwnMu:
    """The mu of each record by its own gradients, shape (c,), sorted by ids; inf where there is none.

    `kind` : that of noise alone is the accountant's; "forecast" where measured susceptibilities enter. `for_whom` : in
    words. `by_noise` : whether noise alone counts.
    """

    ids: NDArray[np.int64]
    mu: Array
    kind: Kind
    for_whom: str
    by_noise: bool = False

    def of(self, ids: NDArray[np.int64]) -> Array:
        """Of records among them."""
        return np.asarray(self.mu[np.searchsorted(self.ids, ids)])


def own_mus(runs: Sequence[NoisySGD], scores: Sequence[ScoreSet], norms: OwnNorms | None) -> OwnMu | None:
    """By measured susceptibilities, and by the norms of the gradients and the noise; where both are known, the less.

    Both hold against an attacker who knows nobody else: noise hides a record from everybody. Not so for shuffled
    epochs, in which noise alone is about gradients that are left out, not about another record: there susceptibilities
    come first.
    """
    by_data = _by_data(runs, scores)
    by_noise = _by_noise(runs, norms)
    if by_data is None or by_noise is None:
        return by_data or by_noise
    if runs[0].sampling == "shuffled" or not np.array_equal(by_data.ids, by_noise.ids):
        return by_data
    words = f"{by_data.for_whom}; or, where less, {by_noise.for_whom}"
    return OwnMu(by_data.ids, np.minimum(by_data.mu, by_noise.mu), "forecast", words)


def _by_data(runs: Sequence[NoisySGD], scores: Sequence[ScoreSet]) -> OwnMu | None:
    measured = next((one for one in scores if one.susceptibility_of is not None), None)
    if not runs or measured is None or measured.susceptibility is None or measured.susceptibility.min() <= 0.0:
        return None
    stacked = measured.susceptibility_of == "run" and len(runs) == 1
    steps = [stacked_run(run) for run in runs] if stacked else list(runs)
    order = np.argsort(measured.ids)
    mu = mu_by_susceptibility(steps, measured.susceptibility[order]).values
    words = "against an attacker who knows nobody else, by its measured susceptibility"
    return OwnMu(measured.ids[order], mu, "forecast", words)


def _by_noise(runs: Sequence[NoisySGD], norms: OwnNorms | None) -> OwnMu | None:
    mu = None if norms is None else mu_by_noise(runs, norms.norms)
    if norms is None or mu is None:
        return None
    order = np.argsort(norms.ids)
    neighbour = NEIGHBOURS[runs[0].sampling]
    words = f"by noise alone, against an attacker who knows all others, compared with {neighbour}"
    return OwnMu(norms.ids[order], mu.values[order], mu.kind, words, by_noise=True)


def summarised(own: OwnMu, members: NDArray[np.int64], promises: Sequence[Promise]) -> IndividualPromises:
    """Of the members among the candidates, compared with what the accountant says for the same attacker: the claim, or,
    if they are by noise alone, that of noise alone. A bound is not compared with a forecast."""
    key = "gdp" if own.by_noise else "claimed"
    promised = next((one.mu for one in promises if one.key == key), None)
    if own.kind == "bound" and not any(one.key == key and one.is_bound for one in promises):
        promised = None
    mu = own.of(members)
    largest = float(mu.max(initial=0.0))
    median = float(np.median(mu)) if mu.size else 0.0
    return IndividualPromises.model_validate(
        {
            "members": mu.size,
            "promised_mu": promised,
            "beyond": None if promised is None or not mu.size else float((mu > promised).mean()),
            "median_mu": median if math.isfinite(median) else None,
            "largest_mu": largest if math.isfinite(largest) else None,
            "kind": own.kind,
            "for_whom": own.for_whom,
        }
    )
