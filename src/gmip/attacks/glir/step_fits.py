"""Fits of a step: what a published mean tells, under the inverse covariance of such a mean.

There are two ways to the same numbers: by eigenvectors, or by the records' inner products. A sketched view has few
coordinates, and what these leave out is taken to vary alike in all directions.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from gmip import _validate as check
from gmip.errors import InvalidArgument
from gmip.stats.covariance import GaussianModel, Scatter, Shrinkage, shrinkage_of
from gmip.vocabulary import Sampling

# -- what the attacker knows about one published step -----------------------------------------------------------------


Array = NDArray[np.float64]
Rows = NDArray[np.intp]
_NOTHING = 1.0e-15  # of the largest eigenvalue: what rounding leaves of zero
_SAMPLINGS: tuple[Sampling, ...] = ("fixed", "poisson", "full", "shuffled")  # how one batch is drawn


@dataclass(frozen=True, kw_only=True, eq=False)
class StepView:
    """How a step was taken; `View` and `GramView` add what was seen of it.

    Parameters
    ----------
    batch_size : n, examples averaged (under "poisson" the expected number, and the divisor).
    noise_std : tau, noise on every entry of the published MEAN.
    sample_rate : p, chance that an example of the training set is in the batch.
    sampling : "fixed", "poisson", "full" or "shuffled", as in `NoisySGD`.
    extra_dims : dimensions in which no vector has a part and which were left out (an isometric compression).
    length_counts : whether the length of the mean is evidence: a batch without the candidate varies a little more. Not
        for an attack that doubts `noise_std`: noise that is there after all would say "not in the batch" of everybody.
    epoch, drawn : under "shuffled", which epoch the batch is of and how many examples came before it in that epoch.
    """

    batch_size: int
    noise_std: float = 0.0
    sample_rate: float = 1.0
    sampling: Sampling = "full"
    extra_dims: int = 0
    length_counts: bool = True
    epoch: int = 0
    drawn: int = 0

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "batch_size", check.count("batch_size", self.batch_size))
        put(self, "noise_std", check.non_negative("noise_std", self.noise_std))
        put(self, "sample_rate", check.probability("sample_rate", self.sample_rate, open_low=True))
        check.one_of("sampling", self.sampling, _SAMPLINGS)
        put(self, "extra_dims", self.extra_dims and check.count("extra_dims", self.extra_dims))
        if self.sampling == "full" and self.sample_rate != 1.0:
            raise InvalidArgument(
                "does not fit `sampling` = 'full', where every example is in the batch",
                argument="sample_rate",
                value=self.sample_rate,
                remedy="set it to 1, or `sampling` to 'fixed' or 'poisson'",
            )

    @property
    def dataset_size(self) -> int:
        """N = n/p, to the nearest whole number."""
        return round(self.batch_size / self.sample_rate)

    @property
    def num_candidates(self) -> int:
        """c."""
        raise NotImplementedError

    @property
    def num_background(self) -> int:
        """m; 0 without background."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True, eq=False)
class Sketch:
    """What is held of more records than there is room for: coordinates in few directions, of those that are scored; of
    all others of the background their sums alone.

    Parameters
    ----------
    size : m, how many records the background has.
    rows : array of shape (b,), positions of those that may be scored, in rising order.
    others : the scatter of the others, in the coordinates.
    background, candidates, mean : arrays of shapes (b, w), (c, w) and (w,): what the coordinates leave out, about
        `centre`; w = 0 if nothing is left out.
    centre : array of shape (w,), the mean over the others.
    dims : directions in which all these parts lie.
    """

    size: int
    rows: Rows
    others: Scatter
    background: NDArray[Any]
    candidates: NDArray[Any]
    mean: NDArray[Any]
    centre: NDArray[Any]
    dims: int


