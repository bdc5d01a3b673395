"""Persons as records: who has several rows is drawn, clipped, accounted for and audited as a whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gmip.errors import InvalidArgument
from gmip.tasks.inputs import IGNORED, logits, mapped, named
from gmip.tasks.task import Examples, Task


def by_person(task: Task, persons: Sequence[Any], *, background: Sequence[Any] | None = None) -> Task:
    """The task whose records are persons with all their rows.

    A person's loss is the mean loss of the person's rows, so that per-example gradients, clipping, batches, attacks and
    audits are those of persons; nothing else has to know. `dataset_size` and `batch_size` of recipes count persons, and
    the guarantee is that of one record, however many rows a person has (docs/theory/persons.md).

    Parameters
    ----------
    task : of rows.
    persons : who each row of the pool is of, len(task.pool) whole numbers or strings. They are the record names.
    background : the same of the rows of the task's background, if it has some; no person may be in both.

    The test records stay rows, on which accuracy is measured. Groups stay that are the same for all rows of a person.
    """
    places = _places("persons", persons, len(task.pool))
    behind = None
    if task.background is not None:
        if background is None:
            raise InvalidArgument(
                "is missing, and the task has a background",
                argument="background",
                remedy="name the person of each of its rows, or leave the background out of the task",
            )
        behind = _places("background", background, len(task.background))
        both = places.keys() & behind.keys()
        if both:
            raise InvalidArgument(f"has {min(both, key=str)!r:.60}, who is in the pool, too", argument="background")
    most = max(len(rows) for part in (places, behind or {}) for rows in part.values())
    first = next(iter(named(task.pool.inputs).values()))
    return dataclasses.replace(
        task,
        make_model=_OfPersons(task.make_model, first.ndim),
        loss=_MeanOfRows(task.loss, task.pool.targets.ndim),
        pool=_together(task.pool, places, most),
        background=None if task.background is None or behind is None else _together(task.background, behind, most),
        groups={
            name: [column[rows[0]] for rows in places.values()]
            for name, column in task.groups.items()
            if all(len({column[row] for row in rows}) == 1 for rows in places.values())
        },
        record_names=tuple(places),
    )


def _places(argument: str, persons: Sequence[Any], rows: int) -> dict[Any, list[int]]:
    """The rows of each person, persons in the order of their first rows."""
    plain = [one.item() if isinstance(one, np.generic) else one for one in persons]
    if len(plain) != rows:
        raise InvalidArgument(
            f"has {len(plain)} entries for {rows} rows", argument=argument, remedy="name the person of each row"
        )
    found: dict[Any, list[int]] = {}
    for row, person in enumerate(plain):
        found.setdefault(person, []).append(row)
    return found


def _together(examples: Examples, places: dict[Any, list[int]], most: int) -> Examples:
    """One record for each person: rows along the second axis, missing ones 0 with a target that asks for nothing."""
    order: NDArray[np.int64] = np.zeros((len(places), most), dtype=np.int64)
    there = np.zeros((len(places), most), dtype=bool)
    for i, rows in enumerate(places.values()):
        order[i, : len(rows)], there[i, : len(rows)] = rows, True
    index, kept = torch.from_numpy(order), torch.from_numpy(there)

    def gathered(tensor: Tensor, missing: float = 0) -> Tensor:
        return torch.where(_wide(kept, tensor.ndim + 1), tensor[index], torch.tensor(missing, dtype=tensor.dtype))

    nothing = float("nan") if examples.targets.is_floating_point() else IGNORED
    return Examples(mapped(gathered, examples.inputs), gathered(examples.targets, nothing))


def _wide(mask: Tensor, dims: int) -> Tensor:
    """The mask with as many axes as that."""
    return mask.reshape(*mask.shape, *(1,) * (dims - mask.ndim))


@dataclass(frozen=True, eq=False)
class _OfPersons:
    """Makes the model of rows, to be asked about persons."""

    make_model: Callable[[], nn.Module]
    dims: int

    def __call__(self) -> nn.Module:
        return _EachRow(self.make_model(), self.dims)


class _EachRow(nn.Module):
    """A model of rows that answers about persons, shape (n, most rows, ...), row by row; about rows as ever."""

    def __init__(self, model: nn.Module, dims: int) -> None:
        super().__init__()
        self.model, self.dims = model, dims

    def forward(self, *args: Tensor, **kwargs: Tensor) -> Any:
        first = args[0] if args else kwargs[min(kwargs)]
        if first.ndim == self.dims:
            return self.model(*args, **kwargs)
        answers = [
            logits(self.model(*(x[:, row] for x in args), **{name: x[:, row] for name, x in kwargs.items()}))
            for row in range(first.shape[1])
        ]
        return torch.stack(answers, 1)


@dataclass(frozen=True, eq=False)
class _MeanOfRows:
    """The mean loss of a person's rows, shape (n,); of rows, their own loss."""

    loss: Callable[[Tensor, Tensor], Tensor]
    dims: int

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if targets.ndim == self.dims:
            return self.loss(outputs, targets)
        missing = targets.isnan() if targets.is_floating_point() else targets == IGNORED
        there = ~missing.flatten(2).all(2) if targets.ndim > 2 else ~missing
        filled = torch.where(_wide(there, targets.ndim), targets, torch.zeros_like(targets))
        losses = self.loss(outputs.flatten(0, 1), filled.flatten(0, 1)).unflatten(0, there.shape)
        return torch.where(there, losses, torch.zeros_like(losses)).sum(1) / there.sum(1).clamp(min=1)
