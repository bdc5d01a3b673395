"""Scores by the setting that self-play prefers; steps are seen once, one by one, and memory does not grow with them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from gmip.attacks.glir import selfplay
from gmip.attacks.glir.likelihood import StepTest
from gmip.attacks.glir.outcome import GlirOutcome
from gmip.attacks.glir.selfplay import Games, Ground, Play, Prediction, step_scores
from gmip.attacks.glir.steps import FittedStep
from gmip.attacks.glir.views import View, same_run
from gmip.errors import InvalidArgument
from gmip.stats.covariance import Shrinkage

__all__ = ["scores_by_play"]

Array = NDArray[np.float64]
Setting = tuple[float, float]  # cutoff, ridge


def scores_by_play(
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
        raise InvalidArgument("views is empty: pass one for each step.")
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
            Games(held_out.size, view.dataset_size, number, len(grid), np.random.default_rng([seed, stream]))
            for stream, number in ((1, play.tuning_games), (2, play.games))
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
                f"background leaves {self.samples:.0f} examples for estimates of rank {self.most}, and no cutoff or "
                "ridge of the grid makes up for that: pass more examples or a larger ridge."
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
