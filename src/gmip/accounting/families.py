"""Trade-off families: Gaussian, (epsilon, delta), and piecewise linear."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, ndtr, ndtri

from gmip import _validate as check
from gmip.accounting._loss import Atoms, gaussian_atoms
from gmip.accounting.convert import delta_from_mu, epsilon_from_mu
from gmip.accounting.tradeoff import TradeOff
from gmip.errors import InvalidArgument
from gmip.vocabulary import Claim

Array = NDArray[np.float64]


_EPSILONS = np.append(0.0, np.geomspace(1.0e-3, 600.0, 4000))  # where (epsilon, delta) of others is asked for


class Gaussian(TradeOff):
    """g_mu(a) = Phi(Phi^-1(1 - a) - mu): telling N(0, 1) from N(mu, 1). mu may be infinite (no privacy at all)."""

    def __init__(self, mu: float) -> None:
        self.mu = self.gdp_mu = check.number("mu", mu)
        if self.mu < 0.0:
            raise InvalidArgument(
                "must not be negative", argument="mu", value=mu, remedy="pass 0 (perfect privacy) or more"
            )

    def __repr__(self) -> str:
        return f"Gaussian(mu={self.mu:.6g})"

    @property
    def divergence(self) -> float:
        """2 KL(P1 || P0) = mu^2."""
        return self.mu * self.mu  # no OverflowError, unlike **

    def _log_fnr(self, fpr: Array) -> Array:
        if self.mu == 0.0:
            with np.errstate(divide="ignore"):
                return np.log1p(-fpr)
        if self.mu == math.inf:
            return np.full(np.shape(fpr), -np.inf)
        return np.asarray(log_ndtr(-ndtri(fpr) - self.mu))

    def _mu_at(self, fpr: Array) -> Array:
        return np.full(np.shape(fpr), self.mu)

    def _delta(self, epsilon: float) -> float:
        if self.mu == 0.0:
            return max(-math.expm1(min(epsilon, 700.0)), 0.0)
        if self.mu == math.inf:
            return 1.0
        if epsilon < 0.0:  # symmetry: delta(-e) = 1 - e^-e + e^-e delta(e)
            return -math.expm1(epsilon) + math.exp(epsilon) * delta_from_mu(self.mu, epsilon=-epsilon)
        return delta_from_mu(self.mu, epsilon=epsilon)

    def _deltas(self, epsilons: Array) -> Array:
        if not 0.0 < self.mu < math.inf:
            return super()._deltas(epsilons)
        x = epsilons / self.mu
        return np.asarray(ndtr(0.5 * self.mu - x) - np.exp(epsilons + log_ndtr(-0.5 * self.mu - x)))

    def _atoms(self) -> Atoms:
        if self.mu == 0.0:
            return Atoms(np.zeros(1), np.ones(1), np.ones(1), 0.0, 0.0)
        if self.mu > 40.0:  # no overlap that a double can hold
            return Atoms(np.zeros(0), np.zeros(0), np.zeros(0), 1.0, 1.0)
        return gaussian_atoms(self.mu)

    def _balance(self) -> float:
        return float(ndtr(-0.5 * self.mu))

    def epsilon(self, delta: float) -> float:
        delta = check.probability("delta", delta)
        if self.mu == 0.0:
            return 0.0
        if delta == 0.0 or self.mu == math.inf:
            return 0.0 if delta == 1.0 else math.inf
        return epsilon_from_mu(self.mu, delta=delta)

    def auc(self) -> float:
        return float(ndtr(self.mu / math.sqrt(2.0)))

    def inverse(self) -> TradeOff:
        if self.claim.not_a_member is None:
            return self
        mirrored = Gaussian(self.mu)
        mirrored.claim = self.claim.mirrored
        return mirrored

    def symmetrise(self) -> TradeOff:
        return self


class PiecewiseLinear(TradeOff):
    """The lower convex polygon through given points (fpr, fnr).

    fpr, fnr : array-like of shape (n,), the points; (0, 1) and (1, 0) are always added. Points that are not on the
    lower convex hull are dropped: an attacker may toss a coin between two tests.
    """

    def __init__(self, fpr: ArrayLike, fnr: ArrayLike) -> None:
        a, b = np.ravel(check.probability_array("fpr", fpr)), np.ravel(check.probability_array("fnr", fnr))
        if a.shape != b.shape:
            raise InvalidArgument(f"and `fnr` must be of one length, not {a.size} and {b.size}", argument="fpr")
        a, b = np.concatenate([[0.0], a, [1.0]]), np.concatenate([[1.0], b, [0.0]])
        a, b = _lower_hull(a, b)
        with np.errstate(divide="ignore"):
            self._set(a, np.log(b))

    @classmethod
    def from_roc(cls, member_scores: ArrayLike, non_member_scores: ArrayLike) -> PiecewiseLinear:
        """The empirical curve of an attack that calls a record a member when its score is high.

        member_scores, non_member_scores : array-like of shape (n,) and (m,); every distinct score is a threshold.
        The hull of an empirical ROC is a measurement with sampling error, not a bound.
        """
        members, others = _scores("member_scores", member_scores), _scores("non_member_scores", non_member_scores)
        thresholds = np.unique(np.concatenate([members, others]))
        fnr = np.searchsorted(np.sort(members), thresholds, side="left") / members.size
        fpr = 1.0 - np.searchsorted(np.sort(others), thresholds, side="left") / others.size
        curve = cls(fpr, fnr)
        curve.claim = Claim("forecast", "the attack and the records that were measured")
        return curve

    @classmethod
    def from_dp_accounting(cls, pld: Any) -> PiecewiseLinear:
        """The curve of a `dp_accounting.pld` privacy-loss distribution, or of its RDP or PLD accountant,
        in both directions, as differential privacy asks; for the accountant's own neighbours.

        Pessimistic where theirs is: a distribution made with `pessimistic_estimate=True`, dp-accounting's default.
        """
        if hasattr(pld, "get_delta_for_epsilon"):
            losses = np.arange(-10.0, 60.0, 0.005)
            deltas = np.asarray(pld.get_delta_for_epsilon(losses), dtype=np.float64)
            return cls._from_lines(losses, 1.0 - np.clip(deltas, 0.0, 1.0))
        if hasattr(pld, "get_delta"):
            few = _EPSILONS[::20]
            try:  # PLD answers for all epsilons in the time that it needs for one
                found = np.asarray(pld.get_delta(few), dtype=np.float64)
            except (TypeError, ValueError):
                found = np.array([float(pld.get_delta(float(epsilon))) for epsilon in few])
            return cls._from_deltas(few, found)
        raise InvalidArgument(
            f"must be a PrivacyLossDistribution or an accountant of dp_accounting, not {type(pld).__name__}",
            argument="pld",
        )

    @classmethod
    def from_rdp(cls, orders: ArrayLike, rdp: ArrayLike) -> PiecewiseLinear:
        """A curve for Renyi differential privacy: D_alpha <= rdp at each order alpha > 1, in both directions.

        Guarantees
        ----------
        A lower bound on the trade-off function of every mechanism with that RDP, for the same neighbours: each epsilon
        has the delta of Canonne, Kamath and Steinke (2020, Proposition 12), the least of all orders, and f lies above
        all lines 1 - delta - e^epsilon a and their mirror images. Not tight: RDP says less than the curve that it came
        from, so no attacker does better than this curve allows, but it may allow more than the mechanism does.
        """
        alpha, divergence = np.ravel(check.positive_array("orders", orders)), np.ravel(np.asarray(rdp, np.float64))
        if alpha.shape != divergence.shape or np.any(alpha <= 1.0) or not np.all(divergence >= 0.0):
            raise InvalidArgument(
                "and `rdp` must be of one length, orders above 1 and divergences of 0 or more", argument="orders"
            )
        a, d = alpha[:, None], divergence[:, None]
        with np.errstate(over="ignore"):
            log_delta = (a - 1.0) * (d - _EPSILONS + np.log1p(-1.0 / a)) - np.log(a)
            return cls._from_deltas(_EPSILONS, np.exp(np.minimum(np.min(log_delta, axis=0), 0.0)))

    @classmethod
    def from_zcdp(cls, rho: float) -> PiecewiseLinear:
        """A curve for rho-zCDP (Bun and Steinke, 2016): RDP of alpha rho at every order, with the guarantee of
        `from_rdp`."""
        orders = 1.0 + np.geomspace(1.0e-3, 1.0e5, 2001)
        return cls.from_rdp(orders, check.non_negative("rho", rho) * orders)

    @classmethod
    def near(cls, curve: TradeOff, distance: float) -> PiecewiseLinear:
        """f(a + distance) - distance: the curve of two laws that are each within this total variation distance of
        those behind `curve` (docs/theory/composition.md, "Cut batches")."""
        polygon = Discrete(curve._atoms())
        x, y = polygon._fpr_vertices, np.exp(polygon._log_fnr_vertices)
        start, end = float(np.exp(polygon._log_fnr(np.array(distance)))), float(np.interp(-distance, -y, x))
        inside = (x > distance) & (y > distance) & (x < end)
        x, y = np.concatenate([[distance], x[inside], [end]]), np.concatenate([[start], y[inside], [distance]])
        with np.errstate(divide="ignore"):
            log_fnr = np.log(np.maximum(y - distance, 0.0))
        made = cls([0.0], [0.0]) if start <= distance else cls._from_vertices(x - distance, log_fnr)
        made.claim = curve.claim
        return made

    @classmethod
    def of_best(cls, curve: TradeOff, expected_trials: float) -> PiecewiseLinear:
        """The curve of `TradeOff.best_of`; docs/theory/trials.md has the proof."""
        g = 1.0 / expected_trials
        low, high = -38.0, 38.0
        for _ in range(6):  # the ratio of a concave and a linear function rises, then falls
            scores = np.linspace(low, high, 401)
            tpr, fpr = -np.expm1(curve._log_fnr(ndtr(scores))), ndtr(scores)
            best = int(np.argmax((g + (1.0 - g) * tpr) / (g + (1.0 - g) * fpr)))
            left, right = max(best - 1, 0), min(best + 1, 400)
            most = (g + (1.0 - g) * float(tpr[right])) / (g + (1.0 - g) * float(fpr[left]))
            low, high = float(scores[left]), float(scores[right])
        deltas = np.array([curve._delta(float(e)) for e in _EPSILONS[::4] - 2.0 * math.log(most)])
        made = cls._from_deltas(_EPSILONS[::4], np.clip(expected_trials * deltas, 0.0, 1.0))
        drawn = (
            f"Only the best of several runs is published, whose number was drawn from the geometric distribution with "
            f"mean {expected_trials:g}; the runs are independent of each other."
        )
        made.claim = dataclasses.replace(curve.claim, assumptions=(*curve.claim.assumptions, drawn))
        return made

    @classmethod
    def _from_deltas(cls, epsilons: Array, deltas: Array) -> PiecewiseLinear:
        """The curve of (epsilon, delta) in both directions, epsilon from 0 up: 1 - delta(-e) = e^-e (1 - delta(e))."""
        starts = 1.0 - np.clip(deltas, 0.0, 1.0)
        mirrored = np.exp(-epsilons[:0:-1]) * starts[:0:-1]
        return cls._from_lines(np.append(-epsilons[:0:-1], epsilons), np.append(mirrored, starts))

    @classmethod
    def _from_lines(cls, losses: Array, starts: Array) -> PiecewiseLinear:
        """The upper envelope of the lines start - e^loss a (and 0): corners where its neighbouring lines meet."""
        slopes, below = _lower_hull(np.append(0.0, np.exp(losses)), -np.append(0.0, starts))
        corner = np.clip(-np.diff(below) / np.diff(slopes), 0.0, 1.0)
        height = np.clip(-below[:-1] - slopes[:-1] * corner, 0.0, 1.0)
        return cls(np.append(corner, 0.0), np.append(height, -below[-1]))

    @classmethod
    def _from_vertices(cls, fpr: Array, log_fnr: Array) -> PiecewiseLinear:
        """Vertices in order of increasing fpr, already convex; log_fnr may hold values far below any double."""
        curve = cls.__new__(cls)
        curve._set(fpr, log_fnr)
        return curve

    @classmethod
    def _from_atoms(cls, atoms: Atoms) -> PiecewiseLinear:
        """The curve of a discrete test."""
        fpr = np.append(np.cumsum(atoms.mass0[::-1])[::-1], 0.0)
        fnr = np.append(0.0, np.cumsum(atoms.mass1))
        return cls(np.clip(fpr, 0.0, 1.0), np.clip(fnr, 0.0, 1.0))

    def _set(self, fpr: Array, log_fnr: Array) -> None:
        self._fpr_vertices, self._log_fnr_vertices = fpr, np.minimum(log_fnr, 0.0)

    def __repr__(self) -> str:
        return f"PiecewiseLinear({self._fpr_vertices.size} vertices)"

    def _log_fnr(self, fpr: Array) -> Array:
        x, y = self._fpr_vertices, self._log_fnr_vertices
        if x.size == 1:
            return np.full(np.shape(fpr), y[0])
        # At a jump (two vertices at one fpr) the lower value holds: searchsorted from the right takes the last.
        k = np.clip(np.searchsorted(x, fpr, side="right") - 1, 0, x.size - 2)
        width = x[k + 1] - x[k]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            share = np.where(width > 0.0, np.clip((fpr - x[k]) / width, 0.0, 1.0), 1.0)
            result: Array = np.logaddexp(np.log1p(-share) + y[k], np.log(share) + y[k + 1])
        return result

    def _delta(self, epsilon: float) -> float:
        x, fnr = self._fpr_vertices, np.exp(self._log_fnr_vertices)
        with np.errstate(over="ignore", invalid="ignore"):
            cost = np.where(x > 0.0, np.exp(min(epsilon, 700.0)) * x, 0.0)
        return float(np.max(1.0 - fnr - cost))

    def _deltas(self, epsilons: Array) -> Array:
        x, gain = self._fpr_vertices, -np.expm1(self._log_fnr_vertices)
        # Where the gain grows by less than its rounding error its slope would be noise.
        kept = np.append(True, np.diff(np.floor(gain * 1.0e13)) > 0.0)
        x, gain = x[kept], gain[kept]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            slope = np.nan_to_num(np.diff(gain) / np.diff(x), nan=np.inf, posinf=np.inf)
        # The gain is concave in x: the best vertex is where its slope falls below e^epsilon.
        best = np.searchsorted(-np.minimum.accumulate(slope), -np.exp(epsilons))
        values: Array = gain[best] - np.exp(epsilons) * x[best]
        return values

    def _equivalent_mu(self, low: float, high: float) -> float:
        # Between two vertices the curve is straight and g_mu is convex, so it is nearest to g_mu at a vertex.
        inside = self._fpr_vertices[(self._fpr_vertices > low) & (self._fpr_vertices < high)]
        return float(np.max(self._mu_at(np.concatenate([[low, high], inside]))))

    def _balance(self) -> float:
        return float(self._fpr_vertices[np.argmax(1.0 - np.exp(self._log_fnr_vertices) - self._fpr_vertices)])

    def _atoms(self) -> Atoms:
        x, y = self._fpr_vertices, np.exp(self._log_fnr_vertices)
        mass0, mass1 = np.diff(x)[::-1], -np.diff(y)[::-1]
        regular = (mass0 > 0.0) & (mass1 > 0.0)
        loss = np.log(mass1[regular]) - np.log(mass0[regular])
        order = np.argsort(loss, kind="stable")
        certain = 1.0 - float(y[0]) + float(mass1[mass0 <= 0.0].sum())
        never = float(mass0[mass1 <= 0.0].sum()) + 1.0 - float(x[-1])
        return Atoms(loss[order], mass0[regular][order], mass1[regular][order], never, certain)

    def auc(self) -> float:
        fnr = np.exp(self._log_fnr_vertices)
        return float(1.0 - np.trapezoid(fnr, self._fpr_vertices))

    def epsilon(self, delta: float) -> float:
        delta = check.probability("delta", delta)
        x, gain = self._fpr_vertices, 1.0 - np.exp(self._log_fnr_vertices) - delta
        if np.any((x <= 0.0) & (gain > 0.0)):
            return math.inf
        useful = (x > 0.0) & (gain > 0.0)
        return max(float(np.max(np.log(gain[useful]) - np.log(x[useful]), initial=0.0)), 0.0)

    def inverse(self) -> TradeOff:
        fnr = np.exp(self._log_fnr_vertices)
        with np.errstate(divide="ignore"):
            mirrored = PiecewiseLinear._from_vertices(fnr[::-1].copy(), np.log(self._fpr_vertices[::-1]))
        mirrored.claim = self.claim.mirrored
        return mirrored

    def symmetrise(self) -> TradeOff:
        fnr = np.exp(self._log_fnr_vertices)
        both = PiecewiseLinear(np.concatenate([self._fpr_vertices, fnr]), np.concatenate([fnr, self._fpr_vertices]))
        both.claim = self.claim
        return both


class Discrete(PiecewiseLinear):
    """The curve of a discrete test, which composes as that very test."""

    def __init__(self, atoms: Atoms) -> None:
        self._test = atoms
        mass0, mass1 = np.append(atoms.mass0, 0.0), np.append(atoms.mass1, 0.0)
        fpr = np.cumsum(mass0[::-1])  # of thresholds from the highest loss down; the first accuses the certain only
        tpr = atoms.certain + np.cumsum(mass1[::-1])
        with np.errstate(divide="ignore"):
            log_fnr = np.where(
                tpr < 0.5, np.log1p(-np.minimum(tpr, 0.5)), np.log(np.append(0.0, np.cumsum(mass1))[:-1][::-1])
            )
        self._set(np.minimum(fpr, 1.0), log_fnr)

    def __repr__(self) -> str:
        return f"Discrete({self._test.loss.size} losses)"

    def _atoms(self) -> Atoms:
        return self._test


class EpsilonDelta(PiecewiseLinear):
    """f(a) = max(0, 1 - delta - e^eps a, e^-eps (1 - delta - a)): (epsilon, delta)-differential privacy."""

    def __init__(self, epsilon: float, delta: float = 0.0) -> None:
        self.epsilon_value = check.non_negative("epsilon", epsilon)
        self.delta_value = check.probability("delta", delta)
        rest = 1.0 - self.delta_value
        corner = rest * math.exp(-self.epsilon_value) / (1.0 + math.exp(-self.epsilon_value))
        super().__init__([0.0, corner, rest], [rest, corner, 0.0])

    def __repr__(self) -> str:
        return f"EpsilonDelta(epsilon={self.epsilon_value:.6g}, delta={self.delta_value:.6g})"


def _scores(name: str, values: ArrayLike) -> Array:
    try:
        result = np.ravel(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError):
        raise InvalidArgument("must be an array of numbers", argument=name) from None
    if result.size == 0 or np.isnan(result).any():
        raise InvalidArgument("must hold at least one score and no NaN", argument=name)
    return result


def _lower_hull(x: Array, y: Array) -> tuple[Array, Array]:
    """Lower-left convex hull of points, as increasing x (one point for each x, the lowest) and non-increasing y."""
    order = np.lexsort((y, x))
    hull: list[tuple[float, float]] = []
    for a, b in zip(x[order].tolist(), y[order].tolist(), strict=True):
        if hull and a == hull[-1][0]:
            continue
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (a - hull[-2][0]) >= (b - hull[-2][1]) * (
            hull[-1][0] - hull[-2][0]
        ):
            hull.pop()
        hull.append((a, b))
    points = np.array(hull)
    return points[:, 0].copy(), np.minimum.accumulate(points[:, 1])
