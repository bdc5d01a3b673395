"""GLiR on arrays: from views of a run to one score per candidate.

The tests of one published step come first, then their combination over the steps of a run. With self-play steps are
seen once, one by one, and memory does not grow with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from gmip import _validate as check
from gmip.accounting import noncentral_chi2
from gmip.attacks.glir.selfplay import DEFAULT_GRID, GlirOutcome, Play, PlayedRun, Total
from gmip.attacks.glir.step_fits import Setting, View, same_run, stack
from gmip.errors import InvalidArgument
from gmip.stats.covariance import GaussianModel, Shrinkage, fit_white

# -- the tests of one published step ----------------------------------------------------------------------------------


Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class StepTest:
    """The two hypotheses of one step in w coordinates; build it with `of`.

    Attributes
    ----------
    batch_size, sample_rate : n, p of the step.
    v0, v1 : arrays of shape (w,), variance of each coordinate of M if the candidate is not, or is, in the batch.
    level : mean of sum M^2 (1/v0 - 1/v1) if it is not.
    dof : mean of sum M^2/v0 if it is not: the number of directions, less what a ridge claims.
    offset : array of shape (w,), what is added to centred coordinates to get the candidate's shift times n: 0, or
        (1-p) mu under Poisson sampling.
    anchor : share of the background mean in the shift: 1, or p under Poisson sampling.
    others : variance of M if the candidate is in the batch, as a multiple of Sigma and without noise.
    trace : tr(Sigma/v1)/m, the mean of sum M shift/v1 that the error of the background mean causes.
    temperature : factor of the candidate's part of the log-likelihood ratio.
    length_counts : whether the length of M is evidence, as in the view.
    """

    batch_size: float
    sample_rate: float
    v0: Array
    v1: Array
    level: float
    dof: float
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
            sample_rate=p,
            v0=v0,
            v1=v1,
            level=float(seen @ (1.0 / v0 - 1.0 / v1)),
            dof=float(np.sum(drawn[:along] / v0[:along])) + (beyond * tau**2 / lift if beyond else 0.0),
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
    phi = inflation(model, noise=0.0)
    if phi is None:
        return None
    whole = model.outside > 0.0
    values = _variances(model, whole=whole) + model.outside
    parts = model.embed(vectors, residual=whole and model.spectrum.size < model.dimension)[:, : values.size]
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
        cls, view: View, setting: tuple[float, float], shrinkage: Shrinkage | None, *, final: bool
    ) -> FittedStep:
        """Fits the background; `final` when no other setting will be asked of it."""
        if view.background is None:
            raise InvalidArgument(
                "has no background",
                argument="views",
                remedy="pass background gradients, or known parameters as `models`",
            )
        plain = view.noise_std == 0.0 and view.sampling != "poisson" and setting[1] == 0.0 and shrinkage is None
        if final and plain:
            return cls.of(view, fit_white(view.background, cutoff=setting[0]))
        model = GaussianModel.fit(view.background, shrinkage=shrinkage, extra_dims=view.extra_dims)
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

    def embed(self, vectors: NDArray[Any], test: StepTest) -> Array:
        """Coordinates (k, w) that serve the test of this step."""
        return self.batches.embed(vectors, residual=test.v0.size > self.batches.spectrum.size)


# -- glir on arrays ---------------------------------------------------------------------------------------------------


Background = Literal["alone", "with-candidates"]
METHODS = ("likelihood-ratio", "paper", "mixture", "joint")


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
    views : one for each step, with the same candidates and background examples in each.
    method : "likelihood-ratio", summed over the steps; "mixture", the same for mini-batches, in which a member takes
        part with chance sample_rate only; "joint", one likelihood ratio for all steps of a full-batch run; "paper", the
        p-values of the paper's Algorithm 1 (errata applied).
    models : known parameters, one `GaussianModel.known` for each view ("joint": one for the stacked view). Background
        is then not used.
    play : how to play against oneself on a part of the background; None: no self-play, the whole background is used
        for the estimates, and there are no p-values.
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
    steps, grid = list(views), grid_of(play, cutoff, ridge)
    same_run(steps)
    if method == "joint":
        steps = [stack(steps)]
    if models is not None:
        return _from_models([FittedStep.of(v, m) for v, m in _paired(steps, models)], method)
    if play is None:
        return scores_without_play(steps, method, grid, shrinkage)
    run = PlayedRun(
        background=steps[0].num_background,
        candidates=steps[0].num_candidates,
        dataset_size=steps[0].dataset_size,
        method=method,
        play=play,
        grid=grid,
        shrinkage=shrinkage,
        seed=seed,
        listed=background == "with-candidates",
    )
    return run.run([lambda view=view: view for view in steps])  # type: ignore[misc]


def grid_of(play: Play | None, cutoff: float | None, ridge: float | None) -> list[Setting]:
    """The settings that compete, those that are given being fixed."""
    pairs = DEFAULT_GRID if play is None else play.grid
    return list(dict.fromkeys((c if cutoff is None else cutoff, r if ridge is None else ridge) for c, r in pairs))


def scores_without_play(
    steps: Sequence[View], method: str, grid: Sequence[Setting], shrinkage: Shrinkage | None
) -> GlirOutcome:
    """Scores by the first setting of the grid that there are enough samples for."""
    # Then every rank has samples enough, and the first setting is the one.
    plenty = all(v.background is not None and v.mean.size < v.background.shape[0] - 2 for v in steps)
    fitted = [FittedStep.fitted(view, grid[0], shrinkage, final=plenty) for view in steps]
    for setting in grid:  # the gentlest that there are enough samples for
        tuned = [step.retuned(setting) for step in fitted]
        if all(step.usable() for step in tuned):
            break
    return _from_models(tuned, method)


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


def _from_models(steps: list[FittedStep], method: str) -> GlirOutcome:
    """Scores from the models alone."""
    scores = Total(mixture=method == "mixture")
    for step in steps:
        test, view = step.test(), step.view
        places, mean = step.embed(view.candidates, test), step.embed(view.mean[None], test)
        how = np.array([view.sample_rate, view.sampling == "shuffled", view.epoch])
        if method == "paper":
            scores.add(-test.log_p_value(mean, places), 0.0, how)
        else:
            scores.add(test.llr(mean, places), test.absent(mean)[:, None], how)
    models = [step.gradients for step in steps]
    values = [susceptibility(step.gradients, step.view.candidates) for step in steps]
    sizes = [value for value in values if value is not None]
    known = all(model.num_samples == math.inf for model in models)
    return GlirOutcome(
        method=method,
        scores=scores.value()[0],
        susceptibility=np.mean(sizes, axis=0) if len(sizes) == len(values) else None,
        rank=models[0].rank,
        cutoff=models[0].cutoff,
        ridge=models[0].ridge,
        calibration=(1.0, 0.0) if known and method != "paper" else None,
    )
