"""The audit of a recorded run: its trace says who was in, what ran and what the accountant promises."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gmip._progress import Progress
from gmip.accounting.mechanism import NoisySGD
from gmip.auditing.advice import advise
from gmip.auditing.assemble import Attacked, Candidates, Criteria, Labels, assemble
from gmip.auditing.groups import Groups
from gmip.auditing.promises import all_promises, claimed_curve, listed_curve
from gmip.auditing.schema import RunAudit, RunFacts
from gmip.errors import InvalidArgument
from gmip.stats import ScoreSet
from gmip.trace import Trace

__all__ = ["assemble_run"]


def assemble_run(
    *,
    name: str,
    task: str,
    path: str | None,
    traces: Sequence[Trace],
    attacks: Sequence[Attacked],
    accuracies: Mapping[str, float | None],
    claim_mu: float | None,
    criteria: Criteria,
    progress: Progress,
    group_of: Callable[[NDArray[Any]], Groups] | None = None,
    grouped_by: str | None = None,
) -> tuple[RunAudit, Candidates]:
    """All about one run, and its candidates with their scores by the strongest attack, the most exposed first.

    Parameters
    ----------
    traces : the run and its repetitions, each with members.
    accuracies : train_accuracy and test_accuracy.
    claim_mu : what was promised, as mu-GMIP; None: what the accountant says about the run.
    group_of : the groups of candidates with these ids, and in `grouped_by` what the groups are.
    """
    trace = traces[0]
    runs = trace.runs()
    if not runs:
        raise InvalidArgument(f"{trace.path} has no steps, so there is nothing to audit", remedy="train at least one")
    largest = max(runs, key=lambda run: run.num_steps)
    claimed = claimed_curve(runs, claim_mu)
    knows = max((one.knows for one in attacks), default=0.0)
    listed = listed_curve(runs, knows) if knows else None

    def label(repeat: int, scores: ScoreSet) -> Labels:
        groups = None if group_of is None else group_of(scores.ids)
        return Labels(inside=_inside(traces[repeat], scores), groups=groups)

    return assemble(
        name=name,
        task=task,
        path=path,
        facts=_facts(trace, largest, accuracies),
        attacks=attacks,
        label=label,
        claimed=claimed,
        listed=listed,
        promises=all_promises(
            runs,
            claimed,
            [attack.found[0].scores for attack in attacks],
            claim_mu=claim_mu,
            fprs=criteria.fprs,
            listed=listed,
            knows=knows,
            only_listed=all(one.knows for one in attacks),
        ),
        advise=lambda judged, outcomes: advise(
            largest, judged, outcomes, tpr=criteria.goal.tpr, fpr=criteria.goal.fpr, schedule=len(runs) > 1
        ),
        criteria=criteria,
        progress=progress,
        grouped_by=None if group_of is None else grouped_by,
    )


def _inside(trace: Trace, scores: ScoreSet) -> NDArray[np.bool_]:
    if trace.members is None:
        raise InvalidArgument(f"{trace.path} does not name its members, by which an audit judges an attack")
    return np.isin(scores.ids, trace.members)


def _facts(trace: Trace, run: NoisySGD, accuracies: Mapping[str, float | None]) -> RunFacts:
    header, known = trace.header, trace.header.recipe
    rate = known.get("learning_rate")
    return RunFacts(
        dataset_size=header.dataset_size,
        batch_size=header.batch_size,
        num_steps=trace.num_steps,
        num_params=header.num_params,
        sampling=header.sampling,
        clip_norm=header.clip_norm,
        noise_std=run.noise_std,
        noise_multiplier=run.noise_multiplier if run.noise_std > 0.0 else None,
        optimizer=known.get("optimizer") if isinstance(known.get("optimizer"), str) else None,
        learning_rate=float(rate) if isinstance(rate, (int, float)) else None,
        complete=trace.complete,
        recorded_params=header.recorded_params if header.recorded_params < header.num_params else None,
        **accuracies,
    )
