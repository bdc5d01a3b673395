"""Individual mus: the mu of a single record, from its own gradients along a run.

Records differ: one with small gradients is hidden by less noise, one of large susceptibility stands out. A claim about
a typical record, or for the largest gradient that clipping allows, is not what each of them gets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gmip.accounting.account import account, participations
from gmip.accounting.tradeoff import TradeOff
from gmip.vocabulary import Kind, NoisySGD, Sampling, weakest

Array = NDArray[np.float64]
_REPLACED: Final = "the same run with another record in its place, whose gradients are as large as clipping allows"
# With what a run is compared in which the record took part.
NEIGHBOURS: Final[dict[Sampling, str]] = {
    "full": _REPLACED,
    "poisson": "the same run without it",
    "balls-in-bins": "the same run without it",
    "shuffled": "the same run with its gradients left out",
    "fixed": _REPLACED,
}
_LEVELS: Final = 24


@dataclass(frozen=True, eq=False)
class Mus:
    """The mu of each of c records, shape (c,), and whether these are bounds."""

    values: Array
    kind: Kind


@dataclass(frozen=True, eq=False)
class GradientNorms:
    """Norms of c records, each of shape (c,), over all steps of a run; gradients are clipped as the run clipped them.

    Attributes
    ----------
    largest : the largest norm.
    replaced : the root of the sum over steps of ((norm + C)/(divisor * noise_std))^2, C the clip norm and divisor what
        the sum of the gradients of a batch is divided by: how far another record in its place can move a full batch.
    """

    largest: Array
    replaced: Array


def mu_by_noise(runs: Sequence[NoisySGD], norms: GradientNorms) -> Mus | None:
    """The mu of each record by noise alone; None where some step has no noise or no clipping.

    Guarantees
    ----------
    Against an attacker who knows all other records and sees every step, for the neighbours in `NEIGHBOURS`. Full
    batches: a step is a Gaussian mechanism with the record's own (norm + C)/(n tau), and mus add up in squares.
    Shuffled epochs: as if the order were known, an epoch is one such step with norm/(n tau); that the order is not
    known helps with data that nobody chose, and no bound counts on it (docs/theory/shuffled.md). Fixed and Poisson
    batches, and balls in bins: the accountant's differential privacy with C replaced by the record's largest norm
    (fixed: by the mean of that and C), which is never below that of its norms as they were. The norms are those at the
    parameters of this run: as in all individual accounting (Feldman and Zrnic 2021) they depend on the data and on
    earlier noise, so the answer is what a privacy filter would have counted, not a guarantee in advance. It tells
    something about its record: publish it no more freely than the record.
    """
    if not runs or any(run.noise_std <= 0.0 or run.clip_norm is None for run in runs):
        return None
    samplings = {run.sampling for run in runs}
    if samplings == {"full"}:
        return Mus(norms.replaced.copy(), "bound")
    if len(samplings) > 1:
        return None
    sampling, clip = runs[0].sampling, max(run.clip_norm or 0.0 for run in runs)
    own = np.minimum(norms.largest, clip)
    if sampling == "shuffled":
        squares = [
            participations(run) * (np.minimum(own, run.clip_norm or 0.0) / (run.batch_size * run.noise_std)) ** 2
            for run in runs
        ]
        return Mus(np.sqrt(np.sum(squares, axis=0)), "bound")
    if sampling == "fixed":
        own = 0.5 * (own + clip)

    def curve(norm: float) -> TradeOff:
        changed = [run.replace(clip_norm=min(norm, run.clip_norm or norm)) for run in runs]
        return account(changed, notion="gdp")

    return _by_levels(own, curve)


def mu_by_susceptibility(runs: Sequence[NoisySGD], susceptibility: Array) -> Mus:
    """The mu of each record from its own K, against an attacker who knows nobody else.

    Guarantees
    ----------
    `account(runs, susceptibility=K)` with each K rounded up to one of 24 levels, of the kind that `account` says, if K
    is the record's at every step. A forecast where K is measured, or a mean over steps.
    """
    return _by_levels(susceptibility, lambda k: account(list(runs), susceptibility=k))


def _by_levels(values: Array, curve: Callable[[float], TradeOff]) -> Mus:
    """mu of each value, rounded up to one of the levels; mu rises. A bound if all curves are bounds."""
    top = float(values.max(initial=0.0))
    if top <= 0.0:
        return Mus(np.zeros_like(values), "bound")  # gradients of length zero move nothing
    low = float(values[values > 0.0].min())
    levels = np.unique(np.append(np.geomspace(low, top, _LEVELS)[:-1], top))
    places = np.searchsorted(levels, values)
    used, back = np.unique(places, return_inverse=True)
    curves = [curve(float(levels[place])) for place in used]
    found = np.maximum.accumulate([one.equivalent_mu() for one in curves])
    return Mus(np.where(values > 0.0, found[back], 0.0), weakest(one.kind for one in curves))
