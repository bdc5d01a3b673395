"""Composition of loss distributions on a lattice by the fast Fourier transform, exact up to a known, pessimistic grid.

The T-fold sum of a loss is formed digit by digit: T is written in base 64, each power is formed by one transform, and
between two powers the lattice is made coarser by the pessimistic split of `_loss`, so that the number of points follows
the width of the distribution and not T. Rare large losses, which a small sample rate brings, would force a long
lattice: they are kept apart, on a coarser one (`Layers`). P0 and P1 are composed apart (`member` says which): the
first gives the curve where the false negatives are rare, the second where the false positives are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft

from gmip.accounting._loss import Atoms, split_weights

Array = NDArray[np.float64]
Spectrum = NDArray[np.complex128]

_BASE = 64
_INFLATION = 1.5e-5  # share of the loss variance that one change of lattice may add
_POINTS = 1 << 14  # length of a lattice before it is composed
_CAP = 2000.0  # losses above go to infinity: at most T e^-2000 of false positives, since P0(L > x) <= e^-x
_LOST = 1.0e-14  # probability that cutting the tails of a distribution may move, all copies together
_ERROR = 5.0e-6  # of the TPR, that one change of lattice may add where the loss has a sharp peak
_NEAR = 1.0e4  # spacings between the anchor and the bulk up to which the anchor is kept
_HARDLY = 1.0e-17  # a mass that does not count where masses are balanced
_MOST_TILT = 1.0e-2
_RARE = 1.0e-4  # events rarer than this (all copies together) do not set the width of the lattice


@dataclass(frozen=True)
class Lattice:
    """`mass[i]` at loss `anchor + (first + i) * spacing`; the anchor moves smoothly with the run, so that results do
    too."""

    anchor: float
    first: int
    spacing: float
    mass: Array

    @property
    def loss(self) -> Array:
        return self.anchor + self.spacing * np.arange(self.first, self.first + self.mass.size, dtype=np.float64)


@dataclass(frozen=True)
class SplitCost:
    """What one pessimistic split added to the loss: variance in total, and its peak per unit of loss."""

    variance: float
    peak: float

    def times(self, copies: int) -> SplitCost:
        return SplitCost(copies * self.variance, copies * self.peak)


@dataclass(frozen=True)
class Layers:
    """A loss distribution under one measure: most of it on a fine lattice, rare large losses on a coarse one.

    beyond : mass at no finite loss: under P1 at +infinity, under P0 lost in the attacker's favour
    """

    core: Lattice
    tail: Lattice | None
    member: bool
    beyond: float
    splits: tuple[SplitCost, ...]

    def atoms(self) -> tuple[Array, Array]:
        """Losses in increasing order and their masses, all positive."""
        loss, mass = self.core.loss, self.core.mass
        if self.tail is not None:
            loss, mass = np.concatenate([loss, self.tail.loss]), np.concatenate([mass, self.tail.mass])
            order = np.argsort(loss, kind="stable")
            loss, mass = loss[order], mass[order]
        used = mass > 0.0
        return loss[used], mass[used]

    @property
    def error(self) -> float:
        """By how much the splits can have raised TPR - e^x FPR, for any x.

        Where a step's split adds variance v in an interval, the rest of the steps must bring the sum near x for it to
        count: v/2 times the probability of that per unit of loss. Summed over intervals that is at most the total
        variance times the peak density of the loss, and at most the peak variance density (docs/theory/composition.md).
        """
        density = float(self.core.mass.max()) / self.core.spacing
        return 0.5 * sum(min(split.variance * density, split.peak) for split in self.splits)


def compose(parts: Sequence[tuple[Atoms, int]], *, member: bool) -> Layers:
    """The loss of all steps together under P1 (`member`) or P0.

    parts : (one step, number of such steps), at least one
    """
    total: Layers | None = None
    for atoms, steps in parts:
        power = _power(atoms, steps, member=member)
        total = power if total is None else _join(total, power)
    assert total is not None
    return total


def _power(atoms: Atoms, steps: int, *, member: bool) -> Layers:
    mass = atoms.mass1 if member else atoms.mass0
    # A loss spread evenly between two points d apart gains d^2/6 of variance when it is split between them.
    # (An atom that outweighs its neighbours is no part of what was spread.)
    gaps = np.diff(atoms.loss, append=atoms.loss[-1:])
    added = atoms.smeared * np.minimum(mass, np.append(mass[1:], 0.0)) * gaps / 6.0
    beyond, absent = (atoms.certain, atoms.never) if member else (atoms.never, atoms.certain)
    mass = _balanced(mass, atoms.loss, beyond - absent, member=member)
    splits = (SplitCost(_dot(added, gaps), float(added.max())),)
    # The lattice goes through the lowest loss (that of a record that never takes part), or an atom that outweighs it.
    heaviest = int(np.argmax(mass))
    anchor = float(atoms.loss[heaviest if mass[heaviest] > 0.05 else 0])
    allowed = _ERROR if atoms.smeared else 0.25 * _ERROR  # a discrete loss suffers more from being split
    base = _place(atoms.loss, mass, anchor, steps, member=member, beyond=beyond, splits=splits, allowed=allowed)
    result: Layers | None = None
    while True:
        digit = steps % _BASE
        if digit:
            part = _convolve_self(base, digit)
            result = part if result is None else _join(result, part)
        steps //= _BASE
        if not steps:
            assert result is not None
            return result
        full = _convolve_self(base, _BASE)
        loss, mass = full.atoms()
        anchor = full.core.anchor
        base = _place(loss, mass, anchor, steps, member=member, beyond=full.beyond, splits=full.splits)


def _place(
    loss: Array,
    mass: Array,
    anchor: float,
    copies: int,
    *,
    member: bool,
    beyond: float,
    splits: tuple[SplitCost, ...],
    allowed: float = _ERROR,
) -> Layers:
    """Cut the tails and put atoms on lattices fit to be composed `copies` times."""
    if float(mass.sum()) < 1.0e-250:
        return _nothing(anchor, member)
    lost = _LOST / copies
    first = min(int(np.searchsorted(np.cumsum(mass), lost)), loss.size - 1)
    last = loss.size - int(np.searchsorted(np.cumsum(mass[::-1]), lost))
    last = max(min(last, int(np.searchsorted(loss, _CAP))), first + 1)
    x, kept = loss[first:last], np.where(mass[first:last] > 1.0e-60, mass[first:last], 0.0)  # no slow denormals
    # P1 mass above goes to infinity and below is lifted; P0 mass is lost above and below: all in the attacker's favour.
    beyond += float(mass[last:].sum())
    if member:
        kept[0] += float(mass[:first].sum())
    else:
        beyond += float(mass[:first].sum())
    total = 1.0 - beyond
    if total < 1.0e-14 or float(kept.sum()) < 1.0e-250:
        return _nothing(anchor, member)
    kept *= total / float(kept.sum())  # against the build-up of rounding errors
    rare = _RARE / copies * total
    low = x[min(int(np.searchsorted(np.cumsum(kept), rare)), x.size - 1)]
    high = x[max(x.size - 1 - int(np.searchsorted(np.cumsum(kept[::-1]), rare)), 0)]
    centre = np.clip(x, low, max(high, low))
    mean = _dot(kept, centre) / total
    width = math.sqrt(max(_dot(kept, (centre - mean) ** 2) / total, 0.0))
    # The error in TPR is about 0.2 * inflation * width of the composed loss: finer where that is wide.
    composed = min(max(width * math.sqrt(copies), 1.0), 8.0)
    extent = float(x[-1] - x[0])
    spacing = max(width * math.sqrt(6.0 * _INFLATION / composed), 1.0e-6 * extent / _POINTS)
    # Seen from afar, the lattice would shift with the least change of its spacing.
    anchor = mean if abs(mean - anchor) > _NEAR * spacing else anchor
    if extent == 0.0:  # a single atom
        return Layers(Lattice(float(x[0]), 0, 1.0, np.array([kept.sum()])), None, member, beyond, splits)
    if copies <= _BASE**2 and extent <= 4.0 * spacing * _POINTS:
        # Few steps leave a peak where the record never took part, and the error grows with it: finer, if need be.
        trial, split = _split(x, kept, anchor, spacing, member=member)
        peak = min(float(np.convolve(trial.mass, np.ones(8)).max()), 1.0) ** copies / spacing
        density = max(peak, 0.4 / (width * math.sqrt(copies)))
        error = 0.5 * copies * min(split.variance * density, split.peak)
        spacing = max(spacing * min(1.0, math.sqrt(allowed / max(error, 1e-300))), 0.25 * extent / _POINTS)
    if extent <= 4.0 * spacing * _POINTS:
        core, split = _split(x, kept, anchor, spacing, member=member)
        return Layers(core, None, member, beyond, (*splits, split))
    # Two lattices: the core around the bulk, the rest coarser. What lies at the border is shared out, and the coarse
    # spacing is rounded to a quarter of an octave, so that both lattices move smoothly with the run.
    reach = spacing * _POINTS
    share = np.clip(2.0 - np.abs(x - float(np.clip(mean, x[0], x[-1]))) / (0.5 * reach), 0.0, 1.0)
    near, far = share > 0.0, share < 1.0
    core, core_split = _split(x[near], (share * kept)[near], anchor, spacing, member=member)
    coarse = 2.0 ** (math.ceil(4.0 * math.log2(extent)) / 4.0) / (2 * _POINTS)
    tail, tail_split = _split(x[far], ((1.0 - share) * kept)[far], anchor, coarse, member=member)
    return Layers(core, tail, member, beyond, (*splits, core_split, tail_split))


def _nothing(anchor: float, member: bool) -> Layers:
    """No mass is left at any finite loss: a member is certain to be found."""
    return Layers(Lattice(anchor, 0, 1.0, np.zeros(1)), None, member, 1.0, ())


def _split(x: Array, mass: Array, anchor: float, spacing: float, *, member: bool) -> tuple[Lattice, SplitCost]:
    """Masses at increasing x, each shared out to its two neighbours on a lattice."""
    index = np.floor((x - anchor) / spacing).astype(np.int64)
    excess = np.clip(x - anchor - index * spacing, 0.0, spacing)
    first = int(index[0])
    index -= first
    upper = mass * split_weights(excess, spacing, member=member)
    size = int(index[-1]) + 2
    placed: Array = np.bincount(index, weights=mass - upper, minlength=size).astype(np.float64, copy=False)
    placed += np.bincount(index + 1, weights=upper, minlength=size)
    added = np.bincount(index, weights=mass * excess * (spacing - excess))
    return Lattice(anchor, first, spacing, placed), SplitCost(float(added.sum()), float(added.max()) / spacing)


def _respaced(lattice: Lattice, spacing: float, *, member: bool) -> tuple[Lattice, SplitCost]:
    if lattice.mass.size == 1 or lattice.spacing == spacing:
        anchor = lattice.anchor + lattice.first * lattice.spacing if lattice.mass.size == 1 else lattice.anchor
        first = 0 if lattice.mass.size == 1 else lattice.first
        return replace(lattice, anchor=anchor, first=first, spacing=spacing), SplitCost(0.0, 0.0)
    used = lattice.mass > 0.0
    if not used.any():
        return Lattice(lattice.anchor, 0, spacing, np.zeros(1)), SplitCost(0.0, 0.0)
    return _split(lattice.loss[used], lattice.mass[used], lattice.anchor, spacing, member=member)


def _convolve_self(layers: Layers, copies: int) -> Layers:
    """(core + tail)^copies = core^copies on the fine lattice, and the difference, in which a rare loss takes part, on
    the coarse one."""
    if copies == 1:
        return layers
    core, tail, splits = layers.core, None, layers.splits
    if layers.tail is not None:
        coarse, split = _respaced(core, layers.tail.spacing, member=layers.member)
        share = float(layers.tail.mass.sum())
        splits = (*splits, SplitCost(copies * share * split.variance, copies * share * split.peak))
        tail = cyclic_power(coarse, copies, rare=layers.tail)
    beyond = -math.expm1(copies * math.log1p(-layers.beyond)) if layers.beyond < 1.0 else 1.0
    fine = cyclic_power(core, copies)
    result = _normalised(fine, tail, layers.member, beyond, tuple(split.times(copies) for split in splits))
    present, surplus = 1.0 - layers.beyond, _surplus(layers)
    if surplus is None:
        return result
    return _rebalanced(result, present**copies * math.expm1(copies * math.log1p(surplus / present)))


def _join(a: Layers, b: Layers) -> Layers:
    """The sum of two independent losses."""
    member = a.member
    splits = a.splits + b.splits
    fine = max((x.core.spacing for x in (a, b) if x.core.mass.size > 1), default=a.core.spacing)
    (core_a, split_a), (core_b, split_b) = (_respaced(x.core, fine, member=member) for x in (a, b))
    splits = (*splits, split_a, split_b)
    core = _product(core_a, core_b)
    spacings = [x.tail.spacing for x in (a, b) if x.tail is not None]
    tail = None
    if spacings:
        coarse = max(*spacings, fine)
        pairs = []
        for x in (a, b):
            plain, split = _respaced(x.core, coarse, member=member)
            rare = replace(plain, mass=np.zeros(1))
            if x.tail is not None:
                rare, rare_split = _respaced(x.tail, coarse, member=member)
                share = float(x.tail.mass.sum())
                splits = (*splits, rare_split, SplitCost(share * split.variance, share * split.peak))
            pairs.append(_aligned(plain, rare))
        tail = _product_with_rare(pairs[0], pairs[1])
    result = _normalised(core, tail, member, a.beyond + b.beyond - a.beyond * b.beyond, splits)
    surplus_a, surplus_b = _surplus(a), _surplus(b)
    if surplus_a is None or surplus_b is None:
        return result
    return _rebalanced(result, surplus_a * (1.0 - b.beyond) + (1.0 - a.beyond + surplus_a) * surplus_b)


def _normalised(
    core: Lattice, tail: Lattice | None, member: bool, beyond: float, splits: tuple[SplitCost, ...]
) -> Layers:
    """Masses that add up to 1 - beyond: a transform's rounding errors would grow 64-fold with each power."""
    total = float(core.mass.sum()) + (float(tail.mass.sum()) if tail is not None else 0.0)
    if total <= 1.0e-12:
        return _nothing(core.anchor, member)
    scale = (1.0 - beyond) / total
    core = replace(core, mass=core.mass * scale)
    tail = None if tail is None else replace(tail, mass=tail.mass * scale)
    return Layers(core, tail, member, beyond, splits)


