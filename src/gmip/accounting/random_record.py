"""The guarantee for a random record, whatever the records are like.

Nobody knows how exposed a given record is, but exposure has a mean: over the members, susceptibilities have the mean r
(the rank), and clipped gradients lie within C of their mean on average. So delta(eps) of a record drawn at random is at
most the concave envelope, at that mean, of delta(eps) as a function of exposure: one convex problem for each eps.
docs/theory/random-record.md carries the proofs.

The exposure of a record is a `level` t of mean at most 1, in a share of the steps (elsewhere it is 0). Cells of (share,
level) stand for all records in them: the exposure of their upper corner at the cost of their lower one, which is
pessimistic, and they are halved where that matters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gmip.accounting._epoch import coarse_epochs
from gmip.accounting.composition import compose
from gmip.accounting.families import Discrete, Gaussian, PiecewiseLinear
from gmip.accounting.gaussian_pair import GaussianPair
from gmip.accounting.step import (
    Crowd,
    combined_mu,
    hidden,
    noise_mu_step,
    noise_on_sum,
    poisson_crowd,
    rank_of,
    unknown_others,
)
from gmip.accounting.tradeoff import TradeOff
from gmip.vocabulary import NoisySGD

__all__ = ["random_record"]


Array = NDArray[np.float64]
StepTest = Callable[[NoisySGD], TradeOff]
# The steps (or epochs) of a run as independent tests, given the test of a step in which the record takes part, the test
# of one in which it is not exposed, and the share of an epoch's batches in which it is.
StepParts = Callable[[NoisySGD, StepTest, StepTest, float], list[tuple[TradeOff, int]]]

_EPSILONS = np.concatenate(
    [np.linspace(-18.0, -1.0, 200)[:-1], np.linspace(-1.0, 6.0, 700), np.linspace(6.0, 25.0, 200)[1:]]
)
_COARSE = 10  # every so many of them are enough to see which cell to refine
_RATES = np.array([1.0e-4, 1.0e-3, 1.0e-2, 0.05, 0.1, 0.3])  # where cells are refined until the answer is tight
_TOLERANCE = 0.02  # of the TPR, relatively
_MOST_CELLS = 250
_FINE = 5.0e-3  # of the mean exposure: cells that leave less open are not halved
_LEAST_LEVEL = 0.02
_BOUNDLESS = 1.0e15  # stands for a susceptibility that only noise limits
_NEGLIGIBLE = 3.0e-3  # of the TPR, absolutely


def random_record(runs: Sequence[NoisySGD], known: float, *, constant: bool, parts: StepParts) -> TradeOff:
    """The curve for a random record.

    constant : whether a record is equally exposed in all steps; if not, the worst share of the steps is taken.
    parts : takes a run apart into independent tests.

    Guarantees
    ----------
    A lower bound on the curve of every mixture of records that are equally exposed in a share of the steps; `tpr_error`
    says by how much the grids and cells can have overstated the TPR at rates from 1e-4 to 0.3.
    """
    if known == 1.0 and all(r.sampling == "poisson" for r in runs):  # a record's own gradient: the mean is the most
        return compose([part for run in runs for part in parts(run, _noise_alone, _noise_alone, 1.0)])
    steady = constant or all(r.batch_size == r.dataset_size for r in runs)  # of stacked gradients only the sum matters
    if not steady:
        runs = [_whole_epochs(run) for run in runs]
    with coarse_epochs():  # cells are coarser still
        return _searched(_Family(list(runs), known, parts), steady=steady)


def _whole_epochs(run: NoisySGD) -> NoisySGD:
    """One epoch and a part of another as two: there is no share of epochs to choose between."""
    epoch = run.steps_per_epoch
    between = run.sampling == "shuffled" and 1 < epoch < run.num_steps < 2 * epoch
    return run.replace(num_steps=2 * epoch) if between else run


def _noise_alone(run: NoisySGD) -> TradeOff:
    return Gaussian(noise_mu_step(run))


def _searched(family: _Family, *, steady: bool) -> TradeOff:
    """The envelope over cells that are halved until the answer is tight."""
    cells = [_Cell(0.0 if steady else family.least_share, 1.0, 0.0, _LEAST_LEVEL, family.deltas(1.0, _LEAST_LEVEL))]
    if steady:
        cells[0] = _Cell(1.0, 1.0, 0.0, _LEAST_LEVEL, cells[0].deltas)
    top = family.top_level
    levels = [_LEAST_LEVEL, *np.geomspace(min(0.3, 0.3 * top), top, 6).tolist()]
    share = 1.0 if steady else family.least_share
    cells += [_Cell(share, 1.0, low, high, family.deltas(1.0, high)) for low, high in pairwise(levels)]
    if math.isinf(family.largest_level):
        cells.append(_Cell(share, 1.0, top, math.inf, family.deltas(1.0, math.inf)))
    while len(cells) < _MOST_CELLS:
        worst = _widest(cells, family)
        if worst is None:
            break
        cells.remove(worst)
        cells += worst.halves(family)
    return _Envelope(cells, family)


class _Family:
    """Exposure of a record by its level and the share of the steps in which it has it."""

    def __init__(self, runs: list[NoisySGD], known: float, parts: StepParts) -> None:
        self._runs, self._known, self._take_apart = runs, known, parts
        self._parts = lru_cache(maxsize=None)(self._apart)
        self.test = lru_cache(maxsize=None)(self._tested)
        self.tpr_error = 0.0
        #: Batches of the epoch if the run is one: there a share of the steps is a share of them.
        self._batches = _batches_of_one_epoch(runs)
        #: A record is exposed in one step (or epoch) at least, or not at all.
        self.least_share = 1.0 / (self._batches or max(times for _, times in self._parts(0.0)))
        #: No record has a level above this.
        self.largest_level = self._largest()
        #: From here on hardly anything changes.
        self.top_level = self.largest_level if math.isfinite(self.largest_level) else self._saturated()

    def _largest(self) -> float:
        if self._known == 1.0:
            return 2.0  # |theta_x - theta_x'|^2 <= 4 C^2, with the mean 2 C^2
        return max(max(self._leverage(r), 0.0 if r.noise_std == 0.0 else 4.0) for r in self._runs)

    def _leverage(self, run: NoisySGD) -> float:
        """The largest susceptibility against all records, the record itself included, relative to its mean."""
        others = self._others(run)
        return (others + 1.0) / _uncentred_rank(run) if run.sampling == "poisson" else others / rank_of(run)

    def _saturated(self) -> float:
        """The level at which one step tells almost everything, or noise almost everything that is left."""
        levels = []
        for run in self._runs:
            spread = poisson_crowd(run, self._known) if run.sampling == "poisson" else run.batch_size
            levels.append(150.0 * spread * max(1.0 - self._known, 1.0e-3) / rank_of(run) + 8.0)
        return max(levels)

    def cost(self, level: float) -> float:
        """The least mean exposure that a record of this level uses up, as a share of the mean over all records."""
        if self._known == 1.0:
            return level
        costs = []
        for run in self._runs:
            # Neither exceeds what it can be: |theta - mean|^2 (of the others) is at most 4 C^2, leverage at most 1.
            weight = self._data_share(run)
            reach, leverage = min(4.0 / self._centring(run), level), min(self._leverage(run), level)
            costs.append(weight * leverage + (1.0 - weight) * reach if weight < 1.0 else leverage)
        return min(costs)

    def _centring(self, run: NoisySGD) -> float:
        """|theta - mean|^2 against the others alone, relative to that against all records."""
        return (1.0 + 1.0 / max(self._others(run), 1.0)) ** 2

    def _data_share(self, run: NoisySGD) -> float:
        """Weight of the susceptibility in the cost: the one for which records on the ray are the cheapest."""
        if run.sampling == "poisson" or run.noise_std == 0.0:
            return 1.0
        noise, share, others = noise_on_sum(run), self._share(run), self._others(run)
        data = (self._crowd(run).spread + share * noise) / rank_of(run) * (1.0 + 1.0 / others)
        return data / (data + (1.0 - share) * noise)

    def _others(self, run: NoisySGD) -> float:
        """How many others a record's gradient is compared with: the unknown ones that batches are drawn from."""
        drawn = run.sampling == "poisson" or (run.sampling == "fixed" and run.batch_size < run.dataset_size)
        return float(unknown_others(run, self._known)) if drawn else math.inf

    def _crowd(self, run: NoisySGD) -> Crowd:
        """The crowd of a batch of the expected composition."""
        size = max((1.0 - self._known) * run.batch_size, 1.0e-9)
        others = self._others(run)
        return Crowd.new(size) if math.isinf(others) else Crowd.drawn(min(size, others), others)

    def _share(self, run: NoisySGD) -> float:
        """x of Theorem 3, one for all levels: the best at level 1."""
        if run.noise_std == 0.0:
            return 0.0
        rank = rank_of(run)
        return self._crowd(run).best_share(rank, rank, noise_on_sum(run), reach=1.0, stacked=self._stacked(run))

    def _stacked(self, run: NoisySGD) -> int:
        return run.num_steps if run.batch_size == run.dataset_size else 1

    def _tested(self, run: NoisySGD, level: float) -> TradeOff:
        """One step in which the record takes part."""
        if self._known == 1.0:
            # The mean for two different members; for two draws from the distribution it is exactly 2 C^2.
            apart = level * (run.dataset_size / max(run.dataset_size - 1, 1) if run.sampling == "fixed" else 1.0)
            # At level 0 nothing moves, without noise (mu infinite) too.
            return Gaussian(noise_mu_step(run) * math.sqrt(min(apart / 2.0, 1.0)) if apart > 0.0 else 0.0)
        rank, others = rank_of(run), self._others(run)
        if run.sampling == "poisson":
            own = _others_only(level * _uncentred_rank(run), others + 1.0, others)
            data_mu = math.sqrt(own / max(poisson_crowd(run, self._known), 1.0e-300))
            return Gaussian(combined_mu(data_mu=data_mu, gdp_mu=noise_mu_step(run)))
        own, reach = level * rank, level
        if math.isfinite(others):
            own, reach = _others_only(own, others, others + 1.0), level * self._centring(run)
        noise, share = noise_on_sum(run), self._share(run)
        if own == math.inf and noise == 0.0:
            return Gaussian(math.inf)
        own, reach = min(max(own, 1.0e-9), _BOUNDLESS), min(max(reach, 1.0e-9), 4.0)
        return hidden(
            run,
            self._known,
            lambda crowd: crowd.test(own, rank, noise, reach=reach, share=share, stacked=self._stacked(run)),
        )

    def _apart(self, level: float, share: float = 1.0) -> list[tuple[TradeOff, int]]:
        """All steps (or epochs), the record having this level in each, or in a share of the batches of each epoch."""
        apart = [
            part
            for run in self._runs
            for part in self._take_apart(run, lambda r: self.test(r, level), lambda r: self.test(r, 0.0), share)
        ]
        # Curves that compose in closed form stay what they are; of the others the test is kept, not made again.
        return [(c if isinstance(c, (Gaussian, GaussianPair)) else Discrete(c._atoms()), times) for c, times in apart]

    def between(self, low: float, high: float) -> tuple[float, float]:
        """The highest share of the lower half of a range of shares, and the lowest of the upper half."""
        middle = math.sqrt(low * high)
        if self._batches is None:
            return middle, middle
        batches = max(math.floor(middle * self._batches + 1.0e-9), 1)  # records are exposed in whole batches
        return batches / self._batches, (batches + 1) / self._batches

    def taken(self, share: float) -> float:
        """The share of the steps in which a record is exposed that is exposed in `share` of them: whole steps."""
        if self._batches is not None:
            return max(math.ceil(share * self._batches - 1.0e-9), 1) / self._batches
        return max(max(math.ceil(share * times), 1) / times for _, times in self._parts(0.0))

    def deltas(self, share: float, level: float) -> Array:
        """delta of the whole run at each of `_EPSILONS`."""
        if self._batches is not None:
            curve = compose(self._parts(level, share))
            self.tpr_error = max(self.tpr_error, curve.tpr_error)
            return np.clip(curve._deltas(_EPSILONS), 0.0, 1.0)
        exposed = [(c, max(math.ceil(share * times), 1)) for c, times in self._parts(level)]
        # In the rest of the steps the record is at the mean, and still changes the variance.
        rest = [
            (c, times - done) for (c, times), (_, done) in zip(self._parts(0.0), exposed, strict=True) if times > done
        ]
        extra = 0.0
        if rest and self._idle > _NEGLIGIBLE:
            exposed += rest
        elif rest:  # delta of two independent tests is at most delta of one and the advantage of the other
            extra = self._idle
        curve = compose(exposed)
        self.tpr_error = max(self.tpr_error, curve.tpr_error + extra)
        return np.clip(curve._deltas(_EPSILONS) + extra, 0.0, 1.0)

    @cached_property
    def _idle(self) -> float:
        """Advantage over a record that is at the mean in all steps."""
        return max(compose(self._parts(0.0)).advantage(), 0.0)


