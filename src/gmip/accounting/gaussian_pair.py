"""The optimal test of one Gaussian against another: the exact curve of a step whose spectrum is known.

Model (the paper's CLT): per-example gradients have mean mu and covariance Sigma; a batch mean m of n of them, with
noise tau, is N(mu, Sigma/n + tau^2 I) when the candidate theta is not in the batch and N(mu + (theta - mu)/n,
(n-1)/n^2 Sigma + tau^2 I) when it is. Scaled to unit variance under "not a member", each eigendirection tests N(0, 1)
against N(shift, 1 - drop): `GaussianPair`. `docs/theory/one-step.md` carries the derivations named here.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri, ndtri_exp

from gmip import _validate as check
from gmip.accounting import noncentral_chi2
from gmip.accounting._loss import TAIL_SCORE, Atoms, discretise, step_atoms
from gmip.accounting._saddlepoint import gaussian_pair_log_tails
from gmip.accounting.families import Gaussian
from gmip.accounting.tradeoff import Inverse, TradeOff
from gmip.errors import InvalidArgument

Array = NDArray[np.float64]
LEAST_DROP = (
    1.0e-8  # of a ChiSquared, which compares a variable of mean n K with n/(n-1) times it: rounding errors grow
)


class GaussianPair(TradeOff):
    """The optimal test of N(0, I) against N(s, I - D): the exact curve of a step whose spectrum is known.

    Directions come in groups of equal variance drop; only the length of the shift inside a group matters, because the
    group is rotation invariant. Full-batch steps compose without leaving the family: k steps multiply `multiplicity`
    by k and `shift` by sqrt(k).

    Parameters
    ----------
    drop : array-like of shape (g,), variance that the candidate takes away in each group, 0 <= drop < 1.
    shift : array-like of shape (g,), length of the mean shift inside each group, >= 0.
    multiplicity : array-like of shape (g,), number of directions in each group.

    Guarantees
    ----------
    Exact for the Gaussian model (saddle-point quadrature, errors below 1e-8 in the log of either error rate).
    """

    def __init__(self, *, drop: ArrayLike, shift: ArrayLike, multiplicity: ArrayLike) -> None:
        d, s, m = (np.atleast_1d(np.asarray(v, dtype=np.float64)) for v in (drop, shift, multiplicity))
        if not d.shape == s.shape == m.shape or d.ndim != 1:
            raise InvalidArgument(
                f"drop, shift and multiplicity must be of one length, not {d.shape}, {s.shape}, {m.shape}."
            )
        if not (np.all((d >= 0.0) & (d < 1.0)) and np.all((s >= 0.0) & np.isfinite(s)) and np.all(m >= 0.0)):
            raise InvalidArgument(
                "must lie in [0, 1), `shift` and `multiplicity` be finite and not negative", argument="drop"
            )
        self.drop, self.shift, self.multiplicity = _merge(d, s, m)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.drop.size} groups, divergence={self.divergence:.6g})"

    @property
    def divergence(self) -> float:
        """2 KL(P1 || P0): mu^2 if the test were Gaussian; the mean and the variance term."""
        return float(self.shift @ self.shift - self.multiplicity @ (self.drop + np.log1p(-self.drop)))

    def _tails(self, loss: Array) -> tuple[Array, Array, Array, Array]:
        return gaussian_pair_log_tails(loss, drop=self.drop, shift=self.shift, multiplicity=self.multiplicity)

    def _score(self, loss: Array, *, member: bool) -> Array:
        """Normal score of the loss under P1 (`member`) or P0."""
        tails = self._tails(loss)
        log_sf, log_cdf = (tails[2], tails[3]) if member else (tails[0], tails[1])
        return np.where(log_sf < log_cdf, -ndtri_exp(np.minimum(log_sf, 0.0)), ndtri_exp(np.minimum(log_cdf, 0.0)))

    def _log_fnr(self, fpr: Array) -> Array:
        flat = np.ravel(fpr)
        result = np.where(flat < 0.5, 0.0, -np.inf)  # f(0) = 1, f(1) = 0
        inner = (flat > 0.0) & (flat < 1.0)
        if self.divergence == 0.0:
            with np.errstate(divide="ignore"):
                return np.log1p(-np.asarray(fpr))
        if inner.any():
            threshold = self._threshold(-ndtri(flat[inner]))
            result[inner] = self._tails(threshold)[3]
        return result.reshape(np.shape(fpr))

    def _threshold(self, score: Array, *, member: bool = False) -> Array:
        """Loss whose normal score under P1 (`member`) or P0 is `score`.

        Bracketed secant (Illinois) in a variable in which the score is almost linear: the loss itself, or, where the
        loss has a largest value nearby, the logarithm of the distance to it.
        """
        mean, deviation, top = self._moments(member=member)
        near = deviation > 1.0e-3 * (top - mean)
        start, step = (-math.log(top - mean), min(deviation / (top - mean), 1.0)) if near else (mean, deviation)

        def loss_at(v: Array) -> Array:
            return top - np.exp(-v) if near else v

        def excess(v: Array, wanted: Array) -> Array:
            x = loss_at(v)
            return np.where(x < top, self._score(x, member=member), np.inf) - wanted

        low, high = np.full(score.shape, start - step), np.full(score.shape, start + step)
        f_low, f_high = excess(low, score), excess(high, score)
        reach = step
        while np.any(wrong := f_low > 0.0):
            reach *= 2.0
            high[wrong], f_high[wrong] = low[wrong], f_low[wrong]
            low[wrong] -= reach
            f_low[wrong] = excess(low[wrong], score[wrong])
        reach = step
        while np.any(wrong := f_high < 0.0):
            reach *= 2.0
            low[wrong], f_low[wrong] = high[wrong], f_high[wrong]
            high[wrong] += reach
            f_high[wrong] = excess(high[wrong], score[wrong])
        root, weight_low, weight_high = low.copy(), f_low.copy(), f_high.copy()
        open_ = np.arange(score.size)
        for turn in range(100):
            a, b, wa, wb = low[open_], high[open_], weight_low[open_], weight_high[open_]
            share = np.clip(wa / (wa - wb), 0.0, 1.0) if turn % 4 < 3 else np.full(open_.size, 0.5)
            x = np.where(np.isfinite(wa) & np.isfinite(wb), a + share * (b - a), 0.5 * (a + b))
            f = excess(x, score[open_])
            root[open_] = x
            below = f < 0.0
            # An end that is kept counts half the next time.
            low[open_], weight_low[open_] = np.where(below, x, a), np.where(below, f, 0.5 * wa)
            high[open_], weight_high[open_] = np.where(below, b, x), np.where(below, 0.5 * wb, f)
            open_ = open_[(np.abs(f) > 1.0e-11) & (b - a > 4.0e-16 * np.maximum(np.abs(a), np.abs(b)))]
            if open_.size == 0:
                break
        return loss_at(root)

    def _moments(self, *, member: bool = False) -> tuple[float, float, float]:
        """Mean and standard deviation of the loss under P1 (`member`) or P0, and the largest loss."""
        d, s, m = self.drop, self.shift, self.multiplicity
        q = 1.0 - d
        if member:
            mean = 0.5 * self.divergence
            deviation = math.sqrt(float(m @ (0.5 * d**2) + (s * s) @ q))
        else:
            mean = float(m @ (-0.5 * np.log1p(-d) - 0.5 * d / q) - 0.5 * (s * s) @ (1.0 / q))
            deviation = math.sqrt(float(m @ (0.5 * (d / q) ** 2) + (s * s) @ (1.0 / q**2)))
        bounded = (d > 0.0) | (s == 0.0)
        if not np.all(bounded):
            return mean, deviation, math.inf
        with np.errstate(divide="ignore", invalid="ignore"):
            peak = np.where(s > 0.0, 0.5 * s * s / d, 0.0)
        return mean, deviation, float(-0.5 * m @ np.log1p(-d) + peak.sum())

    def _delta(self, epsilon: float) -> float:
        if epsilon > 1.0e6:
            return 0.0
        log_sf0, _, log_sf1, _ = (float(v[0]) for v in self._tails(np.array([epsilon])))
        if log_sf1 == -math.inf:
            return 0.0
        return math.exp(log_sf1) * -math.expm1(min(epsilon + log_sf0 - log_sf1, 0.0))

    def _deltas(self, epsilons: Array) -> Array:
        log_sf0, _, log_sf1, _ = self._tails(epsilons)
        with np.errstate(invalid="ignore"):
            loss = np.where(log_sf1 > -np.inf, np.minimum(epsilons + log_sf0 - log_sf1, 0.0), 0.0)
        return np.exp(log_sf1) * -np.expm1(loss)

    def _balance(self) -> float:
        return math.exp(float(self._tails(np.zeros(1))[0][0]))

    def inverse(self) -> TradeOff:
        return _InversePair(self)

    def _atoms(self) -> Atoms:
        d, s, m = self.drop, self.shift, self.multiplicity
        if self.divergence == 0.0:
            return Gaussian(0.0)._atoms()
        # -log of the Bhattacharyya coefficient: beyond 200 nothing of the overlap is left to a double.
        overlap = 0.125 * float((s * s) @ (1.0 / (1.0 - 0.5 * d)))
        overlap += float(m @ (0.25 * np.log1p(-d) * -1.0 + 0.5 * np.log1p(-0.5 * d)))
        if overlap > 200.0:
            return Atoms.perfect()
        shifted = np.flatnonzero(s > 0.0)
        if shifted.size == 1:  # the shifted direction apart, its group's other directions with the rest
            own = int(shifted[0])
            rest = m.copy()
            rest[own] = max(rest[own] - 1.0, 0.0)
            spread = (rest > 0.0) & (d > 0.0)
            drop, dof = float(d[spread].max(initial=0.0)), float(rest[spread].sum())
            # A few directions of smaller drop count as the others do, in the attacker's favour.
            if np.sum(rest[spread & (d < drop)]) <= 0.05 * dof:
                return step_atoms(shift=float(s[own]), shift_drop=float(d[own]), drop=drop, dof=dof)
        ends = self._threshold(np.array([-TAIL_SCORE]))[0], self._member_top()
        spacing = (ends[1] - ends[0]) / 2000.0

        def tails(x: Array) -> tuple[Array, Array, Array, Array]:
            log_sf0, log_cdf0, log_sf1, log_cdf1 = self._tails(x)
            return np.exp(log_cdf0), np.exp(log_sf0), np.exp(log_cdf1), np.exp(log_sf1)

        return discretise(tails, math.floor(ends[0] / spacing), math.ceil(ends[1] / spacing), spacing)

    def _member_top(self) -> float:
        """A loss that a member exceeds with negligible probability."""
        mean, deviation, top = self._moments()
        high = min(mean + deviation, 0.5 * (mean + top))
        while float(self._tails(np.array([high]))[2][0]) > -46.0:
            if top - high < 1e-9 * (1.0 + abs(top)):
                return top
            high = min(high + deviation, 0.5 * (high + top))
        return high


class _InversePair(Inverse):
    """The inverse of a GaussianPair by the quantiles of the loss under P1: faster than by those of the curve.

    It tests N(0, I) against a wider Gaussian: what a record adds, rather than takes away, of the variance.
    """

    def __init__(self, pair: GaussianPair) -> None:
        super().__init__(pair)
        self._pair = pair

    @property
    def divergence(self) -> float:
        """2 KL of the alternative from the null hypothesis, which here is the pair's 2 KL(P0 || P1)."""
        d, s, m = self._pair.drop, self._pair.shift, self._pair.multiplicity
        return float(m @ (np.log1p(-d) + d / (1.0 - d)) + (s * s) @ (1.0 / (1.0 - d)))

    def _log_fnr(self, fpr: Array) -> Array:
        flat = np.ravel(fpr)
        result = np.where(flat < 0.5, 0.0, -np.inf)
        inner = (flat > 0.0) & (flat < 1.0)
        if self._pair.divergence == 0.0:
            return self._pair._log_fnr(fpr)
        if inner.any():
            result[inner] = self._pair._tails(self._pair._threshold(ndtri(flat[inner]), member=True))[0]
        return result.reshape(np.shape(fpr))


