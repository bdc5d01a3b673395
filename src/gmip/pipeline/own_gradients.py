"""How large the gradients of single records were along a run: what individual promises are made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from gmip._progress import Progress
from gmip.accounting.individual import GradientNorms
from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.signals import run_model
from gmip.store import Entry, Store
from gmip.tasks import Task
from gmip.trace import Trace, fingerprint

__all__ = ["own_norms"]

_ROUNDING = 1.0 + 1.0e-5  # single precision, on the safe side


def own_norms(
    task: Task, trace: Trace, ids: NDArray[np.int64], folder: Path, begin: Callable[[], Progress]
) -> GradientNorms | None:
    """Of records of the task's pool, at the parameters of every step; None where the trace does not tell: no noise, no
    clipping, or steps or parameters that were not recorded. What `folder` already holds is not computed again;
    `begin` is called if something has to be."""
    header, clip_norm = trace.header, trace.header.clip_norm
    noisy = trace.num_steps > 0 and all(info.noise_std > 0.0 for info in trace.infos)
    whole = len(trace) == trace.num_steps and header.recorded_params == header.num_params
    if not noisy or not whole or clip_norm is None:
        return None
    key = {"trace": trace.fingerprint, "candidates": fingerprint(ids)}
    found = Store(folder, "own-norms").compute(key, lambda: _norms(task, trace, ids, clip_norm, begin()))
    return GradientNorms(**found.arrays)


def _norms(task: Task, trace: Trace, ids: NDArray[np.int64], clip_norm: float, progress: Progress) -> Entry:
    gradients = PerExampleGradients.for_trace(run_model(task, trace), task.loss, trace.header, dtype=torch.float32)
    records = task.pool[ids]
    largest, squares = np.zeros(len(ids)), np.zeros(len(ids))
    for done, step in enumerate(trace):
        norms = np.empty(len(ids))
        for rows, pieces in gradients.at(np.array(step.parameters)).pieces(records):
            total = torch.stack([piece.squared_norms() for piece in pieces]).sum(0)
            norms[rows] = np.minimum(total.sqrt().cpu().numpy() * _ROUNDING, clip_norm)
        largest = np.maximum(largest, norms)
        squares += ((norms + clip_norm) / (step.info.divisor * step.info.noise_std)) ** 2
        progress(done + 1, len(trace))
    return Entry({"largest": largest, "replaced": np.sqrt(squares)})
