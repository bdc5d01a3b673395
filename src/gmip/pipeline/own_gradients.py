"""How large the gradients of single records were along a run: what individual promises are made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from gmip._io import make_folder, sha256, write
from gmip._progress import Progress
from gmip.accounting.individual import GradientNorms
from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.signals import run_model
from gmip.tasks import Task
from gmip.trace import Trace

__all__ = ["own_norms"]

_ROUNDING = 1.0 + 1.0e-5  # single precision, on the safe side


def own_norms(
    task: Task, trace: Trace, ids: NDArray[np.int64], folder: Path, begin: Callable[[], Progress]
) -> GradientNorms | None:
    """Of records of the task's pool, at the parameters of every step; None where the trace does not tell: no noise, no
    clipping, or steps or parameters that were not recorded. What `folder` already holds is not computed again;
    `begin` is called if something has to be."""
    header = trace.header
    noisy = trace.num_steps > 0 and all(info.noise_std > 0.0 for info in trace.infos)
    whole = len(trace) == trace.num_steps and header.recorded_params == header.num_params
    if not noisy or not whole or header.clip_norm is None:
        return None
    asked = sha256(np.ascontiguousarray(ids, dtype="<i8").tobytes())
    path = folder / f"norms-{sha256(f'{trace.fingerprint} {asked}')[:24]}.safetensors"
    try:
        known = load_file(path)
        return GradientNorms(known["largest"], known["replaced"])
    except (OSError, SafetensorError, KeyError):
        pass  # not computed yet
    progress = begin()
    gradients = PerExampleGradients.for_trace(run_model(task, trace), task.loss, header, dtype=torch.float32)
    records = task.pool[ids]
    largest, squares = np.zeros(len(ids)), np.zeros(len(ids))
    for done, step in enumerate(trace):
        norms = np.empty(len(ids))
        for rows, pieces in gradients.at(np.array(step.parameters)).pieces(records):
            total = torch.stack([piece.squared_norms() for piece in pieces]).sum(0)
            norms[rows] = np.minimum(total.sqrt().cpu().numpy() * _ROUNDING, header.clip_norm)
        largest = np.maximum(largest, norms)
        squares += ((norms + header.clip_norm) / (step.info.divisor * step.info.noise_std)) ** 2
        progress(done + 1, len(trace))
    make_folder(folder)
    write(path, save({"largest": largest, "replaced": np.sqrt(squares)}))
    return GradientNorms(largest, np.sqrt(squares))
