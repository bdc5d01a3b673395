"""GLiR on arrays: from views of a run to one score per candidate.

The tests of one published step come first, then their combination over the steps of a run. With self-play steps are
seen once, one by one, and memory does not grow with them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import special

from gmip import _validate as check
from gmip._random import PlayStream
from gmip.accounting import noncentral_chi2
from gmip.attacks.glir.selfplay import DEFAULT_GRID, Elsewhere, Play, PlayedRun, Prediction, Time, Total
from gmip.attacks.glir.step_fits import Setting, StepView, View, same_run, stack
from gmip.errors import InvalidArgument
from gmip.stats.covariance import GaussianModel, Shrinkage, WhiteModel, fit_white
from gmip.store import NOWHERE, Store

# -- the tests of one published step ----------------------------------------------------------------------------------


_CHUNK = 256
_TURNS = 200


@dataclass(frozen=True, kw_only=True, eq=False)
class StepTest:
    """The two hypotheses of one step in w coordinates; build it with `of`.

    Attributes
    ----------
    batch_size, noise_std, sample_rate : n, tau, p of the step.
    v0, v1 : arrays of shape (w,), variance of each coordinate of M if the candidate is not, or is, in the batch.
    drawn : array of shape (w,), variance that M really has if it is not: v0 without the ridge.
    level : mean of sum M^2 (1/v0 - 1/v1) if it is not.
    dof : mean of sum M^2/v0 if it is not: the number of directions, less what a ridge claims.
    spread : array of shape (w,), `drawn` as the fitted weights meet it, estimation error included.
    offset : array of shape (w,), what is added to centred coordinates to get the candidate's shift times n: 0, or
        (1-p) mu under Poisson sampling.
    anchor : share of the background mean in the shift: 1, or p under Poisson sampling.
    others : variance of M if the candidate is in the batch, as a multiple of Sigma and without noise.
    trace : tr(Sigma/v1)/m, the mean of sum M shift/v1 that the error of the background mean causes.
    temperature : factor of the candidate's part of the log-likelihood ratio.
    length_counts : whether the length of M is evidence, as in the view.
    """

    batch_size: float
    noise_std: float
    sample_rate: float
    v0: Array
    v1: Array
    drawn: Array
    level: float
    dof: float
    spread: Array
    offset: Array
    anchor: float
    others: float
    trace: float
    temperature: float
    length_counts: bool = True

    @classmethod
    def of(cls, model: GaussianModel, view: View) -> StepTest:
        """The test of a view under a model (under Poisson sampling: a model with `plus_mean(1 - p)`).

        Its coordinates are those of `model.embed`: the first `model.rank` columns or, when a ridge or noise gives
        every direction a variance, all of them (and the residual, if the model's directions do not span the space).
        """
        n, m, p, tau = view.batch_size, model.num_samples, view.sample_rate, view.noise_std
        poisson = view.sampling == "poisson"
        q = p / n if poisson else 1.0 / n
        v0_share, v1_share = 1.0 / n + 1.0 / m, (1.0 - q) / n + (1.0 - q) ** 2 / m
        if v1_share == 0.0 and (tau == 0.0 or m < math.inf):  # a batch of one record: see `step_fits.shares`
            v1_share = v0_share
        noise = tau**2 / v0_share
        phi = inflation(model, noise=noise)
        if phi is None:
            raise InvalidArgument(
                f"has {m:.0f} examples, too few for rank {model.rank}",
                argument="background",
                remedy="raise `cutoff` or `ridge`, or pass more examples",
            )
        sampled = _variances(model, whole=model.outside > 0.0 or tau > 0.0)
        lift = phi * model.outside * v0_share + tau**2
        v0, v1 = phi * sampled * v0_share + lift, phi * sampled * v1_share + lift
        kappa, temperature = model.outside + noise / phi, 1.0
        if m < math.inf:
            # With A = S + kappa: tr(Sigma A^-1) = psi tr(S A^-1), and its derivative by kappa gives tr(Sigma A^-2).
            # The mean of the candidate's part over the variance that M gives it is positive (Cauchy-Schwarz) with this
            # psi, which leaves one vector out; with phi, which knows one degree of freedom more, it need not be. Under
            # Poisson sampling the mean is one direction more than the centred vectors span.
            held = float(np.sum(sampled / (sampled + kappa)))
            bulk = float(np.sum(sampled / (sampled + kappa) ** 2))
            most = max(m - 1.0, float(np.count_nonzero(sampled)))
            psi = most / (most - held)
            temperature = psi / phi * held / (psi * held + (noise - kappa * psi**2) * bulk)
        # In the same way tr(Sigma S A^-2), with which M enters the variance term.
        seen = phi * (sampled - (phi - 1.0) * kappa) * v0_share + tau**2
        offset = np.zeros(v0.size)
        if poisson:
            mean = model.embed(model.mean[None], residual=v0.size > model.spectrum.size, centred=False)[0]
            offset = (1.0 - p) * mean[: v0.size]
        drawn = phi * sampled * v0_share + tau**2
        along = model.spectrum.size  # the columns of a residual are more than its dimensions
        beyond = model.dimension - along + view.extra_dims if v0.size > along else 0
        return cls(
            batch_size=float(n),
            noise_std=tau,
            sample_rate=p,
            v0=v0,
            v1=v1,
            drawn=drawn,
            level=float(seen @ (1.0 / v0 - 1.0 / v1)),
            dof=float(np.sum(drawn[:along] / v0[:along])) + (beyond * tau**2 / lift if beyond else 0.0),
            spread=phi**2 * sampled * v0_share + tau**2,
            offset=offset,
            anchor=p if poisson else 1.0,
            others=v1_share,
            trace=phi * float((sampled / v1).sum()) / m,
            temperature=temperature,
            length_counts=view.length_counts,
        )

    def shifts(self, coordinates: Array) -> Array:
        """n times the shift of each candidate, (c, w), from centred coordinates with at least w columns."""
        used = coordinates[:, : self.v0.size]
        return used if not self.offset.any() else used + self.offset

    def llr(self, published: Array, coordinates: Array) -> Array:
        """Log-likelihood ratio "in the batch" against "not in it", shape (g, c).

        published : array of shape (g, >= w), means minus the background mean. coordinates : array of shape (c, >= w).
        """
        n = self.batch_size
        shifts, means = self.shifts(coordinates), published[:, : self.v0.size]
        weighted = shifts / self.v1
        cross = means @ weighted.T - self.anchor * self.trace
        length = np.einsum("ij,ij->i", shifts, weighted) - self.anchor**2 * self.trace
        own = (self.temperature / n) * (cross - (0.5 / n) * length)
        return np.asarray(own + self._variance_part(means)[:, None])

    def _variance_part(self, means: Array) -> Array:
        """What the smaller variance of the others says, the same for every candidate: shape (g,)."""
        if not self.length_counts:
            return np.zeros(means.shape[0])
        rise = 1.0 / self.v0 - 1.0 / self.v1
        ratio = self.v0 / self.v1
        # centred, so that a ridge or an estimated covariance does not shift it; exact when parameters are known
        return 0.5 * ((means * means) @ rise - self.level) - 0.5 * float(np.sum(ratio - 1.0 - np.log(ratio)))

    def absent(self, published: Array) -> Array:
        """Log-likelihood ratio "a member, but not in this batch" against "not a member", shape (g,).

        Zero for batches of fixed size. Under Poisson sampling the others are one fewer.
        """
        means = published[:, : self.v0.size]
        if self.anchor == 1.0:
            return np.zeros(means.shape[0])
        p, n = self.sample_rate, self.batch_size
        shift = self.offset * (-p / ((1.0 - p) * n))
        return np.asarray(means @ (shift / self.v1) - 0.5 * shift @ (shift / self.v1) + self._variance_part(means))

    def log_p_value(self, published: Array, coordinates: Array) -> Array:
        """The paper's test: log P(U <= observed) if not in the batch, shape (g, c); low for members.

        U = (M - delta)' V^-1 (M - delta), V the covariance of M, is non-central chi-squared: Algorithm 1 of the paper
        with its errata (docs/theory/glir.md, "The paper's Algorithm 1"), n Sigma^-1 there being V^-1 without noise. An
        estimated covariance is not Hotelling's case here, because the same estimate is in U and in the candidate's
        susceptibility: given both, `temperature` times U has, to two moments, `temperature` times as many degrees of
        freedom.
        """
        shifts, means = self.shifts(coordinates), published[:, : self.v0.size]
        weighted = shifts / self.v0
        length = np.einsum("ij,ij->i", shifts, weighted)
        u = ((means * means) @ (1.0 / self.v0))[:, None] + length - 2.0 * (means @ weighted.T)
        dof = max(self.temperature * self.dof, 1.0)
        centre = np.maximum(self.temperature * (length - 2.0 * self.anchor * self.trace), 0.0)
        return noncentral_chi2.log_cdf(self.temperature * u, dof, np.broadcast_to(centre, u.shape))


def _variances(model: GaussianModel, *, whole: bool) -> Array:
    """Sample variance (shrunk, without ridge or floor) of each coordinate that a test uses."""
    if not whole:
        return model.scale * model.spectrum[: model.rank]
    rest = model.dimension if model.spectrum.size < model.dimension else 0
    return np.concatenate([model.scale * model.spectrum, np.zeros(rest)])


def inflation(model: GaussianModel, *, noise: float) -> float | None:
    """phi such that phi * lambda makes up for the estimation of 1/lambda; None when there are too few samples.

    noise : n tau^2 nearly (tau^2 over 1/n + 1/m), the noise in units of a single vector's variance.
    """
    nu = model.num_samples - 1.0
    if nu == math.inf:
        return 1.0
    values = _variances(model, whole=model.outside > 0.0 or noise > 0.0)
    phi = 1.0
    for _ in range(1000):
        kappa = model.outside + noise / phi
        free = nu - 1.0 - float(np.sum(values / (values + kappa)))
        if free <= 0.0:
            return None
        if abs(nu / free - phi) <= 1.0e-10 * phi:
            break
        phi = nu / free
    return phi


def susceptibility(model: GaussianModel, vectors: NDArray[Any]) -> Array | None:
    """K = (theta - mu)' Sigma^-1 (theta - mu) of vectors (k, D) in the directions that the model keeps, shape (k,).

    The bias of the inverse of an estimated covariance is taken out. What the error of the mean adds, about r/m, is left
    in: it is an over-estimate, on the safe side, and keeps K positive. None when the samples are too few for an inverse
    (noise makes up for that in the tests of a step, not here: K is about the data alone).
    """
    residual = model.outside > 0.0 and model.spectrum.size < model.dimension
    return susceptibility_at(model, model.embed(vectors, residual=residual))


def susceptibility_at(model: GaussianModel, coordinates: Array) -> Array | None:
    """The same from the coordinates of the vectors, with the residual where the model has a variance outside."""
    phi = inflation(model, noise=0.0)
    if phi is None:
        return None
    values = _variances(model, whole=model.outside > 0.0) + model.outside
    parts = coordinates[:, : values.size]
    return np.asarray(np.einsum("ij,ij,j->i", parts, parts, 1.0 / (phi * values)))


@dataclass(frozen=True, eq=False)
class FittedStep:
    """A view with the models of gradients and of what a batch sums up (the same unless batches are Poisson)."""

    view: View
    gradients: GaussianModel
    batches: GaussianModel

    @classmethod
    def of(cls, view: View, model: GaussianModel) -> FittedStep:
        return cls(view, model, model.plus_mean(1.0 - view.sample_rate) if view.sampling == "poisson" else model)

    @classmethod
    def fitted(
        cls, view: View, rows: Any, setting: tuple[float, float], shrinkage: Shrinkage | None, *, final: bool = False
    ) -> FittedStep:
        """Fits these rows of the background; `final` when no other setting will be asked of it."""
        if view.background is None:
            raise InvalidArgument(
                "has no background",
                argument="views",
                remedy="pass background gradients, or known parameters as `models`",
            )
        plain = view.noise_std == 0.0 and view.sampling != "poisson" and setting[1] == 0.0 and shrinkage is None
        if final and plain:
            return cls.of(view, fit_white(view.background[rows], cutoff=setting[0]))
        model = GaussianModel.fit(view.background[rows], shrinkage=shrinkage, extra_dims=view.extra_dims)
        return cls.of(view, model).retuned(setting)

    def retuned(self, setting: tuple[float, float]) -> FittedStep:
        cutoff, ridge = setting
        model = self.gradients.retuned(cutoff=cutoff, ridge=ridge)
        if self.batches is self.gradients:
            return FittedStep(self.view, model, model)
        return FittedStep(self.view, model, self.batches.retuned(cutoff=cutoff, ridge=ridge))

    def usable(self) -> bool:
        """Whether there are enough samples for the directions kept."""
        share = 1.0 / self.view.batch_size + 1.0 / self.batches.num_samples
        return inflation(self.batches, noise=self.view.noise_std**2 / share) is not None

    def test(self) -> StepTest:
        return StepTest.of(self.batches, self.view)

    def embed(self, vectors: NDArray[Any], tests: Sequence[StepTest], *, centred: bool = True) -> Array:
        """Coordinates (k, w) that serve all of the given tests of this step."""
        return self.batches.embed(vectors, residual=self.needs_residual(tests), centred=centred)

    def susceptibility(self, places: Array) -> Array | None:
        """K of each candidate, shape (c,); places : their coordinates, by `embed` for this step's test at least."""
        if self.batches is self.gradients:
            return susceptibility_at(self.gradients, places)
        return susceptibility(self.gradients, self.view.candidates)

    def needs_residual(self, tests: Sequence[StepTest]) -> bool:
        return max(test.v0.size for test in tests) > self.batches.spectrum.size


class _Form:
    """The log-likelihood ratios of c candidates as quadratic forms: const (c,), slopes squared (c, g) and bend (g,) in
    groups of equal bend.

    Given a candidate, the log-likelihood ratio is a quadratic form of the published mean, hence of a standard normal y:
    L = const + sum_i [slope_i y_i - bend_i (y_i^2 - 1)/2]; its cumulant generating function is

        K(t) = t const + sum_i [ t bend_i/2 - log(1 + t bend_i)/2 + t^2 slope_i^2 / (2 (1 + t bend_i)) ]

    and steps on fresh data add up. `gmip.accounting._saddlepoint` inverts it by quadrature for one candidate; here the
    formula of Lugannani and Rice (1980), its leading term, serves all of them (the tests give its error).
    """

    def __init__(self, tests: Sequence[StepTest], coordinates: Sequence[Array]) -> None:
        squares, bends = [], []
        self.const = np.zeros(coordinates[0].shape[0])
        for test, places in zip(tests, coordinates, strict=True):
            shifts, n = test.shifts(places), test.batch_size
            gain = test.temperature / n
            squares.append((gain * shifts / test.v1) ** 2 * test.spread)
            if test.length_counts:
                ratio = test.v0 / test.v1
                bends.append(test.drawn * (1.0 / test.v1 - 1.0 / test.v0))
                self.const -= 0.5 * float(np.sum(ratio - 1.0 - np.log(ratio)))
            else:
                bends.append(np.zeros(test.v0.size))
            self.const -= gain * (0.5 / n) * ((shifts * shifts) @ (1.0 / test.v1) - test.anchor**2 * test.trace)
        bend = np.concatenate(bends)
        order = np.argsort(bend)
        # Without noise all bends are equal, to rounding: one direction with the length of all slopes takes their place.
        starts = np.flatnonzero(np.diff(bend[order], prepend=-1.0) > 1.0e-9 * bend.max(initial=0.0))
        self.multiplicity = np.diff(np.append(starts, bend.size)).astype(np.float64)
        self.bend = bend[order][starts]
        self.squares = np.add.reduceat(np.concatenate(squares, axis=1)[:, order], starts, axis=1)
        largest = float(self.bend.max(initial=0.0))
        self.lowest = -np.inf if largest == 0.0 else -1.0 / largest

    def cumulants(self, t: Array) -> tuple[Array, Array, Array]:
        """K, K' and K'' at t (c,), each of shape (c,)."""
        grown = 1.0 + t[:, None] * self.bend
        share, pull = self.bend / grown, self.squares / grown
        lifted = t * np.sum(pull, axis=1)
        bent = np.sum(pull * share, axis=1)
        many = self.multiplicity
        value = t * self.const + 0.5 * (t * (self.bend @ many) - np.log(grown) @ many) + 0.5 * t * lifted
        slope = self.const + 0.5 * ((self.bend - share) @ many) + lifted - 0.5 * t * t * bent
        curve = 0.5 * ((share * share) @ many) + np.sum(pull / grown**2, axis=1)
        return value, slope, curve

    def saddle(self, x: Array) -> Array:
        """t with K'(t) = x: Newton inside a bracket that bisection narrows."""
        _, slope, curve = self.cumulants(np.zeros_like(x))
        t = (x - slope) / curve
        low, high = np.full_like(x, max(self.lowest, -1.0e300)), np.full_like(x, np.inf)
        t = np.where(t <= low, 0.5 * low, t)
        for _ in range(_TURNS):
            _, slope, curve = self.cumulants(t)
            miss = slope - x
            low, high = np.where(miss < 0.0, t, low), np.where(miss < 0.0, high, t)
            if np.all(np.abs(miss) <= 1.0e-9 * np.sqrt(curve)):
                break
            trial = t - miss / curve
            middle = np.where(np.isfinite(high), 0.5 * (low + high), 2.0 * np.abs(t) + 1.0)
            t = np.where((trial > low) & (trial < high), trial, middle)
        return t

    def upper_tail(self, x: Array) -> Array:
        """P(L >= x), shape (c,)."""
        t = self.saddle(x)
        value, slope, curve = self.cumulants(t)
        root = np.copysign(np.sqrt(np.maximum(2.0 * (t * slope - value), 0.0)), t)
        u = t * np.sqrt(curve)
        middle = np.abs(root) < 1.0e-3  # 0/0 at the mean: there the first term of Edgeworth's series is exact enough
        with np.errstate(divide="ignore", invalid="ignore"):
            tail = special.ndtr(-root) + np.exp(-0.5 * root * root) / np.sqrt(2.0 * np.pi) * (1.0 / u - 1.0 / root)
        second = 0.5 * float(self.bend**2 @ self.multiplicity) + self.squares.sum(axis=1)
        third = -float(self.bend**3 @ self.multiplicity) - 3.0 * self.squares @ self.bend
        z = (x - self.const) / np.sqrt(second)
        near = special.ndtr(-z) + third / (6.0 * second**1.5) * (z * z - 1.0) * np.exp(-0.5 * z * z) / np.sqrt(
            2.0 * np.pi
        )
        return np.asarray(np.clip(np.where(middle, near, tail), 0.0, 1.0))


def llr_p_values(tests: Sequence[StepTest], coordinates: Sequence[Array], observed: Array) -> Array:
    """P(sum of the steps' log-likelihood ratios >= observed) for a candidate in no batch, shape (c,).

    coordinates : one array of shape (c, >= w) per step. Steps must face fresh data.
    """
    parts = []
    for start in range(0, observed.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        parts.append(_Form(tests, [places[part] for places in coordinates]).upper_tail(observed[part]))
    return np.concatenate(parts)


# -- glir on arrays ---------------------------------------------------------------------------------------------------


Array = NDArray[np.float64]
Background = Literal["alone", "with-candidates"]
METHODS = ("likelihood-ratio", "paper", "mixture", "joint")
_DRAWS = 1999  # published means simulated for a p-value that has no formula
_BLOCK = 100


@dataclass(frozen=True, kw_only=True, eq=False)
class GlirOutcome:
    """What GLiR found about c candidates.

    Attributes
    ----------
    method : how the scores were made.
    scores : array of shape (c,), higher = member: the log-likelihood ratio, or for "paper" minus the log of the
        product of the steps' p-values.
    llr : array of shape (c,), the model's log-likelihood ratio of "member" against "not a member" ("paper": of "in
        every batch"); right up to the calibration below.
    p_values : array of shape (c,) or None. With self-play: the rank of the score among the play examples', none of
        which is a member. They and non-member candidates are exchangeable given what was published, so
        P(p <= a | not a member) <= a whatever the distribution. With known parameters: from the model, which holds for
        steps on fresh data. None where neither is at hand.
    susceptibility : array of shape (c,), K of each candidate, the mean over the steps ("joint": of the stacked step);
        None when the background is too small to estimate it.
    ranks : for each step the number of directions kept.
    spectra : for each step its sample spectrum in falling order, or (D, D) the upper triangle of the covariance, if
        the scores were had without its spectrum; see `eigenvalues`.
    cutoff, ridge : what was used, chosen by self-play if it was not given.
    calibration : (a, b) such that a * score + b is the log-odds of membership at even prior odds; None if unknown.
    null_scores : array, scores of the held-out play examples against the real run; empty without self-play.
    prediction : what self-play expects of this attack, or None.
    left_out : steps that were left out because there was no time for them, or nothing left to find.
    decided : whether it was the latter.
    told : as many directions of which all were known would tell as much about a record; NaN without self-play.
    """

    method: str
    scores: Array
    llr: Array
    p_values: Array | None
    susceptibility: Array | None
    ranks: tuple[int, ...]
    spectra: tuple[Array, ...]
    cutoff: float
    ridge: float
    calibration: tuple[float, float] | None
    null_scores: Array
    prediction: Prediction | None
    left_out: int = 0
    decided: bool = False
    told: float = math.nan

    @cached_property
    def eigenvalues(self) -> tuple[Array, ...]:
        """The sample spectrum of each step in falling order."""
        return tuple(s if s.ndim == 1 else np.asarray(np.linalg.eigvalsh(s, "U")[::-1]) for s in self.spectra)


def glir_scores(
    views: Iterable[View],
    *,
    method: str = "likelihood-ratio",
    models: Sequence[GaussianModel] | None = None,
    play: Play | None = Play(),  # noqa: B008 (frozen)
    cutoff: float | None = None,
    ridge: float | None = None,
    shrinkage: Shrinkage | None = None,
    background: Background = "alone",
    seed: int = 0,
) -> GlirOutcome:
    """Score every candidate by what the published means say about its membership (docs/theory/glir.md).

    Parameters
    ----------
    views : one for each step, with the same candidates and background examples in each. With self-play they are taken
        one at a time ("joint": all together), so that an iterator needs the memory of one.
    method : "likelihood-ratio", summed over the steps; "mixture", the same for mini-batches, in which a member takes
        part with chance sample_rate only; "joint", one likelihood ratio for all steps of a full-batch run; "paper", the
        p-values of the paper's Algorithm 1 (errata applied).
    models : known parameters, one `GaussianModel.known` for each view ("joint": one for the stacked view). Background
        is then not used.
    play : how to play against oneself on a part of the background; None: no self-play, the whole background is used
        for the estimates, and p-values rest on the model.
    cutoff, ridge : relative eigenvalue cut-off and ridge; None leaves them to self-play (without it: the first of its
        grid that there are enough samples for).
    shrinkage : of the covariance, see `GaussianModel.fit`.
    background : "with-candidates" fits on background and candidates alike (docs/glir.md, "Candidates as background"):
        for an attacker who holds a list that contains members.
    seed : of everything random here; the same seed gives the same answer.
    """
    check.one_of("method", method, METHODS)
    check.one_of("background", background, get_args(Background))
    if background == "with-candidates" and (models is not None or play is None):
        raise InvalidArgument(
            "= 'with-candidates' needs self-play, which makes its p-values valid",
            argument="background",
            remedy="leave out `play` = None and `models`",
        )
    if method == "joint":
        views = [stack(list(views))]
    grid = grid_of(play, cutoff, ridge)
    if models is None and play is not None:
        rest = iter(views)
        first = next(rest, None)
        if first is None:
            raise InvalidArgument("is empty", argument="views", remedy="pass one for each step")
        run = PlayedRun(
            background=first.num_background,
            candidates=first.num_candidates,
            dataset_size=first.dataset_size,
            method=method,
            play=play,
            grid=grid,
            shrinkage=shrinkage,
            seed=seed,
            listed=background == "with-candidates",
        )
        return scores_by_play(_checked(rest, first), run)
    steps = list(views)
    same_run(steps)
    if models is not None:
        return _from_models([FittedStep.of(v, m) for v, m in _paired(steps, models)], method, seed)
    return scores_without_play(steps, method, grid, shrinkage, seed)


def grid_of(play: Play | None, cutoff: float | None, ridge: float | None) -> list[Setting]:
    """The settings that compete, those that are given being fixed."""
    pairs = DEFAULT_GRID if play is None else play.grid
    return list(dict.fromkeys((c if cutoff is None else cutoff, r if ridge is None else ridge) for c, r in pairs))


def scores_without_play(
    steps: Sequence[View], method: str, grid: Sequence[Setting], shrinkage: Shrinkage | None, seed: int
) -> GlirOutcome:
    """Scores by the first setting of the grid that there are enough samples for."""
    # Then every rank has samples enough, and the first setting is the one.
    plenty = all(v.background is not None and v.mean.size < v.background.shape[0] - 2 for v in steps)
    fitted = [FittedStep.fitted(view, slice(None), grid[0], shrinkage, final=plenty) for view in steps]
    for setting in grid:  # the gentlest that there are enough samples for
        tuned = [step.retuned(setting) for step in fitted]
        if all(step.usable() for step in tuned):
            break
    return _from_models(tuned, method, seed)


def _paired(steps: list[View], models: Sequence[GaussianModel]) -> list[tuple[View, GaussianModel]]:
    if len(models) != len(steps):
        raise InvalidArgument(
            f"has {len(models)} entries for {len(steps)} steps", argument="models", remedy="pass one for each"
        )
    for model, view in zip(models, steps, strict=True):
        if model.dimension != view.mean.size:
            raise InvalidArgument(
                f"has one of {model.dimension} dimensions for gradients of {view.mean.size}",
                argument="models",
                remedy="pass the parameters of these gradients",
            )
    return list(zip(steps, models, strict=True))


def _totals(
    tests: Sequence[StepTest], means: Sequence[Array], places: Sequence[Array], views: Sequence[StepView], method: str
) -> tuple[Array, Array]:
    """Scores and log-likelihood ratios of c candidates against g published means, each of shape (g, c)."""
    scores, ratios = Total(mixture=method == "mixture"), Total(mixture=False)
    for test, published, at, view in zip(tests, means, places, views, strict=True):
        how = np.array([view.sample_rate, view.sampling == "shuffled", view.epoch])
        if method == "paper":
            scores.add(-test.log_p_value(published, at), 0.0, how)
            ratios.add(test.llr(published, at), 0.0, how)
        else:
            scores.add(test.llr(published, at), test.absent(published)[:, None], how)
    found = scores.value()
    return found, ratios.value() if method == "paper" else found


def _from_models(steps: list[FittedStep], method: str, seed: int) -> GlirOutcome:
    """Scores and p-values from the models alone."""
    tests = [step.test() for step in steps]
    places = [step.embed(step.view.candidates, [test]) for step, test in zip(steps, tests, strict=True)]
    means = [step.embed(step.view.mean[None], [test]) for step, test in zip(steps, tests, strict=True)]
    views = [step.view for step in steps]
    scores, llr = (found[0] for found in _totals(tests, means, places, views, method))
    known = all(step.gradients.num_samples == math.inf for step in steps)
    always = all(step.view.sample_rate == 1.0 for step in steps)
    p_values: Array | None = None
    if known or (_enough_records(steps) and (len(steps) == 1 or not always)):  # full batches share their data
        if method == "paper":
            p_values = np.asarray(special.gammaincc(len(steps), scores))  # Fisher: each -log p is exponential
        elif method != "mixture" or always:
            p_values = llr_p_values(tests, places, llr)
        elif known:
            p_values = _simulated(tests, places, views, scores, PlayStream.P_VALUES.rng(seed))
    return _outcome(
        steps,
        places,
        method=method,
        scores=scores,
        llr=llr,
        p_values=p_values,
        calibration=(1.0, 0.0) if known and method != "paper" else None,
        null_scores=np.empty(0),
        prediction=None,
    )


def _enough_records(steps: list[FittedStep]) -> bool:
    """Whether models may be believed: from few background records they are too sure of themselves, unless noise, which
    is a ridge, makes up for it."""
    fits = [(step.gradients, step.view.noise_std > 0.0) for step in steps]
    return all(noisy or model.rank < 0.9 * model.num_samples for model, noisy in fits)


def _outcome(steps: list[FittedStep], places: list[Array], **found: Any) -> GlirOutcome:
    models = [step.gradients for step in steps]
    values = [step.susceptibility(at) for step, at in zip(steps, places, strict=True)]
    known = [value for value in values if value is not None]
    return GlirOutcome(
        susceptibility=np.mean(known, axis=0) if len(known) == len(values) else None,
        ranks=tuple(model.rank for model in models),
        spectra=tuple(model.covariance if isinstance(model, WhiteModel) else model.spectrum for model in models),
        cutoff=models[0].cutoff,
        ridge=models[0].ridge,
        **found,
    )


def _simulated(
    tests: Sequence[StepTest],
    places: Sequence[Array],
    views: Sequence[StepView],
    scores: Array,
    rng: np.random.Generator,
) -> Array:
    """Monte Carlo p-values of the mixture under known parameters: valid at any number of draws."""
    above = np.zeros(scores.size)
    for size in [_BLOCK] * (_DRAWS // _BLOCK) + [_DRAWS % _BLOCK]:
        means = [np.sqrt(test.v0) * rng.standard_normal((size, test.v0.size)) for test in tests]
        above += (_totals(tests, means, places, views, "mixture")[0] >= scores).sum(axis=0)
    return np.asarray((1.0 + above) / (1.0 + _DRAWS))


def scores_by_play(
    steps: Iterable[Callable[[], StepView]],
    run: PlayedRun,
    kept: Store = NOWHERE,
    time: Time | None = None,
    elsewhere: Elsewhere | None = None,
) -> GlirOutcome:
    """The scores of a setting that games choose. p-values are ranks among background records."""
    found = run.run(steps, kept, time, elsewhere)
    null = np.sort(found.null)
    at_least = null.size - np.searchsorted(null, found.scores, side="left")
    return GlirOutcome(
        method=run.method,
        scores=found.scores,
        llr=found.llr if run.method == "paper" else found.scores,
        p_values=np.asarray((1.0 + at_least) / (1.0 + null.size), dtype=np.float64),
        susceptibility=found.susceptibility,
        ranks=found.ranks,
        spectra=found.spectra,
        cutoff=found.setting[0],
        ridge=found.setting[1],
        calibration=found.prediction.calibration,
        null_scores=null,
        prediction=found.prediction,
        left_out=found.left_out,
        decided=found.decided,
        told=found.told,
    )


def _checked(views: Iterator[StepView], first: StepView) -> Iterator[Callable[[], StepView]]:
    for view in itertools.chain([first], views):
        same_run([first, view])
        yield lambda view=view: view  # type: ignore[misc]
