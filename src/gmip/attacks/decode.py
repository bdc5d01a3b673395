"""Who of a list was in: all candidates at once, from the published sums of gradients (docs/theory/attackers.md).

Arrays only. A published step is a sum over its batch, y = sum_i b_i x_i + rest, with b_i = 1 for the candidates in the
batch. What is known about b is a Gaussian in each step (expectation propagation); what a candidate's steps have in
common, membership, is exact.

With what is not listed and the noise taken as Gaussian, y - sum_i b_i x_i has a covariance A that is diagonal in the
axes of the unlisted; candidates enter through x' A^-1 x. Either the axes are all there are ("rows"), or inner products
tell what they leave out ("products": models with more parameters than records).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, lapack, solve_triangular
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import expit, gammaln, logit, logsumexp

from gmip import _validate as check
from gmip.attacks.work import Budget
from gmip.errors import InvalidArgument
from gmip.store import NOWHERE, Store

# -- a published sum as decoding sees it ------------------------------------------------------------------------------


Draw = Literal["full", "fixed", "poisson"]

_COUNTED: Final = 10.0  # how exactly the size of a batch enters, in standard deviations of the noise
_BLOCK: Final = 1024  # rows at a time
_FEWEST: Final = 40  # background records to learn axes from
_MOST_HELD: Final = 300  # of them held out, to choose the ridge by
_HELD: Final = 0.2  # at most this share
_PAIRED: Final = 60  # whose pairs are compared over steps
_RIDGES: Final = np.geomspace(1.0e-9, 1.0, 19)  # of the mean variance of a direction
_NULL: Final = 1.0e-12  # of the largest: no axis


@dataclass(frozen=True, kw_only=True, eq=False)
class PublishedSum:
    """One published step, or several full-batch steps stacked, in units of the noise on an entry of the SUM.

    `from_rows` and `from_products` make it. The vectors are the c candidates, the mean of an unlisted member, the
    total.

    Attributes
    ----------
    rows : array of shape (c + 2, k), the vectors along axes in which unlisted members are uncorrelated.
    variance : array of shape (k,), of an unlisted member along them.
    products : array of shape (c + 2, c + 2), all inner products of the vectors; None: the axes are all there are.
    floor : variance of an unlisted member in every other direction.
    learned_from : how many records tell of the unlisted; 0: none but the candidates.
    alike : array of shape (pairs,), how alike the gradients of some pairs of records are, standardised: the same pairs
        in all steps of a run.
    noisy : whether noise was added; else the unit is what rounding may do at most.
    dims : numbers that were published.
    share : p, the chance that a member is in the batch.
    draw : "full": every member is in; "fixed": a batch of known size; "poisson".
    """

    rows: Array
    variance: Array
    products: Array | None
    floor: float
    learned_from: int
    alike: Array
    noisy: bool
    dims: int
    share: float
    draw: Draw

    @property
    def count(self) -> int:
        """c, how many candidates there are."""
        return len(self.rows) - 2

    @property
    def work(self) -> float:
        """Floating-point operations of `solve`, about."""
        c, k = float(self.count), float(self.rows.shape[1])
        if self._primal:
            return 2.0 * c * k**2 + k**3 / 3.0
        return 2.0 / 3.0 * c**3 + 2.0 * c**2 * k

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All of it as arrays, from which `of_arrays` makes the same again."""
        scalars = [self.floor, self.learned_from, self.noisy, self.dims, self.share, get_args(Draw).index(self.draw)]
        found = {"rows": self.rows, "variance": self.variance, "alike": self.alike, "scalars": np.array(scalars)}
        return found if self.products is None else found | {"products": self.products}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> PublishedSum:
        floor, learned_from, noisy, dims, share, draw = arrays["scalars"].tolist()
        return cls(
            rows=arrays["rows"],
            variance=arrays["variance"],
            products=arrays.get("products"),
            floor=floor,
            learned_from=int(learned_from),
            alike=arrays["alike"],
            noisy=bool(noisy),
            dims=int(dims),
            share=share,
            draw=get_args(Draw)[int(draw)],
        )

    @property
    def _primal(self) -> bool:
        return self.products is None and self.rows.shape[1] < self.count

    def solve(
        self, missing: float, varies: float, members: float, mean: Array, variance: Array, *, repeats: float = 1.0
    ) -> Solution:
        """What the sum says if b_i has this mean and variance, as a Gaussian, for each candidate.

        Parameters
        ----------
        missing, varies : members in the batch who are not listed, on average, and the variance of their number by it.
        members : in the batch, on average.
        mean, variance : arrays of shape (c,).
        repeats : in how many steps the unlisted say the same again; their variance counts as much more.
        """
        count = self.draw != "poisson"  # the size of the batch is known: one more number
        random = repeats * missing * (1.0 + missing / (self.learned_from or self.count))  # their mean is estimated, too
        along = random * self.variance + 1.0
        rest = random * self.floor + 1.0
        spread = np.sqrt(np.append(variance, missing * varies))
        at = np.concatenate([-mean, [-missing, 1.0]])
        off = members - missing - float(mean.sum())  # of the size of the batch
        log_det = float(np.log(along).sum()) + (self.dims - len(along)) * float(np.log(rest))
        way = self._solve_rows if self._primal else self._solve_products
        return way(along, rest, spread, at, _COUNTED * off if count else None, log_det)

    def listed(self, drawn: float) -> tuple[float, float]:
        """An estimate of the chance that a candidate was in the batch, and its precision; 0.0 if nothing tells.

        With the mean of all members taken off, x' W y is x' W x on average if x is in the batch and 0 if it is not.
        """
        if not self.learned_from:
            return 0.0, 0.0
        weight = 1.0 / (drawn / 2.0 * self.variance + 1.0)
        rest = drawn / 2.0 * self.floor + 1.0
        rows = self.rows[:-2] - self.rows[-2]
        total = self.rows[-1] - drawn * self.rows[-2]
        if self.products is not None:
            weight -= 1.0 / rest
        own, pull = (rows**2) @ weight, rows @ (weight * total)
        if self.products is not None:
            size, mean = self.count, self.products[-2]
            own += (np.diag(self.products)[:size] - 2.0 * mean[:size] + mean[-2]) / rest
            pull += (self.products[:size, -1] - mean[-1] - drawn * (mean[:size] - mean[-2])) / rest
        own = np.maximum(own, np.finfo(float).tiny)
        # The estimated mean enters both sides. The precision of pull / own has two parts: the
        # others with the mean, and whether its candidate is in.
        common = drawn / self.learned_from
        precision = 1.0 / (2.0 * (1.0 + common) / own + 0.25 * self.share**2)
        return float(precision @ (pull / own) / precision.sum()) - common, float(precision.sum())

    def _solve_rows(
        self, along: Array, rest: float, spread: Array, at: Array, off: float | None, log_det: float
    ) -> Solution:
        del rest
        z = self.rows[:-1] / np.sqrt(along)
        left = (at @ self.rows) / np.sqrt(along)
        if off is not None:
            z = np.column_stack([z, np.full(len(z), _COUNTED)])
            left = np.append(left, off)
        total = np.eye(z.shape[1])
        for first in range(0, len(z), 4 * _BLOCK):
            part = z[first : first + 4 * _BLOCK] * spread[first : first + 4 * _BLOCK, None]
            total += part.T @ part
        lower, failed = lapack.dpotrf(total.T, lower=1, overwrite_a=1)
        _check(failed)
        white = solve_triangular(lower, left, lower=True, check_finite=False)
        pulled = z @ solve_triangular(lower, white, lower=True, trans="T", check_finite=False)
        squared = np.empty(len(z))
        for first in range(0, len(z), _BLOCK):
            chosen = slice(first, first + _BLOCK)
            image = solve_triangular(lower, z[chosen].T, lower=True, check_finite=False)
            squared[chosen] = np.einsum("ij,ij->j", image, image)
        kept = 1.0 - spread**2 * squared
        return Solution(
            squared[:-1],
            kept[:-1],
            pulled[:-1],
            float(white @ white),
            log_det + 2.0 * float(np.log(np.diag(lower)).sum()),
        )

    def _solve_products(
        self, along: Array, rest: float, spread: Array, at: Array, off: float | None, log_det: float
    ) -> Solution:
        # Over the candidates and the mean of the unlisted: A^-1 between all pairs, and with what is left of the total.
        size = len(self.rows) - 1
        weight = 1.0 / along - (0.0 if self.products is None else 1.0 / rest)
        left = at @ self.rows
        with_left = self.rows @ (weight * left)
        if self.products is not None:
            with_left += (self.products @ at) / rest
        square = float(at @ with_left)
        with_left = with_left[:-1]
        if off is not None:
            with_left = with_left + _COUNTED * off
            square += off**2
        matrix = np.empty((size, size))
        for first in range(0, size, _BLOCK):
            part = slice(first, min(first + _BLOCK, size))
            block = matrix[part]
            if self.products is None:
                block[:] = 0.0
            else:
                np.multiply(self.products[part, :-1], 1.0 / rest, out=block)
            if off is not None:
                block += _COUNTED**2
            if np.any(weight != 0.0):
                block += (self.rows[part] * weight) @ self.rows[:-1].T
            block *= spread
            block *= spread[part, None]
        matrix.flat[:: size + 1] += 1.0
        lower, failed = lapack.dpotrf(matrix.T, lower=1, overwrite_a=1)
        _check(failed)
        log_det += 2.0 * float(np.log(np.diag(lower)).sum())
        white = solve_triangular(lower, spread * with_left, lower=True, check_finite=False)
        back = solve_triangular(lower, white, lower=True, trans="T", check_finite=False)
        inverse, failed = lapack.dtrtri(lower, lower=1, overwrite_c=1)
        _check(failed)
        kept = np.empty(size)  # the diagonal of the inverse of `matrix`
        for first in range(0, size, _BLOCK):
            part = np.tril(inverse[first:, first : first + _BLOCK])
            kept[first : first + _BLOCK] = np.einsum("ij,ij->j", part, part)
        variance = np.maximum(spread**2, np.finfo(float).tiny)
        return Solution(
            ((1.0 - kept) / variance)[:-1],
            kept[:-1],
            (back / np.maximum(spread, np.finfo(float).tiny))[:-1],
            square - float(white @ white),
            log_det,
        )


