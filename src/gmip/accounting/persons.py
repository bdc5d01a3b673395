"""Persons, not records: one who has up to k records in the data comes or goes with all of them.

How many of a person's records are in a batch is random, so a step tests N(0, 1) against a mixture of shifted Gaussians.
docs/theory/persons.md carries the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtr

from gmip.accounting._loss import TAIL_SCORE, Atoms, between
from gmip.accounting.claims import person_claim
from gmip.accounting.composition import compose
from gmip.accounting.families import Discrete, Gaussian
from gmip.accounting.step import combined_mu, gdp_mu_step, poisson_mu
from gmip.accounting.tradeoff import TradeOff
from gmip.errors import InvalidArgument
from gmip.vocabulary import NoisySGD, Notion, Susceptibility

Array = NDArray[np.float64]
_POINTS = 8192  # of the grid of one step, at most
_FINE = 0.005  # its spacing in standard deviations
_RARE = 1.0e-16  # numbers of records that are less likely all together count as found


def most_rows(runs: Sequence[NoisySGD]) -> int:
    """The most records of a person, over the phases of a schedule."""
    return max(run.rows_per_person for run in runs)


def account_for_persons(
    runs: Sequence[NoisySGD], rows: int, notion: Notion, susceptibility: Susceptibility, known: float
) -> TradeOff:
    """The curve for a person with at most `rows` records: see `gmip.account`."""
    if any(r.in_epochs for r in runs):
        raise InvalidArgument(
            "is proved for Poisson, fixed and full batches, not for epochs",
            argument="rows_per_person",
            value=rows,
            remedy="say `sampling` = 'poisson', or draw and clip persons as a whole and account for them as records",
        )
    if any(r.dataset_size <= rows for r in runs):
        raise InvalidArgument(
            "must be less than `dataset_size`", argument="rows_per_person", value=rows, remedy="lower it"
        )
    by_data = notion == "gmip" and known < 1.0 and all(r.sampling == "poisson" for r in runs)
    if by_data and susceptibility is not None and not isinstance(susceptibility, (int, float)):
        raise InvalidArgument(
            "is about single records", argument="susceptibility", remedy="pass one number that no record exceeds"
        )

    def shift(run: NoisySGD) -> float:
        if not by_data:
            return gdp_mu_step(run)
        own = float(susceptibility) if isinstance(susceptibility, (int, float)) else float(run.num_params)
        unknown = math.floor((1.0 - known) * (run.dataset_size - rows))
        spread = run.sample_rate * (1.0 - run.sample_rate) * unknown
        return combined_mu(data_mu=poisson_mu(run, own, spread), gdp_mu=gdp_mu_step(run))

    one = compose([(_step(run, rows, shift), run.num_steps) for run in runs])
    most = float(susceptibility) if by_data and isinstance(susceptibility, (int, float)) else None
    one.claim = person_claim(runs, rows, notion, most, known if by_data else 1.0)
    if notion == "gmip":
        return one
    both = one.symmetrise()
    both.claim, both._added = one.claim, one
    both.gdp_mu = math.sqrt(sum(r.num_steps * (rows * gdp_mu_step(r)) ** 2 for r in runs))
    return both


def _step(run: NoisySGD, rows: int, shift: Callable[[NoisySGD], float]) -> TradeOff:
    """The test of one step: as many shifts as records of the person are in the batch."""
    from scipy import stats  # not for those who ask about rows: it takes a second to import

    mu = shift(run)
    if run.batch_size == run.dataset_size:
        return Gaussian(rows * mu)
    if run.sampling == "poisson":  # all records of the person may come at once, however small the mean batch is
        j = np.arange(rows + 1)
        chances = stats.binom.pmf(j, rows, run.sample_rate)
    else:
        j = np.arange(min(rows, run.batch_size) + 1)
        chances = stats.hypergeom.pmf(j, run.dataset_size, rows, run.batch_size)
    shifts = np.where(j > 0, mu * np.maximum(j, 1), 0.0)  # mu is infinite without noise
    return Discrete(mixture_atoms(np.asarray(chances, dtype=np.float64), shifts))


def mixture_atoms(chances: Array, shifts: Array, *, replaced: bool = False) -> Atoms:
    """The test of N(0, 1), if `replaced` of N(-shift, 1), against N(shift, 1) with these chances; shifts increase
    from 0.

    The loss grows with x, so the masses of both laws between two points of a grid of x are put on the losses at the two
    points such that both stay: a spread that only helps the attacker (docs/theory/composition.md).
    """
    chances = chances / chances.sum()
    kept = max(int(np.searchsorted(-np.cumsum(chances[::-1])[::-1], -_RARE)), 1)
    found = float(chances[kept:].sum())
    finite = shifts[:kept] < 40.0 + TAIL_SCORE  # beyond, no overlap that a double can hold
    found += float(chances[:kept][~finite].sum())
    chances, shifts = chances[:kept][finite], shifts[:kept][finite]
    if not chances.any():  # found in every step
        return Atoms(np.zeros(0), np.zeros(0), np.zeros(0), 1.0, 1.0)
    top = float(shifts[-1])
    if top == 0.0:
        alike, lost = (chances[0], found) if replaced else (1.0, 0.0)
        return Atoms(np.log(chances[:1] / alike), np.array([alike]), np.array([chances[0]]), lost, found)
    bottom = top if replaced else 0.0
    points = min(math.ceil((bottom + top + 2.0 * TAIL_SCORE) / _FINE), _POINTS) + 1
    x = np.linspace(-TAIL_SCORE - bottom, top + TAIL_SCORE, points)
    log_weights = np.log(np.maximum(chances, 1.0e-300)) - 0.5 * shifts**2
    loss: Array = logsumexp(log_weights[:, None] + shifts[:, None] * x[None, :], axis=0)
    if replaced:
        loss -= logsumexp(log_weights[:, None] - shifts[:, None] * x[None, :], axis=0)
    at0, chances0 = (-shifts, chances) if replaced else (np.zeros(1), np.ones(1))
    inner0, inner1 = (
        np.sum([w * between(x - s) for w, s in zip(each, places, strict=True)], axis=0)
        for each, places in ((chances0, at0), (chances, shifts))
    )
    gap = np.diff(loss)
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = np.log(inner1) - np.log(inner0) - loss[:-1]
    excess = np.clip(np.nan_to_num(excess, nan=0.0, posinf=np.inf, neginf=0.0), 0.0, gap)
    # P0 and P1 shares of the upper point: those that keep both masses of the interval.
    gap, narrow = np.maximum(gap, 1.0e-300), gap < 1.0e-14
    upper1 = np.where(narrow, 0.5, np.expm1(-excess) / np.expm1(-gap))
    upper0 = np.where(narrow, 0.5, np.exp(excess - gap) * upper1)
    mass0, mass1 = np.zeros(points), np.zeros(points)
    for mass, inner, upper in ((mass0, inner0, upper0), (mass1, inner1, upper1)):
        mass[:-1] += inner * (1.0 - upper)
        mass[1:] += inner * upper
    below1 = float(chances @ ndtr(x[0] - shifts))
    below0 = float(chances0 @ ndtr(x[0] - at0))
    lifted = min(below1 * math.exp(-loss[0]), below0)
    mass1[0] += below1
    mass0[0] += lifted
    above = float(chances @ ndtr(shifts - x[-1]))
    never = max(below0 - lifted, 0.0) + (found if replaced else 0.0)
    return Atoms(loss, mass0, mass1, never, found + above, smeared=1.0)
