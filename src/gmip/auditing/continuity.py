"""The part of the run check that asks whether the recorded steps are all of the training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from gmip._random import Stream
from gmip.attacks.signals import losses, run_model
from gmip.auditing.run_check import SHARE, unchecked
from gmip.auditing.schema import CheckFinding, CheckOutcome
from gmip.stats import auc
from gmip.stats.residuals import normal_p_value
from gmip.tasks import Task
from gmip.trace import Step, Trace

__all__ = ["continuity"]

_MOST_RECORDS: Final = 5000  # on each side, whose loss before the first step is looked at
_ROUNDING: Final = 1.0e-6  # of the parameters, and
_SPAN: Final = 1.0e-4  # of their change: what a step along the gradient may leave


def continuity(task: Task, trace: Trace, *, device: str = "cpu") -> CheckOutcome:
    """Did anything but the recorded steps train the model?

    The recorder looks after each step and before the next one. Where it could not see a step end, because the loop
    changes the parameters itself, they must be those before, times a factor, less a multiple of the recorded gradient.
    A model that was trained before the recording began may tell members from non-members before the first step.
    """
    moved = [info.index for info in trace.infos if info.outside]
    ended = trace.changed_at_end or ()
    if moved or ended:
        return CheckOutcome(
            check="continuity",
            status="failed",
            finding="changed-outside",
            at_steps=tuple(moved),
            layers=tuple(ended),
            value=float(len(moved) + bool(ended)),
            expected=0.0,
        )
    if len(trace) == 0:
        return unchecked("continuity", "no-steps")
    unseen = sum(info.outside is None for info in trace.infos)
    if unseen == 0 and (trace.changed_at_end is not None or not trace.complete):
        return _started(task, trace, device, "as-declared")
    if all(_follows(step, after) for step, after in _steps_without_an_end(trace)):
        return _started(task, trace, device, "follows-gradients")
    return unchecked("continuity", "not-plain-descent")


def _started(task: Task, trace: Trace, device: str, finding: CheckFinding) -> CheckOutcome:
    """The outcome where the steps are all of the training since the recording began, by the loss before the first."""
    found = _told_apart(task, trace, device)
    if found is None:
        return CheckOutcome(check="continuity", status="passed", finding=finding)
    value, p = found
    if value > 0.5 and p < SHARE:
        return CheckOutcome(check="continuity", status="unchecked", finding="distinct-before", auc=value)
    return CheckOutcome(check="continuity", status="passed", finding=finding, auc=value)


def _told_apart(task: Task, trace: Trace, device: str) -> tuple[float, float] | None:
    """(AUC of the loss at the parameters before the first step, p-value); None where it cannot be computed.

    A loss counts once on each side: repeated records, and a model that says the same about all, tell nothing."""
    ids, header = (trace.members, trace.non_members), trace.header
    if trace.recorded[0] != 0 or header.recorded_params < header.num_params:
        return None
    if any(side is None or side.size < 2 or int(side.max()) >= len(task.pool) for side in ids):
        return None
    model = run_model(task, trace, device=device).eval()
    for name, weights in trace.named(trace[0].parameters).items():
        model.get_parameter(name).data.copy_(torch.from_numpy(np.array(weights)))
    rng, found = Stream.CANDIDATES.rng(0), []
    for side in ids:
        assert side is not None
        some = side if side.size <= _MOST_RECORDS else rng.choice(side, _MOST_RECORDS, replace=False)
        found.append(np.unique(-losses(task, model, task.pool[some])))
    ins, outs = found
    value = auc(ins, outs)
    error = np.sqrt((ins.size + outs.size + 1) / (12.0 * ins.size * outs.size))
    return value, normal_p_value(float((value - 0.5) / error))


def _steps_without_an_end(trace: Trace) -> Iterator[tuple[Step, NDArray[Any] | None]]:
    """Steps whose end the recorder did not see, and the parameters after them; None where the trace has none."""
    for place, step in enumerate(trace):
        following = step.info.index + 1
        if following < trace.num_steps:
            if trace.infos[following].outside is None:
                yield step, trace[place + 1].parameters if trace.infos[following].recorded else None
        elif trace.complete and trace.changed_at_end is None:
            final = trace.final_state()
            names = [spec.name for spec in trace.header.parameters]
            known = final is not None and all(name in final for name in names)
            yield step, np.concatenate([np.ravel(final[name]) for name in names]) if known and final else None


def _follows(step: Step, after: NDArray[Any] | None) -> bool:
    """Whether the parameters after a step are a w - b g, for the parameters w before it and its gradient g."""
    if after is None:
        return False
    before = np.asarray(step.parameters, dtype=np.float64)
    change = np.asarray(after, dtype=np.float64) - before
    terms = np.stack([np.asarray(step.gradient, dtype=np.float64), before], axis=1)
    terms /= np.maximum(np.linalg.norm(terms, axis=0), 1.0e-300)
    left = change - terms @ np.linalg.lstsq(terms, change, rcond=None)[0]
    allowed = _ROUNDING * np.linalg.norm(before) + _SPAN * np.linalg.norm(change)
    return bool(np.linalg.norm(left) <= allowed)