class Solution(NamedTuple):
    """With S the covariance of y, and r what its mean leaves: of each candidate x' S^-1 x, 1 - variance x' S^-1 x and
    x' S^-1 r; then r' S^-1 r and log det S."""

    squared: Array
    kept: Array
    pulled: Array
    misfit: float
    log_det: float


def _check(failed: int) -> None:
    if failed:
        raise InvalidArgument("have inner products that are not finite, or of no vectors", argument="steps")


def from_rows(
    candidates: Array, total: Array, background: Array | None = None, *, share: float, draw: Draw, noisy: bool
) -> PublishedSum:
    """From gradients themselves: arrays of shapes (c, d), (d,) and (m, d), of members not listed; all in units of the
    noise. Without background, the unlisted vary alike in all directions, as much as candidates do."""
    x, y = candidates, total
    if x.ndim != 2 or not len(x) or y.shape != (x.shape[1],) or not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise InvalidArgument(f"have shapes {x.shape} and {y.shape}, or are not finite", argument="steps")
    dims, learned_from = x.shape[1], 0
    rows, held, values = np.vstack([x, x.mean(0), y]), x[:_MOST_HELD] - x.mean(0), np.zeros(dims)
    scale = float(np.var(x, 0).mean())
    if background is not None and len(background) >= _FEWEST:
        few = _held(len(background))
        fitted, learned_from = background[few:], len(background) - few
        mean = fitted.mean(0)
        centred = fitted - mean
        values, axes = eigh(centred.T @ centred / len(fitted), overwrite_a=True, check_finite=False)
        values = np.maximum(values, 0.0)
        rows, held, scale = np.vstack([x, mean, y]) @ axes, (background[:few] - mean) @ axes, float(values.mean())
    ridge, heat, alike = _tuned(held, values, None, scale, 2.0 / max(1.0, share * len(x)))
    return PublishedSum(
        rows=rows,
        variance=(values + ridge) / heat,
        products=None,
        floor=0.0,
        learned_from=learned_from,
        alike=alike,
        noisy=noisy,
        dims=dims,
        share=share,
        draw=draw,
    )


