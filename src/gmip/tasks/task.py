"""What can be trained and audited: a model, a per-example loss, the data, and how to train by default."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gmip._random import Stream
from gmip._user_code import defined_at, said_by
from gmip.errors import GmipError, InvalidArgument
from gmip.tasks.inputs import IGNORED, Inputs, answer, checked, joined, named, rows_of
from gmip.trace import fingerprint
from gmip.vocabulary import Recipe


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of each example, shape (n,)."""
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


@dataclass(frozen=True, eq=False)
class Examples:
    """Some records: row i of `targets` belongs to row i of `inputs`.

    Parameters
    ----------
    inputs : a tensor, with which the model is called; or name -> tensor, one row of each for every record, if it takes
        several: Examples({"input_ids": ..., "attention_mask": ...}, labels) for a model that is called with these
        keywords.
    targets : what the loss compares the model's answer with.
    """

    inputs: Inputs
    targets: Tensor

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", checked(self.inputs))
        if isinstance(checked(self.targets, argument="targets"), dict):
            raise InvalidArgument("must be one torch tensor, not several", argument="targets")
        first = next(iter(named(self.inputs).values()))
        if first.ndim == 0 or self.targets.ndim == 0 or len(first) != len(self.targets):
            raise InvalidArgument(
                f"`inputs` of shape {tuple(first.shape)} and `targets` of shape {tuple(self.targets.shape)} do "
                "not belong together",
                remedy="pass one row of each for every record",
            )

    def __len__(self) -> int:
        return len(self.targets)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name or 'shape'} {tuple(t.shape[1:])}" for name, t in named(self.inputs).items())
        return f"<Examples: {len(self)} of {shapes}>"

    def __getitem__(self, ids: Any) -> Examples:
        """The examples with these ids; with a slice, a view of these rows."""
        rows = ids if isinstance(ids, slice) else torch.from_numpy(np.array(np.asarray(ids), dtype=np.int64))
        return Examples(rows_of(self.inputs, rows), self.targets[rows])

    def joined(self, other: Examples) -> Examples:
        """These records and then the others."""
        return Examples(joined(self.inputs, other.inputs), torch.cat([self.targets, other.targets]))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the records."""
        parts = named(self.inputs)
        names = [np.array(list(parts))] if isinstance(self.inputs, dict) else []
        return fingerprint(*names, *(t.detach().cpu().numpy() for t in (*parts.values(), self.targets)))


@dataclass(frozen=True, eq=False)
class Split:
    """Who is in a run: ids are rows of the task's pool, sorted. `unused` rows serve as background."""

    members: NDArray[np.int64]
    non_members: NDArray[np.int64]
    unused: NDArray[np.int64]

    def __repr__(self) -> str:
        return f"<Split: {self.members.size} members, {self.non_members.size} non-members, {self.unused.size} unused>"


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """A model, its loss and its data.

    Parameters
    ----------
    name : how the task is called in reports.
    make_model : a fresh model, its initial weights drawn from torch's global generator (which the caller seeds). Layers
        that mix examples (BatchNorm) cannot be trained with clipping.
    pool : records among which members are drawn; the others are non-members and background.
    test : records to measure accuracy on, never trained on.
    recipe : how to train by default.
    background : further records from the same distribution that no run trains on.
    loss : (outputs, targets) -> loss of each example, shape (n,).
    groups : what the records of the pool are (site, sex, cohort): name -> the group of each record, len(pool) of them.
        An audit says who is exposed by the first of them, or by the one that it is asked for; without any, by class.
    record_names : what the records of the pool are called, len(pool) numbers or strings, each once: reports and tables
        of exposed records show these; None: rows of the pool.
    publish : (model, records) -> None: what the training loop does with a batch up to optimizer.step(), where that is
        more than the gradient of the mean loss (augmentation, compression). It leaves in .grad what the optimizer gets;
        or it changes the weights, as a client's local training does. Attacks rehearse it on records of their own.
    """

    name: str
    make_model: Callable[[], nn.Module]
    pool: Examples
    test: Examples
    recipe: Recipe
    background: Examples | None = None
    loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy
    groups: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    record_names: Sequence[Any] | None = None
    publish: Callable[[nn.Module, Examples], None] | None = None

    def __post_init__(self) -> None:
        self._check_groups()
        if self.publish is not None and not callable(self.publish):
            raise InvalidArgument(
                f"must be a function of a model and records, not {type(self.publish).__name__}", argument="publish"
            )
        if self.record_names is None:
            return
        names = [one.item() if isinstance(one, np.generic) else one for one in self.record_names]
        wrong = [one for one in names if isinstance(one, bool) or not isinstance(one, (int, str))]
        problem = (
            f"has {len(names)} entries, and the pool has {len(self.pool)} records"
            if len(names) != len(self.pool)
            else f"has {wrong[0]!r:.60}, which is neither a whole number nor a string"
            if wrong
            else "names two records alike"
            if len(set(names)) != len(names)
            else None
        )
        if problem is not None:
            remedy = "name each record of the pool once, by a whole number or a string"
            raise InvalidArgument(problem, argument="record_names", remedy=remedy)
        object.__setattr__(self, "record_names", tuple(names))

    def names_of(self, rows: Any) -> list[int | str]:
        """What the records in these rows of the pool are called."""
        rows = np.asarray(rows).tolist()
        return rows if self.record_names is None else [self.record_names[row] for row in rows]

    def _check_groups(self) -> None:
        given: object = self.groups
        if not isinstance(given, Mapping):
            raise InvalidArgument(
                f"must map names to one group for each record, not be {type(given).__name__}",
                argument="groups",
                remedy="pass such as {'site': sites}",
            )
        for name, column in self.groups.items():
            if len(column) != len(self.pool):
                raise InvalidArgument(
                    f"has {len(column)} entries under {name!r}, and the pool has {len(self.pool)} records",
                    argument="groups",
                    remedy="name the group of each record of the pool",
                )

    def __repr__(self) -> str:
        return f"<Task {self.name}: {len(self.pool)} records, {len(self.test)} for testing>"

    @property
    def fingerprints(self) -> dict[str, str]:
        """The fingerprint of every part of the data: an audit against other data than the run's is refused."""
        parts = {"pool": self.pool, "test": self.test, "background": self.background}
        return {name: part.fingerprint for name, part in parts.items() if part is not None}

    def split(self, dataset_size: int, seed: int) -> Split:
        """Members at random, as many non-members where the rest of the pool allows (at most half of it)."""
        if dataset_size >= len(self.pool):
            raise InvalidArgument(
                f"leaves no non-member among the {len(self.pool)} records of task {self.name}",
                argument="dataset_size",
                value=dataset_size,
                remedy="lower it",
            )
        rest = len(self.pool) - dataset_size
        order = Stream.MEMBERS.rng(seed).permutation(len(self.pool))
        last = dataset_size + min(dataset_size, -(-rest // 2))
        parts = order[:dataset_size], order[dataset_size:last], order[last:]
        return Split(*(np.sort(part) for part in parts))


# -- what is wrong with a task of the user ----------------------------------------------------------------------------


_TRIED = 2  # records that the untrained model is asked about


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
        with _users_code(task, f"its model cannot take inputs of shape {shapes}:"):
            outputs = answer(model.eval(), some.inputs)
        if task.loss is cross_entropy:
            _check_labels(task, outputs)
        with _users_code(task, "its loss raised"):
            found: object = task.loss(outputs, some.targets)
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


@contextmanager
def _users_code(task: Task, what: str) -> Iterator[None]:
    """An error that is not gmip's own becomes one sentence with its line."""
    try:
        yield
    except GmipError:
        raise
    except Exception as error:
        raise _wrong(task, f"{what} {said_by(error)}") from error


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
    with torch.random.fork_rng(), _users_code(task, "make_model raised"):
        torch.manual_seed(0)
        model: object = task.make_model()
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
        wrong = ((targets < 0) | (targets >= classes)) & (targets != IGNORED)
        if bool(wrong.any()):
            row = int(wrong.int().argmax())
            raise _wrong(
                task,
                f"record {row} of its {name} has the label {int(targets[row])}, and the model has {classes} classes",
                f"number labels from 0 to {classes - 1}, or give the model more outputs",
            )
