"""How well a model does: always in eval mode, streamed over the examples."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn

from gmip.tasks.base import Examples, Task

__all__ = ["evaluate", "has_classes"]

_EVALUATION_BATCH: Final = 4096


def has_classes(targets: Tensor) -> bool:
    """Whether the targets are class numbers, so that accuracy means something."""
    return targets.ndim == 1 and not targets.is_floating_point()


@torch.no_grad()
def evaluate(task: Task, model: nn.Module, examples: Examples) -> tuple[float, float | None]:
    """(mean loss, accuracy) in eval mode; accuracy is None where targets are not classes."""
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    losses, hits, classes = 0.0, 0, has_classes(examples.targets)
    for first in range(0, len(examples), _EVALUATION_BATCH):
        rows = slice(first, first + _EVALUATION_BATCH)
        targets = examples.targets[rows].to(device)
        outputs = model(examples.inputs[rows].to(device))
        losses += float(task.loss(outputs, targets).sum(dtype=torch.float64))
        hits += int((outputs.argmax(-1) == targets).sum()) if classes else 0
    model.train(was_training)
    return losses / len(examples), hits / len(examples) if classes else None
