"""Who of a list was in: all candidates at once, from the published sums of gradients (docs/theory/attackers.md).

Arrays only. A published step is a sum over its batch, y = sum_i b_i x_i + rest, with b_i = 1 for the candidates in the
batch. What is known about b is a Gaussian in each step (expectation propagation); what a candidate's steps have in
common, membership, is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, lapack, solve_triangular
from scipy.special import expit, logit, logsumexp

from gmip import _validate as check
from gmip.errors import InvalidArgument

__all__ = ["MISFIT", "Decoded", "Draw", "PublishedSum", "coordinates", "decode"]

Array = NDArray[np.float64]
Draw = Literal["full", "fixed", "poisson"]

_COUNTED: Final = 10.0  # how exactly the size of a batch enters, in standard deviations of the noise
_NULL: Final = 1.0e-13  # of the largest squared length: what rounding leaves of linear dependence
_BLOCK: Final = 1024  # candidates at a time
_LEAST_SPREAD: Final = 1.0e-9  # of 1 - D s: what rounding leaves of a cavity
_LEAST_VARIANCE: Final = 1.0e-12  # of b
_SETTLED: Final = 1.0e-3  # change of a probability
_COVERAGES: Final = (1.0, 0.95, 0.85, 0.7, 0.5, 0.3, 0.1, 0.0)  # tried, if it is not told
MISFIT: Final = 2.0  # more than this is not explained by the list and the noise
_VAGUE: Final = 0.05  # standard deviation of a coverage below 1
_FIRST_SWEEPS: Final = 4  # for each of them
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(20)  # of a standard normal
_WEIGHTS /= _WEIGHTS.sum()


@dataclass(frozen=True, kw_only=True, eq=False)
class PublishedSum:
    """One published step, in units of its noise.

    Attributes
    ----------
    candidates : array of shape (c, r), gradients divided by the standard deviation of the noise on the SUM, in any
        orthonormal coordinates of (at least) their span.
    total : array of shape (r,), the published sum in the same units and coordinates.
    share : p, the chance that a member is in the batch.
    draw : "full": every member is in; "fixed": a batch of known size; "poisson".
    rest_mean, rest_cov : of the gradient of a member who is not listed, shapes (r,) and (r, r), from records of the
        same distribution; None: from the candidates.
    """

    candidates: Array
    total: Array
    share: float
    draw: Draw
    rest_mean: Array | None = None
    rest_cov: Array | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Decoded:
    """Attributes
    ----------
    log_odds : array of shape (c,), of membership at even prior odds.
    batches : array of shape (steps, c), the probability that a candidate was in the batch of a step.
    coverage : q, the share of the members that is listed: as given, or estimated.
    prior : the share of the candidates who are members, by it.
    sweeps, settled : passes over the steps, and whether the probabilities stopped changing.
    misfit : what the list leaves unexplained, squared, in units of what it should; 1 where the model is right.
    sure : the share of candidates whose membership the steps decide, at odds of 100 to 1.
    gain : bits per candidate that the steps tell beyond the prior; near 0 where nothing can be decoded.
    """

    log_odds: Array
    batches: Array
    coverage: float
    prior: float
    sweeps: int
    settled: bool
    misfit: float
    sure: float
    gain: float


def coordinates(gram: Array, products: Array) -> tuple[Array, Array]:
    """Candidates and other vectors in orthonormal coordinates of the candidates' span, from inner products.

    Parameters
    ----------
    gram : array of shape (c, c), among the candidates; overwritten.
    products : array of shape (c, k), of the candidates with k other vectors.

    Returns
    -------
    (X, Y) of shapes (c, r) and (k, r): X X' = gram up to rounding, and Y are the projections of the others.
    """
    scale = float(np.max(np.diag(gram), initial=0.0))
    if scale == 0.0:
        return np.zeros((len(gram), 1)), np.zeros((products.shape[1], 1))
    factor, pivots, rank, _ = lapack.dpstrf(gram.T, tol=_NULL * scale, lower=1, overwrite_a=1)
    order = pivots - 1
    for column in range(len(gram)):
        factor[:column, column] = 0.0
    lower = factor[:, :rank]
    others = solve_triangular(lower[:rank], products[order[:rank]], lower=True)
    points = np.empty((len(gram), rank))
    points[order] = lower
    return points, np.ascontiguousarray(others.T)


def decode(
    steps: Iterable[PublishedSum],
    *,
    dataset_size: int,
    epochs: Sequence[Sequence[int]] | None = None,
    coverage: float | None = None,
    most_sweeps: int = 15,
    progress: Callable[[int, int], Any] = lambda done, total: None,
) -> Decoded:
    """Log-odds of membership of all candidates, jointly.

    Parameters
    ----------
    steps : of one run, all with the same candidates, read once. Full batches: one element, the steps stacked.
    dataset_size : N, members.
    epochs : numbers of steps of which a member is in at most one (shuffled epochs); None: each step is drawn anew.
    coverage : q, the share of the members that is listed; None: estimated.
    most_sweeps : passes over all steps.
    progress : called with (done, total) sweeps.
    """
    check.count("dataset_size", dataset_size)
    listed = [_Listed(step, dataset_size) for step in steps]
    if not listed or len({len(step.x) for step in listed}) > 1:
        raise InvalidArgument("must hold at least one published sum, all of the same candidates", argument="steps")
    groups = [[t] for t in range(len(listed))] if epochs is None else [list(group) for group in epochs]
    if sorted(t for group in groups for t in group) != list(range(len(listed))):
        raise InvalidArgument("must name every step once", argument="epochs", value=groups)
    most = min(1.0, len(listed[0].x) / dataset_size)
    shares = [check.probability("coverage", coverage)] if coverage is not None else [most * q for q in _COVERAGES]
    found: list[_Beliefs] = []
    for number, share in enumerate(shares):
        beliefs = _Beliefs(listed, groups, share)
        beliefs.settle(most_sweeps if coverage is not None else min(most_sweeps, _FIRST_SWEEPS))
        found.append(beliefs)
        progress(number + 1, len(shares))
        best = max(found, key=lambda one: (one.fits, one.evidence if one.fits else -one.misfit))
        if best.fits and len(found) - found.index(best) > 2:  # lower coverages fit worse and worse
            break
    if coverage is None:
        best.settle(most_sweeps)
    progress(len(shares), len(shares))
    return best.answer()


class _Listed:
    """A published sum with its rest, and the Gaussian that stands for who of the list was in its batch."""

    def __init__(self, step: PublishedSum, dataset_size: int) -> None:
        x, y = step.candidates, step.total
        if x.ndim != 2 or y.shape != (x.shape[1],) or not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise InvalidArgument(f"have shapes {x.shape} and {y.shape}, or are not finite", argument="steps")
        self.share, self.draw, self.members = step.share, step.draw, dataset_size
        self.mean = x.mean(0) if step.rest_mean is None else step.rest_mean
        self.cov = step.rest_cov
        if step.draw != "poisson":  # the size of the batch is known: one more number
            x = np.column_stack([x, np.full(len(x), _COUNTED)])
            y = np.append(y, _COUNTED * step.share * dataset_size)
            self.mean = np.append(self.mean, _COUNTED)
            if self.cov is not None:
                self.cov = np.pad(self.cov, (0, 1))
        self.x, self.y = x, y

    def rest(self, coverage: float) -> tuple[Array, Array | None]:
        """Mean and covariance of what is not listed, without the noise."""
        missing = (1.0 - coverage) * self.members * self.share  # in the batch, on average
        if missing <= 0.0:
            return np.zeros_like(self.y), None
        if self.cov is None:
            own = _own_covariance(self.x if self.draw == "poisson" else self.x[:, :-1])
            self.cov = np.pad(own, (0, len(self.y) - len(own)))
        # Who is listed is by chance, and who is in the batch (but for its size): so is the number of those who are not
        # listed; and the share itself is not known exactly (docs/theory/attackers.md).
        varies = 1.0 - self.share if self.draw == "poisson" else coverage
        varies += _VAGUE**2 * self.members * self.share / (1.0 - coverage)
        return missing * self.mean, missing * (self.cov + varies * np.outer(self.mean, self.mean))

    def factor(self, variances: Array, rest: Array | None) -> Array:
        """The lower Cholesky factor of the covariance of the published sum, for these variances of b."""
        total = _weighted(self.x, variances)
        if rest is not None:
            total += rest
        total.flat[:: len(total) + 1] += 1.0
        lower: Array = cho_factor(total.T, lower=True, overwrite_a=True, check_finite=False)[0]  # in place
        return lower


def _weighted(x: Array, weights: Array) -> Array:
    """X' diag(weights) X, a block of rows at a time."""
    total = np.zeros((x.shape[1], x.shape[1]))
    for first in range(0, len(x), 4 * _BLOCK):
        rows = slice(first, first + 4 * _BLOCK)
        total += (x[rows] * weights[rows, None]).T @ x[rows]
    return total