def _balanced(mass: Array, loss: Array, surplus: float, *, member: bool) -> Array:
    """Masses tilted a little so that the other measure has `surplus` more mass than this one.

    Both totals are known exactly; rounding errors in their difference, of the size of 1e-16 for each step, would be
    seen after a million steps that leak next to nothing. Only small losses need it.
    """
    if not _small(loss, mass):
        return mass
    weight = np.expm1(np.clip(-loss if member else loss, -1.0, 1.0))
    mean = _dot(mass, weight) / float(mass.sum())
    spread = _dot(mass, (weight - mean) ** 2)
    if spread <= 0.0:
        return mass
    tilt = (surplus - _dot(mass, weight)) / spread * (weight - mean)
    if float(np.abs(tilt[mass > _HARDLY]).max()) >= _MOST_TILT:
        return mass
    return mass * (1.0 + np.clip(tilt, -_MOST_TILT, _MOST_TILT))  # what hardly ever happens may lie far away


def _small(loss: Array, mass: Array) -> bool:
    return float(mass.sum()) > 0.9 and float(np.abs(loss[mass > _HARDLY]).max(initial=0.0)) < 0.5


def _dot(a: Array, b: Array) -> float:
    """The inner product without BLAS, whose threads cost more than they save at this size."""
    return float(np.einsum("i,i->", a, b))


