"""The released model of a run, and what a model says about records: losses and confidences, in eval mode, streamed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gmip import _validate as check
from gmip._io import sha256
from gmip.errors import InvalidArgument, TraceMismatch
from gmip.tasks import Examples, Task, cross_entropy
from gmip.tasks.inputs import answer, one_table, placed, rows_of, rows_per_pass
from gmip.trace import ModelRecord, Trace
from gmip.training.loop import initial_model
from gmip.training.models import has_classes, in_eval_mode, load_state, usable_device
from gmip.training.recorder import with_base_weights

Array = NDArray[np.float64]
_BATCH: Final = 1024
_PROBES: Final = 4  # of each class, to tell whether a loss is the cross-entropy


class Augmentation(Protocol):
    """A change of inputs that a model should not mind: (n, ...) -> (n, ...), the same for the same inputs.

    `key` must change whenever what it does changes: shadow models' outputs are kept by it.
    """

    @property
    def key(self) -> str: ...

    def __call__(self, inputs: Tensor) -> Tensor: ...


def released_model(task: Task, target: ModelRecord, *, device: str = "cpu") -> nn.Module:
    """The trained model of a run, in eval mode: what the run published last."""
    state = target.final_arrays()
    if state is None:
        raise InvalidArgument(
            f"{target.path} holds no trained model, which attacks with query access need",
            remedy="let the run end, or attack its gradients (glir)",
        )
    # In eval mode BatchNorm does not mix examples, and only then is the model asked.
    model = initial_model(task, 0, fix=target.header.provenance.options.fix, checked=False)
    try:
        load_state(model, with_base_weights(model, _tensors(state), target))
    except (KeyError, RuntimeError) as error:
        what = " ".join(str(error).split())
        raise TraceMismatch(
            f"{target.path} holds another model than task {task.name!r} makes ({what})",
            remedy="pass the run's own task",
        ) from error
    return model.to(usable_device(device, float64=True)).eval()


def run_model(task: Task, trace: Trace, *, device: str = "cpu", mixing: bool = False) -> nn.Module:
    """The task's model for gradients at the steps of a run: what the run did not train is as the run had it.

    Frozen parameters and buffers are those of the trace's trained model. A run that did not end has none: then they are
    those that `make_model` gives. `mixing` : layers that mix records are not refused.
    """
    model = initial_model(task, 0, fix=trace.header.provenance.options.fix, checked=not mixing)
    state = with_base_weights(model, _tensors(trace.final_arrays() or {}), trace)
    trained = {spec.name for spec in trace.header.parameters}
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            known = None if name in trained else state.get(name)
            if known is not None and known.shape == tensor.shape:
                tensor.copy_(known)
    return model.to(usable_device(device, float64=True))


def _tensors(state: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(np.array(value)) for name, value in state.items()}


def losses(task: Task, model: nn.Module, examples: Examples) -> Array:
    """The task's loss of each example, shape (n,), in float64.

    Cross-entropy of class logits is log(1 + exp(-margin)): it keeps its order where a model is so sure that single
    precision has 0 for everybody.
    """
    found = np.empty(len(examples))
    for rows, outputs, targets, margin in _with_margins(task, model, examples):
        if margin is not None:
            found[rows] = torch.logaddexp(torch.zeros_like(margin), -margin).cpu().numpy()
        else:  # logits of every token are too large to copy
            compute = _fine_loss if outputs.ndim <= 2 else _loss
            found[rows] = compute(task, outputs, targets).double().cpu().numpy()
    return without_nan(task, found)


def confidences(
    task: Task, model: nn.Module, examples: Examples, *, augmentation: Callable[[Tensor], Tensor] | None = None
) -> Array:
    """Logit-scaled confidence phi = log(p/(1 - p)) of each example, shape (n,), where -log p is the task's loss.

    From class logits under cross-entropy it is z_y - logsumexp of the others, in float64, which keeps its digits where
    p rounds to 1. From another loss l >= 0 it is -log(exp(l) - 1): +inf where the loss is 0, -inf where it is infinite.
    """
    found = np.empty(len(examples))
    for rows, outputs, targets, margin in _with_margins(task, model, examples, augmentation):
        if margin is not None:
            found[rows] = margin.cpu().numpy()
            continue
        loss = _fine_loss(task, outputs, targets).double().cpu().numpy()
        if loss.size and loss.min() < 0.0:
            raise InvalidArgument(
                f"The loss of task {task.name!r} is {loss.min():.3g} for a record, and a confidence needs losses of 0 "
                "or more, as -log of a probability is",
                remedy="use the attack 'loss', or another loss",
            )
        with np.errstate(divide="ignore"):
            found[rows] = -(loss + np.log(-np.expm1(-loss)))
    return without_nan(task, found)


@dataclass(frozen=True)
class Confidence:
    """The signal of LiRA and RMIA: `confidences` of each record as it is, then of each augmentation: shape (n, 1 + k).

    Parameters
    ----------
    augmentations : names ("flip", "left", "right", "up", "down": images of shape (..., height, width), mirrored or
        moved by one pixel, the edge repeated), or callables with a `key`, see `Augmentation`.
    """

    augmentations: tuple[str | Augmentation, ...] = ()

    population: ClassVar[bool] = True  # RMIA wants it, and so one shadow set serves both attacks

    def __post_init__(self) -> None:
        given: object = self.augmentations
        if not isinstance(given, (tuple, list)):
            raise InvalidArgument("must be a tuple, such as ('flip',)", argument="augmentations", value=given)
        object.__setattr__(self, "augmentations", tuple(self.augmentations))
        for one in self.augmentations:
            _augmentation_key(one)

    @property
    def key(self) -> str:
        """Changes with the augmentations."""
        if not self.augmentations:
            return "confidence"
        names = "\n".join(_augmentation_key(one) for one in self.augmentations)
        return f"confidence-{sha256(names)[:16]}"

    def __call__(self, task: Task, model: nn.Module, examples: Examples) -> Array:
        ways: list[Callable[[Tensor], Tensor] | None] = [None]
        ways += [AUGMENTATIONS[one] if isinstance(one, str) else one for one in self.augmentations]
        return np.stack([confidences(task, model, examples, augmentation=way) for way in ways], axis=1)


def _flip(inputs: Tensor) -> Tensor:
    return _images(inputs).flip(-1)


def _shifted(inputs: Tensor, *, axis: int, by: int) -> Tensor:
    size = _images(inputs).shape[axis]
    rows = (torch.arange(size, device=inputs.device) - by).clamp(0, size - 1)
    return inputs.index_select(axis, rows)


AUGMENTATIONS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "flip": _flip,
    "left": partial(_shifted, axis=-1, by=-1),
    "right": partial(_shifted, axis=-1, by=1),
    "up": partial(_shifted, axis=-2, by=-1),
    "down": partial(_shifted, axis=-2, by=1),
}


def _images(inputs: Tensor) -> Tensor:
    if inputs.ndim < 3:
        raise InvalidArgument(
            f"by name are for images and inputs have shape {tuple(inputs.shape)}",
            argument="augmentations",
            remedy="pass callables instead, or none",
        )
    return inputs


def _augmentation_key(one: object) -> str:
    if isinstance(one, str):
        if one not in AUGMENTATIONS:
            raise InvalidArgument(
                f"has {one!r}{check.did_you_mean(one, AUGMENTATIONS)}",
                argument="augmentations",
                remedy=f"pass some of {', '.join(map(repr, AUGMENTATIONS))}",
            )
        return one
    key = getattr(one, "key", None)
    if not callable(one) or not isinstance(key, str) or not key:
        raise InvalidArgument(
            f"has {one!r}, which is not a callable with a key",
            argument="augmentations",
            remedy="give it an attribute key, a text that changes with what it does: outputs of shadow models are "
            "stored by it",
        )
    return f"own:{key}"


def answers(
    model: nn.Module, examples: Examples, augmentation: Callable[[Tensor], Tensor] | None = None
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """(rows, outputs, targets) batch by batch, in eval mode."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    size = rows_per_pass(examples.inputs, _BATCH)
    with in_eval_mode(model):
        for first in range(0, len(examples), size):
            rows = slice(first, min(first + size, len(examples)))
            inputs = placed(rows_of(examples.inputs, rows), device)
            with torch.no_grad():
                if augmentation is not None:
                    changed = augmentation(one_table(inputs, "augmentations change one"))
                    if changed.shape != inputs.shape:
                        raise InvalidArgument(
                            f"has one that turns shape {tuple(inputs.shape)} into {tuple(changed.shape)}",
                            argument="augmentations",
                            remedy="keep the shape",
                        )
                    inputs = changed
                yield rows, answer(model, inputs), examples.targets[rows].to(device)