def from_products(
    products: Array, candidates: int, *, dims: int, share: float, draw: Draw, noisy: bool
) -> PublishedSum:
    """From inner products of the candidates, background records of members not listed (or none), and the total, in this
    order and in units of the noise. `dims` : entries of these vectors. Without background, the unlisted vary alike in
    all directions, as much as candidates do."""
    if products.ndim != 2 or products.shape[0] != products.shape[1] or not np.isfinite(products).all():
        raise InvalidArgument(f"have inner products of shape {products.shape}, or not finite", argument="steps")
    c, m = candidates, len(products) - candidates - 1
    learned = m >= _FEWEST
    held = _held(m) if learned else 0
    # The vectors: candidates, those held out, the mean of the others, the total; and the others to learn axes from.
    others = slice(c + held, c + m) if learned else slice(0, c)
    mean = products[:, others].mean(1)
    middle = float(mean[others].mean())
    keep = [*range(c + held), c + m]
    small = np.empty((len(keep) + 1, len(keep) + 1))
    order = [*range(c + held), c + held + 1]  # the mean stands before the total
    small[np.ix_(order, order)] = products[np.ix_(keep, keep)]
    small[c + held, order] = small[order, c + held] = mean[keep]
    small[c + held, c + held] = middle
    if learned:
        across = np.empty((len(small), m - held))
        across[order] = products[keep, others] - mean[keep, None]
        across[c + held] = mean[others] - middle
        inner = products[others, others].copy()
        inner -= mean[others]
        inner -= mean[others, None]
        inner += middle
        values, axes = eigh(inner, overwrite_a=True, check_finite=False)
        real = values > _NULL * max(float(values[-1]), np.finfo(float).tiny)
        values, axes = values[real], axes[:, real]
        rows, variance, strangers = across @ (axes / np.sqrt(values)), values / (m - held), slice(c, c + held)
        spread = float(variance.sum())
    else:
        rows, variance, strangers = np.zeros((len(small), 0)), np.zeros(0), slice(0, min(c, _MOST_HELD))
        spread = max(float(np.trace(products[:c, :c])) / c - middle, 0.0)
    centred = rows[strangers] - rows[c + held]
    whole = small[strangers, strangers] - small[strangers, [c + held]] - small[[c + held], strangers] + middle
    beyond = whole - centred @ centred.T
    ridge, heat, alike = _tuned(centred, variance, beyond, spread / dims, 2.0 / max(1.0, share * c))
    kept = [*range(c), c + held, c + held + 1]
    return PublishedSum(
        rows=np.ascontiguousarray(rows[kept]),
        variance=(variance + ridge) / heat,
        products=small[np.ix_(kept, kept)] if held else small,
        floor=ridge / heat,
        learned_from=m - held if learned else 0,
        alike=alike,
        noisy=noisy,
        dims=dims,
        share=share,
        draw=draw,
    )