def _surplus(layers: Layers) -> float | None:
    """How much more mass the other measure has, where that is worth keeping track of."""
    loss = layers.core.loss
    if layers.tail is not None or not _small(loss, layers.core.mass):
        return None
    return _dot(layers.core.mass, np.expm1(np.clip(-loss if layers.member else loss, -1.0, 1.0)))


def _rebalanced(layers: Layers, surplus: float) -> Layers:
    if layers.tail is not None:
        return layers
    mass = _balanced(layers.core.mass, layers.core.loss, surplus, member=layers.member)
    return replace(layers, core=replace(layers.core, mass=mass))


def _aligned(a: Lattice, b: Lattice) -> tuple[Lattice, Lattice]:
    """Both on one range of a lattice; the anchors may differ by whole spacings."""
    shift = round((b.anchor - a.anchor) / a.spacing) + b.first - a.first
    first, size = min(0, shift), max(a.mass.size, shift + b.mass.size) - min(0, shift)
    return (
        replace(a, first=a.first + first, mass=np.pad(a.mass, (-first, size + first - a.mass.size))),
        replace(a, first=a.first + first, mass=np.pad(b.mass, (shift - first, size + first - shift - b.mass.size))),
    )


def _product(a: Lattice, b: Lattice) -> Lattice:
    size = a.mass.size + b.mass.size - 1
    length = next_fast_len(size, real=True)
    mass = irfft(rfft(a.mass, length) * rfft(b.mass, length), length)[:size]
    return Lattice(a.anchor + b.anchor, a.first + b.first, a.spacing, _cleaned(mass))