def _merge(drop: Array, shift: Array, multiplicity: Array) -> tuple[Array, Array, Array]:
    """Groups of one drop become one: shifts add in squares."""
    unique, index = np.unique(drop, return_inverse=True)
    squares, counts = (np.bincount(index, weights=w, minlength=unique.size) for w in (shift * shift, multiplicity))
    return unique, np.sqrt(squares), counts.astype(np.float64, copy=False)


class ChiSquared(GaussianPair):
    """Theorem 5.1 of the paper: f(a) = 1 - F_{d,(n-1)K}(n/(n-1) F^-1_{d,nK}(a)), F the non-central chi-squared CDF.

    Guarantees
    ----------
    The exact curve of one noise-free step in the Gaussian model (a CLT statement about batch means) for a candidate of
    susceptibility K; a lower bound for every candidate of smaller susceptibility (proved in docs/theory/one-step.md).
    """

    def __init__(self, *, dimension: float, susceptibility: float, batch_size: float) -> None:
        self.dimension = check.positive("dimension", dimension)
        self.susceptibility = check.positive("susceptibility", susceptibility)
        self.batch_size = check.positive("batch_size", batch_size)
        if self.batch_size <= 1.0:
            raise InvalidArgument(
                "must exceed 1, a batch of one shows its only gradient", argument="batch_size", value=batch_size
            )
        n = self.batch_size
        super().__init__(drop=[1.0 / n], shift=[math.sqrt(self.susceptibility / n)], multiplicity=[self.dimension])

    def _log_fnr(self, fpr: Array) -> Array:
        n, d, k = self.batch_size, self.dimension, self.susceptibility
        with np.errstate(divide="ignore"):
            statistic = noncentral_chi2.quantile(np.log(fpr), d, n * k)
        return noncentral_chi2.log_sf(n / (n - 1.0) * statistic, d, (n - 1.0) * k)


def gaussian_pair(drop: Array, shift: Array, multiplicity: Array) -> GaussianPair:
    """A GaussianPair, as a ChiSquared where it is one: faster, and accurate where the loss is close to its largest."""
    pair = GaussianPair(drop=drop, shift=shift, multiplicity=multiplicity)
    if pair.drop.size == 1 and pair.drop[0] > LEAST_DROP and pair.shift[0] > 0.0:
        n, length = 1.0 / float(pair.drop[0]), float(pair.shift[0])
        return ChiSquared(dimension=float(pair.multiplicity[0]), susceptibility=n * length**2, batch_size=n)
    return pair
