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
from scipy import fft

from gmip.accounting._epoch import coarse_epochs
from gmip.accounting._lattice import folded
from gmip.accounting._loss import Atoms, split_weights
from gmip.accounting.composition import compose
from gmip.accounting.families import Discrete, Gaussian, PiecewiseLinear
from gmip.accounting.gaussian_pair import GaussianPair
from gmip.accounting.step import (
    Crowd,
    combined_mu,
    hidden,
    noise_mu_step,
    noise_on_sum,
    noise_step,
    poisson_crowd,
    rank_of,
    shaped_on_sum,
    unknown_others,
)
from gmip.accounting.tradeoff import TradeOff
from gmip.vocabulary import NoisySGD

Array = NDArray[np.float64]
StepTest = Callable[[NoisySGD], TradeOff]  # of one step of a run, given that the record takes part
# The steps (or epochs) of a run as independent tests, given the test of a step in which the record takes part, the test
# of one in which it is not exposed, and the share of an epoch's batches in which it is.
StepParts = Callable[[NoisySGD, StepTest, StepTest, float], list[tuple[TradeOff, int]]]

_EPSILONS = np.concatenate(
    [np.linspace(-18.0, -1.0, 200)[:-1], np.linspace(-1.0, 6.0, 700), np.linspace(6.0, 25.0, 200)[1:]]
)
_COARSE = 30  # every so many of them are enough to see which cell to refine
_RATES = np.array([1.0e-4, 1.0e-3, 1.0e-2, 0.05, 0.1, 0.3])  # where cells are refined until the answer is tight
_TOLERANCE = 0.02  # of the TPR, relatively
_MOST_CELLS = 800
_MOST_EPOCHS = 250  # of them, where each is an epoch of its own
_AT_ONCE = 5  # cells that are halved before the answer is looked at again, for each rate
_LEAST_LEVEL = 0.02
_BOUNDLESS = 1.0e15  # stands for a susceptibility that only noise limits
_LARGE = 60.0  # a loss that counts as certain
_SPACING = 0.02  # of a lattice of losses, in standard deviations of one step
_MOST_POINTS = 10_000
_TAIL = 1.0e-12
_ORDERS = np.append(np.geomspace(0.02, 3.0e4, 24), -np.geomspace(0.02, 3.0e4, 24))  # of Chernoff's bounds
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
        return compose([part for run in runs for part in parts(run, noise_step, noise_step, 1.0)])
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


def _searched(family: _Family, *, steady: bool) -> TradeOff:
    """The envelope over cells that are halved until the answer is tight, or there are too many."""
    cells = [_Cell(0.0 if steady else family.least_share, 1.0, 0.0, _LEAST_LEVEL, family.deltas(1.0, _LEAST_LEVEL))]
    if steady:
        cells[0] = _Cell(1.0, 1.0, 0.0, _LEAST_LEVEL, cells[0].deltas)
    top = family.top_level
    levels = [_LEAST_LEVEL, *np.geomspace(min(0.3, 0.3 * top), top, 6).tolist()]
    share = 1.0 if steady else family.least_share
    cells += [_Cell(share, 1.0, low, high, family.deltas(1.0, high)) for low, high in pairwise(levels)]
    if math.isinf(family.largest_level):
        cells.append(_Cell(share, 1.0, top, math.inf, family.deltas(1.0, math.inf)))
    while len(cells) < (_MOST_CELLS if family.batches is None else _MOST_EPOCHS):
        chosen = _undecided(cells, family)
        if not chosen:
            break
        halves = [half for i in sorted(chosen) for half in cells[i].halves(family)]
        cells = [cell for i, cell in enumerate(cells) if i not in chosen] + halves
    return _Envelope(cells, family)