def _product_with_rare(a: tuple[Lattice, Lattice], b: tuple[Lattice, Lattice]) -> Lattice:
    """(plain_a + rare_a)(plain_b + rare_b) - plain_a plain_b, with no cancellation."""
    size = a[0].mass.size + b[0].mass.size - 1
    length = next_fast_len(size, real=True)
    (plain_a, rare_a), (plain_b, rare_b) = ([rfft(x.mass, length) for x in pair] for pair in (a, b))
    mass = irfft(rare_a * (plain_b + rare_b) + plain_a * rare_b, length)[:size]
    return Lattice(a[0].anchor + b[0].anchor, a[0].first + b[0].first, a[0].spacing, _cleaned(mass))


def cyclic_power(lattice: Lattice, copies: int, rare: Lattice | None = None) -> Lattice:
    """lattice^copies, or (lattice + rare)^copies - lattice^copies, by a transform just long enough for its mass."""
    if rare is not None:
        lattice, rare = _aligned(lattice, rare)
    size = copies * (lattice.mass.size - 1) + 1
    whole = lattice.mass if rare is None else lattice.mass + rare.mass
    low, high = (0, size - 1) if size <= 4096 else _window(whole, copies)
    if high < low:
        return Lattice(copies * lattice.anchor, copies * lattice.first, lattice.spacing, np.zeros(1))
    length = next_fast_len(high - low + 1, real=True)
    extra = None if rare is None else rfft(folded(rare.mass, length), length)
    power, gain = _powers(rfft(folded(lattice.mass, length), length), extra, copies)
    mass = irfft(power if gain is None else gain, length)[(low + np.arange(high - low + 1)) % length]
    return Lattice(copies * lattice.anchor, copies * lattice.first + low, lattice.spacing, _cleaned(mass))