def _own_covariance(x: Array) -> Array:
    """Of the candidates themselves, x of shape (c, r), as strangers see it.

    The sample covariance of c records is too small for others by 1 - r/c, on average. Where there are as many
    directions as candidates, each candidate has one of its own, in which a stranger's gradient has little: what the
    others do not span of a candidate is taken off on average, and the mean stays in.
    """
    count, dims = x.shape
    if dims < 0.95 * count:
        centred = x - x.mean(0)
        return np.asarray(centred.T @ centred / max(1.0, count - 1.0 - dims))
    values, axes = np.linalg.eigh(x @ x.T)
    kept = values > _NULL * values[-1]
    own = 1.0 / np.maximum((axes[:, kept] ** 2 / values[kept]).sum(1), np.finfo(float).tiny)
    norms = np.einsum("ij,ij->i", x, x)
    shared = 1.0 - np.minimum(own, norms).sum() / max(float(norms.sum()), np.finfo(float).tiny)
    return np.asarray(x.T @ x * (max(float(shared), 1.0e-3) / count))


def _left(precision: Array, log_odds: Array) -> Array:
    """The mean posterior variance of b, seen through Gaussian noise of this precision, at prior log-odds."""
    root, chance = np.sqrt(precision), expit(log_odds)
    total = np.zeros_like(precision)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        noise = root * node
        for sign, share in ((0.5, chance), (-0.5, 1.0 - chance)):
            odds = log_odds + sign * precision + noise
            total += weight * share * expit(odds) * expit(-odds)
    # No more than a linear estimate leaves.
    return np.minimum(total, 1.0 / (precision + 1.0 / np.maximum(chance * expit(-log_odds), _LEAST_VARIANCE)))


