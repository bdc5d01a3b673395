"""A released model and the gradients of records at its weights, with the penalty that it was trained with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gmip import _validate as check
from gmip.attacks.attack import Parties
from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.signals import released_model
from gmip.attacks.step_vectors import compress, gram
from gmip.errors import InvalidArgument
from gmip.tasks import Examples, Task
from gmip.trace import Header, Trace

__all__ = ["AtWeights", "Penalty", "Released", "check_penalty", "released"]

Array = NDArray[np.float64]
Penalty = float | Mapping[str, float] | None
_DECOUPLED: Final = ("adamw", "nadamw", "radamw", "lion")  # their decay is no penalty of the loss


class AtWeights(NamedTuple):
    """Gradients of the records' losses at the released weights, and the penalty's, in some orthonormal coordinates."""

    candidates: Array
    background: Array
    penalty: Array
    extra_dims: int


class Released(NamedTuple):
    """Attributes
    ----------
    gradients : of single records at the released weights.
    penalty : array of shape (d,), the gradient of the penalty there.
    """

    gradients: PerExampleGradients
    penalty: Array
    l2: Array  # the strength of the penalty on each entry

    def vectors(self, who: Parties) -> AtWeights:
        """Of candidates and background: the entries, or where there are more of them than records, coordinates in the
        span of all vectors."""
        cut = len(who.candidates)
        if self.gradients.num_params <= cut + len(who.background) + 1:
            rows = [self._rows(one) for one in (who.candidates, who.background)]
            return AtWeights(rows[0], rows[1], self.penalty, 0)
        points = compress(self.products(who.candidates, who.background))
        return AtWeights(points[:cut], points[cut:-1], points[-1], self.gradients.num_params - points.shape[1])

    def products(self, *sets: Examples) -> Array:
        """All inner products of the records' gradients, set after set, and the penalty's."""
        return gram(self.gradients, [one for one in sets if len(one)], self.penalty)

    def _rows(self, examples: Examples) -> Array:
        if not len(examples):
            return np.empty((0, self.gradients.num_params))
        return self.gradients.rows(examples).double().cpu().numpy()


def released(
    task: Task, trace: Trace, *, l2: Penalty, device: str = "cpu", memory_limit: float | str | None = None
) -> Released:
    """The model that the run released last, and its penalty; nothing else of the trace is used but its header."""
    model = released_model(task, trace, device=device)
    gradients = PerExampleGradients.for_trace(model, task.loss, trace.header, memory_limit=memory_limit)
    values = dict(model.named_parameters())
    strength = _strengths(l2, trace.header, {name: values[name] for name in gradients.names})
    flat = torch.cat([values[name].detach().reshape(-1) for name in gradients.names]).double().cpu().numpy()
    return Released(gradients, strength * flat, strength)


def check_penalty(l2: Penalty) -> None:
    """Raise unless it is a number, numbers by the name of a parameter, or None."""
    if isinstance(l2, Mapping):
        for name, value in l2.items():
            check.non_negative(f"l2[{name!r}]", value)
    elif l2 is not None:
        check.non_negative("l2", l2)


def _strengths(l2: Penalty, header: Header, parameters: Mapping[str, Tensor]) -> Array:
    if l2 is None:
        l2 = _decay(header)
    if isinstance(l2, Mapping):
        for name in l2:
            if name not in parameters:
                raise InvalidArgument(
                    f"has {name!r}, which is not a recorded parameter{check.did_you_mean(name, parameters)}",
                    argument="l2",
                    remedy=f"pass some of {', '.join(list(parameters)[:8])}",
                )
    each = l2 if isinstance(l2, Mapping) else dict.fromkeys(parameters, l2)
    parts = [np.full(p.numel(), float(each.get(name, 0.0))) for name, p in parameters.items()]
    return np.concatenate(parts)


def _decay(header: Header) -> float:
    """The weight decay of the recipe, where it is a penalty of the loss; 0 if there is none."""
    if header.recipe is None:
        return 0.0
    decay = header.recipe.optimizer_options.get("weight_decay", 0.0)
    if decay and header.recipe.optimizer.lower() in _DECOUPLED:
        raise InvalidArgument(
            f"The run's optimizer, {header.recipe.optimizer}, decays weights apart from the loss, so what its model "
            "converges to is no optimum of a penalised loss",
            remedy="pass `l2` = 0 to attack it nevertheless",
        )
    return float(decay) if isinstance(decay, (int, float)) else 0.0
