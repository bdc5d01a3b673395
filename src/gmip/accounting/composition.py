"""Composition: what an attacker learns from all steps together.

`compose` is exact up to a pessimistic grid (`Composed`); `clt_mu` is the paper's approximation for many small steps.
`docs/theory/composition.md` carries the derivations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, ndtr

from gmip import _validate as check
from gmip.accounting import _lattice
from gmip.accounting._lattice import Layers
from gmip.accounting._loss import Atoms
from gmip.accounting.families import Gaussian, PiecewiseLinear
from gmip.accounting.gaussian_pair import GaussianPair, gaussian_pair
from gmip.accounting.tradeoff import Symmetrised, TradeOff
from gmip.errors import InvalidArgument
from gmip.vocabulary import Claim

Array = NDArray[np.float64]

# Below these, a tail of a composed lattice is lost in the rounding of the transform and is given to the attacker.
_RESOLVED = 1.0e-10
_NEARLY_RESOLVED = 1.0e-8


class Composed(TradeOff):
    """Steps composed through their loss distributions, and the mixture of several such runs.

    Parameters
    ----------
    components : sequence of (weight, parts), parts a sequence of (one step's atoms, number of steps). With more than
        one component, an attacker faces component i with probability weight_i and knows which: stochastic composition.

    Guarantees
    ----------
    A lower bound on the composition's trade-off function: every discretisation moves mass to the attacker's side.
    `tpr_error` says by how much at most the TPR is overstated.
    """

    def __init__(self, components: Sequence[tuple[float, Sequence[tuple[Atoms, int]]]]) -> None:
        self._components = [(weight, list(parts)) for weight, parts in components]
        self._perfect = [
            any(atoms.loss.size == 0 or atoms.certain >= 1.0 for atoms, _ in parts) for _, parts in self._components
        ]

    def __repr__(self) -> str:
        steps = sum(count for _, count in self._components[0][1])
        return f"Composed({len(self._components)} components, {steps} steps)"

    def _lattices(self, *, member: bool) -> list[tuple[float, Layers | None]]:
        return [
            (weight, None if perfect else _lattice.compose(parts, member=member))
            for (weight, parts), perfect in zip(self._components, self._perfect, strict=True)
        ]

    @cached_property
    def _by_member(self) -> tuple[PiecewiseLinear, float]:
        """The polygon from P1 masses, good wherever false negatives are not rare, and its error."""
        lattices = self._lattices(member=True)
        loss, mass = _pool(lattices)
        beyond = sum(weight * (1.0 if lattice is None else lattice.beyond) for weight, lattice in lattices)
        # A smooth loss costs half as much again between two grid points as on average, a discrete one up to four times.
        smooth = all(atoms.smeared > 0.0 for _, parts in self._components for atoms, _ in parts)
        error = sum(weight * lattice.error for weight, lattice in lattices if lattice is not None)
        error *= 1.5 if smooth else 4.0
        if loss.size == 0:
            return PiecewiseLinear([0.0], [0.0]), error
        fnr = np.cumsum(mass)
        tpr = np.append(np.cumsum(mass[::-1])[::-1][1:], 0.0) + beyond
        fpr = np.append(np.cumsum((mass * np.exp(-loss))[::-1])[::-1][1:], 0.0)
        log_fnr = np.where(tpr < 0.5, np.log1p(-np.minimum(tpr, 0.5)), np.log(np.maximum(fnr, 1e-300)))
        last = int(np.searchsorted(fnr, _RESOLVED))  # the first threshold at which false negatives are resolved
        # Beyond the last threshold nothing is missed; false positives with no finite loss are never needed.
        end = float(fpr[last - 1]) if last else float(np.sum(mass * np.exp(-loss)))
        fprs = np.minimum(np.append(fpr[last:][::-1], end), 1.0)
        return PiecewiseLinear._from_vertices(fprs, np.append(log_fnr[last:][::-1], -np.inf)), error

    @cached_property
    def _by_non_member(self) -> PiecewiseLinear:
        """The polygon from P0 masses, good wherever false positives are not rare, with false negatives in logs."""
        lattices = self._lattices(member=False)
        loss, mass = _pool(lattices)
        if loss.size == 0:
            return PiecewiseLinear([0.0], [0.0])
        fpr = np.append(np.cumsum(mass[::-1])[::-1][1:], 0.0)
        with np.errstate(divide="ignore"):
            log_fnr = np.logaddexp.accumulate(np.log(mass) + loss)
        kept = int(np.searchsorted(-fpr, -_RESOLVED, side="right"))  # thresholds whose false positives are resolved
        kept = min(kept + 1, fpr.size)
        fprs = fpr[:kept].copy()
        fprs[-1] = 0.0
        total = float(mass.sum())
        return PiecewiseLinear._from_vertices(
            np.append(fprs[::-1], min(total, 1.0)), np.append(log_fnr[:kept][::-1], -np.inf)
        )

    @property
    def tpr_error(self) -> float:
        return 0.0 if all(self._perfect) else self._by_member[1]

    def _parts(self) -> Sequence[tuple[Atoms, int]]:
        if len(self._components) == 1:
            return self._components[0][1]
        return [(self._atoms(), 1)]

    def _atoms(self) -> Atoms:
        return self._by_member[0]._atoms()

    def _log_fnr(self, fpr: Array) -> Array:
        if all(self._perfect):
            return np.full(np.shape(fpr), -np.inf)
        result = self._by_member[0]._log_fnr(fpr)
        deep = result < math.log(_NEARLY_RESOLVED)
        if np.any(deep & (fpr < 1.0)):
            result = np.where(deep, np.maximum(result, self._by_non_member._log_fnr(fpr)), result)
        return result

    def _delta(self, epsilon: float) -> float:
        if all(self._perfect):
            return 1.0
        return self._by_member[0]._delta(epsilon)

    def _deltas(self, epsilons: Array) -> Array:
        return np.ones(epsilons.size) if all(self._perfect) else self._by_member[0]._deltas(epsilons)

    def _balance(self) -> float:
        return 0.0 if all(self._perfect) else self._by_member[0]._balance()

    def symmetrise(self) -> TradeOff:
        return Symmetrised(self)

    def inverse(self) -> TradeOff:
        mirrored = Composed([(w, [(atoms.mirrored(), n) for atoms, n in parts]) for w, parts in self._components])
        mirrored.claim = self.claim.mirrored
        return mirrored

    def auc(self) -> float:
        return 1.0 if all(self._perfect) else self._by_member[0].auc()

    def epsilon(self, delta: float) -> float:
        return super().epsilon(delta) if all(self._perfect) else self._by_member[0].epsilon(delta)


def _pool(lattices: Sequence[tuple[float, Layers | None]]) -> tuple[Array, Array]:
    """All atoms of all components in order of their loss: one threshold serves all (docs/theory/trade-offs.md)."""
    pooled = [(weight, *layers.atoms()) for weight, layers in lattices if layers is not None]
    if not pooled:
        return np.zeros(0), np.zeros(0)
    if len(pooled) == 1:
        weight, loss, mass = pooled[0]
        return loss, weight * mass
    loss = np.concatenate([loss for _, loss, _ in pooled])
    mass = np.concatenate([weight * mass for weight, _, mass in pooled])
    order = np.argsort(loss, kind="stable")
    return loss[order], mass[order]


class Maximum(TradeOff):
    """The better of several lower bounds at each point."""

    def __init__(self, curves: Sequence[TradeOff]) -> None:
        self._curves = list(curves)
        self.claim = Claim.of_all([curve.claim for curve in self._curves])

    def __repr__(self) -> str:
        return f"Maximum({len(self._curves)} bounds)"

    @property
    def _best(self) -> TradeOff:
        return min(self._curves, key=lambda curve: curve._delta(0.0))

    @property
    def tpr_error(self) -> float:
        return max(curve.tpr_error for curve in self._curves)

    def _log_fnr(self, fpr: Array) -> Array:
        result: Array = np.maximum.reduce([curve._log_fnr(fpr) for curve in self._curves])
        return result

    def _delta(self, epsilon: float) -> float:
        return min(curve._delta(epsilon) for curve in self._curves)

    def _atoms(self) -> Atoms:
        return self._best._atoms()

    def _parts(self) -> Sequence[tuple[Atoms, int]]:
        return self._best._parts()

    def epsilon(self, delta: float) -> float:
        return min(curve.epsilon(delta) for curve in self._curves)


def compose(curves: Sequence[tuple[TradeOff, int]]) -> TradeOff:
    """All of (curve, times) together: in closed form for Gaussian tests, else through their loss distributions.

    A bound only if all curves are bounds, and not of membership, nor of differential privacy of different neighbours:
    runs on the same data are told apart by more than their curves (`account` takes several runs).
    """
    together = _composed(curves)
    claims = [curve.claim for curve, _ in curves]
    together.claim = Claim.of_all(claims)
    several = sum(times for _, times in curves) > 1
    membership = any(claim.not_a_member is not None for claim in claims)
    if several and (membership or len({claim.adjacency for claim in claims} - {None}) > 1):
        together.claim = replace(
            together.claim,
            kind="forecast",
            assumptions=(
                *together.claim.assumptions,
                "The runs are independent of each other, given their curves: account([run, run]) says what is proved.",
            ),
        )
    return together


def _composed(curves: Sequence[tuple[TradeOff, int]]) -> TradeOff:
    if all(isinstance(curve, Gaussian) for curve, _ in curves):
        return Gaussian(
            math.sqrt(sum(times * curve.divergence for curve, times in curves if isinstance(curve, Gaussian)))
        )
    pairs = [(_as_pair(curve), times) for curve, times in curves]
    if all(pair is not None for pair, _ in pairs):
        known = [(pair, times) for pair, times in pairs if pair is not None]
        return gaussian_pair(
            np.concatenate([pair.drop for pair, _ in known]),
            np.concatenate([math.sqrt(times) * pair.shift for pair, times in known]),
            np.concatenate([times * pair.multiplicity for pair, times in known]),
        )
    return Composed([(1.0, [(atoms, times * count) for curve, times in curves for atoms, count in curve._parts()])])


def _as_pair(curve: TradeOff) -> GaussianPair | None:
    if isinstance(curve, Gaussian) and curve.mu < math.inf:
        return GaussianPair(drop=[0.0], shift=[curve.mu], multiplicity=[1.0])
    return curve if isinstance(curve, GaussianPair) else None


def subsampled_clt_mu(*, mu_step: float, sample_rate: float, num_steps: float) -> float:
    """The paper's Lemma 5.1 (Dong et al. 2022, Corollary 4), infinity where it overflows; with m = mu_step

        mu = sqrt(2) p sqrt(T) sqrt(e^(m^2) Phi(1.5 m) + 3 Phi(-0.5 m) - 2).

    Guarantees
    ----------
    A limit for many small steps under the symmetric subsampling operator, not a bound for a finite run.
    """
    c = sample_rate * math.sqrt(num_steps)
    if mu_step == 0.0:
        return 0.0
    if mu_step < 1.0e-3:
        inner = _clt_series(mu_step)
    elif mu_step > 25.0:
        log_inner = mu_step**2 + float(log_ndtr(1.5 * mu_step))
        log_mu = 0.5 * math.log(2.0) + math.log(c) + 0.5 * log_inner
        return math.exp(log_mu) if log_mu < 700.0 else math.inf
    else:
        inner = math.expm1(mu_step**2) * float(ndtr(1.5 * mu_step)) + float(
            ndtr(1.5 * mu_step) + 3.0 * ndtr(-0.5 * mu_step) - 2.0
        )
    return math.sqrt(2.0 * inner) * c


def _clt_series(m: float) -> float:
    """e^(m^2) Phi(1.5 m) + 3 Phi(-0.5 m) - 2 for small m: the terms in m^0 and m^1 cancel."""
    phi = 1.0 / math.sqrt(2.0 * math.pi)
    return m * m * (0.5 + m * (phi + m * (0.25 + m * 0.375 * phi)))


def clt_mu(parts: Sequence[tuple[float, float, float]]) -> float:
    """mu of several runs together under the CLT: full batches by sqrt(T), others by Lemma 5.1, squares added.

    parts : sequence of (mu_step, sample_rate, num_steps).
    """
    total = 0.0
    for mu_step, sample_rate, num_steps in parts:
        if sample_rate == 1.0:
            mu = math.sqrt(num_steps) * mu_step
        else:
            mu = subsampled_clt_mu(mu_step=mu_step, sample_rate=sample_rate, num_steps=num_steps)
        total = math.hypot(total, mu)
    return total


# -- stochastic composition -------------------------------------------------------------------------------------------


MAX_GROUPS = 128


def stochastic_composition(curves: Sequence[TradeOff], weights: ArrayLike | None = None) -> TradeOff:
    """The curve of an attacker who faces a random one of `curves` and knows which.

    weights : array-like of shape (n,), how often each is faced (evenly if left out).

    Guarantees
    ----------
    A lower bound on the stochastic composition of the given curves (each is replaced by its pessimistic
    discretisation), and never below the lowest of them: f >= f* for the worst record's f*. A bound only if all curves
    are bounds.
    """
    if not curves:
        raise InvalidArgument("is empty", argument="curves", remedy="pass at least one trade-off curve")
    shares = np.ones(len(curves)) if weights is None else check.positive_array("weights", weights)
    if shares.size != len(curves):
        raise InvalidArgument(
            f"has {shares.size} entries for {len(curves)} curves", argument="weights", remedy="pass one for each"
        )
    shares = shares / shares.sum()
    pooled = Composed([(float(share), curve._parts()) for share, curve in zip(shares, curves, strict=True)])
    pooled.claim = Claim.of_all([curve.claim for curve in curves])
    return pooled


def group_susceptibilities(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Groups susceptibilities, in MAX_GROUPS at most, with their shares: each value counts as the largest of its group.

    values : array of shape (n,). Groups are of equal width in the logarithm, so heavy tails keep their resolution;
    rounding up is in the attacker's favour, because exposure grows with susceptibility.
    """
    unique, counts = np.unique(values, return_counts=True)
    if unique.size > MAX_GROUPS:
        edges = np.geomspace(unique[0], unique[-1], MAX_GROUPS + 1)[1:]
        group = np.minimum(np.searchsorted(edges, unique), MAX_GROUPS - 1)
        used = np.unique(group)
        tops = np.array([unique[np.searchsorted(group, g, side="right") - 1] for g in used])
        counts = np.bincount(group, weights=counts)[used]
        unique = tops
    return unique, counts / counts.sum()
