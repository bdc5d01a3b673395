"""GLiR on arrays: from views of a run to one score per candidate.

With self-play steps are seen once, one by one, and memory does not grow with them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from gmip import _validate as check
from gmip._random import PlayStream
from gmip.attacks.glir import selfplay
from gmip.attacks.glir.likelihood import FittedStep, StepTest, llr_p_values
from gmip.attacks.glir.published_step import View, same_run, stack
from gmip.attacks.glir.selfplay import DEFAULT_GRID, Games, Ground, Play, Prediction, step_scores
from gmip.errors import InvalidArgument
from gmip.stats.covariance import GaussianModel, Shrinkage, WhiteModel

__all__ = ["METHODS", "GlirOutcome", "glir_scores"]

Array = NDArray[np.float64]
Setting = tuple[float, float]  # cutoff, ridge
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

    @cached_property
    def eigenvalues(self) -> tuple[Array, ...]:
        """For each step the sample spectrum in falling order."""
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
    seed : of everything random here; the same seed gives the same answer.
    """
    check.one_of("method", method, METHODS)
    if method == "joint":
        views = [stack(list(views))]
    pairs = DEFAULT_GRID if play is None else play.grid
    grid = list(dict.fromkeys((c if cutoff is None else cutoff, r if ridge is None else ridge) for c, r in pairs))
    if models is None and play is not None:
        return _scores_by_play(views, method=method, play=play, grid=grid, shrinkage=shrinkage, seed=seed)
    steps = list(views)
    same_run(steps)
    if models is not None:
        return _from_models([FittedStep.of(v, m) for v, m in _paired(steps, models)], method, seed)
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


def _scored(
    tests: Sequence[StepTest], means: Sequence[Array], places: Sequence[Array], method: str
) -> tuple[Array, Array]:
    """Scores and log-likelihood ratios of the candidates, each of shape (c,), summed over the steps."""
    rows = list(zip(tests, means, places, strict=True))
    scores = np.sum([step_scores(t, m, p, method)[0] for t, m, p in rows], axis=0)
    return scores, scores if method != "paper" else np.sum([t.llr(m, p)[0] for t, m, p in rows], axis=0)


def _from_models(steps: list[FittedStep], method: str, seed: int) -> GlirOutcome:
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
            p_values = _simulated(tests, places, scores, PlayStream.P_VALUES.rng(seed))
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