def _batches_of_one_epoch(runs: Sequence[NoisySGD]) -> int | None:
    """How many batches a run has that is one shuffled epoch, or a part of one; None for other runs."""
    if len(runs) > 1 or runs[0].sampling != "shuffled" or not 1 < runs[0].steps_per_epoch >= runs[0].num_steps:
        return None
    return runs[0].num_steps


def _uncentred_rank(run: NoisySGD) -> float:
    """Rank of the second moment of the gradients, to which their mean adds a direction."""
    return min(rank_of(run) + 1.0, float(run.num_params))


def _others_only(leverage: float, limit: float, factor: float) -> float:
    """The susceptibility against the others alone, of a record whose susceptibility against all is `leverage`."""
    return factor * leverage / (limit - leverage) if leverage < limit else math.inf


@dataclass(frozen=True, eq=False)
class _Cell:
    """Records whose share of exposed steps and whose level lie in a rectangle; deltas at its upper corner."""

    least_share: float
    share: float
    least_level: float
    level: float
    deltas: Array

    def least_cost(self, family: _Family) -> float:
        return self.least_share * family.cost(self.least_level)

    def cost(self, family: _Family) -> float:
        return family.taken(self.share) * family.cost(self.level)

    def halves(self, family: _Family) -> list[_Cell]:
        by_share = self.share / self.least_share
        by_level = self.level / max(self.least_level, 0.1 * self.level) if math.isfinite(self.level) else 4.0
        if by_share > by_level:
            middle, above = family.between(self.least_share, self.share)
            lower = _Cell(self.least_share, middle, self.least_level, self.level, family.deltas(middle, self.level))
            return [lower, _Cell(above, self.share, self.least_level, self.level, self.deltas)]
        if math.isinf(self.level):
            middle = 2.0 * self.least_level
        else:
            middle = math.sqrt(self.level * max(self.least_level, 0.05 * self.level))
        lower = _Cell(self.least_share, self.share, self.least_level, middle, family.deltas(self.share, middle))
        return [lower, _Cell(self.least_share, self.share, middle, self.level, self.deltas)]