class _Family:
    """Exposure of a record by its level and the share of the steps in which it has it."""

    def __init__(self, runs: list[NoisySGD], known: float, parts: StepParts) -> None:
        self._runs, self._known, self._take_apart = runs, known, parts
        self._parts = lru_cache(maxsize=None)(self._apart)
        self.test = lru_cache(maxsize=None)(self._tested)
        self.cost = lru_cache(maxsize=None)(self._cost)
        self._law = lru_cache(maxsize=None)(self._lattice_law)
        self.tpr_error = 0.0
        #: Batches of the epoch if the run is one: there a share of the steps is a share of them.
        self.batches = _batches_of_one_epoch(runs)
        #: What a share is a share of: the steps or epochs of each phase, or the batches of one epoch.
        self._units = {self.batches} if self.batches else {times for _, times in self._parts(0.0)}
        #: A record is exposed in one step (or epoch) at least, or not at all.
        self.least_share = 1.0 / max(self._units)
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
            shaped = shaped_on_sum(run) if run.sampling != "poisson" else 0.0
            spread = poisson_crowd(run, self._known) if run.sampling == "poisson" else run.batch_size + shaped
            levels.append(150.0 * spread * max(1.0 - self._known, 1.0e-3) / rank_of(run) + 8.0)
        return max(levels)

    def _cost(self, level: float) -> float:
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
        shaped = shaped_on_sum(run)
        return Crowd.new(size, shaped) if math.isinf(others) else Crowd.drawn(min(size, others), others, shaped)

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
            # Shaped noise is not counted: the level is uncentred, and its covariance is not.
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
        below = {units: math.floor(middle * units + 1.0e-9) for units in self._units}  # whole steps
        return max(n / units for units, n in below.items()), min((n + 1) / units for units, n in below.items())

    def taken(self, share: float) -> float:
        """The largest share of the steps of a phase in which a record is exposed that is in `share` of them: whole
        steps."""
        return max(_whole(share, units) / units for units in self._units)

    def deltas(self, share: float, level: float) -> Array:
        """delta of the whole run at each of `_EPSILONS`."""
        if self.batches is not None:
            curve = compose(self._parts(level, share))
            self.tpr_error = max(self.tpr_error, curve.tpr_error)
            return np.clip(curve._deltas(_EPSILONS), 0.0, 1.0)
        if len(self._parts(level)) == 1:
            ((one, times),) = self._parts(level)
            done = round(self.taken(share) * times)
            law = None if done == 1 or isinstance(one, (Gaussian, GaussianPair)) else self._law(level)
            if law is not None:
                found, error = law[0].deltas(done, law[1] if done < times else None)
                self.tpr_error = max(self.tpr_error, error)
                return found
        exposed = [(c, _whole(share, times)) for c, times in self._parts(level)]
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

    def _lattice_law(self, level: float) -> tuple[_Law, _Law] | None:
        """The losses of one step and of a record at the mean in all; None where nothing, or everything, is told."""
        law = _Law.of(self._parts(level)[0][0]._atoms())
        return (law, _Law.of(self._rest, law.spacing)) if law.spacing > 0.0 and law.certain < 0.5 else None

    @cached_property
    def _rest(self) -> Atoms:
        """All steps of a record that is at the mean in each, and still changes the variance."""
        return compose(self._parts(0.0))._atoms()

    @cached_property
    def _idle(self) -> float:
        """Advantage over a record that is at the mean in all steps."""
        return max(compose(self._parts(0.0)).advantage(), 0.0)