def _held(background: int) -> int:
    return min(_MOST_HELD, int(_HELD * background))


def _tuned(
    held: Array, variance: Array, beyond: Array | None, scale: float, noise: float
) -> tuple[float, float, Array]:
    """A ridge on the variances of the unlisted, and by how much log-odds must shrink because these were estimated.

    For a record x out of sample and W = 1/(variance + ridge + noise), the log-likelihood ratio of one candidate has
    the mean a/2, a = x' W x, and the variance v = E (x' W x')^2 + noise x' W^2 x. The ridge is the one with the best
    a^2/v, and a/v the scale at which the ratio is one (docs/theory/attackers.md). Last, x' W x' of some pairs,
    standardised.

    Parameters
    ----------
    held : array of shape (h, k), centred records along the axes.
    beyond : array of shape (h, h), inner products of what the axes leave out.
    noise : by the variance of the unlisted members' sum.
    """
    count = len(held)
    pairs = np.triu_indices(min(count, _PAIRED), 1)
    if scale <= 0.0 or count < 2:
        return 0.0, 1.0, np.zeros(len(pairs[0]))
    best = (-1.0, 0.0, 1.0)
    alike = np.zeros(len(pairs[0]))
    ridges = _RIDGES if len(variance) and np.any(variance > 0.0) else _RIDGES[-1:]
    for ridge in ridges * scale:
        weight = 1.0 / (variance + ridge + noise)
        products = (held * weight) @ held.T
        squares = (held**2) @ weight**2
        if beyond is not None:
            products = products + beyond / (ridge + noise)
            squares = squares + np.diag(beyond) / (ridge + noise) ** 2
        own = np.diag(products)
        crossed = (float((products**2).sum()) - float((own**2).sum())) / (count * (count - 1))
        spread = crossed + noise * float(squares.mean())
        mean = float(own.mean())
        if spread > 0.0 and mean**2 / spread > best[0]:
            best = (mean**2 / spread, float(ridge), mean / spread)
            alike = products[pairs]
    alike = alike - alike.mean()
    return best[1], best[2], alike / max(float(np.linalg.norm(alike)), np.finfo(float).tiny)


# -- equal records ----------------------------------------------------------------------------------------------------


_EQUAL: Final = 1.0e-11  # a squared distance, of the squared lengths: what single precision leaves
_NEAR: Final = 2.5e-3  # or this, if it is no more than
_UNSEEN: Final = 25.0  # squared, in units of the noise, over all steps: sweeps would choose one of the two too surely
_PAIRWISE: Final = 5000  # candidates: of more, only neighbours are compared
_ORDERS: Final = 3  # in which neighbours are compared


class GroupCount(NamedTuple):
    """What a sum says on g equal candidates: on each being in; the mean and variance of how many are; log E exp L."""

    llr: float
    mean: float
    variance: float
    log_mean: float


def equal_groups(steps: Sequence[PublishedSum]) -> list[NDArray[np.intp]]:
    """The candidates whom no sum tells apart, or hardly, in groups of two or more."""
    label = np.zeros(steps[0].count, dtype=np.intp)
    for step in steps:
        one, other = np.array(_equal_pairs(step, _UNSEEN / len(steps)), dtype=np.intp).reshape(-1, 2).T
        links = coo_array((np.ones(len(one)), (one, other)), shape=(step.count, step.count))
        _, here = connected_components(links, directed=False)
        _, label = np.unique(np.column_stack([label, here]), axis=0, return_inverse=True)
        if label.max() == len(label) - 1:
            return []
    order = np.argsort(label, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(label[order])) + 1)
    return [group for group in groups if len(group) > 1]


def _equal_pairs(step: PublishedSum, unseen: float) -> list[tuple[int, int]]:
    count = step.count
    found: list[tuple[int, int]] = []
    rows = step.rows[:count]
    own = np.einsum("ij,ij->i", rows, rows) if step.products is None else np.diag(step.products)[:count]
    if step.products is not None or count <= _PAIRWISE:
        for first in range(0, count, _BLOCK):
            some = slice(first, min(first + _BLOCK, count))
            both = own[some, None] + own
            inner = rows[some] @ rows.T if step.products is None else step.products[some, :count]
            near = both - 2.0 * inner <= _limit(both, unseen)
            # A chain through all that are equal is enough: each with the next.
            for i, row in enumerate(near, first):
                later = np.flatnonzero(row[i + 1 :])[:1]
                if later.size:
                    found.append((i, i + 1 + int(later[0])))
        return found
    for way in np.random.default_rng(0).normal(size=(_ORDERS, rows.shape[1])):
        order = np.argsort(rows @ way, kind="stable")
        one, other = order[:-1], order[1:]
        near = ((rows[one] - rows[other]) ** 2).sum(1) <= _limit(own[one] + own[other], unseen)
        found += zip(one[near].tolist(), other[near].tolist(), strict=True)
    return found


