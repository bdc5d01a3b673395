"""The audit of a recorded run: its trace says who was in, what ran and what the accountant promises."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gmip._progress import Progress
from gmip.accounting.account import account
from gmip.accounting.tradeoff import TradeOff
from gmip.auditing.advice import advise
from gmip.auditing.advice_schema import Advice
from gmip.auditing.assemble import Attacked, Candidates, Criteria, Labels, NameOf, assemble
from gmip.auditing.check_schema import RunCheck
from gmip.auditing.exposure_grid import what_if
from gmip.auditing.groups import Groups
from gmip.auditing.individual_promises import OwnNorms, own_mus
from gmip.auditing.promises import all_promises, given_promise, listed_curve
from gmip.auditing.schema import AttackerAnswer, AttackOutcome, Promise, RunAudit, RunFacts, Verdict
from gmip.errors import InvalidArgument
from gmip.stats import ScoreSet
from gmip.trace import Trace
from gmip.vocabulary import NoisySGD

__all__ = ["assemble_run"]

_MEND: Final = (
    "Fix what the check of the record found, in the training loop or in what was declared, and record the run again: "
    "until then no attack that goes by the record can clear it."
)


def assemble_run(
    *,
    name: str,
    task: str,
    path: str | None,
    traces: Sequence[Trace],
    attacks: Sequence[Attacked],
    accuracies: Mapping[str, float | None],
    claim: TradeOff | None,
    criteria: Criteria,
    progress: Progress,
    group_of: Callable[[NDArray[Any]], Groups] | None = None,
    grouped_by: str | None = None,
    name_of: NameOf | None = None,
    warnings: Sequence[str] = (),
    norms: OwnNorms | None = None,
    check: RunCheck | None = None,
    source: str | None = None,
) -> tuple[RunAudit, Candidates]:
    """All about one run, and its candidates with their scores by the strongest attack, the most exposed first.

    Parameters
    ----------
    traces : the run and its repetitions, each with members. A trace without steps is of a released model: nothing is
        known about its training, so nothing is promised but what `claim` says.
    accuracies : train_accuracy and test_accuracy.
    claim : what was promised; None: what the accountant says about the run.
    group_of : the groups of candidates with these ids, and in `grouped_by` what the groups are.
    name_of : what candidates with these ids are called by those who know them.
    warnings : what else limits the audit.
    norms : how large the gradients of the candidates were along the first of the runs.
    check : of the record; where it fails, no verdict says that the promise holds.
    source : the task as the command line names it, for commands to copy.
    """
    trace = traces[0]
    runs = trace.runs()
    largest = max(runs, key=lambda run: run.num_steps) if runs else None
    claimed = account(list(runs)) if claim is None and runs else claim
    knows = max((one.knows for one in attacks), default=0.0)
    listed = listed_curve(runs, knows, claim) if knows else None
    promises: tuple[Promise, ...]
    if not runs:
        promises = () if claimed is None else (given_promise(claimed, criteria.fprs),)
    else:
        assert claimed is not None
        promises = all_promises(
            runs,
            claimed,
            [attack.found[0].scores for attack in attacks],
            given=claim is not None,
            fprs=criteria.fprs,
            listed=listed,
            knows=knows,
            only_listed=all(one.knows for one in attacks),
        )

    known = trace.header.recipe  # of `gmip train`; another loop may have left anything
    trained = source is not None and known.get("task") == task and "learning_rate" in known
    recipe = {**known, "task": source} if trained else None

    def label(repeat: int, scores: ScoreSet) -> Labels:
        groups = None if group_of is None else group_of(scores.ids)
        return Labels(inside=_inside(traces[repeat], scores), groups=groups)

    def advice(judged: Verdict, outcomes: Sequence[AttackOutcome], answer: AttackerAnswer | None) -> tuple[Advice, ...]:
        mend = (Advice(text=_MEND),) if judged.unmatched else ()
        if judged.unmatched and judged.kind != "exposed":
            return mend
        said = advise(runs, judged, outcomes, goal=criteria.goal, recipe=recipe, answer=answer)
        return (*mend, *said)

    audited, candidates = assemble(
        name=name,
        task=task,
        path=path,
        facts=_facts(trace, largest, accuracies),
        attacks=attacks,
        label=label,
        claimed=claimed,
        listed=listed,
        own=own_mus(runs, [attack.found[0].scores for attack in attacks], norms),
        promises=promises,
        advise=advice,
        criteria=criteria,
        progress=progress,
        grouped_by=None if group_of is None else grouped_by,
        check=check,
        name_of=name_of,
    )
    ways = [one.way for one in audited.advice if one.way is not None]
    needed = next((way.changes.get("noise_std") for way in ways if way.change == "noise"), None)
    grid = what_if(runs, fpr=criteria.goal.fpr, needed=needed)
    audited = audited.model_copy(update={"warnings": (*audited.warnings, *warnings), "what_if": grid})
    return audited, candidates


def _inside(trace: Trace, scores: ScoreSet) -> NDArray[np.bool_]:
    if trace.members is None:
        raise InvalidArgument(f"{trace.path} does not name its members, by which an audit judges an attack")
    return np.isin(scores.ids, trace.members)


def _facts(trace: Trace, run: NoisySGD | None, accuracies: Mapping[str, float | None]) -> RunFacts:
    header, known = trace.header, trace.header.recipe
    if run is None:  # what the header says beyond this is the task's recipe, not what was run
        return RunFacts(num_params=header.num_params).model_copy(update=dict(accuracies))
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