@dataclass(frozen=True, eq=False)
class _Law:
    """The loss of a step under membership on the points `first + spacing * i`, by splits that keep both masses."""

    first: float
    spacing: float
    mass: Array
    certain: float
    added: float = 0.0  # variance, by the splits

    @classmethod
    def of(cls, atoms: Atoms, spacing: float | None = None) -> _Law:
        """The spacing is such that the splits add little variance to a sum of many, unless it is given."""
        kept = atoms.loss < _LARGE
        loss, mass = atoms.loss[kept], atoms.mass1[kept]
        certain = atoms.certain + float(atoms.mass1[~kept].sum())
        total = float(mass.sum())
        if total <= 0.0:
            return cls(0.0, 0.0, mass, 1.0)
        if spacing is None:
            deviation = math.sqrt(max(float(mass @ loss**2) / total - (float(mass @ loss) / total) ** 2, 0.0))
            spacing = max(_SPACING * deviation, float(np.ptp(loss)) / _MOST_POINTS)
        if spacing < 1.0e-9:
            return cls(0.0, 0.0, mass, certain)
        # A point of the lattice on the heaviest atom, which many steps would widen most.
        anchor = float(loss[np.argmax(mass)])
        place = np.floor((loss - anchor) / spacing)
        upper = split_weights(np.clip(loss - anchor - spacing * place, 0.0, spacing), spacing, member=True)
        low = float(place.min())
        index = (place - low).astype(np.int64)
        spread: Array = np.bincount(index, mass * (1.0 - upper), index.max() + 2).astype(np.float64)
        spread += np.bincount(index + 1, mass * upper, index.max() + 2)
        added = spacing**2 * float(mass @ (upper * (1.0 - upper)))
        return cls(anchor + spacing * low, spacing, spread, certain, added)

    def deltas(self, steps: int, other: _Law | None) -> tuple[Array, float]:
        """delta of so many steps, and of the rest of the run, at each of `_EPSILONS`; and by how much splits raise it.

        Sums beyond either end of the lattice come in at the other. What is above has a chance of at most `_TAIL`, by
        Chernoff's bound, and counts as certain; what is below helps the attacker.
        """
        moments = steps * self._moments + (0.0 if other is None else other._moments)
        ends = (moments - math.log(_TAIL)) / _ORDERS
        high, low = float(ends[_ORDERS > 0.0].min()), float(ends[_ORDERS < 0.0].max())
        if high <= low:  # there is no mass to speak of: the record is found
            return np.ones(_EPSILONS.size), 0.0
        start = steps * self.first + (0.0 if other is None else other.first)
        size = fft.next_fast_len(math.ceil((high - low) / self.spacing) + 2, real=True)
        below = math.floor((low - start) / self.spacing)
        transform = _power(fft.rfft(folded(self.mass, size), size), steps)
        certain = 1.0 - (1.0 - self.certain) ** steps
        if other is not None:
            transform *= fft.rfft(folded(other.mass, size), size)
            certain += other.certain
        mass = np.maximum(np.roll(fft.irfft(transform, size), -(below % size)), 0.0)
        loss = start + self.spacing * (below + np.arange(size))
        # From the top down: masses above each point, under both laws.
        above1 = np.append(np.cumsum(mass[::-1])[::-1], 0.0)
        with np.errstate(over="ignore"):
            above0 = np.append(np.cumsum((mass * np.exp(-np.maximum(loss, -600.0)))[::-1])[::-1], 0.0)
        at = np.searchsorted(loss, _EPSILONS, side="right")
        found = np.clip(certain + _TAIL + above1[at] - np.exp(_EPSILONS) * above0[at], 0.0, 1.0)
        # Half of the variance that splits add times the density of the sum, and fourfold for what is between points.
        return found, min(2.0 * steps * self.added * float(mass.max()) / self.spacing, 1.0)

    @cached_property
    def _moments(self) -> Array:
        """log E[e^(order loss)] at `_ORDERS`, of the mass that is not certain."""
        (used,) = np.nonzero(self.mass)
        points, mass = self.first + self.spacing * used, self.mass[used]
        tops = np.maximum(_ORDERS * points[0], _ORDERS * points[-1])
        logs: Array = np.log(np.exp(_ORDERS[:, None] * points - tops[:, None]) @ mass) + tops
        return logs


def _whole(share: float, units: int) -> int:
    """So many steps, rounded up."""
    return max(math.ceil(share * units - 1.0e-9), 1)


