"""Who was in, from the weights of a model at an optimum: one record at a time, or all records of a list at once.

Arrays only. Where the mean loss of the members plus a penalty is least, the members' mean gradient is minus the
penalty's: a published mean without a trace (docs/theory/attackers.md, "Released weights"). How far from an optimum a
model is shows in the mean gradient of other records: at an optimum it differs from the members' by chance alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import lapack, solve_triangular
from scipy.optimize import minimize_scalar

from gmip import _validate as check
from gmip._random import PlayStream
from gmip.attacks.decode import DecodeOutcome, PublishedSum, decode, from_products, from_rows
from gmip.attacks.glir import GlirOutcome, Play, View, background_needed, glir_scores
from gmip.errors import InvalidArgument

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
FAR: Final = (2.0, 3.0)  # times what chance explains, of other records and of a list: more is no optimum
_FITTED: Final = 0.4  # less: members are fitted so well that their gradients are not like those of others
_RIDGE: Final = 0.01  # where self-play cannot choose one
_DRAWS: Final = 200  # pseudo-batches


@dataclass(frozen=True, kw_only=True, eq=False)
class OptimumOutcome:
    """Attributes
    ----------
    log_odds : array of shape (c,), the score: log-odds of membership at even prior odds, divided by `distance` where
        the model is at no optimum.
    distance : squared length of the pool's mean gradient, penalty included, in units of what chance explains: about 1
        or less at an optimum.
    residual : standard deviation of what the members' sum of gradients lacks to an optimum, relative to the spread that
        chance gives it; None where nothing estimates it.
    excess : how much more the members' sum varies than a random draw from the list would, squared; 1 if they were drawn
        from it, None where nothing estimates it.
    explained : whether such a draw explains the weights. If not, the list does not hold the members, or the model
        fits them so well that their gradients are unlike others', and nobody counts as decided: log-odds are scaled
        to at most 1.
    glir, decoded : all that the method behind it found; one of them is None.
    """

    log_odds: Array
    distance: float
    residual: float | None = None
    excess: float | None = None
    explained: bool = True
    glir: GlirOutcome | None = None
    decoded: DecodeOutcome | None = None

    @property
    def at_optimum(self) -> bool:
        """Whether chance explains where the model stands."""
        return self.distance <= FAR[self.glir is None]

    @property
    def sure(self) -> float:
        """The share of the candidates whose membership is decided, at odds of 100 to 1."""
        return float(np.mean(np.abs(self.log_odds) > math.log(100.0)))

    @property
    def fitted(self) -> bool:
        """Whether members are fitted so well that their gradients have become smaller than others' (`optimum_scores`
        alone can tell)."""
        return self.glir is not None and self.distance < _FITTED


def distance(pool: ArrayLike, mean: ArrayLike, *, dataset_size: int, contains_members: bool, seed: int = 0) -> float:
    """How far a model is from an optimum: 1 is what chance explains, whoever the members were.

    The gap between `mean` and the pool's mean, against the gaps of means of random batches of the pool: squared
    lengths, directions weighted by 1/(variance + mean variance), so that neither the largest nor the smallest ones
    decide alone.

    Parameters
    ----------
    pool : array of shape (m, d), gradients of records at the model's weights.
    mean : array of shape (d,), the members' mean gradient if the model is at an optimum: minus the penalty's gradient.
    dataset_size : N, members.
    contains_members : whether the members are in the pool (a list of candidates, more than N), or it is of others.
    """
    rows = check.matrix("pool", pool).astype(np.float64, copy=False)
    target, n = check.vector("mean", mean, length=rows.shape[1]), check.count("dataset_size", dataset_size)
    fit, rest, drawn, factor = _batches(len(rows), n, contains_members, seed)
    centre = rows.mean(0)
    centred = rows - centre
    covariance = centred[fit].T @ centred[fit] / len(fit)
    covariance.flat[:: len(covariance) + 1] += max(float(np.trace(covariance)) / len(covariance), 1.0e-300)
    root = np.linalg.cholesky(covariance)
    gaps = solve_triangular(root, np.vstack([target - centre, drawn @ centred[rest]]).T, lower=True)
    squares = np.sum(gaps**2, axis=0)
    return float(squares[0]) / max(factor * float(squares[1:].mean()), 1.0e-300)


def inner_distance(products: Array, towards: Array, square: float, *, dims: int, dataset_size: int, seed: int) -> float:
    """`distance` of a list, from inner products of its c records less their mean, shape (c, c), their products with the
    gap, shape (c,), and its square; `dims` : entries of the vectors, or of their span."""
    fit, rest, drawn, factor = _batches(len(products), dataset_size, True, seed)
    inner = products if len(fit) == len(products) else products[np.ix_(fit, fit)]
    ridge = max(float(np.trace(inner)) / len(fit) / dims, 1.0e-300)
    root = np.array(inner, order="F")
    root.flat[:: len(root) + 1] += len(fit) * ridge
    root, failed = lapack.dpotrf(root, lower=1, overwrite_a=1)
    if failed:
        raise InvalidArgument("have gradients that are not finite", argument="candidates")
    across = (products if len(rest) == len(products) else products[:, rest]) @ drawn.T
    with_fit = np.column_stack([towards, across])[fit]
    own = np.append(square, np.einsum("ij,ji->i", drawn, across[rest]))
    squares = (own - np.sum(solve_triangular(root, with_fit, lower=True, check_finite=False) ** 2, axis=0)) / ridge
    return float(squares[0]) / max(factor * float(squares[1:].mean()), 1.0e-300)


def _batches(count: int, n: int, contains_members: bool, seed: int) -> tuple[Rows, Rows, Array, float]:
    """Rows to measure directions by, rows to draw batches of, weights of these in the gaps of random batches, shape
    (draws, rows), and what their squares are multiplied by."""
    if count < 4:
        raise InvalidArgument(f"has {count} records, too few to measure what chance explains", argument="pool")
    rng = PlayStream.OPTIMALITY.rng(seed)
    if contains_members and count > n:  # batches like that of the members: N of the list, which is also the measure
        everyone = np.arange(count)
        return everyone, everyone, (np.argsort(rng.random((_DRAWS, count)), axis=1) < n) / n - 1.0 / count, 1.0
    # What is estimated on one half is tried on the other, for the members are strangers, too.
    order = rng.permutation(count)
    rest = order[count // 2 :]
    drawn = rng.multinomial(n, np.full(len(rest), 1.0 / len(rest)), size=_DRAWS) / n - 1.0 / len(rest)
    factor = (1.0 + n / count) * len(rest) / max(1, len(rest) - 1)  # the others' mean varies, too
    return order[: count // 2], rest, drawn, factor


def optimum_scores(
    candidates: ArrayLike,
    background: ArrayLike,
    *,
    penalty_gradient: ArrayLike,
    dataset_size: int,
    play: Play | None = Play(),  # noqa: B008 (frozen)
    with_candidates: bool = False,
    extra_dims: int = 0,
    seed: int = 0,
) -> OptimumOutcome:
    """GLiR on a model at an optimum: one candidate at a time, against records of the same distribution.

    Parameters
    ----------
    candidates, background : arrays of shapes (c, d) and (m, d), gradients of the records' losses at the weights;
        background records are not members.
    penalty_gradient : array of shape (d,), the gradient of the penalty at the weights, for a penalty on the MEAN loss:
        l2 * w for (l2/2)|w|^2, 0 for parameters that are not penalised.
    dataset_size : N, members.
    play : self-play, as in `glir_scores`; left out where the background is too small for it, with a ridge of .01 then,
        which was chosen on digits and Adult with labels at hand.
    with_candidates : fit on background and candidates alike, as `background` = "with-candidates" of `glir_scores`: for
        an attacker who holds a list that contains members. It needs self-play.
    extra_dims : of the View, where directions were left out.

    Guarantees
    ----------
    They are those of `glir_scores`; p-values hold wherever the model stands. Self-play's prediction and the log-odds
    hold at an optimum: `distance` tells.
    """
    rows = check.matrix("background", background)
    mean = -check.vector("penalty_gradient", penalty_gradient)
    view = View(
        mean=mean,
        candidates=np.asarray(check.matrix("candidates", candidates)),
        background=rows,
        batch_size=dataset_size,
        extra_dims=extra_dims,
    )
    if not with_candidates and len(rows) < background_needed(dataset_size):
        play = None
    found = glir_scores(
        [view],
        play=play,
        ridge=None if play is not None else _RIDGE,
        background="with-candidates" if with_candidates else "alone",
        seed=seed,
    )
    far = distance(rows, mean, dataset_size=dataset_size, contains_members=False, seed=seed)
    slope, offset = (1.0, 0.0) if found.calibration is None else found.calibration
    odds = slope * found.scores + offset if slope > 0.0 else found.scores
    return OptimumOutcome(log_odds=shrunk(odds, far, FAR[0]), distance=far, glir=found)


def shrunk(log_odds: Array, far: float, limit: float) -> Array:
    """Log-odds divided by the distance from an optimum, where that is beyond a limit."""
    return log_odds / far if far > limit else log_odds


# -- does a random draw from a list explain a sum ---------------------------------------------------------------------


_NULL: Final = 1.0e-10  # of the largest variance: directions in which no candidate has a part
_LEVELS: Final = (1.0e-5, 10.0)  # of a typical entry: less tells no more, and rounding gets in the way
_EXACT: Final = 2500  # directions: beyond, a Cholesky factor for each level that is tried instead of the spectrum


class SumFit(NamedTuple):
    """Attributes
    ----------
    level : s, the standard deviation of what an entry of the sum lacks to an optimum, at k = 1.
    relative : that by the standard deviation that a random draw gives an entry.
    excess : k of the best fit.
    gain : in log-likelihood by that k: about 1/2 on average if k is 1.
    likelihood : its logarithm at k = 1, up to a constant.
    """

    level: float
    relative: float
    excess: float
    gain: float
    likelihood: float


def fit_sum(
    matrix: Array, gap: Array, *, square: float, dims: int, typical: float, inner: bool, exact: int = _EXACT
) -> SumFit:
    """Fit of a gap g of `dims` entries between a sum and its expectation.

    Parameters
    ----------
    matrix : T itself, or A A' (`inner`) where T = A'A; overwritten.
    gap : g, or A g (`inner`).
    square : g'g.
    typical : size of an entry of the sum, to know which levels to try.
    exact : up to this size the spectrum is computed.
    """
    few = len(matrix) <= exact
    if not np.isfinite(np.diag(matrix)).all() or not np.isfinite(gap).all():
        raise InvalidArgument("have gradients that are not finite", argument="candidates")
    terms = (_Spectrum if few else _Factors)(matrix, gap, square, inner)
    count = max(terms.rank, 1.0)
    # In directions in which no candidate has a part there is nothing but what the sum lacks.
    least = math.sqrt(max(square - terms.inside, 0.0) / max(1.0, dims - terms.rank))
    low = max(_LEVELS[0] * typical, least, 1.0e-150)
    grid = np.linspace(math.log(low), math.log(max(_LEVELS[1] * typical, 2.0 * low)), 120 if few else 7)
    seen: dict[float, tuple[float, float]] = {}

    def found(place: float) -> tuple[float, float]:
        if place not in seen:
            seen[place] = terms.at(math.exp(2.0 * place))
        return seen[place]

    def drawn(place: float) -> float:
        log_det, form = found(place)
        return -0.5 * (log_det + form)

    def scaled(place: float) -> float:  # by the best k
        log_det, form = found(place)
        return -0.5 * (log_det + count * math.log(max(form, 1.0e-300) / count) + count)

    for likelihood in (drawn, scaled) if few else (drawn,):
        best = int(np.argmax([likelihood(float(place)) for place in grid]))
        minimize_scalar(
            lambda place, likelihood=likelihood: -likelihood(float(place)),
            bounds=(grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]),
            method="bounded",
            options={"xatol": 1.0e-3, "maxiter": 30 if few else 6},
        )
    place, loose = max(seen, key=drawn), max(seen, key=scaled)
    return SumFit(
        level=math.exp(place),
        relative=math.exp(place) / math.sqrt(max(terms.trace / count, 1.0e-300)),
        excess=found(loose)[1] / count,
        gain=scaled(loose) - drawn(place),
        likelihood=drawn(place),
    )


class _Spectrum:
    """The terms of a fit by eigenvalues, without directions in which nobody has a part.

    Attributes
    ----------
    rank, trace : of T.
    inside : g'g of the part of the gap that is in its span.
    """

    def __init__(self, matrix: Array, gap: Array, square: float, inner: bool) -> None:
        del square
        values, axes = np.linalg.eigh(matrix)
        kept = values > _NULL * max(float(values[-1]), 0.0)
        self._spread = values[kept]
        self._squares = (gap @ axes[:, kept]) ** 2 / (self._spread if inner else 1.0)
        self.rank, self.trace = float(kept.sum()), float(self._spread.sum())
        self.inside = float(self._squares.sum())

    def at(self, variance: float) -> tuple[float, float]:
        """(log det, quadratic form) of T + variance, in the span of T."""
        total = self._spread + variance
        return float(np.log(total).sum()), float((self._squares / total).sum())


class _Factors:
    """The same by one Cholesky factor for each variance; the directions left out fade instead of ending."""

    def __init__(self, matrix: Array, gap: Array, square: float, inner: bool) -> None:
        self._matrix, self._diagonal, self._gap = matrix, np.diag(matrix).copy(), gap
        self.trace = float(self._diagonal.sum())
        image = matrix @ gap
        largest = float(np.linalg.norm(matrix @ image)) / max(float(np.linalg.norm(image)), 1.0e-300)
        self._null = _NULL * max(largest, self.trace / len(matrix))
        lower = self._lower(self._null)
        solved = self._solve(lower, gap)
        inverse, failed = lapack.dtrtri(lower, lower=1, overwrite_c=1)
        _check(failed)
        rows = (np.tril(inverse[i : i + 512], i) for i in range(0, len(inverse), 512))
        self.rank = len(matrix) - self._null * sum(float(np.einsum("ij,ij->", part, part)) for part in rows)
        # g'P(T + v)^-1 g with P = T (T + null)^-1, nearly the projection on the span
        self._left = solved if inner else gap - self._null * solved
        self.inside = float(gap @ self._left) if inner else square - self._null * float(gap @ solved)

    def _lower(self, variance: float) -> Array:
        work = np.array(self._matrix, order="F")
        work.flat[:: len(work) + 1] = self._diagonal + variance
        lower, failed = lapack.dpotrf(work, lower=1, overwrite_a=1)
        _check(failed)
        return np.asarray(lower)

    @staticmethod
    def _solve(lower: Array, right: Array) -> Array:
        half = solve_triangular(lower, right, lower=True, check_finite=False)
        return np.asarray(solve_triangular(lower, half, lower=True, trans="T", check_finite=False))

    def at(self, variance: float) -> tuple[float, float]:
        """The same numbers as those of `_Spectrum`."""
        lower = self._lower(variance)
        log_det = 2.0 * float(np.log(np.diag(lower)).sum()) - (len(lower) - self.rank) * math.log(variance)
        return log_det, float(self._left @ self._solve(lower, self._gap))


def _check(failed: int) -> None:
    if failed:
        raise InvalidArgument("have inner products that are of no vectors", argument="candidates")


# -- who of a list was in ---------------------------------------------------------------------------------------------


_LISTED: Final = 0.1  # a residual, relative to what chance gives, at which the list holds all members
_SLACK: Final = 2.0  # residuals that decoding allows for: it approximates
_COVERAGES: Final = (1.0, 0.75, 0.5, 0.25, 0.0)  # tried for the residual, where background tells of the unlisted
_DOUBTED: Final = 2.0  # log-likelihood by which a sum that varies more than a draw from the list explains it better
_EXCESS: Final = 1.25  # and by how much more, at least
_LOOSE: Final = 0.5  # a residual, relative to what chance gives, at which the list explains little
_UNDECIDED: Final = 1.0  # the most that log-odds may say where the list does not explain the weights


def enough_background(count: int, dims: int) -> bool:
    """Whether so many records tell how members who are not listed vary in `dims` directions."""
    return count >= 1.5 * dims + 2


def decode_optimum(
    candidates: ArrayLike,
    *,
    penalty_gradient: ArrayLike,
    dataset_size: int,
    background: ArrayLike | None = None,
    coverage: float | None = None,
    most_sweeps: int = 15,
    extra_dims: int = 0,
    seed: int = 0,
) -> OptimumOutcome:
    """Decoding of a model at an optimum: all candidates of a list that contains the members, jointly.

    Parameters
    ----------
    candidates : array of shape (c, d), gradients of the records' losses at the weights.
    penalty_gradient, dataset_size : as in `optimum_scores`.
    background : array of shape (m, d), for lists that lack members: records that show how those vary; None or too few
        (less than 1.5 d): the candidates do.
    coverage : q, the share of the members that is listed; None: estimated, and without background all that can be if
        the list explains the weights.
    most_sweeps : of `gmip.attacks.decode.decode`.
    extra_dims : parameters less d, if the d coordinates are those of the span of all vectors.

    Guarantees
    ----------
    They are those of `decode`. How exactly a solver met its optimum is estimated, by maximum likelihood of a Gaussian
    residual that is the same in all directions: approximate. Away from an optimum the residual is large, the odds are
    small, and `distance` tells; far from one, where the list explains nothing either, they are 0. Whether members drawn
    at random from the list explain the weights is tested, too (`explained`): a list without the members, or a model
    that interpolates them, fails unless there are only a few tens of directions.
    """
    rows = check.matrix("candidates", candidates).astype(np.float64, copy=False)
    c, d = rows.shape
    count = check.count("dataset_size", dataset_size)
    mean = -check.vector("penalty_gradient", penalty_gradient, length=d)
    if coverage is not None:
        check.above_zero("coverage", coverage)
    others = None
    if background is not None and len(given := check.matrix("background", background, columns=d)):
        others = given.astype(np.float64, copy=False) if enough_background(len(given), d) else None
    if others is None and 2 * d > c:  # then inner products are less work and memory
        products = np.empty((c + 1, c + 1))
        products[:c, :c] = rows @ rows.T
        products[c, :c] = products[:c, c] = rows @ -mean
        products[c, c] = mean @ mean
        return decode_optimum_products(
            products, dims=d + extra_dims, dataset_size=count, coverage=coverage, most_sweeps=most_sweeps, seed=seed
        )
    centre = rows.mean(0)
    scatter = (rows - centre).T @ (rows - centre)
    rest_mean, rest_cov = centre, scatter / c
    if others is not None:
        rest_mean = others.mean(0)
        rest_cov = (others - rest_mean).T @ (others - rest_mean) / (len(others) - d - 1)
    fits = []
    for listed, drawn in _drawn(c, count, coverage, others is not None):
        missing = max(count - listed, 0.0)
        gap = count * mean - listed * centre - missing * rest_mean
        total = drawn * scatter + missing * rest_cov
        typical = math.sqrt(count * float(np.mean(rows**2)))
        fits.append(
            fit_sum(total, gap, square=float(gap @ gap), dims=d + extra_dims, typical=typical or 1.0, inner=False)
        )
        del total
    found = max(fits, key=lambda one: one.likelihood)
    residual = _SLACK * found.level
    seen = from_rows(
        rows / residual,
        count * mean / residual,
        None if others is None else others / residual,
        share=1.0,
        draw="full",
        noisy=True,
    )
    far = distance(rows, mean, dataset_size=count, contains_members=True, seed=seed)
    return _decoded(seen, count, found, far, coverage, most_sweeps, with_others=others is not None)


def decode_optimum_products(
    products: Array,
    *,
    dims: int,
    dataset_size: int,
    coverage: float | None = None,
    most_sweeps: int = 15,
    seed: int = 0,
) -> OptimumOutcome:
    """`decode_optimum` by inner products, shape (c + 1, c + 1), overwritten: of the c candidates' gradients and, last,
    the penalty's. `dims` : parameters.

    Guarantees
    ----------
    They are those of `decode_optimum`. Besides `products` it holds about two matrices of that size at a time, and
    computes no spectrum of more than 2,500 candidates.
    """
    c, count = len(products) - 1, dataset_size
    space = min(dims, c + 1)
    rows_mean = products[:c, :c].mean(1)
    middle = float(rows_mean.mean())
    with_mean = -products[c, :c]
    with_centre = float(with_mean.mean())
    typical = math.sqrt(count * float(np.trace(products[:c, :c])) / (c * space)) or 1.0
    centred = products[:c, :c] - rows_mean
    centred -= rows_mean[:, None]
    centred += middle
    towards = with_mean - with_centre - rows_mean + middle
    square = max(float(products[c, c]) - 2.0 * with_centre + middle, 0.0)  # of the mean less the centre
    far = inner_distance(centred, towards, square, dims=space, dataset_size=count, seed=seed)
    fits = []
    for listed, drawn in _drawn(c, count, coverage, False):
        scale = drawn + max(count - listed, 0.0) / c
        matrix = scale * centred
        gap = math.sqrt(scale) * count * towards
        fits.append(fit_sum(matrix, gap, square=count**2 * square, dims=dims, typical=typical, inner=True))
        del matrix
    del centred
    found = max(fits, key=lambda one: one.likelihood)
    products[c, :] *= -count
    products[:, c] *= -count
    products /= (_SLACK * found.level) ** 2
    seen = from_products(products, c, dims=space, share=1.0, draw="full", noisy=True)
    return _decoded(seen, count, found, far, coverage, most_sweeps, with_others=False)


def _drawn(candidates: int, members: int, coverage: float | None, with_others: bool) -> Sequence[tuple[float, float]]:
    """How many members are listed, and the variance of a candidate's membership, for the coverages that are tried."""
    shares = (coverage,) if coverage is not None else _COVERAGES if with_others else (1.0,)
    found = []
    for share in shares:
        listed = min(share * members, candidates)
        chance = min(max(listed / candidates, 0.5 / candidates), 1.0 - 0.5 / candidates)
        found.append((listed, chance * (1.0 - chance)))
    return found


def _decoded(
    seen: PublishedSum,
    members: int,
    fit: SumFit,
    far: float,
    coverage: float | None,
    most_sweeps: int,
    *,
    with_others: bool,
) -> OptimumOutcome:
    if coverage is None and not with_others and fit.relative < _LISTED:
        coverage = min(1.0, seen.count / members)
    found: DecodeOutcome = decode([seen], dataset_size=members, coverage=coverage, most_sweeps=most_sweeps)
    explained = fit.relative < _LOOSE and not (fit.gain > _DOUBTED and fit.excess > _EXCESS)
    odds = shrunk(found.log_odds, far, FAR[1])
    if not explained and far > FAR[1]:  # the published sum is not that of the members: it ranks nobody
        odds = np.zeros_like(odds)
    elif not explained:
        odds = odds * min(1.0, _UNDECIDED / max(float(np.abs(odds).max()), 1.0e-300))
    return OptimumOutcome(
        log_odds=odds, distance=far, residual=fit.relative, excess=fit.excess, explained=explained, decoded=found
    )
