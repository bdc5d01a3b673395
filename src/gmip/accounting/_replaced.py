"""One epoch of balls in bins in which a record may have been replaced by another: mean_t N(c e_t) against
mean_t N(-c e_t), t = 1..B.

With l_t and l'_t the likelihood ratios of +c and -c in bin t against no shift,

    delta(2a) = E0[(sum_t l_t - e^2a l'_t)+]/B = 2 e^(a - c^2/2) E0[(sum_t Y_t)+]/B,

where the Y_t = sinh(c x_t - a), x_t standard normal, are independent.

Guarantees
----------
Each Y is put on a lattice by splits that keep its mean; what lies below goes to the lowest point, and of what lies
above the rest of its mean counts in full: the expectation of a convex increasing function can only grow. Between the
losses at which it is computed, delta is drawn straight in e^loss, of which it is convex (docs/theory/shuffled.md).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from gmip.accounting._epoch import are_coarse
from gmip.accounting._lattice import Lattice, cyclic_power
from gmip.accounting._loss import Atoms

Array = NDArray[np.float64]
_LARGEST = 8.0  # a shift beyond which the record counts as found
_FINE = 0.05  # spacing of losses, and of the lattice of Y, in standard deviations
_HALF = 1 << 15  # points of the lattice on either side, at most
_SELDOM = 0.01
_SHARE = 0.1
_SCORE = 8.0  # of x, beyond which nothing needs a lattice
_ROUNDING = 1.0e-12  # what the transform may lose of a mass
_LEAST = 1.0e-13  # delta below which no larger loss is looked at


def replaced_epoch(shift: float, bins: int, run: int) -> Atoms:
    """The test of one epoch of which `run` of the `bins` batches were run."""
    if shift > _LARGEST:
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
    plain, up, down = (_between(edges - s) for s in (0.0, c, -c))
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
    total = positive(low) if share == 0.0 else (1.0 - share) * positive(low) + share * positive(low + 1)
    return min(scale * (spacing * total + run * excess) + _ROUNDING * known, known)


def _between(x: Array) -> Array:
    """Standard normal masses between points."""
    return np.maximum(np.where(x[:-1] < 0.0, np.diff(ndtr(x)), -np.diff(ndtr(-x))), 0.0)


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