@dataclass(frozen=True, kw_only=True, eq=False)
class View(StepView):
    """One published mean gradient, and the gradients of candidates and background at the same parameters.

    Parameters
    ----------
    mean : array of shape (D,), what was published.
    candidates : array of shape (c, D).
    background : array of shape (m, D), vectors of the same distribution that are not in the run; None when the
        parameters of the distribution are known.
    sketch : what there is beside these coordinates, which are of the `rows` of the background alone; None: nothing.
    others : see `StepView`.

    Arrays are float32 or float64 and are not copied; sums over them are float64.
    """

    mean: NDArray[Any]
    candidates: NDArray[Any]
    background: NDArray[Any] | None
    sketch: Sketch | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "mean", check.vector("mean", self.mean))
        put(self, "candidates", check.matrix("candidates", self.candidates, columns=self.mean.size))
        if self.candidates.shape[0] == 0:
            raise InvalidArgument("is empty", argument="candidates", remedy="pass at least one gradient")
        if self.background is not None:
            put(self, "background", check.matrix("background", self.background, columns=self.mean.size))
        super().__post_init__()

    @property
    def num_candidates(self) -> int:
        return int(self.candidates.shape[0])

    @property
    def num_background(self) -> int:
        if self.sketch is not None:
            return self.sketch.size
        return 0 if self.background is None else int(self.background.shape[0])

    def reduced(self) -> View:
        """The same view without the directions in which no example has a part (softmax heads: one class in k).

        An isometry of the examples. What the published mean has outside is noise, which says nothing about them.
        """
        groups = [self.candidates] if self.background is None else [self.candidates, self.background]
        if self.sketch is not None or sum(len(group) for group in groups) <= self.mean.size:
            return self
        moment = sum(group.T.astype(np.float64) @ group for group in groups)
        values, directions = np.linalg.eigh(moment)
        kept = directions[:, values > _NOTHING * values[-1]]
        if kept.shape[1] == self.mean.size:
            return self
        return dataclasses.replace(
            self,
            mean=self.mean @ kept,
            candidates=self.candidates @ kept,
            background=None if self.background is None else self.background @ kept,
            extra_dims=self.extra_dims + self.mean.size - kept.shape[1],
        )

    def inner(self) -> GramView:
        """The same view by its inner products."""
        groups = [self.candidates] if self.background is None else [self.background, self.candidates]
        rows = np.concatenate([group.astype(np.float64, copy=False) for group in (*groups, self.mean[None])])
        how = {field.name: getattr(self, field.name) for field in dataclasses.fields(StepView)}
        how["extra_dims"] = 0
        return GramView(
            products=rows @ rows.T,
            background_size=self.num_background,
            dimension=self.mean.size + self.extra_dims,
            **how,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class GramView(StepView):
    """The same as `View` by inner products alone: for models with more parameters than there are records.

    Parameters
    ----------
    products : array of shape (m + c + 1, m + c + 1), all inner products of background, candidates and the mean, in
        this order.
    background_size : m.
    dimension : D, the number of (stacked) parameters.
    others : see `StepView`.
    """

    products: NDArray[np.float64]
    background_size: int
    dimension: int

    @property
    def num_candidates(self) -> int:
        return int(self.products.shape[0]) - 1 - self.background_size

    @property
    def num_background(self) -> int:
        return self.background_size


def stack(views: Sequence[View]) -> View:
    """Several full-batch steps as one view: the gradients of all steps of an example, one after the other.

    The published means of full batches stack to the mean of the stacked gradients (docs/theory/glir.md, "Several
    steps"), so one likelihood ratio covers what the steps share. The steps must have one batch size and one noise_std.
    """
    same_run(views)
    first = views[0]
    if any(view.sample_rate != 1.0 for view in views):
        raise InvalidArgument(
            "Only full-batch steps can be stacked, because an example is not in every mini-batch",
            remedy="use `method` = 'mixture'",
        )
    if any(view.batch_size != first.batch_size for view in views):
        raise InvalidArgument(
            "differs between the steps, and stacked steps are means over the same examples", argument="batch_size"
        )
    if any(view.noise_std != first.noise_std for view in views):
        raise InvalidArgument("differs between the steps, and stacked steps need one noise level", argument="noise_std")
    if len(views) == 1:
        return first
    backgrounds = [view.background for view in views if view.background is not None]
    return View(
        mean=np.concatenate([view.mean for view in views]),
        candidates=np.concatenate([view.candidates for view in views], axis=1),
        background=np.concatenate(backgrounds, axis=1) if backgrounds else None,
        batch_size=first.batch_size,
        noise_std=first.noise_std,
        extra_dims=sum(view.extra_dims for view in views),
        length_counts=first.length_counts,
    )


def same_run(views: Sequence[StepView]) -> None:
    """Raise unless the views are steps of one run: the same candidates, background and data set size."""
    if not views or not all(isinstance(view, StepView) for view in views):
        raise InvalidArgument("must be a non-empty sequence of View, one for each step", argument="views")
    for name, sizes in (
        ("candidates", {view.num_candidates for view in views}),
        ("background", {view.num_background for view in views}),
        ("dataset_size", {view.dataset_size for view in views}),
    ):
        if len(sizes) > 1:
            raise InvalidArgument(
                f"differ in {name} ({', '.join(map(str, sorted(sizes, key=str)))})",
                argument="views",
                remedy="pass steps of one run, with the same examples in each",
            )


# -- inner products under the inverse covariance of a published mean --------------------------------------------------


Setting = tuple[float, float]  # cutoff, ridge
_ALONE = 1.0e-6  # of what a record leaves of a direction: less is rounding, or no better known


@dataclass(frozen=True, eq=False)
class GameDraw:
    """Published means of games, before noise: weights (g, h) over h scored records, and noise to come."""

    rows: Rows  # positions of the h records among the scored ones
    weights: Array
    seed: np.random.SeedSequence  # of the noise: the same for every setting


@dataclass(frozen=True, eq=False)
class StepEvidence:
    """What g published means y say about c records, in products under W.

    Attributes
    ----------
    cross : array of shape (g, c), shift'Wy; length : array of shape (c,), shift'W shift, where shift/n is what the
        record adds to the mean. distance : array of shape (g, c), (y - shift)'W(y - shift).
    offset : array of shape (g,), o'Wy; offset_length : o'Wo; o is (1-p) mean under Poisson sampling, and 0 otherwise.
    """

    cross: Array
    length: Array
    distance: Array
    offset: Array
    offset_length: float

    @classmethod
    def direct(cls, a: Array, k: Array, own: Array, o: tuple[Array, Array, float]) -> StepEvidence:
        """The evidence for records outside the fit: a = u'Wy, k = u'Wu, own = y'Wy, o = (o'Wu, o'Wy, o'Wo)."""
        ou, oy, oo = o
        length = k + 2.0 * ou + oo
        cross = a + oy[:, None]
        return cls(cross, length, own[:, None] - 2.0 * cross + length, oy, oo)

    @classmethod
    def left_out(
        cls,
        a: Array,
        k: Array,
        own: Array,
        o: tuple[Array, Array, float],
        *,
        samples: float,
        beta: float,
        anchor: float,
    ) -> StepEvidence:
        """The evidence for records of the fit, each as if it had not been in it."""
        ou, oy, oo = o
        q = beta / _left(k, samples, beta)
        s = 1.0 / (samples - 1.0)
        c = 1.0 + anchor * s
        t = c * k + ou
        cross = c * a + (c * k + ou) * s + oy[:, None] + (q * t) * (a + k * s)
        length = c * c * k + 2.0 * c * ou + oo + q * t * t
        b = c - s
        gap = a - b * k - ou
        distance = own[:, None] - 2.0 * (b * a + oy[:, None]) + b * b * k + 2.0 * b * ou + oo + q * gap * gap
        return cls(cross, length, distance, oy, oo)

    def plus(self, other: StepEvidence) -> StepEvidence:
        """The evidence of both, for a W without products between the directions of one and of the other."""
        return StepEvidence(
            self.cross + other.cross,
            self.length + other.length,
            self.distance + other.distance,
            self.offset + other.offset,
            self.offset_length + other.offset_length,
        )

    def of(self, games: slice) -> StepEvidence:
        """What some of the means say."""
        return StepEvidence(
            self.cross[games], self.length, self.distance[games], self.offset[games], self.offset_length
        )


def _left(k: Array, samples: float, beta: float) -> Array:
    """1 - 1/m - beta k, k the length of a record under a W that has seen it: 0 if it alone spans a direction."""
    return np.asarray(np.maximum(1.0 - 1.0 / samples - beta * k, _ALONE))


class Metric(ABC):
    """W of one step under one setting, and the products of the scored records (R of them) under it.

    Attributes
    ----------
    samples, beta, anchor : m, what leaving a record out takes from V (in units of uu'), the share of the mean in a
        record's shift (1, or p under Poisson sampling).
    share, noise_std : of V. total : the trace of W. free : degrees of freedom that the directions kept leave.
    length : array of shape (R,), u'Wu. cross : array of shape (R,), u'W(M - mean) for the published M. own : M'WM.
    offset : (o'Wu (R,), o'W(M - mean), o'Wo).
    """

    samples: float
    beta: float
    anchor: float
    share: float
    noise_std: float
    total: float
    free: float
    length: Array
    cross: Array
    own: float
    offset: tuple[Array, float, float]

    @abstractmethod
    def mixed(self, drawn: GameDraw) -> tuple[Array, Array, Array, Array]:
        """a (g, h) = u'Wy, own (g,) and o'Wy (g,) of means that games publish, y = weights @ u + noise, for the records
        that they are drawn from, and the noise's part of a."""

    def real(self, rows: Rows, *, inside: bool) -> StepEvidence:
        """The evidence of the published mean about scored records that are in the fit, or not."""
        ou, oy, oo = self.offset
        given = self.cross[None, rows], self.length[rows], np.array([self.own]), (ou[rows], np.array([oy]), oo)
        return self._evidence(*given, inside=inside)

    def played(self, drawn: GameDraw, *, inside: bool) -> StepEvidence:
        """The evidence of the games' means about the records they are drawn from."""
        a, own, oy, _ = self.mixed(drawn)
        ou, _, oo = self.offset
        return self._evidence(a, self.length[drawn.rows], own, (ou[drawn.rows], oy, oo), inside=inside)

    def pairs(self, drawn: GameDraw, *, inside: bool, both: bool) -> tuple[Array, Array]:
        """Products of records with single others (weights that are 0 but for a 1) and with noise, as a test meets them:
        each of shape (g, h).

        inside : the records are in the fit. both : and the others should not be in it either.
        """
        a, _, _, noise = self.mixed(drawn)
        a = a - noise
        if not inside:
            return a, noise
        m, k = self.samples, self.length[drawn.rows]
        left = _left(k, m, self.beta)
        if not both:
            return (a + k / (m - 1.0)) / left, noise / left
        # W without both, and centred without both, by the inverse of a matrix of two rows
        shared = 1.0 / m + self.beta * a
        gap = left * (drawn.weights @ left)[:, None] - shared * shared
        return (shared / gap - 1.0 / (m - 2.0)) / self.beta, noise / left

    def lone(self, rows: Rows) -> NDArray[np.bool_]:
        """Records of the fit that alone span a direction: nothing is known about it without them."""
        return np.asarray(_left(self.length[rows], self.samples, self.beta) <= _ALONE)

    def _evidence(self, a: Array, k: Array, own: Array, o: tuple[Array, Array, float], *, inside: bool) -> StepEvidence:
        if not inside:
            return StepEvidence.direct(a, k, own, o)
        return StepEvidence.left_out(a, k, own, o, samples=self.samples, beta=self.beta, anchor=self.anchor)


class StepFit(ABC):
    """Mean and covariance of the records of a fit, for tests under any setting.

    Attributes
    ----------
    samples : m.
    """

    samples: float

    @abstractmethod
    def metric(self, setting: Setting, *, in_batch: bool = True) -> Metric | None:
        """W for the mean of a batch with the candidate in it, or without; None if there are too few samples."""

    @abstractmethod
    def susceptibility(self, setting: Setting, rows: Rows, *, inside: bool) -> Array | None:
        """K of scored records, shape (k,); None if there are too few samples. About the data alone: noise is left out.

        The bias of the inverse is taken out; what the error of the mean adds, about r/m, is on the safe side.
        """

    @abstractmethod
    def directions(self, setting: Setting) -> int:
        """How many directions the setting keeps."""


def shares(view: StepView, samples: float, *, in_batch: bool) -> float:
    """Variance of the mean minus the background mean, as a multiple of Sigma and without noise.

    A batch of one record has no others that vary beside the candidate. Its test takes the variance without the
    candidate: under noise alone, or nothing, every other record's gradient would be out of the question.
    """
    n = view.batch_size
    q = view.sample_rate / n if view.sampling == "poisson" else 1.0 / n
    if not in_batch or q == 1.0:
        return 1.0 / n + 1.0 / samples
    return (1.0 - q) / n + (1.0 - q) ** 2 / samples


def anchor_of(view: StepView) -> float:
    return view.sample_rate if view.sampling == "poisson" else 1.0


def unbiased(lengths: Array, samples: float, free: float) -> Array | None:
    """Lengths under S^-1 as under Sigma^-1; `free` : m - 2 less the (effective) number of directions."""
    return None if free <= 0.0 else np.asarray(lengths * (free / (samples - 1.0)))


def without_own(k: Array, samples: float, beta: float) -> Array:
    """u'Wu of records of the fit as if they had not been in it."""
    return np.asarray((1.0 / _left(k, samples, beta) - samples / (samples - 1.0)) / beta)


# -- fewer dimensions than records ------------------------------------------------------------------------------------


class _Primal(StepFit):
    def __init__(
        self, view: View, fit: Rows, scored: Rows, shrinkage: Shrinkage | None, part: _Primal | None = None
    ) -> None:
        self.view, self.fitted = view, fit
        self.scatter: Scatter | None = None
        if fit.size <= view.mean.size:
            samples = np.concatenate(_pool_parts(view, fit))
            model = GaussianModel.fit(samples, shrinkage=shrinkage, extra_dims=view.extra_dims)
        else:
            if part is not None and part.scatter is not None:
                more = np.setdiff1d(fit, part.fitted, assume_unique=True)
                self.scatter = part.scatter.plus(_pool_parts(view, more))
            elif view.sketch is not None:
                self.scatter = view.sketch.others.plus(_pool_parts(view, np.intersect1d(fit, view.sketch.rows)))
            else:
                self.scatter = Scatter.of(_pool_parts(view, fit))
            model = self.scatter.model(shrinkage=shrinkage, extra_dims=view.extra_dims)
        self.samples = model.num_samples
        self.plain = model
        self.model = model.plus_mean(1.0 - view.sample_rate) if view.sampling == "poisson" else model
        self.scored = scored
        self.places = np.concatenate([self.model.embed(part) for part in _pool_parts(view, scored, ordered=True)])
        self.mean = self.model.embed(view.mean[None])[0]
        self.centre = self.model.embed(model.mean[None], centred=False)[0]

    def _variances(self, model: GaussianModel, setting: Setting, noise: float) -> tuple[Array, float] | None:
        """A record's variance in each direction kept, noise included, and the degrees of freedom that are left."""
        tuned = model.retuned(cutoff=setting[0], ridge=setting[1])
        lift = tuned.outside + noise
        kept = model.spectrum.size if lift > 0.0 else tuned.rank
        if lift > 0.0 and model.spectrum.size < model.dimension:
            return None  # parts of records outside these directions would count: a matter for `_Dual`
        values = np.asarray(model.scale * model.spectrum[:kept] + lift)
        return values, self.samples - 2.0 - float(np.sum(model.scale * model.spectrum[:kept] / values))

    def directions(self, setting: Setting) -> int:
        return self.plain.retuned(cutoff=setting[0], ridge=setting[1]).rank

    def metric(self, setting: Setting, *, in_batch: bool = True) -> Metric | None:
        share = shares(self.view, self.samples, in_batch=in_batch)
        found = self._variances(self.model, setting, self.view.noise_std**2 / share)
        return None if found is None or found[1] <= 0.0 else _PrimalMetric(self, share * found[0], share, found[1])

    def susceptibility(self, setting: Setting, rows: Rows, *, inside: bool) -> Array | None:
        found = self._variances(self.plain, setting, 0.0)
        if found is None:
            return None
        values, free = found
        if self.plain is self.model:
            places = self.places[rows]
        else:
            places = np.concatenate(
                [self.plain.embed(p) for p in _pool_parts(self.view, self.scored[rows], ordered=True)]
            )
        k = (places[:, : values.size] ** 2) @ (1.0 / values)
        if inside:
            k = without_own(k, self.samples, self.plain.scale / (self.samples - 1.0))
        return unbiased(k, self.samples, free)


class _PrimalMetric(Metric):
    def __init__(self, fit: _Primal, variances: Array, share: float, free: float) -> None:
        view, kept = fit.view, variances.size
        self.free = free
        self.fit, self.inverse = fit, 1.0 / variances
        self.total = float(self.inverse.sum())
        self.samples, self.anchor, self.share, self.noise_std = fit.samples, anchor_of(view), share, view.noise_std
        self.beta = share * fit.plain.scale / (fit.samples - 1.0)
        self.places, mean = fit.places[:, :kept], fit.mean[:kept]
        self.length = (self.places * self.places) @ self.inverse
        self.cross = self.places @ (mean * self.inverse)
        self.own = float(mean @ (mean * self.inverse))
        self.shift = (1.0 - self.anchor) * fit.centre[:kept]
        self.offset = (
            self.places @ (self.shift * self.inverse),
            float(mean @ (self.shift * self.inverse)),
            float(self.shift @ (self.shift * self.inverse)),
        )

    def mixed(self, drawn: GameDraw) -> tuple[Array, Array, Array, Array]:
        places, kept = self.places[drawn.rows], self.inverse.size
        y = drawn.weights @ places
        if self.anchor < 1.0:  # the number drawn is not the divisor
            y += np.outer(drawn.weights.sum(axis=1) - 1.0, self.fit.centre[:kept])
        noise = np.zeros((1, 1))
        if self.noise_std > 0.0:
            rng = np.random.default_rng(drawn.seed)
            added = self.noise_std * rng.standard_normal((y.shape[0], self.fit.mean.size))[:, :kept]
            noise = (added * self.inverse) @ places.T
            y += added
        weighted = y * self.inverse
        return weighted @ places.T, np.einsum("ij,ij->i", y, weighted), weighted @ self.shift, noise


def _pool_parts(view: View, rows: Rows, *, ordered: bool = False) -> Sequence[NDArray[Any]]:
    """Vectors of these positions of the pool: background, then candidates, for which rows are to be in rising order."""
    assert view.background is not None
    if ordered and rows.size and (np.diff(rows) < 0).any():
        raise AssertionError("rows of the pool are in rising order")
    m = view.num_background
    inside, parts = rows[rows < m], []
    if view.sketch is not None:
        inside = np.searchsorted(view.sketch.rows, inside)
    for group, own in ((view.background, inside), (view.candidates, rows[rows >= m] - m)):
        if own.size == len(group):
            parts.append(group)
        elif own.size:
            parts.append(group[own])
    return parts


# -- few directions, and what they leave out ---------------------------------------------------------------------------


_FEW = 400  # records whose products tell how what is left out varies


class _Sketched(StepFit):
    """A fit along few directions. What they leave out of a record is taken to vary alike in all others, with the
    variance that makes the most of it: E (r'r')^2 / E r'r, so that a few strong directions among them count less.

    No record that is scored has told the directions, nor the mean of what they leave out: nobody has to be taken out.
    """

    def __init__(self, rest: Sketch, along: _Primal) -> None:
        self.along, self.rest = along, rest
        self.samples = along.samples
        m = along.view.num_background
        inside, asked = along.scored[along.scored < m], along.scored[along.scored >= m] - m
        places = np.searchsorted(rest.rows, inside)
        self.parts = [_picked(rest.background, places), _picked(rest.candidates, asked)]
        few = self.parts[0][:_FEW].astype(np.float64)
        products = few @ few.T
        own = np.diagonal(products)
        crossed = float(np.einsum("ij,ij->", products, products)) - float(own @ own)
        self.variance = crossed / max(len(few) - 1, 1) / max(float(own.sum()), np.finfo(np.float64).tiny)
        self.norms = self.against(None)

    def against(self, vectors: Array | None) -> Array:
        """Products of vectors (g, w) with what is left out of scored records, (g, R); None: of each with itself."""
        if vectors is None:
            return np.concatenate([np.einsum("ij,ij->i", part, part, dtype=np.float64) for part in self.parts])
        return np.concatenate([np.asarray(vectors.astype(part.dtype) @ part.T, np.float64) for part in self.parts], 1)

    def metric(self, setting: Setting, *, in_batch: bool = True) -> Metric | None:
        along = self.along.metric(setting, in_batch=in_batch)
        if along is None or not self.variance > 0.0:
            return along
        lift = self.along.plain.retuned(cutoff=setting[0], ridge=setting[1]).outside
        return _SketchedMetric(self, along, along.share * (self.variance + lift) + along.noise_std**2)

    def susceptibility(self, setting: Setting, rows: Rows, *, inside: bool) -> Array | None:
        known = self.along.susceptibility(setting, rows, inside=inside)
        if known is None or not self.variance > 0.0:
            return known
        lift = self.along.plain.retuned(cutoff=setting[0], ridge=setting[1]).outside
        return np.asarray(known + self.norms[rows] / (self.variance + lift))

    def directions(self, setting: Setting) -> int:
        return self.along.directions(setting)


class _SketchedMetric(Metric):
    """A metric along the directions, and 1/`variance` in all others. Lengths and products that it holds are those along
    the directions alone, from which `lone` is told."""

    def __init__(self, fit: _Sketched, along: Metric, variance: float) -> None:
        rest = fit.rest
        self.fit, self.within, self.weight = fit, along, 1.0 / variance
        self.samples, self.beta, self.anchor = along.samples, along.beta, along.anchor
        self.share, self.noise_std, self.free = along.share, along.noise_std, along.free
        self.length, self.cross, self.own = along.length, along.cross, along.own
        self.total = along.total + rest.dims * self.weight
        self.shift = (1.0 - self.anchor) * rest.centre.astype(np.float64)
        mean = rest.mean.astype(np.float64)
        self.left = self._weighted(mean[None])
        self.rest_offset = (
            self.weight * fit.against(self.shift[None])[0],
            self.weight * float(mean @ self.shift),
            self.weight * float(self.shift @ self.shift),
        )
        (ou, oy, oo), (ru, ry, ro) = along.offset, self.rest_offset
        self.offset = (ou + ru, oy + ry, oo + ro)

    def _weighted(self, y: Array) -> tuple[Array, Array]:
        """Products of what y (g, w) has outside the directions: with the records (g, R), and with itself (g,)."""
        return self.weight * self.fit.against(y), self.weight * np.einsum("ij,ij->i", y, y)

    def _outside(self, rows: Rows, a: Array, own: Array, oy: Array) -> StepEvidence:
        ou, _, oo = self.rest_offset
        return StepEvidence.direct(a[:, rows], self.weight * self.fit.norms[rows], own, (ou[rows], oy, oo))

    def real(self, rows: Rows, *, inside: bool) -> StepEvidence:
        outside = self._outside(rows, *self.left, np.array([self.rest_offset[1]]))
        return self.within.real(rows, inside=inside).plus(outside)

    def played(self, drawn: GameDraw, *, inside: bool) -> StepEvidence:
        a, own, oy, _ = self._mixed(drawn)
        return self.within.played(drawn, inside=inside).plus(self._outside(drawn.rows, a, own, oy))

    def pairs(self, drawn: GameDraw, *, inside: bool, both: bool) -> tuple[Array, Array]:
        products, noise = self.within.pairs(drawn, inside=inside, both=both)
        a, _, _, more = self._mixed(drawn)
        return products + (a - more)[:, drawn.rows], noise + (more if more.size == 1 else more[:, drawn.rows])

    def mixed(self, drawn: GameDraw) -> tuple[Array, Array, Array, Array]:
        a, own, oy, noise = self.within.mixed(drawn)
        b, more, ry, other = self._mixed(drawn)
        return a + b[:, drawn.rows], own + more, oy + ry, noise + (other if other.size == 1 else other[:, drawn.rows])

    def _mixed(self, drawn: GameDraw) -> tuple[Array, Array, Array, Array]:
        """What `mixed` gives, of what is outside the directions and for all scored records."""
        part = _picked(self.fit.parts[0], drawn.rows)  # games are played with background records
        y = np.asarray(drawn.weights.astype(part.dtype) @ part, dtype=np.float64)
        if self.anchor < 1.0:  # the number drawn is not the divisor
            y += np.outer(drawn.weights.sum(axis=1) - 1.0, self.fit.rest.centre)
        a, own = self._weighted(y)
        oy, noise = self.weight * (y @ self.shift), np.zeros((1, 1))
        if self.noise_std > 0.0:
            seed = np.random.SeedSequence(drawn.seed.entropy, spawn_key=(*drawn.seed.spawn_key, 1))
            added = self.noise_std * np.random.default_rng(seed).standard_normal(y.shape)
            noise = self.weight * self.fit.against(added)
            a, own = a + noise, own + self.weight * self.noise_std**2 * self.fit.rest.dims
        return a, own, oy, noise


def _picked(rows: NDArray[Any], places: Rows) -> NDArray[Any]:
    """These rows, not copied if they are all in a stretch."""
    return rows[places[0] : places[-1] + 1] if _runs(places) else rows[places]


# -- more dimensions than records -------------------------------------------------------------------------------------


class _Dual(StepFit):
    def __init__(self, view: GramView, fit: Rows, scored: Rows, shrinkage: Shrinkage | None) -> None:
        self.view, self.samples = view, float(fit.size)
        nu = self.samples - 1.0
        g = view.products
        weights = np.zeros(g.shape[0])
        weights[fit] = 1.0 / fit.size
        along = g @ weights  # <x, mean>
        square = float(along[fit].mean())
        every = np.concatenate([scored, [g.shape[0] - 1]])
        self._gram, self._along, self._square, self._every = g, along, square, every
        self.inner, self.outer = self._centred(fit, fit), self._centred(fit, every)
        self.norms = np.diagonal(g)[every] - 2.0 * along[every] + square
        places = np.full(g.shape[0], -1)
        places[fit] = np.arange(fit.size)
        self.place = places[scored]  # of a scored record in the fit, or -1
        total = float(np.trace(self.inner)) / nu
        if not total > 64.0 * np.finfo(np.float64).eps * square:
            raise InvalidArgument(
                "does not vary: all its vectors are the same",
                argument="background",
                remedy="pass gradients that differ",
            )
        self.rank = int(min(nu, view.dimension))
        self.unit = total / self.rank
        self.scale, self.floor = 1.0, 0.0
        if shrinkage is not None:
            squares = float(np.einsum("ij,ij->", self.inner, self.inner)) / nu**2
            norms = np.diagonal(self.inner)
            weight = shrinkage_of(shrinkage, total, squares, float(norms @ norms), int(self.samples), view.dimension)
            self.scale, self.floor = 1.0 - weight, weight * total / view.dimension
        self.extra = 0.0
        if view.sampling == "poisson":  # the mean is one more record of the fit: Sigma + (1-p) mean mean'
            self.extra = float(np.sqrt(nu * (1.0 - view.sample_rate)))
            row = self.extra * (along[fit] - square)
            self.inner = np.block([[self.inner, row[:, None]], [row[None, :], np.array([[self.extra**2 * square]])]])
            self.outer = np.concatenate([self.outer, self.extra * (along[every] - square)[None, :]])
        self._root: Array | None = None
        self._factored: _DualMetric | None = None  # the last one

    def among(self, rows: Rows, columns: Rows) -> Array:
        """Inner products, centred, of scored records (and the mean, which comes after them)."""
        return self._centred(self._every[rows], self._every[columns])

    def _centred(self, rows: Rows, columns: Rows) -> Array:
        found = _block(self._gram, rows, columns)
        found -= (self._along[rows] - self._square)[:, None]
        found -= self._along[columns]
        return found

    def directions(self, setting: Setting) -> int:
        return self.rank

    def lift(self, setting: Setting, noise: float) -> float:
        """kappa of S + kappa, in units of the scaled S."""
        return (self.floor + setting[1] * self.unit + noise) / self.scale if self.scale > 0.0 else 0.0

    def metric(self, setting: Setting, *, in_batch: bool = True) -> Metric | None:
        share = shares(self.view, self.samples, in_batch=in_batch)
        kappa = self.lift(setting, self.view.noise_std**2 / share)
        if kappa <= 0.0:
            return None
        try:
            self._factored = _DualMetric(self, kappa, share)
        except linalg.LinAlgError:  # a ridge so small that rounding swallows it
            self._factored = None
        return self._factored

    def susceptibility(self, setting: Setting, rows: Rows, *, inside: bool) -> Array | None:
        kappa = self.lift(setting, 0.0)
        if kappa <= 0.0:
            return None
        metric = self._factored
        if metric is None or metric.kappa != kappa:  # with noise the factor of the test is another
            try:
                metric = _DualMetric(self, kappa, 1.0)
            except linalg.LinAlgError:
                return None
        k = metric.plain_length[rows]  # under S + kappa
        if inside:
            k = without_own(k, self.samples, 1.0 / (self.samples - 1.0))
        return unbiased(k / self.scale, self.samples, metric.plain_free)

    def noise(self, count: int, seed: np.random.SeedSequence) -> Array:
        """Inner products of noise vectors with the records of the fit and with the scored ones: (count, F + R)."""
        if self._root is None:
            new = np.flatnonzero(self.place < 0)
            size, fitted = self.inner.shape[0] + new.size, self.inner.shape[0]
            joint = np.empty((size, size))
            joint[:fitted, :fitted] = self.inner
            joint[:fitted, fitted:] = self.outer[:, :-1][:, new]
            joint[fitted:, :fitted] = joint[:fitted, fitted:].T
            joint[fitted:, fitted:] = self.among(new, new)
            joint[np.diag_indices(size)] += 1.0e-12 * float(np.trace(joint)) / size * size**0.5
            self._root = np.linalg.cholesky(joint)
            self._new = new
        drawn = np.random.default_rng(seed).standard_normal((count, self._root.shape[0])) @ self._root.T
        fitted = self.inner.shape[0]
        every = np.empty((count, self.place.size))
        old = self.place >= 0
        every[:, old] = drawn[:, self.place[old]]
        every[:, self._new] = drawn[:, fitted:]
        return np.concatenate([drawn[:, :fitted], every], axis=1)


class _DualMetric(Metric):
    """Attributes
    ----------
    plain_length, plain_free : the lengths of the scored records under (S + kappa)^-1, and the degrees of freedom left,
        without the record that stands for the mean under Poisson sampling.
    """

    def __init__(self, fit: _Dual, kappa: float, share: float) -> None:
        view, nu = fit.view, fit.samples - 1.0
        self.fit, self.kappa, self.nu = fit, kappa, nu
        self.samples, self.anchor, self.share, self.noise_std = fit.samples, anchor_of(view), share, view.noise_std
        self.unit = share * fit.scale  # V = unit (S + kappa)
        self.beta = self.unit / nu
        system = fit.inner.copy()
        system[np.diag_indices_from(system)] += nu * kappa
        self.factor = linalg.cholesky(system, lower=True, overwrite_a=True, check_finite=False)
        old = np.flatnonzero(fit.place >= 0)
        inverse = linalg.lapack.dtrtri(self.factor, lower=1)[0]
        free = np.einsum("ij,ij->j", inverse, inverse)  # the diagonal of the inverse
        self.held = float(np.sum(1.0 - nu * kappa * free))
        self.free = fit.samples - 2.0 - self.held
        self.total = (view.dimension - self.held) / (kappa * self.unit)
        # Centred records have a direction of length 0, which the inverse gives 1/(m nu kappa) of.
        lengths = np.empty(fit.place.size)
        lengths[old] = nu * (1.0 - nu * kappa * free[fit.place[old]])
        self.new = np.flatnonzero(fit.place < 0)
        half = self._half(fit.outer[:, self.new])
        lengths[self.new] = (fit.norms[self.new] - np.einsum("ij,ij->j", half, half)) / kappa
        self.length = lengths / self.unit
        mean = fit.outer[:, -1]
        weighted = self._solve(mean)
        self.cross = np.empty(fit.place.size)
        self.cross[old] = nu * weighted[fit.place[old]] / self.unit
        direct = fit.among(self.new, np.array([fit.place.size]))[:, 0]
        self.cross[self.new] = (direct - fit.outer[:, self.new].T @ weighted) / (kappa * self.unit)
        self.own = float(fit.norms[-1] - mean @ weighted) / (kappa * self.unit)
        self.offset = (np.zeros(fit.place.size), 0.0, 0.0)
        self.ratio = 0.0
        self.plain_length, self.plain_free = lengths, self.free
        if fit.extra > 0.0:
            self.ratio = (1.0 - self.anchor) / fit.extra  # o is this times the record that stands for the mean
            last = inverse.T @ inverse[:, -1]
            ou = np.empty(fit.place.size)
            ou[old] = -nu * nu * kappa * last[fit.place[old]] / self.unit
            ou[self.new] = nu * half[-1] / self.factor[-1, -1] / self.unit
            self.offset = (
                self.ratio * ou,
                self.ratio * nu * float(weighted[-1]) / self.unit,
                self.ratio**2 * nu * (1.0 - nu * kappa * float(last[-1])) / self.unit,
            )
            # The inverse without the last row: what it takes from a square is that of the last entry of the solution.
            self.plain_length = lengths.copy()
            self.plain_length[old] += (nu * kappa * last[fit.place[old]]) ** 2 * nu / (nu * kappa * last[-1])
            self.plain_length[self.new] += half[-1] ** 2 / kappa
            kept = nu * kappa * (free[:-1] - last[:-1] ** 2 / last[-1])
            self.plain_free = fit.samples - 2.0 - float(np.sum(1.0 - kept))

    def _half(self, right: Array) -> Array:
        """The first half of the solution: the squares of this are the products of `right` with the whole."""
        if right.size == 0:
            return np.zeros_like(right)
        return np.asarray(linalg.solve_triangular(self.factor, right, lower=True, check_finite=False))

    def _solve(self, right: Array) -> Array:
        if right.size == 0:
            return np.zeros_like(right)
        return np.asarray(linalg.cho_solve((self.factor, True), right, check_finite=False))

    def mixed(self, drawn: GameDraw) -> tuple[Array, Array, Array, Array]:
        fit, rows = self.fit, drawn.rows
        weights = drawn.weights
        along = weights @ fit.outer[:, rows].T  # (g, F): y with the records of the fit
        place = fit.place[rows]
        # (g, h): y with the records of the field
        field = along[:, place] if (place >= 0).all() else weights @ fit.among(rows, rows)
        own = np.einsum("ij,ij->i", field, weights)
        if fit.extra > 0.0:
            more = (weights.sum(axis=1) - 1.0) / fit.extra  # of the record that stands for the mean
            own = own + 2.0 * more * along[:, -1] + more**2 * fit.inner[-1, -1]
            along = along + np.outer(more, fit.inner[-1])
            field = field + np.outer(more, fit.outer[-1, rows])
        noise = np.zeros((1, 1))
        if self.noise_std > 0.0:
            added = self.noise_std * fit.noise(weights.shape[0], drawn.seed)
            theirs, ours = added[:, : along.shape[1]], added[:, along.shape[1] :][:, rows]
            noise = self._under(self._solve(theirs.T), ours, rows)
            # what the noise has outside all records, and twice its product with y, which is small beside that
            own = own + self.noise_std**2 * fit.view.dimension
            along, field = along + theirs, field + ours
        weighted = self._solve(along.T)
        found = self._under(weighted, field, rows)
        own = (own - np.einsum("ij,ji->i", along, weighted)) / (self.kappa * self.unit)
        oy = self.ratio * self.nu * weighted[-1] / self.unit if fit.extra > 0.0 else np.zeros(weights.shape[0])
        return found, own, oy, noise

    def _under(self, weighted: Array, field: Array, rows: Rows) -> Array:
        """u'Wy (g, h) from the solution for products of y with the fit (F, g), and its products with the field."""
        place = self.fit.place[rows]
        old = place >= 0
        found = np.empty(field.shape)
        found[:, old] = self.nu * weighted[place[old]].T / self.unit
        if not old.all():
            new = field[:, ~old] - weighted.T @ self.fit.outer[:, rows[~old]]
            found[:, ~old] = new / (self.kappa * self.unit)
        return found


def _block(matrix: Array, rows: Rows, columns: Rows) -> Array:
    """A copy of these rows and columns, whole stretches at a time where there are any."""
    picked = matrix[rows[0] : rows[-1] + 1] if _runs(rows) else matrix[rows]
    return np.array(picked[:, columns[0] : columns[-1] + 1]) if _runs(columns) else np.take(picked, columns, axis=1)


def _runs(rows: Rows) -> bool:
    return bool(rows.size) and rows[-1] - rows[0] == rows.size - 1 and bool((np.diff(rows) == 1).all())


def fit_step(
    view: StepView, fit: Rows, scored: Rows, *, shrinkage: Shrinkage | None, dual: bool, part: StepFit | None = None
) -> StepFit:
    """The fit of a step on some records of the pool (background, then candidates), and others to score.

    part : an earlier fit of the same view on some of these records, whose sums are used again.
    """
    if dual:
        return _Dual(view.inner() if isinstance(view, View) else view, fit, scored, shrinkage)  # type: ignore[arg-type]
    assert isinstance(view, View)
    if view.sketch is None or not view.sketch.mean.size:
        return _Primal(view, fit, scored, shrinkage, part if isinstance(part, _Primal) else None)
    along = _Primal(view, fit, scored, shrinkage, part.along if isinstance(part, _Sketched) else None)
    return _Sketched(view.sketch, along)