def _envelope(costs: Array, deltas: Array, epsilons: Array) -> tuple[Array, NDArray[np.int64], NDArray[np.int64]]:
    """The concave envelope at cost 1, and between which two points it is taken, for each epsilon.

    costs : array of shape (m,); deltas : array of shape (m, e). A record without any exposure costs nothing.
    """
    nothing = np.maximum(-np.expm1(np.minimum(epsilons, 0.0)), 0.0)
    costs, deltas = np.append(costs, 0.0), np.vstack([deltas, nothing])
    cheap, dear = np.flatnonzero(costs <= 1.0), np.flatnonzero(costs > 1.0)
    best = deltas[cheap].max(axis=0)
    left = right = cheap[deltas[cheap].argmax(axis=0)]
    left, right = left.copy(), right.copy()
    for j in dear:
        weight = (1.0 - costs[cheap]) / (costs[j] - costs[cheap]) if math.isfinite(costs[j]) else np.zeros(cheap.size)
        mixed = deltas[cheap] + weight[:, None] * (deltas[j] - deltas[cheap])
        which = mixed.argmax(axis=0)
        value = np.take_along_axis(mixed, which[None, :], axis=0)[0]
        better = value > best
        best = np.where(better, value, best)
        left, right = np.where(better, cheap[which], left), np.where(better, j, right)
    return best, left, right


