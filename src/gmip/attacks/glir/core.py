"""GLiR on arrays: from views of a run to one score per candidate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from gmip.accounting import _validate as check
from gmip.attacks.glir import selfplay
from gmip.attacks.glir._tails import llr_p_values
from gmip.attacks.glir.likelihood import StepTest, inflation, susceptibility
from gmip.attacks.glir.selfplay import Ground, Play, Prediction, game_aucs, step_scores
from gmip.attacks.glir.views import View, same_run, stack
from gmip.errors import InvalidArgument
from gmip.stats.covariance import DEFAULT_CUTOFF, GaussianModel, Shrinkage

__all__ = ["METHODS", "GlirOutcome", "glir_scores"]

Array = NDArray[np.float64]
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
    eigenvalues : for each step an array, the sample spectrum in falling order.
    cutoff, ridge : what was used, chosen by self-play if it was not given.
    calibration : (a, b) such that a * score + b is the log-odds of membership at even prior odds; None if unknown.
    null_scores : array, scores of the held-out play examples against the real run; empty without self-play.
    prediction : what self-play expects of this attack, or None.
    """

    method: str
    scores: Array
    llr: Array
    p_values: Array | None
    susceptibility: Array | None
    ranks: tuple[int, ...]
    eigenvalues: tuple[Array, ...]
    cutoff: float
    ridge: float
    calibration: tuple[float, float] | None
    null_scores: Array
    prediction: Prediction | None


def glir_scores(
    views: Sequence[View],
    *,
    method: str = "likelihood-ratio",
    models: Sequence[GaussianModel] | None = None,
    play: Play | None = Play(),  # noqa: B008 (frozen)
    cutoff: float | None = None,
    ridge: float | None = None,
    shrinkage: Shrinkage | None = None,
    seed: int = 0,
) -> GlirOutcome:
    """Score every candidate by what the published means say about its membership (THEORY 9).

    Parameters
    ----------
    views : one for each step, with the same candidates and background examples in each.
    method : "likelihood-ratio", summed over the steps; "mixture", the same for mini-batches, in which a member takes
        part with chance sample_rate only; "joint", one likelihood ratio for all steps of a full-batch run; "paper", the
        p-values of the paper's Algorithm 1 (errata applied).
    models : known parameters, one `GaussianModel.known` for each view ("joint": one for the stacked view). Background
        is then not used.
    play : how to play against oneself on a part of the background; None does without: the whole background is used
        for the estimates, cutoff and ridge are as given, and p-values rest on the model.
    cutoff, ridge : relative eigenvalue cut-off and ridge; None leaves them to self-play (without it: 1e-12 and 0).
    shrinkage : of the covariance, see `GaussianModel.fit`.
    seed : of everything random here; the same seed gives the same answer.
    """
    check.one_of("method", method, METHODS)
    same_run(views)
    steps = [stack(views)] if method == "joint" else list(views)
    if models is not None:
        return _from_models([_Step.of(v, m) for v, m in _paired(steps, models)], method, seed)
    if steps[0].background is None:
        raise InvalidArgument("views have no background: pass background gradients, or known parameters as models.")
    if play is None:
        first = (DEFAULT_CUTOFF if cutoff is None else cutoff, 0.0 if ridge is None else ridge)
        return _from_models([_Step.fitted(view, slice(None), first, shrinkage) for view in steps], method, seed)
    pairs = [(c if cutoff is None else cutoff, r if ridge is None else ridge) for c, r in play.grid]
    return _from_play(steps, method, play, list(dict.fromkeys(pairs)), shrinkage, seed)


