"""Records in tables (CSV, JSON lines, Parquet): features and a label as `Examples`, or the ids of records."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from gmip import _validate as check
from gmip._tables import read_columns
from gmip.errors import InvalidArgument
from gmip.tasks.task import Examples

_LABELS: Final = ("label", "target", "y", "class")
_IDS: Final = ("id", "row", "index", "record")
_GROUPS: Final = ("group",)


@dataclass(frozen=True, eq=False)
class RecordTable:
    """Some records: `ids`, shape (n,), rows of a pool; or `examples` themselves, and in `names` what a column of ids
    calls them. `groups` : shape (n,), or None. `features` : the columns of an input, in order."""

    path: Path
    ids: NDArray[np.int64] | None
    examples: Examples | None
    groups: tuple[str, ...] | None = None
    names: tuple[str, ...] | None = None
    features: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.examples) if self.examples is not None else len(self.ids) if self.ids is not None else 0

    def rows(self) -> list[bytes]:
        """Each record as bytes, by which equal ones are found."""
        assert self.examples is not None and isinstance(self.examples.inputs, torch.Tensor)
        parts = (self.examples.inputs.reshape(len(self), -1), self.examples.targets.reshape(len(self), -1))
        inputs, targets = (part.to(torch.float64).numpy() + 0.0 for part in parts)  # no negative zeros
        return [row.tobytes() for row in np.hstack([inputs, targets])]

    def keep(self, rows: NDArray[np.bool_]) -> RecordTable:
        """Some of the records."""
        assert self.examples is not None
        kept = np.flatnonzero(rows)
        columns = (self.groups, self.names)
        groups, names = (None if one is None else tuple(one[i] for i in kept) for one in columns)
        return replace(self, examples=self.examples[kept], groups=groups, names=names)


def read_records(
    *paths: str | os.PathLike[str],
    label: str | None = None,
    classes: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
) -> Examples:
    """The records of one or more tables, one after the other: every column but the label (and id, group) is a feature.

    Parameters
    ----------
    paths : CSV, JSON lines or Parquet, with the same columns.
    label : the column of the label; None: label, target, y or class. Whole numbers are classes (int64) from 0, other
        numbers targets of a regression (float32). Names of classes are numbered as in `classes`.
    classes : names of the classes in the order of the model's outputs; None: in alphabetical order, over all files.
    ignore : columns that are no features.

    Features are float32, in the order of the columns.
    """
    if not paths:
        raise InvalidArgument("is empty", argument="paths", remedy="name a file of records")
    tables = [(Path(path), read_columns(Path(path))) for path in paths]
    first = _features(*tables[0], label, ignore)
    for path, table in tables[1:]:
        if _features(path, table, label, ignore) != first:
            raise InvalidArgument(f"{path} has other columns than {tables[0][0]}", remedy="give both the same")
    labels = [list(table[_label(path, table, label)]) for path, table in tables]
    return Examples(
        torch.from_numpy(np.concatenate([_inputs(path, table, first) for path, table in tables])),
        _targets([cell for part in labels for cell in part], classes),
    )


def read_column(*paths: str | os.PathLike[str], column: str) -> list[str]:
    """The cells of a column of one or more tables, one after the other: names or groups of records."""
    cells: list[str] = []
    for path in map(Path, paths):
        table = read_columns(path)
        cells += [str(cell).strip() for cell in table[_named(path, table, column, "column")]]
    return cells


def find_column(role: str, *paths: str | os.PathLike[str]) -> str | None:
    """The column of the "id" or "group" of records that all tables have, by its usual name; None: there is none."""
    tables = [read_columns(Path(path)) for path in paths]
    found = _usual(tables[0], {"id": _IDS, "group": _GROUPS}[role])
    return found if all(found in table for table in tables) else None


def class_names(*paths: str | os.PathLike[str], label: str | None = None) -> list[str] | None:
    """The names of the classes in alphabetical order; None where labels are numbers."""
    tables = [(Path(path), read_columns(Path(path))) for path in paths]
    cells = [cell for path, table in tables for cell in table[_label(path, table, label)]]
    return None if all(_number(cell) is not None for cell in cells) else sorted({str(cell).strip() for cell in cells})


def _usual(table: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """The column that has the first of these names, in any case; None: there is none."""
    lower = {name.strip().lower(): name for name in table}
    return next((lower[name] for name in names if name in lower), None)


def read_record_table(path: str | os.PathLike[str], like: Examples) -> RecordTable:
    """Ids of records, or records like those of a task's pool.

    A file with a column of labels holds records: its other columns are the entries of an input, in order. Else it holds
    ids, in a column id, row, index or record, or in its only one.
    """
    file = Path(path)
    table = read_columns(file)
    group, own = _usual(table, _GROUPS), _usual(table, _IDS)
    groups = None if group is None else tuple(str(cell) for cell in table[group])
    if _usual(table, _LABELS) is not None:
        features = _features(file, table, None)
        names = None if own is None else tuple(str(cell) for cell in table[own])
        examples = _like(file, _inputs(file, table, features), table, like)
        return RecordTable(file, None, examples, groups, names, tuple(features))
    rest = [name for name in table if name != group]
    if own is None and len(rest) == 1:
        own = rest[0]
    if own is None:
        raise InvalidArgument(
            f"{file} has neither a column of ids nor one of labels; the columns are {check.listed(list(table)[:12])}",
            remedy="name one id (rows of the task's pool), or pass records with a column 'label'",
        )
    cells = list(table[own])
    if _whole(own) is not None:  # no header: the first line is a record
        cells = [own, *cells]
    return RecordTable(file, _ids(file, own, cells), None, groups)


def _ids(file: Path, column: str, cells: Sequence[Any]) -> NDArray[np.int64]:
    found = [_whole(cell) for cell in cells]
    if not found or None in found:
        what = "no records" if not found else f"{str(cells[found.index(None)])[:40]!r} in column {column!r}"
        raise InvalidArgument(f"{file} has {what}", remedy="write rows of the task's pool, whole numbers from 0")
    ids = np.array(found, dtype=np.int64)
    if np.unique(ids).size != ids.size:
        raise InvalidArgument(f"{file} names a record twice", remedy="name each once")
    return ids


def _number(cell: Any) -> float | None:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return None


def _whole(cell: Any) -> int | None:
    number = _number(cell)
    return int(number) if number is not None and number.is_integer() and abs(number) < 2**53 else None


def _label(path: Path, table: Mapping[str, Any], label: str | None) -> str:
    if label is not None:
        return _named(path, table, label, "label")
    found = _usual(table, _LABELS)
    if found is None:
        raise InvalidArgument(
            f"{path} has no column 'label', its columns are {check.listed(list(table)[:12])}",
            remedy="name the column of the label (--column label=NAME of gmip init, label= of read_records)",
        )
    return found


def _named(path: Path, table: Mapping[str, Any], column: str, argument: str) -> str:
    if column not in table:
        raise InvalidArgument(
            f"{path} has no column {column!r}{check.did_you_mean(column, table)}",
            argument=argument,
            remedy=f"the columns are {check.listed(list(table)[:12])}",
        )
    return column


def _features(path: Path, table: Mapping[str, Any], label: str | None, ignore: Sequence[str] = ()) -> list[str]:
    apart = {_label(path, table, label), *(_named(path, table, name, "ignore") for name in ignore)}
    names = [name for name in table if name not in apart and name.strip().lower() not in (*_IDS, *_GROUPS)]
    if not names:
        raise InvalidArgument(f"{path} has no column but the label", remedy="add the features of the records")
    return names


def _inputs(path: Path, table: Mapping[str, Any], names: Sequence[str]) -> NDArray[np.float32]:
    columns = []
    for name in names:
        numbers = [_number(cell) for cell in table[name]]
        with np.errstate(over="ignore"):
            columns.append(np.array(numbers, dtype=np.float64).astype(np.float32))  # what is no number is NaN
        if not np.isfinite(columns[-1]).all():
            row = numbers.index(None) if None in numbers else int((~np.isfinite(columns[-1])).argmax())
            what, remedy = "finite number of single precision", "leave out the record"
            if numbers[row] is None:
                what, remedy = (
                    "number",
                    (
                        "encode categories as numbers; say what a column that is no feature is: --column id=NAME, "
                        "group=NAME or ignore=NAME of gmip init (ignore= of read_records)"
                    ),
                )
            cell = str(table[name][row])[:40]
            raise InvalidArgument(
                f"{path} has {cell!r} in column {name!r} of record {row + 1}, which is not a {what}", remedy=remedy
            )
    found = np.column_stack(columns)
    if not len(found):
        raise InvalidArgument(f"{path} has no records", remedy="write one on each line below the names")
    return found


def _targets(cells: Sequence[Any], classes: Sequence[str] | None = None) -> torch.Tensor:
    if classes is not None:
        order = {str(name): place for place, name in enumerate(classes)}
        unknown = next((str(cell).strip() for cell in cells if str(cell).strip() not in order), None)
        if unknown is not None:
            raise InvalidArgument(f"lacks {unknown[:40]!r}", argument="classes", remedy="name every class")
        return torch.tensor([order[str(cell).strip()] for cell in cells], dtype=torch.int64)
    whole = [_whole(cell) for cell in cells]
    if None not in whole:
        return torch.tensor(whole, dtype=torch.int64)
    if all(_number(cell) is not None for cell in cells):
        return torch.tensor([float(cell) for cell in cells], dtype=torch.float32)
    return _targets(cells, sorted({str(cell).strip() for cell in cells}))


def _like(path: Path, rows: NDArray[np.float32], table: Mapping[str, Any], like: Examples) -> Examples:
    """The records in the shape and type of the task's."""
    inputs = like.inputs
    if not isinstance(inputs, torch.Tensor):
        raise InvalidArgument(
            f"{path} holds records, and the task's have inputs by name", remedy="pass ids of its pool instead"
        )
    shape = tuple(inputs.shape[1:])
    if rows.shape[1] != int(np.prod(shape)):
        raise InvalidArgument(
            f"{path} has {rows.shape[1]} columns of features, and an input of the task has shape {shape}",
            remedy="write a column for each entry, in order",
        )
    labels = list(table[_label(path, table, None)])
    if None in map(_number, labels):
        raise InvalidArgument(
            f"{path} has names of classes, and the task numbers them",
            remedy="write their numbers, or pass rows of the task's pool, such as 0:100",
        )
    targets = _targets(labels)
    if targets.is_floating_point() != like.targets.is_floating_point() or like.targets.ndim != 1:
        raise InvalidArgument(
            f"{path} has labels of another kind than the task's, {like.targets.dtype} of shape "
            f"{tuple(like.targets.shape)}",
            remedy="pass ids of its pool instead",
        )
    return Examples(torch.from_numpy(rows.reshape(-1, *shape)).to(inputs.dtype), targets.to(like.targets.dtype))