def _loss(task: Task, outputs: Tensor, targets: Tensor) -> Tensor:
    with torch.no_grad():
        found = task.loss(outputs, targets)
    if found.shape != (len(targets),):
        raise InvalidArgument(
            f"The loss of task {task.name!r} has shape {tuple(found.shape)} for {len(targets)} records",
            remedy="return one number for each",
        )
    return found


def _fine_loss(task: Task, outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss in float64 where it takes that, since small losses are differences of large numbers."""
    if outputs.is_floating_point():
        wide = targets.double() if targets.is_floating_point() else targets
        try:
            return _loss(task, outputs.double(), wide)
        except RuntimeError:  # of torch: the loss has tensors of its own, in single precision
            return _loss(task, outputs, targets)
    return _loss(task, outputs, targets)


def without_nan(task: Task, found: Array) -> Array:
    """What was found of each record; raises if the model gives no number for some."""
    if count := int(np.isnan(found).sum()):
        raise InvalidArgument(
            f"The model of task {task.name!r} gives NaN for {count} records, so training diverged or these records "
            "cannot be used",
            remedy="leave them out, or train with a lower learning rate",
        )
    return found


def is_cross_entropy(task: Task, outputs: Tensor, targets: Tensor) -> bool:
    """Whether the loss of class targets is the plain cross-entropy of logits, tried on made-up logits of each class."""
    if outputs.ndim != 2 or outputs.shape[1] < 2 or not outputs.is_floating_point() or not has_classes(targets):
        return False
    if task.loss is cross_entropy:
        return True
    k = outputs.shape[1]
    labels = torch.arange(k, device=targets.device, dtype=targets.dtype).repeat(_PROBES)
    numbers = torch.arange(len(labels) * k, device=outputs.device, dtype=torch.float64)
    logits = (3.0 * torch.sin(1.0 + 7.3 * numbers)).reshape(-1, k).to(outputs.dtype)
    theirs, ours = _loss(task, logits, labels).double(), cross_entropy(logits, labels).double()
    return bool(torch.allclose(theirs, ours, rtol=1.0e-3, atol=1.0e-3))


def _with_margins(
    task: Task, model: nn.Module, examples: Examples, augmentation: Callable[[Tensor], Tensor] | None = None
) -> Iterator[tuple[slice, Tensor, Tensor, Tensor | None]]:
    """(rows, outputs, targets, z_y - logsumexp of the other logits where their cross-entropy is the loss)."""
    margins: bool | None = None
    for rows, outputs, targets in answers(model, examples, augmentation):
        if margins is None:
            margins = is_cross_entropy(task, outputs, targets)
        margin = None
        if margins:
            logits, own = outputs.double(), targets.long()[:, None]
            margin = logits.gather(1, own)[:, 0] - logits.scatter(1, own, -torch.inf).logsumexp(1)
        yield rows, outputs, targets, margin