@dataclass(frozen=True, eq=False)
class _Step:
    """A view with the models of gradients and of what a batch sums up (the same unless batches are Poisson)."""

    view: View
    gradients: GaussianModel
    batches: GaussianModel

    @classmethod
    def of(cls, view: View, model: GaussianModel) -> _Step:
        return cls(view, model, model.plus_mean(1.0 - view.sample_rate) if view.sampling == "poisson" else model)

    @classmethod
    def fitted(cls, view: View, rows: Any, setting: tuple[float, float], shrinkage: Shrinkage | None) -> _Step:
        assert view.background is not None
        model = GaussianModel.fit(view.background[rows], shrinkage=shrinkage, extra_dims=view.extra_dims)
        return cls.of(view, model).retuned(setting)

    def retuned(self, setting: tuple[float, float]) -> _Step:
        cutoff, ridge = setting
        model = self.gradients.retuned(cutoff=cutoff, ridge=ridge)
        if self.batches is self.gradients:
            return _Step(self.view, model, model)
        return _Step(self.view, model, self.batches.retuned(cutoff=cutoff, ridge=ridge))

    def usable(self) -> bool:
        """Whether there are enough samples for the directions kept."""
        share = 1.0 / self.view.batch_size + 1.0 / self.batches.num_samples
        return inflation(self.batches, noise=self.view.noise_std**2 / share) is not None

    def test(self) -> StepTest:
        return StepTest.of(self.batches, self.view)

    def embed(self, vectors: NDArray[Any], tests: Sequence[StepTest], *, centred: bool = True) -> Array:
        """Coordinates (k, w) that serve all of the given tests of this step."""
        return self.batches.embed(vectors, residual=self.needs_residual(tests), centred=centred)

    def needs_residual(self, tests: Sequence[StepTest]) -> bool:
        return max(test.v0.size for test in tests) > self.batches.spectrum.size


def _paired(steps: list[View], models: Sequence[GaussianModel]) -> list[tuple[View, GaussianModel]]:
    if len(models) != len(steps):
        raise InvalidArgument(f"models has {len(models)} entries for {len(steps)} steps: pass one for each.")
    for model, view in zip(models, steps, strict=True):
        if model.dimension != view.mean.size:
            raise InvalidArgument(
                f"models has one of {model.dimension} dimensions for gradients of {view.mean.size}: pass the "
                "parameters of these gradients."
            )
    return list(zip(steps, models, strict=True))


def _scored(
    tests: Sequence[StepTest], means: Sequence[Array], places: Sequence[Array], method: str
) -> tuple[Array, Array]:
    """Scores and log-likelihood ratios of the candidates, each of shape (c,), summed over the steps."""
    rows = list(zip(tests, means, places, strict=True))
    scores = np.sum([step_scores(t, m, p, method)[0] for t, m, p in rows], axis=0)
    return scores, scores if method != "paper" else np.sum([t.llr(m, p)[0] for t, m, p in rows], axis=0)


def _from_models(steps: list[_Step], method: str, seed: int) -> GlirOutcome:
    """Scores and p-values from the models alone."""
    tests = [step.test() for step in steps]
    places = [step.embed(step.view.candidates, [test]) for step, test in zip(steps, tests, strict=True)]
    means = [step.embed(step.view.mean[None], [test]) for step, test in zip(steps, tests, strict=True)]
    scores, llr = _scored(tests, means, places, method)
    known = all(step.gradients.num_samples == math.inf for step in steps)
    always = all(step.view.sample_rate == 1.0 for step in steps)
    p_values: Array | None = None
    if known or len(steps) == 1 or not always:  # the steps of a full-batch run share their data
        if method == "paper":
            p_values = np.asarray(special.gammaincc(len(steps), scores))  # Fisher: each -log p is exponential
        elif method != "mixture" or always:
            p_values = llr_p_values(tests, places, llr)
        elif known:
            p_values = _simulated(tests, places, scores, np.random.default_rng([seed, 3]))
    return _outcome(
        steps,
        method=method,
        scores=scores,
        llr=llr,
        p_values=p_values,
        calibration=(1.0, 0.0) if known and method != "paper" else None,
        null_scores=np.empty(0),
        prediction=None,
    )


def _outcome(steps: list[_Step], **found: Any) -> GlirOutcome:
    models = [step.gradients for step in steps]
    values = [susceptibility(model, step.view.candidates) for model, step in zip(models, steps, strict=True)]
    known = [value for value in values if value is not None]
    return GlirOutcome(
        susceptibility=np.mean(known, axis=0) if len(known) == len(values) else None,
        ranks=tuple(model.rank for model in models),
        eigenvalues=tuple(model.spectrum for model in models),
        cutoff=models[0].cutoff,
        ridge=models[0].ridge,
        **found,
    )


