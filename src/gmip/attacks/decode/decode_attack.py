"""Decoding of a recorded run: gradients of the candidates at every step, then the array-level core."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import ArrayLike

from gmip import _validate as check
from gmip._progress import Progress, silent
from gmip.attacks.attack import Attack, Need, Parties, RunTraits, check_step_numbers, chosen_steps, parties
from gmip.attacks.decode.decoding import MISFIT, Decoded, decode
from gmip.attacks.decode.published_sums import Plan, plan, published_sums
from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.memory import as_bytes
from gmip.attacks.signals import run_model
from gmip.attacks.speed import Speed
from gmip.attacks.whole_clip import unclipped
from gmip.attacks.work import Work
from gmip.errors import GmipWarning
from gmip.stats import ScoreSet
from gmip.tasks import Examples, Task
from gmip.trace import Step, Trace

__all__ = ["Decode"]

_MUCH_MORE: Final = 1.1  # times what an earlier attempt had
_NOTHING: Final = 0.01  # bits per candidate: less is not decoded


@dataclass(frozen=True, kw_only=True)
class Decode(Attack):
    """Decoding: who of a list was in, all candidates at once (docs/theory/attackers.md). Nothing is trained.

    The published sum of gradients is a sum over those of the list who were in the batch, so the attack solves for all
    of them jointly. Full batches: the steps stacked. Mini-batches: one system for each step, joined by expectation
    propagation; shuffled: exactly one batch of an epoch each.

    Background records serve where some members are not listed: they tell how the unlisted vary, and the share of the
    members that is listed. Without them the candidates tell it, much less well.

    Parameters
    ----------
    coverage : q, the share of the members that the candidates contain; None: estimated.
    steps : numbers of the recorded steps to use; None: all.
    most_sweeps : passes over all steps.
    most_work : floating-point operations of its linear algebra, about (2e12: a minute of one core or less). Where all
        steps would take more, gradients of runs without noise are projected, then late steps are left out, with a
        GmipWarning; the cost follows from the sizes alone, so the same run gets the same scores on every machine.
    memory_limit : bytes or "3 GiB"; None: half of what is free. Steps that do not fit are left out, likewise.
    device : where gradients are computed.

    Guarantees
    ----------
    Scores are log-odds of membership at even prior odds, without a label of the run, for independent memberships and
    Gaussian sums of what is not listed: approximate. A p-value is exp(-score), at most 1: where the odds are right, at
    most a share a of the others has p <= a. Unlisted members of mini-batches count as drawn anew in each step. What
    the list does not explain makes the odds smaller in proportion, and is said in a GmipWarning. This attacker
    holds a list that contains the members: no promise for an attacker who knows nobody speaks about it.
    """

    coverage: float | None = None
    steps: Sequence[int] | None = None
    most_sweeps: int = 25
    most_work: float = 2.0e12
    memory_limit: float | str | None = None
    device: str = "cpu"

    name: ClassVar[str] = "decode"
    title: ClassVar[str] = "Decoding of a list of candidates"
    needs: ClassVar[frozenset[Need]] = frozenset({"gradients", "loss", "labels", "list"})

    @classmethod
    def runs_by_default(cls, runs: Sequence[RunTraits]) -> bool:
        """Always: the candidates of an audit are a list that contains members."""
        return True

    def __post_init__(self) -> None:
        if self.coverage is not None:
            check.probability("coverage", self.coverage, open_low=True)
        check_step_numbers(self.steps)
        check.count("most_sweeps", self.most_sweeps)
        check.positive("most_work", self.most_work)
        if self.memory_limit is not None:
            as_bytes("memory_limit", self.memory_limit)

    def decoded(
        self,
        task: Task,
        trace: Trace,
        candidates: ArrayLike | None = None,
        background: Examples | None = None,
        *,
        progress: Progress | None = None,
    ) -> Decoded:
        """All that decoding finds, as in `run`: also who was in which batch, with the candidates in rising order."""
        who = parties(task, trace, candidates, task.pool[[]] if background is None else background)
        order = np.argsort(who.ids)
        who = Parties(who.ids[order], who.candidates[order], who.background)
        return self._decoded(task, trace, who, Work(progress or silent(self.name)))[0]

    def _score(self, task: Task, trace: Trace, who: Parties, progress: Work) -> ScoreSet:
        order = np.argsort(who.ids)
        found, chosen = self._decoded(task, trace, Parties(who.ids, who.candidates[order], who.background), progress)
        scores = np.empty(len(who.ids))
        scores[order] = found.log_odds
        self._say(found)
        return ScoreSet(
            ids=who.ids,
            scores=scores,
            attack=self.name,
            p_values=np.exp(-np.maximum(scores, 0.0)),
            calibration=(1.0, 0.0),
            facts={
                "coverage": found.coverage,
                "coverage_estimated": self.coverage is None,
                "decoded": found.sure,
                "bits": max(0.0, found.gain),
                "misfit": found.misfit,
                "steps": chosen.steps,
                "sweeps": found.sweeps,
                "settled": found.settled,
            }
            | ({} if chosen.projection is None else {"projected_to": chosen.projection}),
            cut_short=chosen.cut_short or found.late,
        )

    def _say(self, found: Decoded) -> None:
        if found.sure > 0.0 and not (found.settled or found.late):
            warnings.warn(
                f"decoding did not settle in {found.sweeps} sweeps: its odds still change, and say less than they seem "
                "to. Raise `most_sweeps`, or list fewer candidates whose records are nearly equal.",
                GmipWarning,
                stacklevel=4,
            )
        if found.misfit > MISFIT:
            warnings.warn(
                "the list does not explain the published gradients: what it leaves open is "
                f"{found.misfit:.3g} times what the noise and unlisted members should leave, so decoding is unreliable "
                "here. Check that the list contains the members, or pass `coverage` and background records.",
                GmipWarning,
                stacklevel=4,
            )
        elif found.gain < _NOTHING:
            warnings.warn(
                "the published gradients do not tell the listed candidates apart: decoding finds less than "
                f"{_NOTHING:g} bits per candidate.",
                GmipWarning,
                stacklevel=4,
            )

    def _decoded(self, task: Task, trace: Trace, who: Parties, work: Work) -> tuple[Decoded, Plan]:
        limit = as_bytes("memory_limit", self.memory_limit)
        model = run_model(task, trace, device=self.device)
        gradients = PerExampleGradients.for_trace(model, task.loss, trace.header, memory_limit=limit)
        steps = unclipped(trace, chosen_steps(trace, self.steps), gradients, who.background)
        chosen = plan(
            trace,
            steps,
            candidates=len(who.candidates),
            background=len(who.background),
            num_params=gradients.num_params,
            limit=limit,
            most_work=self.most_work,
            **self._time(gradients, steps[0], who, work),
        )
        if len(who.background) > chosen.background:
            few = np.random.default_rng(0).permutation(len(who.background))[: chosen.background]
            who = who._replace(background=who.background[np.sort(few)])
        last, done = 2 * chosen.steps, 0  # decoding counts as much as the gradients

        def step_done(count: int) -> None:
            nonlocal done
            done += count
            work(done, last)

        found = decode(
            published_sums(gradients, trace, who, chosen, step_done, work.parts),
            dataset_size=trace.header.dataset_size,
            epochs=chosen.epochs,
            coverage=self.coverage,
            most_sweeps=self.most_sweeps,
            most_work=self.most_work,
            progress=lambda part, parts: work(chosen.steps + chosen.steps * part // parts, last),
            budget=work.budget,
            parts=work.parts,
        )
        if found.late:
            warnings.warn(
                f"attack {self.name!r} had {work.budget.seconds:.0f} seconds and ended after {found.sweeps} of its "
                "sweeps, before its odds settled. Raise `budget` (--budget) for more.",
                GmipWarning,
                stacklevel=4,
            )
        return found, chosen

    def _time(self, gradients: PerExampleGradients, step: Step, who: Parties, work: Work) -> dict[str, Any]:
        """What `plan` asks about time. An attempt that goes on with about the same time keeps its plan."""
        if not work.budget.limited:
            return {}
        seconds = max(work.budget.left(), 0.0)
        kept = work.parts.get("time")
        if kept is not None:
            before = kept.fields["seconds"]
            if seconds < _MUCH_MORE * before:
                return {"speed": Speed(*kept.fields["speed"]), "seconds": before}
        speed = Speed.measured(gradients, step, who.candidates)
        work.parts.put("time", fields={"speed": speed, "seconds": seconds})
        return {"speed": speed, "seconds": seconds}