class _Beliefs:
    """Expectation propagation: messages between the steps and the candidates."""

    def __init__(self, steps: Sequence[_Listed], groups: Sequence[Sequence[int]], coverage: float) -> None:
        self.steps, self.coverage = steps, coverage
        count, members = len(steps[0].x), steps[0].members
        self.prior = float(np.clip(coverage * members / count, 0.5 / count, 1.0 - 0.5 / count))
        self.groups = groups
        self.group_of = {t: g for g, group in enumerate(groups) for t in group}
        shape = (len(steps), count)
        self.llr = np.zeros(shape)  # what a step says on b = 1 against b = 0
        chance = self.prior * np.array([[step.share] for step in steps])
        self.mean = np.broadcast_to(chance, shape).copy()  # of the Gaussian that stands for all else known of b
        self.var = np.broadcast_to(chance * (1.0 - chance), shape).copy()
        self.says = np.zeros((len(groups), count))  # what a group says on membership
        self.chance = self.mean.copy()  # posterior of b
        self.chi = np.ones(len(steps))
        self.fit = np.zeros(len(steps))
        self.sweeps, self.settled = 0, False

    def settle(self, most: int) -> None:
        """More passes over the steps, until nothing changes or there have been `most`; the first is linear."""
        while self.sweeps < most and not self.settled:
            damping = max(0.3, 0.95**self.sweeps)
            changes = [self._update(t, step, damping) for t, step in enumerate(self.steps)]
            self.sweeps += 1
            self.settled = max(changes) < _SETTLED
            if self.sweeps == 1:
                self.linear = self.misfit, self.llr.copy(), self.says.copy(), self.chance.copy()

    def _update(self, t: int, step: _Listed, damping: float) -> float:
        """One step: what it says about each candidate, given all that is known about the others."""
        missing, cov = step.rest(self.coverage)
        lower = step.factor(self.var[t], cov)
        del cov
        white = solve_triangular(lower, step.y - missing - self.mean[t] @ step.x, lower=True, check_finite=False)
        self.chi[t] = float(white @ white) / len(white)
        back = solve_triangular(lower, white, lower=True, trans="T", check_finite=False)
        along = step.x @ back
        squared = np.empty(len(along))
        for first in range(0, len(along), _BLOCK):
            rows = slice(first, first + _BLOCK)
            image = solve_triangular(lower, step.x[rows].T, lower=True, check_finite=False)
            squared[rows] = np.einsum("ij,ij->j", image, image)
        spread = np.maximum(1.0 - self.var[t] * squared, _LEAST_SPREAD)
        precision = squared / spread  # of b given all others: N(b; centre, 1/precision)
        pull = self.mean[t] * precision + along / spread  # precision * centre
        self.llr[t] = pull - precision / 2.0
        wider = 1.0 + self.var[t] * precision
        gauss = precision * self.mean[t] ** 2 - 2.0 * self.mean[t] * pull - self.var[t] * pull**2
        self.fit[t] = float((np.log(wider) + gauss / wider).sum() / 2.0)
        self.fit[t] -= float(np.log(np.diag(lower)).sum() + white @ white / 2.0)
        before = self.chance[t].copy()
        known = self._odds(t)
        after = expit(known + self.llr[t])
        # The Gaussian with which the cavity has the mean of b, and the variance that b has on average at this
        # precision: its own may exceed the cavity's, which no Gaussian makes up for, and sweeps would diverge.
        left = _left(precision, known)
        wide = np.clip(left / np.maximum(1.0 - precision * left, _LEAST_SPREAD), _LEAST_VARIANCE, 0.25)
        centre = after + wide * (precision * after - pull)
        self.var[t] += damping * (wide - self.var[t])
        self.mean[t] += damping * (centre - self.mean[t])
        self.chance[t] = after
        return float(np.abs(after - before).max())

    def _odds(self, t: int) -> Array:
        """Log-odds of b in step t by all other steps; renews what the step's group says on membership."""
        g = self.group_of[t]
        group = list(self.groups[g])
        shares = np.array([self.steps[s].share for s in group])
        out = max(0.0, 1.0 - float(shares.sum()))  # in no recorded batch of the group
        logs = np.log(shares)[:, None] + self.llr[group]
        others = logit(self.prior) + self.says.sum(0) - self.says[g]
        absent = np.full((1, logs.shape[1]), np.log(out) if out > 0.0 else -np.inf)
        self.says[g] = logsumexp(np.vstack([logs, absent]), axis=0)
        elsewhere = np.vstack([np.delete(logs, group.index(t), axis=0), absent])
        with np.errstate(divide="ignore"):
            member_elsewhere = others + logsumexp(elsewhere, axis=0)
        return np.asarray(others + np.log(self.steps[t].share) - np.logaddexp(0.0, member_elsewhere))

    @property
    def evidence(self) -> float:
        """Log-likelihood of the published sums under this coverage, up to a constant (Bethe's approximation)."""
        known = np.logaddexp(np.log1p(-self.prior), np.log(self.prior) + self.says.sum(0))
        return float(self.fit.sum() + known.sum())

    @property
    def fits(self) -> bool:
        """Whether the list and the noise explain the published sums."""
        return self.misfit < MISFIT

    @property
    def misfit(self) -> float:
        sizes = np.array([len(step.y) for step in self.steps])
        return float(self.chi @ sizes / sizes.sum())

    def answer(self) -> Decoded:
        misfit, says, chance = self.misfit, self.says, self.chance
        if not self.fits and self.linear[0] < misfit:  # it settled on something that does not fit
            misfit, _, says, chance = self.linear
        # Where the list does not explain the sums, their noise is larger than was said.
        evidence = says.sum(0) / (misfit if misfit > MISFIT else 1.0)
        odds = logit(self.prior) + evidence
        return Decoded(
            log_odds=evidence,
            batches=chance,
            coverage=self.coverage,
            prior=self.prior,
            sweeps=self.sweeps,
            settled=self.settled,
            misfit=misfit,
            sure=float(np.mean(np.minimum(np.abs(odds), np.abs(evidence)) > np.log(100.0))),
            gain=float(_bits(np.array(self.prior)) - _bits(expit(odds)).mean()),
        )


def _bits(chance: Array) -> Array:
    p = np.clip(chance, 1.0e-12, 1.0 - 1.0e-12)
    return np.asarray(-p * np.log2(p) - (1.0 - p) * np.log2(1.0 - p))