def _simulated(tests: Sequence[StepTest], places: Sequence[Array], scores: Array, rng: np.random.Generator) -> Array:
    """Monte Carlo p-values of the mixture under known parameters: valid at any number of draws."""
    above = np.zeros(scores.size)
    for size in [_BLOCK] * (_DRAWS // _BLOCK) + [_DRAWS % _BLOCK]:
        total = np.zeros((size, scores.size))
        for test, at in zip(tests, places, strict=True):
            total += test.mixture(np.sqrt(test.v0) * rng.standard_normal((size, test.v0.size)), at)
        above += (total >= scores).sum(axis=0)
    return np.asarray((1.0 + above) / (1.0 + _DRAWS))


def _scores_by_play(
    views: Iterable[View],
    *,
    method: str,
    play: Play,
    grid: list[Setting],
    shrinkage: Shrinkage | None,
    seed: int,
) -> GlirOutcome:
    """Every setting of the grid scores the candidates, the held-out examples and the games, step by step; then the
    games choose one. p-values are ranks among the held-out examples."""
    rest = iter(views)
    first = next(rest, None)
    if first is None:
        raise InvalidArgument("is empty", argument="views", remedy="pass one for each step")
    count = 0 if first.background is None else first.background.shape[0]
    estimation, held_out = selfplay.split(count, first.dataset_size, share=play.share, seed=seed)
    tally = _Tally(first, grid, held_out, method, play, seed)
    for view in itertools.chain([first], rest):
        same_run([first, view])
        tally.add(FittedStep.fitted(view, estimation, grid[0], shrinkage))
    return tally.outcome()


class _Tally:
    """Sums over the steps so far, one for each setting."""

    def __init__(
        self, view: View, grid: list[Setting], held_out: NDArray[np.intp], method: str, play: Play, seed: int
    ) -> None:
        self.grid, self.held_out, self.method = grid, held_out, method
        self.usable = np.ones(len(grid), dtype=np.bool_)
        self.scores = np.zeros((len(grid), view.candidates.shape[0]))
        self.llr = np.zeros_like(self.scores)
        self.null = np.zeros((len(grid), held_out.size))
        self.susceptibility = np.zeros_like(self.scores)  # NaN where there are too few samples for one
        self.ranks: list[list[int]] = [[] for _ in grid]
        self.eigenvalues: list[Array] = []
        self.most = 0  # the largest rank that was asked for
        self.samples = 0.0
        self.games = [
            Games(held_out.size, view.dataset_size, number, len(grid), stream.rng(seed))
            for stream, number in ((PlayStream.TUNING_GAMES, play.tuning_games), (PlayStream.GAMES, play.games))
        ]

    def add(self, base: FittedStep) -> None:
        view = base.view
        assert view.background is not None
        steps = [base.retuned(setting) for setting in self.grid]
        self.most = max(self.most, *(step.gradients.rank for step in steps))
        self.samples = base.gradients.num_samples
        self.usable &= [step.usable() for step in steps]
        self._check()
        tests = {i: step.test() for i, step in enumerate(steps) if self.usable[i]}
        ground = _ground(base, self.held_out, list(tests.values()))
        mean = base.embed(view.mean[None], list(tests.values()))
        candidates = base.embed(view.candidates, list(tests.values()))
        tests = {i: selfplay.measured(test, ground.places) for i, test in tests.items()}
        # Not positive: the estimates are so poor that the test would take members for others.
        self.usable &= [i in tests and tests[i].temperature > 0.0 for i in range(len(self.grid))]
        self._check()
        tests = {i: test for i, test in tests.items() if self.usable[i]}
        for i in tests:
            self._score(i, tests[i], mean, candidates, ground.places)
            found = steps[i].susceptibility(candidates)
            self.susceptibility[i] += np.nan if found is None else found
            self.ranks[i].append(steps[i].gradients.rank)
        self.eigenvalues.append(base.gradients.spectrum)
        for games in self.games:
            games.step(ground, tests, self.method)

    def _check(self) -> None:
        if not self.usable.any():
            raise InvalidArgument(
                f"leaves {self.samples:.0f} examples for estimates of rank {self.most}, too few for every `cutoff` and "
                "`ridge` of the grid",
                argument="background",
                remedy="pass more examples or a larger `ridge`",
            )

    def _score(self, i: int, test: StepTest, mean: Array, candidates: Array, places: Array) -> None:
        self.scores[i] += step_scores(test, mean, candidates, self.method)[0]
        self.null[i] += step_scores(test, mean, places, self.method)[0]
        if self.method == "paper":
            self.llr[i] += test.llr(mean, candidates)[0]

    def outcome(self) -> GlirOutcome:
        tuning, games = self.games
        areas = [tuning.mean_auc(i) if self.usable[i] else -np.inf for i in range(len(self.grid))]
        best = int(np.argmax(areas))
        cutoff, ridge = self.grid[best]
        scores, null = self.scores[best], np.sort(self.null[best])
        at_least = null.size - np.searchsorted(null, scores, side="left")
        prediction = Prediction.of(games.scores[best], games.inside)
        mean_k = self.susceptibility[best] / len(self.eigenvalues)
        return GlirOutcome(
            method=self.method,
            scores=scores,
            llr=self.llr[best] if self.method == "paper" else scores,
            p_values=(1.0 + at_least) / (1.0 + null.size),
            susceptibility=None if np.isnan(mean_k).any() else mean_k,
            ranks=tuple(self.ranks[best]),
            spectra=tuple(self.eigenvalues),
            cutoff=cutoff,
            ridge=ridge,
            calibration=prediction.calibration,
            null_scores=null,
            prediction=prediction,
        )


def _ground(step: FittedStep, held_out: NDArray[np.intp], tests: list[StepTest]) -> Ground:
    assert step.view.background is not None
    return Ground(
        view=step.view,
        places=step.embed(step.view.background[held_out], tests),
        centre=step.embed(step.batches.mean[None], tests, centred=False)[0],
        directions=step.batches.directions if step.needs_residual(tests) else None,
    )
