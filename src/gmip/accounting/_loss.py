"""Discrete loss distributions that dominate a test: how steps are discretised, subsampled and brought on a lattice.

A test between P0 ("not a member") and P1 ("member") is known by the distribution of its log-likelihood ratio, the
loss L = log dP1/dP0, under both. `Atoms` holds such a distribution on finitely many points. Whatever is done here to
fit L to a grid moves mass only in the direction that helps the attacker:

- mass between two grid points is split between them so that the P0 and the P1 mass of the interval both stay as they
  are ("connect the dots", Doroshenko et al., PoPETs 2022). Under P0 that is a mean-preserving spread of e^L, so the
  hockey-stick divergence can only grow: the polygon drawn by the atoms is made of tangents of the true curve;
- P1 mass above the grid goes to L = +infinity, P1 mass below it is lifted to the lowest grid point.

`docs/theory/composition.md` carries the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincc, gammainccinv, gammaincinv, ndtr

Array = NDArray[np.float64]

# Mass in a tail beyond TAIL_SCORE standard deviations is 1e-21: a million steps lose 1e-15 of it.
TAIL_SCORE = 9.5
_TAIL_MASS = float(ndtr(-TAIL_SCORE))
# Grid spacing of one step relative to its own standard deviation: inflates the variance of the loss by SPACING^2/6.
_SPACING = 0.005
_MAX_POINTS = 8192
# Losses outside say no more than "no" and "yes": P1(L < -60) is below 1e-26, P0(L > 2000) far below. Cut where a grid
# would be coarse.
_RANGE = (-60.0, 2000.0)


@dataclass(frozen=True)
class Atoms:
    """A loss distribution on increasing points.

    loss : array of shape (n,), increasing, finite
    mass0, mass1 : arrays of shape (n,), P0 and P1 mass at each point, mass1 = exp(loss) * mass0
    never : P0 mass at loss -infinity (outcomes that no member produces)
    certain : P1 mass at loss +infinity (outcomes that only a member produces)
    smeared : how often these points took the place of a continuous loss (0 for a loss that is discrete)
    """

    loss: Array
    mass0: Array
    mass1: Array
    never: float
    certain: float
    smeared: float = 0.0

    @classmethod
    def perfect(cls) -> Atoms:
        """The test that is never wrong."""
        return cls(np.zeros(0), np.zeros(0), np.zeros(0), 1.0, 1.0)

    def subsampled(self, rate: float) -> Atoms:
        """The test of P0 against (1 - rate) P0 + rate P1: the record takes part with probability `rate`."""
        if rate == 1.0:
            return self
        # log(1 - rate + rate e^L), accurate for a small rate and for a large L.
        small = self.loss < 30.0
        loss = np.where(
            small,
            np.log1p(rate * np.expm1(np.minimum(self.loss, 30.0))),
            self.loss + math.log(rate) + np.log1p((1.0 - rate) / rate * np.exp(-np.maximum(self.loss, 30.0))),
        )
        floor = math.log1p(-rate)
        loss = np.concatenate([[floor], np.maximum(loss, floor)])
        mass0 = np.concatenate([[self.never], self.mass0])
        mass1 = np.concatenate([[0.0], self.mass1])
        return Atoms(loss, mass0, (1.0 - rate) * mass0 + rate * mass1, 0.0, rate * self.certain, self.smeared)

    def mirrored(self) -> Atoms:
        """The test with the roles of P0 and P1 swapped."""
        return Atoms(
            -self.loss[::-1], self.mass1[::-1], self.mass0[::-1], self.certain, self.never, smeared=self.smeared
        )

    def symmetrised(self) -> Atoms:
        """The operator C_p of Dong et al. (2022, Def. 4.8) on a one-sided subsampled test: its part above slope -1,
        mirrored. Both neighbours of differential privacy are covered."""
        up = self.loss > 0.0
        loss, mass1, mass0 = self.loss[up], self.mass1[up], self.mass0[up]
        idle = 1.0 - mass1.sum() - mass0.sum() - self.certain
        return Atoms(
            np.concatenate([-loss[::-1], [0.0], loss]),
            np.concatenate([mass1[::-1], [idle], mass0]),
            np.concatenate([mass0[::-1], [idle], mass1]),
            self.certain,
            self.certain,
            self.smeared,
        )


def mixture(parts: Sequence[tuple[float, float, Atoms]]) -> Atoms:
    """The test of a mixture whose components are seen: (P0 mass, P1 mass, test within the component) of each."""
    loss, mass0, mass1, never, certain, spread = [], [], [], 0.0, 0.0, 0.0
    for null, alternative, atoms in parts:
        if null <= 0.0 or alternative <= 0.0:
            never, certain = never + null, certain + alternative
            continue
        never += null * atoms.never
        certain += alternative * atoms.certain
        if atoms.loss.size:
            loss.append(atoms.loss + math.log(alternative / null))
            mass0.append(null * atoms.mass0)
            mass1.append(alternative * atoms.mass1)
            spread += alternative * atoms.smeared * gap_variance(atoms.loss, atoms.mass1)
    if not loss:
        return Atoms(np.zeros(0), np.zeros(0), np.zeros(0), never, certain)
    points = np.concatenate(loss)
    order = np.argsort(points, kind="stable")
    points, ones = points[order], np.concatenate(mass1)[order]
    # The points of all components together lie closer than each component's own, which were split.
    smeared = spread / max(gap_variance(points, ones), 1.0e-300)
    return Atoms(points, np.concatenate(mass0)[order], ones, never, certain, smeared=smeared)


def between(x: Array) -> Array:
    """Standard normal masses between points."""
    return np.maximum(np.where(x[:-1] < 0.0, np.diff(ndtr(x)), -np.diff(ndtr(-x))), 0.0)


def gap_variance(loss: Array, mass: Array) -> float:
    """Variance that a continuous loss gains when it is split between these points."""
    gaps = np.diff(loss)
    return float(np.sum(np.minimum(mass[:-1], mass[1:]) * gaps * gaps)) / 6.0


def split_weights(excess: Array, spacing: float, *, member: bool) -> Array:
    """Share of an atom's mass (under P1 if `member`, else P0) that goes to the upper of two grid points `spacing`
    apart when the atom lies `excess` above the lower one, so that its P0 and P1 masses both stay."""
    if member:
        return np.expm1(-excess) / math.expm1(-spacing)
    return np.exp(excess - spacing) * np.expm1(-excess) / math.expm1(-spacing)


Tails = Callable[[Array], tuple[Array, Array, Array, Array]]


def discretise(tails: Tails, first: int, last: int, spacing: float) -> Atoms:
    """Put a continuous loss distribution on the points spacing * (first..last).

    tails(x) returns P0(L<=x), P0(L>x), P1(L<=x), P1(L>x) as arrays.
    """
    grid = spacing * np.arange(first, last + 1, dtype=np.float64)
    cdf0, sf0, cdf1, sf1 = tails(grid)
    inner0 = np.maximum(np.where(cdf0[:-1] < sf0[:-1], np.diff(cdf0), -np.diff(sf0)), 0.0)
    inner1 = np.maximum(np.where(cdf1[:-1] < sf1[:-1], np.diff(cdf1), -np.diff(sf1)), 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        log_excess = np.log(inner1) - np.log(inner0) - grid[:-1]  # log E0[e^(L - lower point) | interval]
    # Where a mass has underflowed the ratio is noise; any value inside the interval will do at that scale.
    excess = np.clip(np.nan_to_num(log_excess, nan=0.0, posinf=spacing, neginf=0.0), 0.0, spacing)
    mass0, mass1 = np.zeros_like(grid), np.zeros_like(grid)
    for mass, inner, member in ((mass0, inner0, False), (mass1, inner1, True)):
        # E0[e^(L-lower)] fixes the split under both measures; for P1, E1[e^-(L-lower)] = 1/E0[e^(L-lower)].
        upper = split_weights(excess, spacing, member=member)
        mass[:-1] += inner * (1.0 - upper)
        mass[1:] += inner * upper
    mass1[0] += cdf1[0]
    with np.errstate(over="ignore"):
        lifted = min(float(cdf1[0]) * math.exp(min(-grid[0], 700.0)), float(cdf0[0]))
    mass0[0] += lifted
    return Atoms(grid, mass0, mass1, max(float(cdf0[0]) - lifted, 0.0), float(sf1[-1]), smeared=1.0)


def _shifted_tails(shift: float, drop: float) -> Tails:
    """N(0, 1) against N(shift, 1 - drop): L = [2 shift y - shift^2 - drop y^2] / (2 (1 - drop)) - log(1 - drop)/2."""
    half_log = 0.5 * math.log1p(-drop)

    def tails(x: Array) -> tuple[Array, Array, Array, Array]:
        q = shift * shift + 2.0 * (1.0 - drop) * (x + half_log)
        root = shift * shift - drop * q
        top = root <= 0.0  # at or above the largest loss
        root = np.sqrt(np.maximum(root, 0.0))
        low = q / (shift + root)  # L > x exactly for low < y < high
        high = (shift + root) / drop if drop > 0.0 else np.full_like(x, np.inf)
        sd = math.sqrt(1.0 - drop)
        out = []
        for centre, scale in ((0.0, 1.0), (shift, sd)):
            a, b = (low - centre) / scale, (high - centre) / scale
            beyond = ndtr(-b)
            out += [np.where(top, 1.0, ndtr(a) + beyond), np.where(top, 0.0, np.maximum(ndtr(-a) - beyond, 0.0))]
        return out[0], out[1], out[2], out[3]

    return tails


def _shifted_loss(y: float, shift: float, drop: float) -> float:
    return (2.0 * shift * y - shift * shift - drop * y * y) / (2.0 * (1.0 - drop)) - 0.5 * math.log1p(-drop)


def _spread_tails(drop: float, dof: float) -> tuple[Tails, float, float]:
    """N(0, I) against N(0, (1 - drop) I) in `dof` dimensions, and the range of losses that holds all but the tail."""
    top = -0.5 * dof * math.log1p(-drop)
    scale = drop / (1.0 - drop)  # L = top - scale * V with 2 V ~ chi2(dof) under P0, 2 V/(1-drop) ~ chi2(dof) under P1
    half = 0.5 * dof

    def tails(x: Array) -> tuple[Array, Array, Array, Array]:
        v = np.maximum(top - x, 0.0) / scale
        v1 = v / (1.0 - drop)
        cdf0, sf0, cdf1, sf1 = gammaincc(half, v), gammainc(half, v), gammaincc(half, v1), gammainc(half, v1)
        return np.asarray(cdf0), np.asarray(sf0), np.asarray(cdf1), np.asarray(sf1)

    low = top - scale * float(gammainccinv(half, _TAIL_MASS))
    high = top - scale * (1.0 - drop) * float(gammaincinv(half, _TAIL_MASS))
    return tails, low, high


def _fitted(low: float, high: float, spacing: float) -> tuple[float, float, float]:
    """A range and the spacing of its grid: cut to what matters, then coarser, if it has too many points."""
    if high - low > spacing * _MAX_POINTS:
        low, high = max(low, _RANGE[0]), min(max(high, _RANGE[0] + 1.0), _RANGE[1])
    return low, high, max(spacing, (high - low) / _MAX_POINTS)


def gaussian_atoms(shift: float) -> Atoms:
    """The test of N(0, 1) against N(shift, 1)."""
    return step_atoms(shift=shift, shift_drop=0.0, drop=0.0, dof=0.0)


def step_atoms(*, shift: float, shift_drop: float, drop: float, dof: float) -> Atoms:
    """One step: N(0, 1) against N(shift, 1 - shift_drop) in the candidate's direction, and N(0, 1) against
    N(0, 1 - drop) in `dof` others, independent of each other."""
    spread = drop > 0.0 and dof > 0.0
    scale = math.sqrt(shift * shift + (0.5 * drop * drop * dof if spread else 0.0))
    bottom = _shifted_loss(-TAIL_SCORE, shift, shift_drop)
    summit = shift / shift_drop if shift_drop > 0.0 else math.inf  # the loss falls again beyond it
    top = _shifted_loss(min(shift + TAIL_SCORE, summit), shift, shift_drop)
    fine = _SPACING * min(scale, 2.0)
    bottom, top, spacing = _fitted(bottom, top, fine)
    if spread:
        tails, low, high = _spread_tails(drop, dof)
        low, high, other_spacing = _fitted(low, high, fine)
        spacing = max(spacing, other_spacing)
        others = discretise(tails, math.floor(low / spacing), math.ceil(high / spacing), spacing)
    own = discretise(_shifted_tails(shift, shift_drop), math.floor(bottom / spacing), math.ceil(top / spacing), spacing)
    if not spread:
        return own
    grid = own.loss[0] + others.loss[0] + spacing * np.arange(own.loss.size + others.loss.size - 1)
    return Atoms(
        grid,
        np.convolve(own.mass0, others.mass0),
        np.convolve(own.mass1, others.mass1),
        own.never + others.never - own.never * others.never,
        own.certain + others.certain - own.certain * others.certain,
        smeared=1.0 + min(1.0, 6.0 * drop * math.sqrt(0.5 * dof) / spacing),
    )
