"""GLiR on arrays: from views of a run to one score per candidate.

With self-play steps are seen once, one by one, and memory does not grow with them.
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
from gmip.attacks.glir.likelihood import FittedStep, StepTest, llr_p_values
from gmip.attacks.glir.metrics import Setting
from gmip.attacks.glir.played_run import PlayedRun, Time, Total
from gmip.attacks.glir.published_step import StepView, View, same_run, stack
from gmip.attacks.glir.selfplay import DEFAULT_GRID, Play, Prediction
from gmip.errors import InvalidArgument
from gmip.stats.covariance import GaussianModel, Shrinkage, WhiteModel
from gmip.store import NOWHERE, Store

__all__ = ["METHODS", "Background", "GlirOutcome", "glir_scores", "grid_of", "scores_by_play", "scores_without_play"]

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
    # From few background records the model is too sure of itself; and the steps of a full-batch run share their data.
    # Noise is a ridge that makes up for few records.
    fits = [(step.gradients, step.view.noise_std > 0.0) for step in steps]
    enough = all(noisy or model.rank < 0.9 * model.num_samples for model, noisy in fits)
    if known or (enough and (len(steps) == 1 or not always)):
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
    steps: Iterable[Callable[[], StepView]], run: PlayedRun, kept: Store = NOWHERE, time: Time | None = None
) -> GlirOutcome:
    """The scores of a setting that games choose. p-values are ranks among background records."""
    found = run.run(steps, kept, time)
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
    )


def _checked(views: Iterator[StepView], first: StepView) -> Iterator[Callable[[], StepView]]:
    for view in itertools.chain([first], views):
        same_run([first, view])
        yield lambda view=view: view  # type: ignore[misc]