def folded(mass: Array, length: int) -> Array:
    """The transform is cyclic: a longer array is folded, what is asked of the result lies in one period."""
    if mass.size <= length:
        return mass
    return np.bincount(np.arange(mass.size) % length, weights=mass, minlength=length).astype(np.float64, copy=False)


def _powers(f: Spectrum, g: Spectrum | None, exponent: int) -> tuple[Spectrum, Spectrum | None]:
    """f^exponent and, given g, (f + g)^exponent - f^exponent without cancellation, by repeated squaring."""
    power, gain = f, g
    for bit in bin(exponent)[3:]:
        power = np.where(np.abs(power) > 1.0e-140, power, 0.0)  # denormal numbers would slow the products down a lot
        if gain is not None:
            gain = np.where(np.abs(gain) > 1.0e-140, gain, 0.0)
            gain = gain * (2.0 * power + gain)
        power = power * power
        if bit == "1":
            if gain is not None and g is not None:
                gain = gain * (f + g) + power * g
            power = power * f
    return power, gain


def _cleaned(mass: Array) -> Array:
    """Drop what is below the rounding noise of the transform, which only helps the attacker."""
    return np.where(mass > 4.0e-17 * math.sqrt(max(float(mass.max()), 0.0)), mass, 0.0)


def _window(mass: Array, copies: int) -> tuple[int, int]:
    """First and last index of the `copies`-fold sum outside which its probability is below _LOST (Chernoff)."""
    index = np.flatnonzero(mass > 1.0e-40)  # the rest, below 1e-30 for all copies, needs no window (nor slow denormals)
    used = mass[index]
    total = float(used.sum())
    if total <= 0.0:
        return 0, -1
    position = index.astype(np.float64)
    mean = _dot(position, used) / total
    centred = position - mean
    deviation = math.sqrt(max(_dot(centred**2, used) / total, 1.0e-12))
    log_lost = math.log(_LOST)
    bounds = []
    for sign in (-1.0, 1.0):
        far = float(np.max(sign * centred))
        best = copies * far
        steepest = 20.0 / (deviation * math.sqrt(copies))
        for slope in np.geomspace(min(-log_lost / max(best, 1.0), steepest), steepest, 10):
            shift = slope * far
            terms = np.exp(np.maximum(sign * slope * centred - shift, -300.0))
            log_mgf = shift + math.log(_dot(used, terms))
            best = min(best, (copies * log_mgf - log_lost) / slope)
        bounds.append(best)
    low = max(math.floor(copies * mean - bounds[0]), 0)
    high = min(math.ceil(copies * mean + bounds[1]), copies * (mass.size - 1))
    return low, high