def _limit(lengths: Array, unseen: float) -> Array:
    return np.asarray(np.maximum(_EQUAL * lengths, np.minimum(_NEAR * lengths, unseen)))


def counted(size: int, precision: float, pull: float, log_odds: float) -> GroupCount:
    """If s of `size` are in, the log-likelihood is L = pull s - precision s^2/2; each is in with these log-odds before,
    by itself."""
    among = np.arange(size + 1.0)
    like = pull * among - precision * among**2 / 2.0
    joint = like + _binomial(size, log_odds)
    others = _binomial(size - 1, log_odds)
    log_mean = float(logsumexp(joint))
    weight = np.exp(joint - log_mean)
    mean = float(weight @ among)
    return GroupCount(
        float(logsumexp(others + like[1:]) - logsumexp(others + like[:-1])),
        mean,
        float(weight @ (among - mean) ** 2),
        log_mean,
    )


def _binomial(size: int, log_odds: float) -> Array:
    k = np.arange(size + 1.0)
    ways = gammaln(size + 1.0) - gammaln(k + 1.0) - gammaln(size - k + 1.0)
    tiny = np.finfo(float).tiny
    return np.asarray(ways + k * np.log(max(expit(log_odds), tiny)) + (size - k) * np.log(max(expit(-log_odds), tiny)))


# -- who of a list was in ---------------------------------------------------------------------------------------------


Array = NDArray[np.float64]

_LEAST_SPREAD: Final = 1.0e-9  # of 1 - D s: what rounding leaves of a cavity
_LEAST_VARIANCE: Final = 1.0e-12  # of b
_SETTLED: Final = 1.0e-3  # change of a probability
_IDLE: Final = 3.0e-2, 5.0e-4  # the largest and the mean one, where few candidates can be decided
_WEAK: Final = 0.5  # of the candidates decided: less is few
_UNTOLD: Final = 0.3  # of the most there can be: if not all are listed and nothing tells how many are
_MOST_BUT_NOT_ALL: Final = 0.95
_REFUTED: Final = 3.0  # standard errors
MISFIT: Final = 2.0  # more than this is not explained by the list and the noise
_DECIDES: Final = math.log(100.0)  # log-odds
_VAGUE: Final = 0.05  # standard deviation of a coverage below 1
_GIVE_UP: Final = 4  # sweeps that do not fit, one after the other
_ROUNDING: Final = 0.1  # of the variance that rounding may have, what it has at least
_FIRST_SWEEPS: Final = 4  # before one of two coverages is chosen
_MORE_SWEEPS: Final = 16  # of the whole list, where it does not yet fit and there is no noise
_SLOWER: Final = 0.7  # of the step that messages take, after a sweep that changed more than the one before
_SLOW: Final = 0.3, 0.05  # the smallest such step: where changes fall, and where they do not
_NEARLY_ALL: Final = 0.95  # candidates decided: the list alone explains the sums
_MOST_KEPT: Final = 2**23  # bytes of a sweep that is worth a file
_STATE: Final = ("llr", "mean", "var", "says", "chance", "chi", "fit")  # what sweeps change
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(20)  # of a standard normal
_WEIGHTS /= _WEIGHTS.sum()


@dataclass(frozen=True, kw_only=True, eq=False)
class DecodeOutcome:
    """Attributes
    ----------
    log_odds : array of shape (c,), of membership at even prior odds.
    decoys : array of shape (decoys,), the log-odds of those on the list who are known not to be members.
    batches : array of shape (steps, c), the probability that a candidate was in the batch of a step.
    coverage : q, the share of the members that is listed: as given, or estimated.
    prior : the share of the candidates who are members, by it.
    sweeps, settled : passes over the steps, and whether the probabilities stopped changing.
    late : whether there was no time for more of them.
    misfit : what the list leaves unexplained, squared, in units of what it should; 1 where the model is right.
    sure : the share of candidates whose membership the steps decide, at odds of 100 to 1.
    gain : bits per candidate that the steps tell beyond the prior; near 0 where nothing can be decoded.
    """

    log_odds: Array
    decoys: Array
    batches: Array
    coverage: float
    prior: float
    sweeps: int
    settled: bool
    late: bool
    misfit: float
    sure: float
    gain: float

    @property
    def explained(self) -> bool:
        """Whether the list alone leaves next to nothing open, neither of the sums nor of who was in."""
        return self.settled and self.misfit < MISFIT and self.sure > _NEARLY_ALL


