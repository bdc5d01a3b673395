"""The model under attack: what the run published last."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from gmip.errors import InvalidArgument, TraceMismatch
from gmip.tasks.task import Task
from gmip.trace import Trace
from gmip.training.loop import initial_model
from gmip.training.models import load_state

__all__ = ["target_model"]


def target_model(task: Task, trace: Trace, *, device: str = "cpu") -> nn.Module:
    """The trained model of a run, in eval mode."""
    state = trace.final_state()
    if state is None:
        raise InvalidArgument(
            f"{trace.path} holds no trained model, which attacks with query access need: let the run end, or attack "
            "its gradients (glir)."
        )
    model = initial_model(task, 0, fix=bool(trace.header.recipe.get("fix")))
    try:
        load_state(model, {name: torch.from_numpy(np.array(value)) for name, value in state.items()})
    except (KeyError, RuntimeError) as error:
        what = " ".join(str(error).split())
        raise TraceMismatch(
            f"{trace.path} holds another model than task {task.name!r} makes ({what}): pass the run's own task."
        ) from error
    return model.to(device).eval()
