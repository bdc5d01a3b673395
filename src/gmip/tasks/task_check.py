"""What is wrong with a task of the user, said before anything is trained or attacked."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gmip._user_code import defined_at, said_by
from gmip.errors import GmipError, InvalidArgument
from gmip.tasks.inputs import answer, named
from gmip.tasks.task import Examples, Task, cross_entropy
from gmip.vocabulary import Recipe

__all__ = ["check_task"]

_TRIED = 2  # records that the untrained model is asked about
_IGNORED = -100  # a class that cross-entropy leaves out


def check_task(task: Task) -> None:
    """Make the model and ask it about two records, as training and attacks will.

    Raises
    ------
    InvalidArgument : parts of the task are of the wrong kind or empty; the model cannot be made or does not take its
        inputs; the loss does not give one number for each record, or none at all; a label is no class of the model.
        The sentence names the line in the user's file where that is known.
    """
    _check_parts(task)
    model = _made(task)
    some = task.pool[range(min(_TRIED, len(task.pool)))]
    shapes = ", ".join(f"{name} {tuple(t.shape)}".strip() for name, t in named(some.inputs).items())
    with torch.no_grad():
        try:
            outputs = answer(model.eval(), some.inputs)
        except GmipError:
            raise
        except Exception as error:
            raise _wrong(task, f"its model cannot take inputs of shape {shapes}: {said_by(error)}") from error
        if task.loss is cross_entropy:
            _check_labels(task, outputs)
        try:
            found: object = task.loss(outputs, some.targets)
        except GmipError:
            raise
        except Exception as error:
            raise _wrong(task, f"its loss raised {said_by(error)}") from error
    place = defined_at(task.loss)
    if not isinstance(found, Tensor) or found.shape != (len(some),):
        shape = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise _wrong(
            task,
            f"its loss returned {shape} for {len(some)} records{place}",
            "return one number for each record, such as with reduction='none'",
        )
    if torch.isnan(found).any():
        raise _wrong(task, f"its loss is NaN for a record of the pool{place}", "leave out records that are no numbers")


def _wrong(task: Task, problem: str, remedy: str | None = None) -> InvalidArgument:
    return InvalidArgument(f"Task {task.name!r} cannot be used: {problem}", remedy=remedy)


def _check_parts(task: Task) -> None:
    parts: dict[str, object] = {"pool": task.pool, "test": task.test}
    if task.background is not None:
        parts["background"] = task.background
    for name, part in parts.items():
        if not isinstance(part, Examples):
            raise _wrong(task, f"its {name} is {type(part).__name__}", "pass gmip.Examples(inputs, targets)")
        if not len(part) and name != "background":
            raise _wrong(task, f"its {name} is empty", f"give it some records as `{name}`")
    recipe: object = task.recipe
    if not isinstance(recipe, Recipe):
        raise _wrong(task, f"its recipe is {type(recipe).__name__}", "pass a gmip.Recipe")
    if not callable(task.make_model):
        raise _wrong(
            task, f"its make_model is {type(task.make_model).__name__}", "pass a function that returns a model"
        )
    for name, tensor in named(task.pool.inputs).items():
        if tensor.is_floating_point() and bool(torch.isnan(tensor).any()):
            raise _wrong(task, f"its pool has NaN in the inputs{' ' + name if name else ''}", "fill or leave out gaps")


def _made(task: Task) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        try:
            model: object = task.make_model()
        except GmipError:
            raise
        except Exception as error:
            raise _wrong(task, f"make_model raised {said_by(error)}") from error
    if not isinstance(model, nn.Module):
        place = defined_at(task.make_model)
        raise _wrong(task, f"make_model returned {type(model).__name__}{place}", "return a torch.nn.Module")
    return model


def _check_labels(task: Task, outputs: Tensor) -> None:
    if outputs.ndim != 2:
        return
    classes = outputs.shape[1]
    for name, part in (("pool", task.pool), ("test", task.test)):
        targets = part.targets
        if targets.ndim != 1 or targets.is_floating_point():
            return
        wrong = ((targets < 0) | (targets >= classes)) & (targets != _IGNORED)
        if bool(wrong.any()):
            row = int(wrong.int().argmax())
            raise _wrong(
                task,
                f"record {row} of its {name} has the label {int(targets[row])}, and the model has {classes} classes",
                f"number labels from 0 to {classes - 1}, or give the model more outputs",
            )