def _widest(cells: list[_Cell], family: _Family) -> _Cell | None:
    """The cell to halve next: one of those on which the answer rests where it is least certain."""
    epsilons = _EPSILONS[::_COARSE]
    deltas = np.array([cell.deltas[::_COARSE] for cell in cells])
    low = np.array([cell.least_cost(family) for cell in cells])
    high = np.array([cell.cost(family) for cell in cells])
    upper, left, right = _envelope(low, deltas, epsilons)
    lower, _, _ = _envelope(high, deltas, epsilons)
    lines = np.exp(epsilons)[None, :] * _RATES[:, None]
    above, below = upper[None, :] + lines, lower[None, :] + lines
    at = above.argmin(axis=1)
    tpr, gap = above.min(axis=1), above.min(axis=1) - below.min(axis=1)
    worst = int(np.argmax(gap / np.maximum(tpr, 1.0e-3)))
    if gap[worst] <= _TOLERANCE * tpr[worst]:
        return None
    i, j = int(left[at[worst]]), int(right[at[worst]])
    cheap, dear = (low[k] if k < len(cells) else 0.0 for k in (i, j))
    weight = (1.0 - cheap) / (dear - cheap) if dear > cheap else 1.0
    # How much of the mean exposure the two cells leave open.
    finite = np.where(np.isfinite(high), high, 10.0 * low)
    open_ = {k: share * (finite[k] - low[k]) for k, share in ((i, 1.0 - weight), (j, weight)) if k < len(cells)}
    chosen = max(open_, key=lambda k: open_[k], default=None)
    return None if chosen is None or open_[chosen] < _FINE else cells[chosen]


class _Envelope(PiecewiseLinear):
    """The polygon of tangents 1 - delta(eps) - e^eps a."""

    def __init__(self, cells: list[_Cell], family: _Family) -> None:
        deltas = np.array([cell.deltas for cell in cells])
        upper, _, _ = _envelope(np.array([cell.least_cost(family) for cell in cells]), deltas, _EPSILONS)
        lower, _, _ = _envelope(np.array([cell.cost(family) for cell in cells]), deltas, _EPSILONS)
        polygon = PiecewiseLinear._from_lines(_EPSILONS, 1.0 - np.clip(upper, 0.0, 1.0))
        self._set(polygon._fpr_vertices, polygon._log_fnr_vertices)
        lines = np.exp(_EPSILONS)[None, :] * _RATES[:, None]
        gap = (upper + lines).min(axis=1) - (lower + lines).min(axis=1)
        self._tpr_error = float(gap.max()) + family.tpr_error

    @property
    def tpr_error(self) -> float:
        return self._tpr_error
