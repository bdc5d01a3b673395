"""A published sum as decoding sees it: the candidates of the list, how members who are not listed vary, and the total.

Arrays only. With what is not listed and the noise taken as Gaussian, y - sum_i b_i x_i has a covariance A that is
diagonal in the axes of the unlisted; candidates enter through x' A^-1 x. Either the axes are all there are ("rows"), or
inner products tell what they leave out ("products": models with more parameters than records).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, lapack, solve_triangular
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import expit, gammaln, logsumexp

from gmip.errors import InvalidArgument

__all__ = [
    "Draw",
    "GroupCount",
    "PublishedSum",
    "Solution",
    "counted",
    "equal_groups",
    "from_products",
    "from_rows",
]

Array = NDArray[np.float64]
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
    dims = x.shape[1]
    vague = 2.0 / max(1.0, share * len(x))
    if background is None or len(background) < _FEWEST:
        mean = x.mean(0)
        ridge, heat, alike = _tuned((x - mean)[:_MOST_HELD], np.zeros(dims), None, float(np.var(x, 0).mean()), vague)
        return PublishedSum(
            rows=np.vstack([x, mean, y]),
            variance=np.full(dims, ridge / heat),
            products=None,
            floor=0.0,
            learned_from=0,
            alike=alike,
            noisy=noisy,
            dims=dims,
            share=share,
            draw=draw,
        )
    held = _held(len(background))
    fitted = background[held:]
    mean = fitted.mean(0)
    centred = fitted - mean
    values, axes = eigh(centred.T @ centred / len(fitted), overwrite_a=True, check_finite=False)
    values = np.maximum(values, 0.0)
    ridge, heat, alike = _tuned((background[:held] - mean) @ axes, values, None, float(values.mean()), vague)
    return PublishedSum(
        rows=np.vstack([x, mean, y]) @ axes,
        variance=(values + ridge) / heat,
        products=None,
        floor=0.0,
        learned_from=len(fitted),
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
    order and in units of the noise; overwritten. `dims` : entries of these vectors."""
    if products.ndim != 2 or products.shape[0] != products.shape[1] or not np.isfinite(products).all():
        raise InvalidArgument(f"have inner products of shape {products.shape}, or not finite", argument="steps")
    c, m = candidates, len(products) - candidates - 1
    vague = 2.0 / max(1.0, share * c)
    if m < _FEWEST:
        return _isotropic(products, c, dims, share, draw, noisy, vague)
    held = _held(m)
    # The vectors: candidates, those held out, the mean of the others, the total; and the others to learn axes from.
    others = slice(c + held, c + m)
    mean = products[:, others].mean(1)
    middle = float(mean[others].mean())
    keep = [*range(c), *range(c, c + held), c + m]
    small = np.empty((len(keep) + 1, len(keep) + 1))
    order = [*range(c + held), c + held + 1]  # the mean stands before the total
    small[np.ix_(order, order)] = products[np.ix_(keep, keep)]
    small[c + held, order] = small[order, c + held] = mean[keep]
    small[c + held, c + held] = middle
    across = np.empty((len(small), m - held))
    across[order] = products[keep, others] - mean[keep, None]
    across[c + held] = mean[others] - middle
    inner = products[others, others].copy()
    inner -= mean[others]
    inner -= mean[others, None]
    inner += middle
    del products
    values, axes = eigh(inner, overwrite_a=True, check_finite=False)
    real = values > _NULL * max(float(values[-1]), np.finfo(float).tiny)
    values, axes = values[real], axes[:, real]
    rows = across @ (axes / np.sqrt(values))
    variance = values / (m - held)
    strangers = slice(c, c + held)
    centred = rows[strangers] - rows[c + held]
    whole = small[strangers, strangers] - small[strangers, [c + held]] - small[[c + held], strangers] + middle
    ridge, heat, alike = _tuned(centred, variance, whole - centred @ centred.T, float(variance.sum()) / dims, vague)
    kept = [*range(c), c + held, c + held + 1]
    return PublishedSum(
        rows=np.ascontiguousarray(rows[kept]),
        variance=(variance + ridge) / heat,
        products=small[np.ix_(kept, kept)],
        floor=ridge / heat,
        learned_from=m - held,
        alike=alike,
        noisy=noisy,
        dims=dims,
        share=share,
        draw=draw,
    )


def _isotropic(products: Array, c: int, dims: int, share: float, draw: Draw, noisy: bool, vague: float) -> PublishedSum:
    if len(products) > c + 1:
        keep = [*range(c), len(products) - 1]
        products = products[np.ix_(keep, keep)]
    mean = products[:, :c].mean(1)
    middle = float(mean[:c].mean())
    few = slice(0, min(c, _MOST_HELD))
    whole = products[few, few] - mean[few] - mean[few, None] + middle
    scale = max(float(np.trace(products[:c, :c])) / c - middle, 0.0) / dims
    ridge, heat, alike = _tuned(np.zeros((len(whole), 0)), np.zeros(0), whole, scale, vague)
    wide = np.empty((c + 2, c + 2))
    order = [*range(c), c + 1]
    wide[:c, :c], wide[c + 1, :c], wide[:c, c + 1] = products[:c, :c], products[c, :c], products[:c, c]
    wide[c + 1, c + 1] = products[c, c]
    wide[c, order] = wide[order, c] = mean
    wide[c, c] = middle
    return PublishedSum(
        rows=np.zeros((c + 2, 0)),
        variance=np.zeros(0),
        products=wide,
        floor=ridge / heat,
        learned_from=0,
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


# -- equal records -------------------------------------------------------------------------------


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
