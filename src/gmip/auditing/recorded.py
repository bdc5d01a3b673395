"""The evidence of a recorded run: its trace says who was in, what ran and what the accountant says about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gmip.accounting.tradeoff import TradeOff
from gmip.auditing.advice_schema import TrainingCommand
from gmip.auditing.curves import OwnNorms
from gmip.auditing.judge import AttackEvidence, AttackScores, Evidence, Labels
from gmip.auditing.outcomes import Groups
from gmip.auditing.schema import LeftOut, RunCheck, RunFacts, Sees, Source
from gmip.errors import InvalidArgument
from gmip.stats import ScoreSet
from gmip.vocabulary import NoisySGD

if TYPE_CHECKING:
    from gmip.trace import Trace

__all__ = ["AttackFindings", "recorded_evidence"]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class AttackFindings:
    """`AttackEvidence` before anybody says who was in."""

    name: str
    title: str
    needs: tuple[str, ...]
    found: tuple[AttackScores, ...]
    sees: Sees = "gradients"
    knows: float = 0.0


def recorded_evidence(
    *,
    name: str,
    source: Source,
    task: str,
    path: str | None,
    traces: Sequence[Trace],
    attacks: Sequence[AttackFindings],
    accuracies: Mapping[str, float | None],
    claim: TradeOff | None,
    group_of: Callable[[NDArray[Any]], Groups] | None = None,
    grouped_by: str | None = None,
    name_of: Callable[[NDArray[Any]], list[Any]] | None = None,
    left_out: Sequence[LeftOut] = (),
    warnings: Sequence[str] = (),
    norms: OwnNorms | None = None,
    check: RunCheck | None = None,
    task_source: str | None = None,
) -> Evidence:
    """All that is known about one run.

    Parameters
    ----------
    traces : the run and its repetitions, each with members. A trace without steps is of a released model: nothing is
        known about its training, so nothing is guaranteed but what `claim` says.
    accuracies : train_accuracy and test_accuracy.
    group_of : the groups of candidates with these ids, and in `grouped_by` what the groups are.
    left_out : attacks that could not run.
    norms : how large the gradients of the candidates were along the first of the runs.
    task_source : the task as the command line names it, for commands to copy.
    """
    trace = traces[0]
    runs = trace.runs()
    known = trace.header.provenance
    recipe = trace.header.recipe
    trained = None  # of a tuned recipe, too: the command could not draw the same members
    if task_source is not None and known.task == task and recipe is not None and known.split_seed is None:
        trained = TrainingCommand(task=task_source, recipe=recipe, fix=known.options.fix)

    def labels(repeat: int, scores: ScoreSet) -> Labels:
        groups = None if group_of is None else group_of(scores.ids)
        return Labels(inside=_inside(traces[repeat], scores), groups=groups)

    return Evidence(
        name=name,
        source=source,
        task=task,
        path=path,
        facts=_facts(trace, max(runs, key=lambda run: run.num_steps, default=None), accuracies),
        attacks=tuple(
            AttackEvidence(
                name=one.name,
                title=one.title,
                needs=one.needs,
                found=one.found,
                labels=tuple(labels(i, found.scores) for i, found in enumerate(one.found)),
                sees=one.sees,
                knows=one.knows,
            )
            for one in attacks
        ),
        runs=tuple(runs),
        claim=claim,
        grouped_by=None if group_of is None else grouped_by,
        check=check,
        norms=norms,
        trained_by=trained,
        name_of=name_of,
        left_out=tuple(left_out),
        warnings=tuple(warnings),
    )


def _inside(trace: Trace, scores: ScoreSet) -> NDArray[np.bool_]:
    if trace.members is None:
        raise InvalidArgument(f"{trace.path} does not name its members, by which an audit judges an attack")
    return np.isin(scores.ids, trace.members)


def _facts(trace: Trace, run: NoisySGD | None, accuracies: Mapping[str, float | None]) -> RunFacts:
    header, recipe = trace.header, trace.header.recipe
    if run is None:  # what the header says beyond this is the task's recipe, not what was run
        return RunFacts(num_params=header.num_params).model_copy(update=dict(accuracies))
    return RunFacts(
        dataset_size=header.dataset_size,
        batch_size=header.batch_size,
        num_steps=trace.num_steps,
        num_params=header.num_params,
        sampling=header.sampling,
        clip_norm=header.clip_norm,
        noise_std=run.noise_std,
        noise_multiplier=run.noise_multiplier if run.noise_std > 0.0 else None,
        optimizer=None if recipe is None else recipe.optimizer,
        learning_rate=None if recipe is None else recipe.learning_rate,
        complete=trace.complete,
        recorded_params=header.recorded_params if header.recorded_params < header.num_params else None,
        **accuracies,
    )
