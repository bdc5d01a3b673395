"""The attack on differences: noise that repeats from step to step falls out of the difference of two gradients."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from gmip import _validate as check
from gmip._progress import Progress
from gmip.attacks.attack import AttackedRecords, Need, RunTraits, StepAttack, check_step_numbers, chosen_steps
from gmip.attacks.attack_table import ATTACKS
from gmip.attacks.glir.published_step import View
from gmip.attacks.glir.scoring import glir_scores
from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.signals import run_model
from gmip.attacks.step_vectors import StepVectors, collect, unclipped
from gmip.errors import GmipWarning
from gmip.stats import ScoreSet
from gmip.stats.scores import Fact
from gmip.tasks import Task
from gmip.trace import Step, Trace
from gmip.vocabulary import RANDOM_SIZES

__all__ = ["Differences"]

_MOST_STEPS: Final = 9
_DIMENSIONS: Final = 2048


@dataclass(frozen=True, kw_only=True)
class Differences(StepAttack):
    """GLiR on the differences of successive published gradients, as if they held no noise.

    Noise that is drawn once and reused, or drawn again from the same seed, is the same in two steps: their difference
    is free of it, and likelihood ratios that expect independent noise look past that. Full batches: the difference of
    two means is the mean of the differences of the same members, all pairs taken together. Mini-batches: the gradient
    before stands for the noise, at the price of the batch that is in it. On a sound run the noise is twice as large in
    a difference and the attack is weaker than GLiR.

    Parameters
    ----------
    steps : numbers of the recorded steps to use; None: the first ones, at most 9.
    memory_limit, device : of the computation.
    seed : of the projection of gradients of more than 2048 parameters.

    Guarantees
    ----------
    Scores need no label of the run. There are no p-values.
    """

    steps: Sequence[int] | None = None
    memory_limit: float | str | None = None
    device: str = "cpu"
    seed: int = 0

    name: ClassVar[str] = "differences"
    title: ClassVar[str] = ATTACKS["differences"].title
    needs: ClassVar[frozenset[Need]] = ATTACKS["differences"].needs

    def __post_init__(self) -> None:
        check_step_numbers(self.steps)
        check.seed(self.seed)

    @classmethod
    def runs_by_default(cls, runs: Sequence[RunTraits]) -> bool:
        """Runs where a run that was not trained here has noise."""
        return any(run.noisy and run.recorded and run.published for run in runs)

    def _score_steps(self, task: Task, trace: Trace, who: AttackedRecords, progress: Progress) -> ScoreSet:
        steps = chosen_steps(trace, self.steps)
        steps = steps if self.steps is not None else steps[:_MOST_STEPS]
        if len(steps) < 2:
            warnings.warn(
                f"{trace.path} gives one step, and attack 'differences' compares two: it says nothing about this run.",
                GmipWarning,
                stacklevel=4,
            )
            return ScoreSet(ids=who.ids, scores=np.zeros(len(who.ids)), attack=self.name)
        model = run_model(task, trace, device=self.device)
        gradients = PerExampleGradients.for_trace(model, task.loss, trace.header, memory_limit=self.memory_limit)
        steps = unclipped(trace, steps, gradients, who.background)
        full = trace.header.sampling == "full" or trace.header.batch_size == trace.header.dataset_size
        method = "mixture" if not full else "joint" if len(steps) > 2 else "likelihood-ratio"
        views = list(self._views(gradients, trace, who, steps, full, progress))
        found = glir_scores(views, method=method, play=None, seed=self.seed)
        facts: dict[str, Fact] = {"method": method, "background": len(who.background), "steps": len(steps)}
        return ScoreSet(ids=who.ids, scores=found.scores, attack=self.name, facts=facts)

    def _views(
        self,
        gradients: PerExampleGradients,
        trace: Trace,
        who: AttackedRecords,
        steps: list[Step],
        full: bool,
        progress: Progress,
    ) -> Iterator[View]:
        before: StepVectors | None = None
        for done, step in enumerate(steps):
            found = self._collected(gradients, who, step)
            if before is not None:
                yield _difference(trace, step, before, found, full=full)
            before = found
            progress(done + 1, len(steps))

    def _collected(self, gradients: PerExampleGradients, who: AttackedRecords, step: Step) -> StepVectors:
        """Gradients are collected in the same coordinates at every step."""
        projection = _DIMENSIONS if gradients.num_params > _DIMENSIONS else None
        return collect(
            gradients,
            [step],
            who.background,
            who.candidates,
            projection=projection,
            seed=self.seed,
            route="materialise" if projection is None else "projection",
        )


def _difference(trace: Trace, step: Step, before: StepVectors, after: StepVectors, *, full: bool) -> View:
    header, info = trace.header, step.info
    n = header.batch_size if header.sampling in RANDOM_SIZES else info.batch_size
    scale = info.divisor / n
    how: dict[str, Any] = {"batch_size": n, "noise_std": 0.0, "length_counts": False}
    if full:
        return View(
            mean=scale * (after.mean - before.mean),
            candidates=after.candidates - before.candidates,
            background=after.background - before.background,
            **how,
        )
    return View(
        mean=scale * (after.mean - before.mean) + np.mean(before.background, axis=0),
        candidates=after.candidates,
        background=after.background,
        sample_rate=n / header.dataset_size,
        sampling="poisson" if header.sampling in RANDOM_SIZES else "fixed",
        **how,
    )
