"""GLiR on arrays: from views of a run to one score per candidate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from gmip import _validate as check
from gmip.attacks.glir._tails import llr_p_values
from gmip.attacks.glir.likelihood import StepTest
from gmip.attacks.glir.outcome import GlirOutcome
from gmip.attacks.glir.selfplay import DEFAULT_GRID, Play, step_scores
from gmip.attacks.glir.steps import FittedStep
from gmip.attacks.glir.tuned import scores_by_play
from gmip.attacks.glir.views import View, same_run, stack
from gmip.errors import InvalidArgument
from gmip.stats.covariance import GaussianModel, Shrinkage, WhiteModel

__all__ = ["METHODS", "glir_scores"]

Array = NDArray[np.float64]
METHODS = ("likelihood-ratio", "paper", "mixture", "joint")
_DRAWS = 1999  # published means simulated for a p-value that has no formula
_BLOCK = 100


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
    """Score every candidate by what the published means say about its membership (THEORY 9).

    Parameters
    ----------
    views : one for each step, with the same candidates and background examples in each. With self-play they are taken
        one at a time ("joint": all together), so that an iterator needs the memory of one.
    method : "likelihood-ratio", summed over the steps; "mixture", the same for mini-batches, in which a member takes
        part with chance sample_rate only; "joint", one likelihood ratio for all steps of a full-batch run; "paper", the
        p-values of the paper's Algorithm 1 (errata applied).
    models : known parameters, one `GaussianModel.known` for each view ("joint": one for the stacked view). Background
        is then not used.
    play : how to play against oneself on a part of the background; None does without: the whole background is used
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
        return scores_by_play(views, method=method, play=play, grid=grid, shrinkage=shrinkage, seed=seed)
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
            p_values = _simulated(tests, places, scores, np.random.default_rng([seed, 3]))
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