def _simulated(tests: Sequence[StepTest], places: Sequence[Array], scores: Array, rng: np.random.Generator) -> Array:
    """Monte Carlo p-values of the mixture under known parameters: valid at any number of draws."""
    above = np.zeros(scores.size)
    for size in [_BLOCK] * (_DRAWS // _BLOCK) + [_DRAWS % _BLOCK]:
        total = np.zeros((size, scores.size))
        for test, at in zip(tests, places, strict=True):
            total += test.mixture(np.sqrt(test.v0) * rng.standard_normal((size, test.v0.size)), at)
        above += (total >= scores).sum(axis=0)
    return np.asarray((1.0 + above) / (1.0 + _DRAWS))


def _from_play(
    views: list[View],
    method: str,
    play: Play,
    grid: list[tuple[float, float]],
    shrinkage: Shrinkage | None,
    seed: int,
) -> GlirOutcome:
    """Scores by the setting that self-play prefers, p-values by rank among the held-out examples."""
    assert views[0].background is not None
    count = views[0].background.shape[0]
    estimation, held_out = selfplay.split(count, views[0].dataset_size, share=play.share, seed=seed)
    base = [_Step.fitted(view, estimation, grid[0], shrinkage) for view in views]
    settings = _usable(base, grid)
    grounds = [_ground(step, held_out, [tests[t] for _, tests in settings]) for t, step in enumerate(base)]
    setting, tests = _choose(settings, grounds, method, play, seed)
    means = [step.embed(step.view.mean[None], [test]) for step, test in zip(base, tests, strict=True)]
    places = [step.embed(step.view.candidates, [test]) for step, test in zip(base, tests, strict=True)]
    scores, llr = _scored(tests, means, places, method)
    null = np.sort(_scored(tests, means, [ground.places for ground in grounds], method)[0])
    at_least = null.size - np.searchsorted(null, scores, side="left")
    games = selfplay.play(grounds, [tests], method=method, games=play.games, rng=np.random.default_rng([seed, 2]))
    prediction = Prediction.of(games[0][0], games[1])
    return _outcome(
        [step.retuned(setting) for step in base],
        method=method,
        scores=scores,
        llr=llr,
        p_values=(1.0 + at_least) / (1.0 + null.size),
        calibration=prediction.calibration,
        null_scores=null,
        prediction=prediction,
    )


Setting = tuple[tuple[float, float], list[StepTest]]


def _usable(base: list[_Step], grid: list[tuple[float, float]]) -> list[Setting]:
    """The settings for which there are enough samples, each with the tests of all steps."""
    settings = []
    for pair in grid:
        steps = [step.retuned(pair) for step in base]
        if all(step.usable() for step in steps):
            settings.append((pair, [step.test() for step in steps]))
    if not settings:
        raise InvalidArgument(
            f"background leaves {base[0].gradients.num_samples:.0f} examples for estimates of rank "
            f"{max(step.gradients.rank for step in base)}, and no cutoff or ridge of the grid makes up for that: pass "
            "more examples or a larger ridge."
        )
    return settings


def _ground(step: _Step, held_out: NDArray[np.intp], tests: list[StepTest]) -> Ground:
    assert step.view.background is not None
    return Ground(
        view=step.view,
        places=step.embed(step.view.background[held_out], tests),
        centre=step.embed(step.batches.mean[None], tests, centred=False)[0],
        directions=step.batches.directions if step.needs_residual(tests) else None,
    )


def _choose(settings: list[Setting], grounds: list[Ground], method: str, play: Play, seed: int) -> Setting:
    """The setting with the highest mean AUC in self-play, the first of equals, with measured temperatures."""
    tests = [
        [selfplay.measured(test, ground.places) for test, ground in zip(steps, grounds, strict=True)]
        for _, steps in settings
    ]
    best = 0
    if len(settings) > 1:
        rng = np.random.default_rng([seed, 1])
        scores, inside = selfplay.play(grounds, tests, method=method, games=play.tuning_games, rng=rng)
        best = int(np.argmax([game_aucs(each, inside).mean() for each in scores]))
    return settings[best][0], tests[best]
