"""One shuffled epoch: a record takes part in exactly one of its batches, and the attacker does not know in which.

The epoch tests "no batch holds the record" against "one batch does, batch t with probability w_t". Its likelihood ratio
is Z = sum_t w_t e^(L_t), L_t the loss of batch t given that the record is in it. Under "not a member" the L_t are
independent, so the law of Z is built by doubling, log(e^A + e^A') for two halves of the epoch; under membership it is
the same law tilted by Z.

Guarantees
----------
Results are put on a grid of log Z by splits that keep E0[Z] (mass beyond the grid: at 0 and at infinity). These make Z
larger in convex order, which sums of independent variables keep, so the curve can only fall: it errs on the attacker's
side (docs/theory/shuffled.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from gmip.accounting._lattice import Lattice, cyclic_power
from gmip.accounting._loss import Atoms, between, gap_variance

Array = NDArray[np.float64]

# Points of a grid: a sum of two costs the square of it.
_points: ContextVar[int] = ContextVar("points", default=800)
_FEW_POINTS = 160
_LARGEST = 300.0  # a loss beyond which P0 has no mass to speak of
_BELOW, _ABOVE = 1.0e-10, 1.0e-13  # P1 mass that a grid may leave out at either end


@contextmanager
def coarse_epochs() -> Iterator[None]:
    """Inside, epochs take a twentieth of the time; still pessimistic, with an error 25 times as large."""
    token = _points.set(_FEW_POINTS)
    try:
        yield
    finally:
        _points.reset(token)


def are_coarse() -> bool:
    """Whether this is within `coarse_epochs`."""
    return _points.get() == _FEW_POINTS


@dataclass(frozen=True)
class _Sum:
    """The law under P0 of a sum Z of likelihood ratios.

    points, mass : arrays of shape (n,), values of log Z in increasing order and their P0 masses
    zero : P0 mass at Z = 0
    beyond : share of E0[Z] at Z = infinity
    mean : E0[Z], exactly
    smeared : how many splits a value has gone through
    """

    points: Array
    mass: Array
    zero: float
    beyond: float
    mean: float
    smeared: float

    def times(self, factor: float) -> _Sum:
        return replace(
            self,
            points=self.points + math.log(factor),
            beyond=self.beyond * factor,
            mean=self.mean * factor,
        )


def epoch_atoms(batches: Sequence[tuple[Atoms, float, int]]) -> Atoms:
    """The test of one epoch.

    batches : sequence of (test of a batch given that it holds the record, chance that it does, number of such batches).
        Chances that add up to less than 1 leave the rest to the record's not taking part at all.
    """
    batches = [(_capped(atoms), weight, count) for atoms, weight, count in batches]
    found = sum(weight * count for atoms, weight, count in batches if atoms.loss.size == 0)
    parts = [
        _copies(_first(atoms), count).times(weight)
        for atoms, weight, count in batches
        if atoms.loss.size  # the others give their records away
    ]
    idle = max(1.0 - found - sum(part.mean for part in parts), 0.0)
    if not parts:
        if idle < 1.0e-12:
            return Atoms.perfect()
        return Atoms(np.array([math.log(idle)]), np.ones(1), np.array([idle]), 0.0, found)
    total = parts[0]
    for part in parts[1:]:
        total = _sum(total, part)
    loss, mass0, never = total.points, total.mass, total.zero
    if idle > 1.0e-12:
        floor = math.log(idle)
        loss, mass0, never = np.append(floor, np.logaddexp(loss, floor)), np.append(never, mass0), 0.0
    used = mass0 > 0.0
    loss, mass0 = loss[used], mass0[used]
    return Atoms(loss, mass0, mass0 * np.exp(loss), never, total.beyond + found, smeared=max(total.smeared, 1.0))


def _capped(atoms: Atoms) -> Atoms:
    """Losses so large that e^L leaves the range of doubles count as certain: their share of E0[e^L] goes to infinity,
    their P0 mass to 0."""
    kept = atoms.loss <= _LARGEST
    if kept.all():
        return atoms
    if float(atoms.mass1[kept].sum()) < 1.0e-18:
        return Atoms.perfect()
    return replace(
        atoms,
        loss=atoms.loss[kept],
        mass0=atoms.mass0[kept],
        mass1=atoms.mass1[kept],
        never=atoms.never + float(atoms.mass0[~kept].sum()),
        certain=atoms.certain + float(atoms.mass1[~kept].sum()),
    )


def _first(atoms: Atoms) -> _Sum:
    """e^L of one batch, whose mean is 1."""
    top = float(atoms.loss[-1])
    one = _placed(np.exp(atoms.loss - top), atoms.mass0, top, atoms.never, atoms.certain, 1.0, smeared=1.0)
    own = gap_variance(one.points, one.mass * np.exp(one.points))
    before = atoms.smeared * gap_variance(atoms.loss, atoms.mass1)
    return replace(one, smeared=1.0 + before / own) if own > 0.0 else one


def _copies(one: _Sum, count: int) -> _Sum:
    """The sum of `count` independent copies, by doubling."""
    total: _Sum | None = None
    while True:
        if count % 2:
            total = one if total is None else _sum(total, one)
        count //= 2
        if not count:
            assert total is not None
            return total
        one = _sum(one, one)


def _sum(a: _Sum, b: _Sum) -> _Sum:
    """The sum of two that are independent."""
    top = max(float(a.points[-1]), float(b.points[-1])) + 1.0
    x, y = np.exp(a.points - top), np.exp(b.points - top)
    if a is b:  # each pair of different points stands for two
        first, second = _pairs(x.size)
        ratio = x[first] + x[second]
        mass = a.mass[first] * a.mass[second]
        mass[first != second] *= 2.0
    else:
        ratio, mass = np.add.outer(x, y).ravel(), np.multiply.outer(a.mass, b.mass).ravel()
    for values, one, other in ((x, a, b), (y, b, a)):
        if other.zero > 0.0:
            ratio, mass = np.append(ratio, values), np.append(mass, other.zero * one.mass)
    smeared = 1.0 + max(a.smeared, b.smeared)
    return _placed(ratio, mass, top, a.zero * b.zero, a.beyond + b.beyond, a.mean + b.mean, smeared)


@lru_cache(maxsize=2)
def _pairs(size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.triu_indices(size)


def _placed(ratio: Array, mass: Array, top: float, zero: float, beyond: float, mean: float, smeared: float) -> _Sum:
    """Values Z = e^top * ratio and their P0 masses, in any order, on a grid that is fine where most of both laws is."""
    values = np.log(np.maximum(ratio, 1.0e-300))
    grid, centre, width, first, step = _grid(values, mass, ratio)
    index = ((np.arcsinh((values - centre) / width) - first) / step).astype(np.int64)
    np.clip(index, 0, grid.size - 2, out=index)
    points = np.exp(grid)
    low, high = points[index], points[index + 1]
    share = (ratio - low) / (high - low)
    np.clip(share, 0.0, 1.0, out=share)  # a value may be off by a rounding error of arcsinh, too
    upper = mass * share
    lower = mass - upper
    above = ratio > points[-1]
    if above.any():  # stays at the last point; what is missing of its mean goes to infinity
        beyond += math.exp(top) * float(np.sum(mass[above] * (ratio[above] - points[-1])))
    below = ratio < points[0]
    if below.any():  # shared between 0 and the first point
        kept = mass[below] * (ratio[below] / points[0])
        zero += float(np.sum(mass[below] - kept))
        lower[below] = kept
    placed: Array = np.zeros(grid.size)
    placed += np.bincount(index, weights=lower, minlength=grid.size)
    placed += np.bincount(index + 1, weights=upper, minlength=grid.size)
    return _Sum(grid + top, placed, zero, beyond, mean, smeared)


def _grid(values: Array, mass: Array, ratio: Array) -> tuple[Array, float, float, float, float]:
    """Points centre + width sinh(u), u evenly spaced: even in the bulk of the laws under P0 and P1, wider in the tails.

    Returns the points, centre, width, the first u and the step of u.
    """
    bottom, top = max(float(values.min()), float(values.max()) - 700.0), float(values.max())
    if top - bottom < 1.0e-9:
        width = 1.0e-9
        return (
            bottom + width * np.array([-1.0, 2.0]),
            bottom,
            width,
            -math.asinh(1.0),
            math.asinh(1.0) + math.asinh(2.0),
        )
    bins = 4096  # a histogram is precise enough to place the grid
    place = ((values - bottom) * (bins / (top - bottom))).astype(np.int64)
    np.clip(place, 0, bins - 1, out=place)
    mass0 = np.bincount(place, weights=mass, minlength=bins)
    mass1 = np.bincount(place, weights=mass * ratio, minlength=bins)
    mass0, mass1 = mass0 / mass0.sum(), mass1 / mass1.sum()
    first = max(int(np.searchsorted(np.cumsum(mass1), _BELOW)) - 1, 0)
    last = bins - int(np.searchsorted(np.cumsum(mass1[::-1]), _ABOVE))
    last = min(max(last, first + 1), bins)
    share = np.cumsum((mass0 + mass1)[first:last])
    edges = np.linspace(bottom, top, bins + 1)
    low, centre, high = edges[first + np.searchsorted(share, np.array([0.1, 0.5, 0.9]) * share[-1])].tolist()
    width = max((high - low) / 2.5, 2.0 * (top - bottom) / bins)
    ends = np.arcsinh((edges[[first, last]] - centre) / width)
    points = _points.get()
    step = float(ends[1] - ends[0]) / (points - 1)
    return centre + width * np.sinh(ends[0] + step * np.arange(points)), centre, width, float(ends[0]), step


# -- balls in bins of a replaced record --------------------------------------------------------------------------------


_FOUND = 8.0  # a shift beyond which the record counts as found
_FINE = 0.05  # spacing of losses, and of the lattice of Y, in standard deviations
_HALF = 1 << 15  # points of the lattice on either side, at most
_SELDOM = 0.01
_SHARE = 0.1
_SCORE = 8.0  # of x, beyond which nothing needs a lattice
_ROUNDING = 1.0e-12  # what the transform may lose of a mass
_EPSILON = 2.0**-52
_LEAST = 1.0e-13  # delta below which no larger loss is looked at


def replaced_epoch(shift: float, bins: int, run: int) -> Atoms:
    """The test of one epoch of balls in bins, of which `run` of the `bins` batches were run, if the record may have
    been replaced by another: mean_t N(c e_t) against mean_t N(-c e_t), t = 1..B, c the shift.

    With l_t and l'_t the likelihood ratios of +c and -c in bin t against no shift,

        delta(2a) = E0[(sum_t l_t - e^2a l'_t)+]/B = 2 e^(a - c^2/2) E0[(sum_t Y_t)+]/B,

    where the Y_t = sinh(c x_t - a), x_t standard normal, are independent.

    Guarantees
    ----------
    Each Y is put on a lattice by splits that keep its mean; what lies below goes to the lowest point, and of what lies
    above the rest of its mean counts in full: the expectation of a convex increasing function can only grow. Between
    the losses at which it is computed, delta is drawn straight in e^loss, of which it is convex
    (docs/theory/shuffled.md).
    """
    if shift > _FOUND:
        return Atoms.perfect()
    fine = _FINE * (4.0 if are_coarse() else 1.0)
    width = min(2.0 * math.sqrt(math.sinh(shift * shift) / bins), 2.0 * shift)  # about that of the loss
    losses: list[float] = []
    deltas: list[float] = []
    while not deltas or deltas[-1] > _LEAST:
        loss = 2.0 * width * math.sinh(0.5 * fine * len(losses))
        losses.append(loss)
        deltas.append(_delta(loss, shift, bins, run, fine))
    return _connected(np.array(losses), np.array(deltas)).symmetrised()


def _delta(loss: float, shift: float, bins: int, run: int, fine: float) -> float:
    """delta of the epoch at a loss of at least 0, at least."""
    c, a = shift, 0.5 * loss
    # With the bin known: N(c) against N(-c).
    known = run / bins * (float(ndtr(c - a / c)) - math.exp(loss) * float(ndtr(-c - a / c)))
    scale = 2.0 * math.exp(a - 0.5 * c * c) / bins
    growth = math.exp(0.5 * c * c)
    # As fine as where most of Y is and as its largest values need, and so long that the sum of the others seldom leaves
    # it: below what their largest values can make up for, a sum is negative anyway.
    largest = math.sinh(c * _SCORE - a)
    if largest <= 0.0:
        return known
    lowest = min(math.sinh(c * _SCORE + a), run * largest)
    needed = min(math.sinh(a - c * float(ndtri(_SELDOM / bins))), lowest) / _HALF
    spacing = max(min(fine * math.sinh(min(c, 1.0)) * math.cosh(a), fine * _SHARE * largest), needed)
    top, bottom = min(math.ceil(largest / spacing), _HALF), -min(math.ceil(lowest / spacing), _HALF)
    y = spacing * np.arange(bottom, top + 1, dtype=np.float64)
    edges = (np.arcsinh(y) + a) / c
    plain, up, down = (between(edges - s) for s in (0.0, c, -c))
    moment = 0.5 * growth * (math.exp(-a) * up - math.exp(a) * down)
    upper = np.clip((moment - y[:-1] * plain) / spacing, 0.0, plain)
    mass = np.zeros(y.size)
    mass[:-1] += plain - upper
    mass[1:] += upper
    mass[0] += float(ndtr(edges[0]))
    last = float(edges[-1])
    mass[-1] += float(ndtr(-last))
    excess = 0.5 * growth * (math.exp(-a) * float(ndtr(c - last)) - math.exp(a) * float(ndtr(-c - last)))
    excess = max(excess - float(y[-1]) * float(ndtr(-last)), 0.0)
    # A bin that was not run has l = l' = 1, which takes -E Y off: a threshold between two points of the lattice.
    threshold = (bins - run) * growth * math.sinh(a) / spacing
    low = math.floor(threshold)
    others = Lattice(0.0, 0, spacing, np.ones(1))
    if run > 1:
        others = cyclic_power(Lattice(0.0, bottom, spacing, mass), run - 1)
    above = np.append(np.cumsum(others.mass[::-1])[::-1], 0.0)
    index = np.arange(bottom, top + 1)

    def positive(point: int) -> float:
        """E[(sum - point)+] in units of the spacing: by symmetry the first Y stands for all."""
        at = np.clip(point - index - others.first + 1, 0, above.size - 1)  # how many sums of the others are too small
        return float(np.einsum("i,i->", mass * (run * index - point), above[at]))

    share = threshold - low
    if low >= run * top:
        total = 0.0  # no sum on the lattice reaches it
    else:
        total = positive(low) if share == 0.0 else (1.0 - share) * positive(low) + share * positive(low + 1)
        # It is a difference of numbers e^loss as large: rounding errors of the transform grow with its copies.
        total = max(total, 0.0) + _EPSILON * run * float(mass @ np.abs(run * index - low))
    return min(scale * (spacing * total + run * excess) + _ROUNDING * known, known)


def _connected(loss: Array, delta: Array) -> Atoms:
    """The test whose delta is the largest convex function of e^loss below these values."""
    kept: list[int] = []
    ratio = np.exp(loss)
    for i in range(loss.size):
        while len(kept) > 1 and _slope(ratio, delta, kept[-2], kept[-1]) >= _slope(ratio, delta, kept[-1], i):
            kept.pop()
        kept.append(i)
    loss, ratio, delta = loss[kept], ratio[kept], delta[kept]
    slopes = np.append(np.diff(delta) / np.diff(ratio), 0.0)
    mass0 = np.diff(slopes)
    return Atoms(loss[1:], mass0, ratio[1:] * mass0, 0.0, float(delta[-1]), smeared=1.0)


def _slope(x: Array, y: Array, i: int, j: int) -> float:
    return float((y[j] - y[i]) / (x[j] - x[i]))