def decode(
    steps: Iterable[PublishedSum],
    *,
    dataset_size: int,
    epochs: Sequence[Sequence[int]] | None = None,
    coverage: float | None = None,
    decoys: int = 0,
    most_sweeps: int = 15,
    most_work: float = math.inf,
    progress: Callable[[int, int], Any] = lambda done, total: None,
    budget: Budget | None = None,
    parts: Store = NOWHERE,
) -> DecodeOutcome:
    """Log-odds of membership of all candidates, jointly.

    Parameters
    ----------
    steps : of one run, all with the same candidates, read once. Full batches: one element, the steps stacked.
    dataset_size : N, members.
    epochs : numbers of steps of which a member is in at most one (shuffled epochs); None: each step is drawn anew.
    coverage : q, the share of the members that is listed; None: estimated.
    decoys : how many of the candidates, the last ones, are no members. They are treated as all others are, so that
        their log-odds are those of somebody on the list who was not in.
    most_sweeps : passes over all steps.
    most_work : floating-point operations of all sweeps, about; the first sweep is always made.
    progress : called with (done, total).
    budget : no sweep is begun that would not be ready in time, but for the first.
    parts : where what is known after each sweep is kept, and found by an attempt that goes on.
    """
    check.count("dataset_size", dataset_size)
    listed = list(steps)
    if not listed or len({step.count for step in listed}) > 1:
        raise InvalidArgument("must hold at least one published sum, all of the same candidates", argument="steps")
    groups = [[t] for t in range(len(listed))] if epochs is None else [list(group) for group in epochs]
    if sorted(t for group in groups for t in group) != list(range(len(listed))):
        raise InvalidArgument("must name every step once", argument="epochs", value=groups)
    equal = equal_groups(listed)
    sweep = sum(step.work for step in listed)
    allowed = 1.0 if sweep == 0.0 else max(1.0, most_work / sweep)  # sweeps
    if coverage is not None:
        beliefs = _Beliefs(listed, groups, check.probability("coverage", coverage), dataset_size, budget, parts, equal)
        beliefs.settle(int(min(most_sweeps, allowed)), progress)
        return beliefs.answer(decoys)
    most = min(1.0, (listed[0].count - decoys) / dataset_size)
    # Without noise sums tell whether the list explains them, and moments less: all of it is tried in any case.
    quiet = not any(step.noisy for step in listed)
    shares = _shares(listed, most, dataset_size, quiet)
    found = [_Beliefs(listed, groups, one, dataset_size, budget, parts, equal) for one in shares]
    first = min(float(most_sweeps), _FIRST_SWEEPS, allowed / 2.0)
    for beliefs in found:
        beliefs.settle(max(1, int(first)))
    if quiet and not found[0].fits:  # as long as it does not fit, it would lose to one that claims nothing
        found[0].settle(max(1, int(min(most_sweeps, _MORE_SWEEPS, allowed / 2.0))))
    best = max(found, key=lambda one: one.weight)
    spent = sum(one.sweeps - 1 for one in found if one is not best)
    best.settle(max(1, int(min(most_sweeps, allowed - spent))), progress)
    return best.answer(decoys)


def _shares(steps: Sequence[PublishedSum], most: float, members: int, quiet: bool) -> list[float]:
    """The coverages to try: the whole list first, unless moments refute it."""
    share, error = _likely(steps, most, members)
    return [most, share] if quiet or share >= most - _REFUTED * error else [share]


def _likely(steps: Sequence[PublishedSum], most: float, members: int) -> tuple[float, float]:
    """The coverage, below `most`, and its standard error: by moments if background records tell of the unlisted; else
    one that claims little, with an infinite error."""
    found = [(step.share, *step.listed(members * step.share)) for step in steps]
    weight = sum(share**2 * precision for share, _, precision in found)
    count = steps[0].count
    if weight > 0.0:  # of chances p q N/c
        share = sum(share * precision * chance for share, chance, precision in found) / weight * count / members
        return float(np.clip(share, 0.0, _MOST_BUT_NOT_ALL * most)), float(count / members / np.sqrt(weight))
    return _UNTOLD * most, math.inf