def _power(values: NDArray[np.complex128], times: int) -> NDArray[np.complex128]:
    """values ** times by squaring: NumPy takes logarithms of complex numbers, at ten times the cost."""
    found: NDArray[np.complex128] | None = None
    while True:
        if times % 2:
            found = values.copy() if found is None else np.multiply(found, values, out=found)
        times //= 2
        if not times:
            return np.ones_like(values) if found is None else found
        values = values * values


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


def _envelope(costs: Array, deltas: Array, epsilons: Array) -> tuple[Array, Array]:
    """The concave envelope at cost 1, and its slope there (the price of exposure), for each epsilon.

    costs : array of shape (m,); deltas : array of shape (m, e). A record without any exposure costs nothing. At any
    price the envelope is at most price + max(delta - price cost): the least of these is the envelope, and a price
    close by errs on the attacker's side.
    """
    nothing = np.maximum(-np.expm1(np.minimum(epsilons, 0.0)), 0.0)
    used = np.isfinite(costs)
    costs, deltas = np.append(costs[used], 0.0), np.vstack([deltas[used], nothing])
    low, high = np.zeros(epsilons.size), np.ones(epsilons.size)  # of a concave function that is 0 or more at 0
    for _ in range(32):
        price = 0.5 * (low + high)
        dear = costs[np.argmax(deltas - price * costs[:, None], axis=0)] > 1.0
        low, high = np.where(dear, price, low), np.where(dear, high, price)
    return high + np.max(deltas - high * costs[:, None], axis=0), high


def _undecided(cells: list[_Cell], family: _Family) -> set[int]:
    """The cells to halve next: those on which an answer may rest that is not tight yet."""
    epsilons = _EPSILONS[::_COARSE]
    deltas = np.array([cell.deltas[::_COARSE] for cell in cells])
    low = np.array([cell.least_cost(family) for cell in cells])
    high = np.array([cell.cost(family) for cell in cells])
    upper, prices = _envelope(low, deltas, epsilons)
    lower, _ = _envelope(high, deltas, epsilons)
    finite = np.where(np.isfinite(high), high, 10.0 * low)
    chosen: set[int] = set()
    for rate in _RATES:
        lines = np.exp(epsilons) * rate
        reached = float(np.min(lower + lines))
        if np.min(upper + lines) <= (1.0 + _TOLERANCE) * reached:
            continue
        for at in (int(np.argmin(lower + lines)), int(np.argmin(upper + lines))):  # where the answer may be
            price = prices[at]  # at which no cell is worth more than the best mixture
            worth = price + deltas[:, at] - price * low + lines[at]
            open_ = price * (finite - low) > 0.25 * _TOLERANCE * reached
            if price < 1.0e-8:  # everybody may be in one cell
                open_ = (low <= 1.0) & (finite > 1.0)
            worth = np.where(open_, worth, -1.0)
            first = np.argsort(-worth)[:_AT_ONCE]
            wanted = first[worth[first] > (1.0 + 0.75 * _TOLERANCE) * reached]
            if wanted.size:
                chosen |= set(wanted.tolist())
                break
    return chosen


class _Envelope(PiecewiseLinear):
    """The polygon of tangents 1 - delta(eps) - e^eps a."""

    def __init__(self, cells: list[_Cell], family: _Family) -> None:
        deltas = np.array([cell.deltas for cell in cells])
        upper, _ = _envelope(np.array([cell.least_cost(family) for cell in cells]), deltas, _EPSILONS)
        lower, _ = _envelope(np.array([cell.cost(family) for cell in cells]), deltas, _EPSILONS)
        polygon = PiecewiseLinear._from_lines(_EPSILONS, 1.0 - np.clip(upper, 0.0, 1.0))
        self._set(polygon._fpr_vertices, polygon._log_fnr_vertices)
        lines = np.exp(_EPSILONS)[None, :] * _RATES[:, None]
        gap = (upper + lines).min(axis=1) - (lower + lines).min(axis=1)
        self._tpr_error = float(gap.max()) + family.tpr_error

    @property
    def tpr_error(self) -> float:
        return self._tpr_error
