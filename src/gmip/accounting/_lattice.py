"""Composition of loss distributions on a lattice by the fast Fourier transform, exact up to a known, pessimistic grid.

The T-fold sum of a loss is formed digit by digit: T is written in base 64, each power is formed by one FFT, and between
two powers the lattice is made coarser by the pessimistic split of `_loss`, so that the number of points follows the
width of the distribution and not T. P0 and P1 are composed apart (`member` says which): the first gives the curve
where the false negatives are rare, the second where the false positives are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft

from gmip.accounting._loss import Atoms, split_weights

__all__ = ["Lattice", "compose"]

Array = NDArray[np.float64]

_BASE = 64
# Relative inflation of the loss variance that one change of lattice may cause; composition changes it at most five times.
_INFLATION = 2.0e-5
_MAX_POINTS = 1 << 16
# Losses above CAP go to infinity: at most T e^-CAP of false positives, since P0(L > x) <= e^-x.
_CAP = 70.0
_LOST = 1.0e-14  # probability that cutting the tails of a distribution may move, all copies together
_RARE = 1.0e-4  # events rarer than this (all copies together) do not set the width of the lattice


@dataclass(frozen=True)
class Lattice:
    """Loss masses under one measure: `mass[i]` at `offset + i * spacing`.

    inflation : variance that the pessimistic splits have added to the loss (the discretisation error, see `error`)
    beyond : mass that went to loss +infinity
    """

    offset: float
    spacing: float
    mass: Array
    member: bool
    inflation: float = 0.0
    beyond: float = 0.0

    @property
    def loss(self) -> Array:
        return self.offset + self.spacing * np.arange(self.mass.size)

    @property
    def error(self) -> float:
        """By how much the splits can have raised TPR - e^x FPR, for any x.

        A split of variance v raises it by at most v/2 times the density of the other steps' loss (docs/theory/
        composition.md); the density is read off the composed lattice.
        """
        return 0.5 * self.inflation * float(self.mass.max()) / self.spacing


def compose(parts: Sequence[tuple[Atoms, int]], *, member: bool) -> Lattice:
    """The loss of all steps together under P1 (`member`) or P0.

    parts : (one step, number of such steps)
    """
    total: Lattice | None = None
    for atoms, steps in parts:
        power = _power(atoms, steps, member=member)
        total = power if total is None else _join(total, power)
    if total is None:
        raise ValueError("compose needs at least one part")
    return total


def _power(atoms: Atoms, steps: int, *, member: bool) -> Lattice:
    mass = atoms.mass1 if member else atoms.mass0
    # A loss spread evenly between two points d apart gains d^2/6 of variance when it is split between them.
    gaps = np.diff(atoms.loss, append=atoms.loss[-1:])
    smeared = atoms.smeared * float(mass @ gaps**2) / 6.0
    base = _place(atoms.loss, mass, steps, member=member, beyond=atoms.certain if member else 0.0, inflation=smeared)
    result: Lattice | None = None
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
        base = _place(full.loss, full.mass, steps, member=member, beyond=full.beyond, inflation=full.inflation)


def _place(loss: Array, mass: Array, copies: int, *, member: bool, beyond: float, inflation: float = 0.0) -> Lattice:
    """Cut the tails and put atoms on a lattice fit to be composed `copies` times."""
    below = np.cumsum(mass)
    above = np.cumsum(mass[::-1])[::-1]
    tail = _LOST / copies
    first = min(int(np.searchsorted(below, tail)), loss.size - 1)
    last = max(loss.size - int(np.searchsorted(above[::-1], tail)), first + 1)
    last = max(int(np.searchsorted(loss[:last], _CAP)), first + 1)
    kept, x = mass[first:last].copy(), loss[first:last]
    if member:  # P1 mass: what is above goes to infinity, what is below is lifted
        beyond += float(mass[last:].sum())
        kept[0] += float(mass[:first].sum())
    # P0 mass that is cut is lost, above (to +infinity) and below (to -infinity): both in the attacker's favour.
    rare = _RARE / copies
    low = x[min(int(np.searchsorted(np.cumsum(kept), rare)), x.size - 1)]
    high = x[max(x.size - 1 - int(np.searchsorted(np.cumsum(kept[::-1]), rare)), 0)]
    core = np.clip(x, low, max(high, low))
    weight = kept / kept.sum()
    width = math.sqrt(max(float(weight @ (core - float(weight @ core)) ** 2), 0.0))
    extent = float(x[-1] - x[0])
    spacing = max(width * math.sqrt(6.0 * _INFLATION), extent / _MAX_POINTS)
    if spacing == 0.0:  # a single atom
        return Lattice(float(x[0]), 1.0, kept[:1] if x.size == 1 else np.array([kept.sum()]), member, inflation, beyond)
    return _split(x, kept, float(x[0]), spacing, member=member, inflation=inflation, beyond=beyond)


def _split(
    x: Array, mass: Array, offset: float, spacing: float, *, member: bool, inflation: float, beyond: float
) -> Lattice:
    position = (x - offset) / spacing
    index = np.maximum(np.floor(position).astype(np.int64), 0)
    excess = np.clip(x - offset - index * spacing, 0.0, spacing)
    upper = mass * split_weights(excess, spacing, member=member)
    size = int(index[-1]) + 2
    placed = np.bincount(index, weights=mass - upper, minlength=size)
    placed += np.bincount(index + 1, weights=upper, minlength=size)
    added = float(np.sum(mass * excess * (spacing - excess)))
    return Lattice(offset, spacing, placed, member, inflation + added, beyond)


def _join(a: Lattice, b: Lattice) -> Lattice:
    """The sum of two independent losses, on the coarser of the two lattices."""
    if a.spacing < b.spacing:
        a, b = b, a
    if b.mass.size == 1:
        b = Lattice(b.offset, a.spacing, b.mass, b.member, b.inflation, b.beyond)
    elif a.mass.size == 1:
        a = Lattice(a.offset, b.spacing, a.mass, a.member, a.inflation, a.beyond)
    elif a.spacing != b.spacing:
        b = _split(
            b.loss, b.mass, b.offset, a.spacing, member=b.member, inflation=b.inflation, beyond=b.beyond
        )
    size = a.mass.size + b.mass.size - 1
    length = next_fast_len(size, real=True)
    mass = irfft(rfft(a.mass, length) * rfft(b.mass, length), length)[:size]
    return _cleaned(
        a.offset + b.offset, a.spacing, mass, a.member, a.inflation + b.inflation, _either(a.beyond, b.beyond)
    )


def _either(a: float, b: float) -> float:
    return a + b - a * b


def _convolve_self(lattice: Lattice, copies: int) -> Lattice:
    if copies == 1:
        return lattice
    size = copies * (lattice.mass.size - 1) + 1
    low, high = 0, size - 1
    if size > 4096:
        low, high = _window(lattice.mass, copies)
    length = next_fast_len(high - low + 1, real=True)
    mass = lattice.mass
    if mass.size > length:  # the transform is cyclic: fold, what is asked of the result lies in one period
        mass = np.bincount(np.arange(mass.size) % length, weights=mass, minlength=length)
    power = irfft(_integer_power(rfft(mass, length), copies), length)
    power = power[(low + np.arange(high - low + 1)) % length]
    beyond = -math.expm1(copies * math.log1p(-lattice.beyond)) if lattice.beyond < 1.0 else 1.0
    return _cleaned(
        copies * lattice.offset + low * lattice.spacing,
        lattice.spacing,
        power,
        lattice.member,
        copies * lattice.inflation,
        beyond,
    )


def _integer_power(values: NDArray[np.complex128], exponent: int) -> NDArray[np.complex128]:
    """values ** exponent by repeated squaring, several times faster than NumPy's complex power."""
    result: NDArray[np.complex128] | None = None
    while True:
        if exponent & 1:
            result = values.copy() if result is None else result * values
        exponent >>= 1
        if not exponent:
            assert result is not None
            return result
        values = values * values