def _repeats(steps: Sequence[PublishedSum], group_of: Mapping[int, int]) -> Array:
    """In how many steps what an unlisted member of a batch says about a candidate is said again, on average.

    They are the same people in all steps: one who was drawn in step t is drawn in step s with the chance p_s (never in
    another batch of the same epoch), and says the same about a candidate as far as the gradients of two records are as
    alike as before.
    """
    same = np.maximum(np.array([step.alike for step in steps]) @ np.array([step.alike for step in steps]).T, 0.0)
    of = np.array([group_of[t] for t in range(len(steps))])
    same[of[:, None] == of] = 0.0
    return np.asarray(1.0 + same @ np.array([step.share for step in steps]))


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

    def __init__(
        self,
        steps: Sequence[PublishedSum],
        groups: Sequence[Sequence[int]],
        coverage: float,
        members: int,
        budget: Budget | None,
        parts: Store,
        equal: Sequence[NDArray[np.intp]],
    ) -> None:
        self.steps, self.coverage, self.members = steps, coverage, members
        self.budget, self.parts = budget, parts
        count = steps[0].count
        self.prior = _share(coverage * members, count)
        self.groups = groups
        self.group_of = {t: g for g, group in enumerate(groups) for t in group}
        self.repeats = _repeats(steps, self.group_of)
        shape = (len(steps), count)
        self.llr = np.zeros(shape)  # what a step says on b = 1 against b = 0
        chance = self.prior * np.array([[step.share] for step in steps])
        self.mean = np.broadcast_to(chance, shape).copy()  # of the Gaussian that stands for all else known of b
        self.var = np.broadcast_to(chance * (1.0 - chance), shape).copy()
        self.says = np.zeros((len(groups), count))  # what a group says on membership
        self.chance = self.mean.copy()  # posterior of b
        self.equal = equal  # candidates who look alike to every sum
        self.chi = np.ones(len(steps))
        self.fit = np.zeros(len(steps))
        self.sweeps, self.settled, self.bad = 0, False, 0
        self.late = False  # whether there was no time for more
        self.damping, self.change = 1.0, math.inf  # of the last sweep
        self.longest = 0.0  # seconds of a sweep

    def _saved(self) -> bool:
        """What was kept of the next sweep by an earlier attempt takes its place."""
        found = self.parts.get(self._name(self.sweeps + 1))
        if found is None:
            return False
        for name in _STATE:
            getattr(self, name)[:] = found.arrays[name]
        self.settled, self.bad = found.fields["settled"], found.fields["bad"]
        self.damping, self.change = found.fields["damping"], found.fields["change"]
        misfit, evidence = found.fields["misfit"], found.fields["evidence"]
        self.kept = misfit, found.arrays["kept_says"], found.arrays["kept_chance"], evidence
        return True

    def _save(self) -> None:
        misfit, says, chance, evidence = self.kept
        state = {name: getattr(self, name) for name in _STATE} | {"kept_says": says, "kept_chance": chance}
        scalars = {"misfit": misfit, "evidence": evidence, "settled": bool(self.settled), "bad": self.bad}
        scalars |= {"damping": self.damping, "change": self.change}
        if sum(array.nbytes for array in state.values()) <= _MOST_KEPT:
            self.parts.put(self._name(self.sweeps), state, scalars)

    def _name(self, sweep: int) -> str:
        return f"swept-{sweep}-of-{len(self.steps)}-{sum(step.dims for step in self.steps)}-{self.coverage!r}"

    def settle(self, most: int, progress: Callable[[int, int], Any] = lambda done, total: None) -> None:
        """More passes over the steps, until nothing changes or there have been `most`; the first is linear."""
        while self.sweeps < most and not self.settled and self.bad < _GIVE_UP:
            if self._saved():
                self.sweeps += 1
                progress(self.sweeps, most)
                continue
            start = time.monotonic()
            if self.sweeps and self.budget is not None and self.budget.left() < self.longest:
                self.late = True
                break
            before = self._membership_odds()
            change = max([self._update(t, self.damping) for t in range(len(self.steps))])
            self.sweeps += 1
            # What moves less changes less: to have settled it must change less in proportion.
            slow = min(1.0, self.damping / _SLOW[0])
            self.settled = change < _SETTLED * slow
            if not self.settled and self.sweeps > _FIRST_SWEEPS and change < _IDLE[0] * slow:
                # Where the sums decide few, sweeps go on for long about tiny changes that no score notices.
                odds = self._membership_odds()
                moved = float(np.abs(expit(odds) - expit(before)).mean())
                self.settled = moved < _IDLE[1] * slow and float(np.mean(np.abs(odds) > _DECIDES)) < _WEAK
            stuck = self.sweeps > _FIRST_SWEEPS and change > self.change
            self.damping = max(_SLOW[1], self.damping * _SLOWER) if stuck else self._eased()
            self.change = change
            # A sweep may end in something that does not fit: the last one that did, or the linear one, counts.
            self.bad = 0 if self.fits else self.bad + 1
            if self.fits or self.sweeps == 1:
                self.kept = self.misfit, self.says.copy(), self.chance.copy(), self.evidence
            self._save()
            self.longest = max(self.longest, time.monotonic() - start)
            progress(self.sweeps, most)
        progress(1, 1)

    def _membership_odds(self) -> Array:
        """Log-odds of membership of each candidate."""
        return np.asarray(logit(self.prior) + self.says.sum(0))

    def _eased(self) -> float:
        """The next damping where changes fall: a little more with every sweep."""
        return min(self.damping, max(_SLOW[0], 0.95**self.sweeps))

    def _solve(self, t: int) -> Solution:
        """What step t says, with b as known by all else; and how well it fits."""
        step = self.steps[t]
        drawn = self.members * step.share
        missing = (1.0 - self.coverage) * drawn
        # Who is listed is by chance, and who is in the batch (but for its size): so is the number of those who are not
        # listed; and the share itself is not known exactly (docs/theory/attackers.md).
        varies = 0.0
        if missing > 0.0:
            varies = 1.0 - step.share if step.draw == "poisson" else self.coverage
            varies += _VAGUE**2 * drawn / (1.0 - self.coverage)
        found = step.solve(missing, varies, drawn, self.mean[t], self.var[t], repeats=float(self.repeats[t]))
        # What should be left: by the candidates' part, and by noise; of rounding only the most is known.
        explained = float((1.0 - found.kept).sum())
        sure = 1.0 if step.noisy or missing > 0.0 else _ROUNDING
        self.chi[t] = found.misfit / (explained + sure * max(0.0, step.dims - explained))
        return found

    def _update(self, t: int, damping: float) -> float:
        """One step: what it says about each candidate, given all that is known about the others."""
        found = self._solve(t)
        spread = np.maximum(found.kept, _LEAST_SPREAD)
        spread *= max(1.0, self.chi[t])  # more is left than should be: all else is less certain than was thought
        precision = found.squared / spread  # of b given all others: N(b; centre, 1/precision)
        pull = self.mean[t] * precision + found.pulled / spread  # precision * centre
        self.llr[t] = pull - precision / 2.0
        wider = 1.0 + self.var[t] * precision
        gauss = precision * self.mean[t] ** 2 - 2.0 * self.mean[t] * pull - self.var[t] * pull**2
        fit = (np.log(wider) + gauss / wider) / 2.0
        before = self.chance[t].copy()
        tied = self._tie(t, found, fit)
        self.fit[t] = float(fit.sum()) - (found.misfit + found.log_det) / 2.0
        known = self._odds(t)
        after = expit(known + self.llr[t])
        # The Gaussian with which the cavity has the mean of b, and the variance that b has on average at this
        # precision: its own may exceed the cavity's, which no Gaussian makes up for, and sweeps would diverge.
        left = _left(precision, known)
        wide = np.clip(left / np.maximum(1.0 - precision * left, _LEAST_SPREAD), _LEAST_VARIANCE, 0.25)
        centre = after + wide * (precision * after - pull)
        for group, one_wide, one_centre in tied:
            wide[group], centre[group] = one_wide, one_centre
        self.var[t] += damping * (wide - self.var[t])
        self.mean[t] += damping * (centre - self.mean[t])
        self.chance[t] = after
        return float(np.abs(after - before).max())

    def _tie(self, t: int, found: Solution, fit: Array) -> list[tuple[NDArray[np.intp], float, float]]:
        """What a sum says on each of some equal candidates: it tells how many are in, so all counts are considered.

        Rounding never tells them apart. Returns the variance and mean of the Gaussian that stands for each of a group.
        """
        if not self.equal:
            return []
        tied = []
        known = self._odds(t)
        for group in self.equal:
            size, first = len(group), group[0]
            mean, var = self.mean[t, first], self.var[t, first]
            squared, pulled = float(found.squared[group].mean()), float(found.pulled[group].mean())
            spread = max(1.0 - size * var * squared, _LEAST_SPREAD) * max(1.0, self.chi[t])
            precision = squared / spread  # of their number, given all others
            pull = size * mean * precision + pulled / spread
            group_count = counted(size, precision, pull, float(known[first]))
            self.llr[t, group] = group_count.llr
            wider = 1.0 + size * var * precision
            gauss = size * mean**2 * precision - 2.0 * mean * pull - var * pull**2
            alone = np.logaddexp(0.0, known[first] + group_count.llr) - np.logaddexp(0.0, known[first])
            fit[group] = (np.log(wider) + size * gauss / wider) / (2.0 * size) + group_count.log_mean / size - alone
            # No more than a linear estimate leaves.
            prior = max(size * float(expit(known[first]) * expit(-known[first])), _LEAST_VARIANCE)
            left = min(group_count.variance, 1.0 / (precision + 1.0 / prior))
            wide = float(np.clip(left / max(1.0 - precision * left, _LEAST_SPREAD), _LEAST_VARIANCE, 0.25 * size))
            centre = group_count.mean + wide * (precision * group_count.mean - pull)
            tied.append((group, wide / size, centre / size))
        return tied

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
    def weight(self) -> tuple[bool, float]:
        """The weight by which one coverage is preferred to another."""
        return self.fits, self.evidence if self.fits else -self.misfit

    @property
    def misfit(self) -> float:
        sizes = np.array([step.dims for step in self.steps])
        return float(self.chi @ sizes / sizes.sum())

    def answer(self, decoys: int) -> DecodeOutcome:
        misfit, says, chance, _ = self.kept
        evidence = says.sum(0)
        odds = logit(self.prior) + evidence
        for group in self.equal:  # that some of them are in decides nobody, however few members there are
            evidence[group] = np.clip(evidence[group], np.minimum(odds[group], 0.0), np.maximum(odds[group], 0.0))
        count = len(evidence) - decoys
        prior = _share(self.coverage * self.members, count)  # of the candidates without decoys
        odds = logit(prior) + says.sum(0)[:count]
        return DecodeOutcome(
            log_odds=evidence[:count],
            decoys=evidence[count:],
            batches=chance[:, :count],
            coverage=self.coverage,
            prior=prior,
            sweeps=self.sweeps,
            settled=self.settled,
            late=self.late,
            misfit=misfit,
            sure=float(np.mean(np.minimum(np.abs(odds), np.abs(evidence[:count])) > _DECIDES)),
            gain=float(_bits(np.array(prior)) - _bits(expit(odds)).mean()),
        )


def _share(members: float, count: int) -> float:
    """The share of so many candidates who are members; neither none nor all of them for certain."""
    return float(np.clip(members / count, 0.5 / count, 1.0 - 0.5 / count))


def _bits(chance: Array) -> Array:
    p = np.clip(chance, 1.0e-12, 1.0 - 1.0e-12)
    return np.asarray(-p * np.log2(p) - (1.0 - p) * np.log2(1.0 - p))
