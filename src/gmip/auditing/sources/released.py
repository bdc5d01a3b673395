"""Released weights of a model of which no training was recorded, and who was in."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from gmip.auditing.attack_runs import AuditedRun, Workplace
from gmip.auditing.schema import SharedRecords
from gmip.auditing.sources import TaskSource
from gmip.errors import InvalidArgument
from gmip.tasks import Task
from gmip.tasks.records import RecordTable, read_record_table
from gmip.trace import Header, ParameterSpec, Provenance, ReleasedModel
from gmip.training import check_model, initial_model
from gmip.training.models import load_weights, read_weights, trainable_parameters

_FEWEST: Final = 2  # members, and non-members
_MOST_TWICE: Final = 0.1  # of the smaller file: more equal records in both are no chance
_RANGE: Final = re.compile(r"(\d{1,15}):(\d{1,15})")  # rows of the pool, the last one not among them


@dataclass(frozen=True, eq=False)
class Released(TaskSource):
    """Released weights of a model of which no training was recorded, and who was in.

    Parameters
    ----------
    weights : a file (.safetensors, .pt) or a folder of save_pretrained.
    members, non_members : files with records or rows of the task's pool, rows such as "0:250", rows, or a mask of the
        pool. Where they are files of records, those are the pool: the members first.
    task : the task, its name, or path/to/file.py:make_task.
    name : what reports call it; None: the name of the weights.

    Guarantees
    ----------
    They are those of `gmip.audit`. Nothing is known about the training, so nothing is guaranteed but what a claim says.
    """

    weights: str | os.PathLike[str]
    members: str | os.PathLike[str] | Sequence[int]
    non_members: str | os.PathLike[str] | Sequence[int]
    task: str | Task
    name: str | None = None

    def called(self) -> str:
        """The name, or that of the weights."""
        return self.name or Path(self.weights).resolve().stem or "model"

    def plain(self) -> dict[str, Any]:
        """The model as audit.yaml writes it."""
        return {
            "model": os.fspath(self.weights),
            "members": _plain(self.members),
            "non_members": _plain(self.non_members),
            "name": self.name,
        }

    def opened(self, task: Task, name: str, number: int, work: Workplace) -> AuditedRun:
        """The model with its weights, and the task with the records in question."""
        if work.settings.repeats > 1:
            raise InvalidArgument(
                "needs runs that can be trained again, and a released model cannot",
                argument="repeats",
                value=work.settings.repeats,
                remedy="leave it out",
            )
        own, model, in_both = released_model_of(task, self)
        return AuditedRun(
            name=name,
            task=own,
            source="released",
            targets=(model,),
            path=os.fspath(self.weights),
            task_source=self.task_name,
            in_both_files=in_both,
        )


def released_model_of(task: Task, wanted: Released) -> tuple[Task, ReleasedModel, SharedRecords | None]:
    """The task with the records in question, the model, and the records that were left out."""
    task, members, non_members, in_both = _who(task, _plain(wanted.members), _plain(wanted.non_members))
    path = Path(wanted.weights).expanduser()
    model = initial_model(task, 0, checked=False)
    load_weights(model, read_weights(path), path)
    check_model(model.eval())
    state = {name: _array(value) for name, value in model.state_dict().items()}
    parameters = [ParameterSpec(name, tuple(p.shape)) for name, p in trainable_parameters(model) if p.numel()]
    if not parameters:
        raise InvalidArgument(f"{path} has no trainable parameters", remedy="leave requires_grad on in make_model")
    # How many members there are is the recipe's to say, unless more are named.
    recipe = task.recipe.replace(dataset_size=max(task.recipe.dataset_size, len(members)))
    header = Header(
        parameters=tuple(parameters),
        num_params=sum(p.size for p in parameters),
        dataset_size=recipe.dataset_size,
        batch_size=min(recipe.batch_size, recipe.dataset_size),
        sampling=recipe.sampling,
        max_batch_size=recipe.max_batch_size,
        clip_norm=recipe.clip_norm,
        fingerprints=task.fingerprints,
        recipe=recipe,
        provenance=Provenance(task=task.name),
    )
    return task, ReleasedModel(path, header, members=members, non_members=non_members, state=state), in_both


def _plain(given: str | os.PathLike[str] | Sequence[int]) -> str | list[int]:
    if isinstance(given, (str, os.PathLike)):
        return os.fspath(given)
    rows = np.asarray(given)
    return [int(row) for row in (np.flatnonzero(rows) if rows.dtype == np.bool_ else rows)]


def _array(value: torch.Tensor) -> NDArray[Any]:
    value = value.detach().cpu()
    return np.array((value.float() if value.dtype == torch.bfloat16 else value).numpy())


def _who(
    task: Task, members: str | list[int], non_members: str | list[int]
) -> tuple[Task, NDArray[np.int64], NDArray[np.int64], SharedRecords | None]:
    tables = {name: _read(name, given, task) for name, given in (("members", members), ("non_members", non_members))}
    inside, outside = tables["members"], tables["non_members"]
    for name, table in tables.items():
        if len(table) < _FEWEST:
            raise InvalidArgument(
                f"{table.path} holds {len(table)} records", argument=name, remedy=f"pass at least {_FEWEST}"
            )
    if (inside.examples is None) != (outside.examples is None):
        raise InvalidArgument(
            f"{inside.path} and {outside.path} are of different kinds", remedy="pass ids in both, or records in both"
        )
    if inside.examples is not None and outside.examples is not None:
        inside, outside, in_both = _comparable(inside, outside)
        assert inside.examples is not None and outside.examples is not None
        pool = inside.examples.joined(outside.examples)
        return (
            dataclasses.replace(
                task,
                pool=pool,
                groups=_groups_of_records(inside, outside),
                record_names=_names_of_records(inside, outside),
            ),
            np.arange(len(inside)),
            np.arange(len(inside), len(pool)),
            in_both,
        )
    assert inside.ids is not None and outside.ids is not None
    for table in (inside, outside):
        assert table.ids is not None
        wrong = table.ids[(table.ids < 0) | (table.ids >= len(task.pool))]
        if wrong.size:
            raise InvalidArgument(
                f"{table.path} has {wrong[0]}, but the pool of task {task.name} has rows 0 to {len(task.pool) - 1}",
                remedy="write rows of the pool",
            )
    both = np.intersect1d(inside.ids, outside.ids)
    if both.size:
        raise InvalidArgument(
            f"{inside.path} and {outside.path} both name record {both[0]}", remedy="name each in one of them"
        )
    if inside.groups is not None and outside.groups is not None:
        column = np.full(len(task.pool), "", dtype=object)
        for table in (inside, outside):
            column[table.ids] = np.array(table.groups, dtype=object)
        task = dataclasses.replace(task, groups={"group": column.tolist()} | dict(task.groups))
    return task, np.sort(inside.ids), np.sort(outside.ids), None


def _comparable(inside: RecordTable, outside: RecordTable) -> tuple[RecordTable, RecordTable, SharedRecords | None]:
    """The records of both files without those that are in both, and how many these are. Files with other
    columns, or largely the same records, are refused."""
    if inside.features != outside.features:
        same = sorted(inside.features or ()) == sorted(outside.features or ())
        raise InvalidArgument(
            f"{inside.path} and {outside.path} have {'their columns in different orders' if same else 'other columns'}",
            remedy="give both the same columns, in the order of the model's inputs",
        )
    rows = inside.rows(), outside.rows()
    both = set(rows[0]) & set(rows[1])
    if not both:
        return inside, outside, None
    new = [np.array([row not in both for row in part]) for part in rows]
    twice = [int((~part).sum()) for part in new]
    if max(twice) > _MOST_TWICE * min(map(len, rows)) or min(int(part.sum()) for part in new) < _FEWEST:
        raise InvalidArgument(
            f"{twice[0]} of {len(inside)} members and {twice[1]} of {len(outside)} non-members are the same records "
            f"({inside.path}, {outside.path})",
            remedy="name each record in one of the files",
        )
    in_both = SharedRecords(members=twice[0], of_members=len(inside), non_members=twice[1], of_non_members=len(outside))
    return inside.keep(new[0]), outside.keep(new[1]), in_both


def _read(name: str, given: str | Sequence[int], task: Task) -> RecordTable:
    if isinstance(given, str) and (rows := _RANGE.fullmatch(given)):
        return RecordTable(Path(given), np.arange(int(rows[1]), min(int(rows[2]), len(task.pool) + 1)), None)
    if isinstance(given, str):
        return read_record_table(Path(given).expanduser(), task.pool)
    ids = np.array(given, dtype=np.int64)
    if np.unique(ids).size != ids.size:
        raise InvalidArgument("names a record twice", argument=name, remedy="name each once")
    return RecordTable(Path(name), ids, None)


def _names_of_records(inside: RecordTable, outside: RecordTable) -> tuple[str, ...] | None:
    """Their ids, where both files have a column of them that names each once."""
    if inside.names is None or outside.names is None:
        return None
    both = (*inside.names, *outside.names)
    return both if len(set(both)) == len(both) else None


def _groups_of_records(inside: RecordTable, outside: RecordTable) -> dict[str, list[str]]:
    if inside.groups is None or outside.groups is None:
        return {}
    return {"group": [*inside.groups, *outside.groups]}