def _cleaned(offset: float, spacing: float, mass: Array, member: bool, inflation: float, beyond: float) -> Lattice:
    """Drop what is below the rounding noise of the transform, which only helps the attacker."""
    noise = 4.0e-17 * float(mass.max(initial=0.0)) ** 0.5
    return Lattice(offset, spacing, np.where(mass > noise, mass, 0.0), member, inflation, beyond)


def _window(mass: Array, copies: int) -> tuple[int, int]:
    """First and last index of the `copies`-fold sum outside which its probability is below _LOST (Chernoff)."""
    index = np.arange(mass.size, dtype=np.float64)
    total = float(mass.sum())
    mean = float(index @ mass) / total
    deviation = math.sqrt(max(float(((index - mean) ** 2) @ mass) / total, 1.0e-12))
    log_lost = math.log(_LOST)
    used = mass > 0.0
    centred, used_mass = index[used] - mean, mass[used]
    bounds = []
    for sign in (-1.0, 1.0):
        far = float(np.max(sign * centred))
        best = copies * far
        steepest = 20.0 / (deviation * math.sqrt(copies))
        for slope in np.geomspace(min(-log_lost / max(best, 1.0), steepest), steepest, 10):
            shift = slope * far
            log_mgf = shift + math.log(float(used_mass @ np.exp(sign * slope * centred - shift)))
            best = min(best, (copies * log_mgf - log_lost) / slope)
        bounds.append(best)
    low = max(math.floor(copies * mean - bounds[0]), 0)
    high = min(math.ceil(copies * mean + bounds[1]), copies * (mass.size - 1))
    return low, high
