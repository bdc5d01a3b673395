"""Files of scores and predictions: CSV, JSON lines, Parquet. Nothing is executed or unpickled."""

from __future__ import annotations

import contextlib
import csv
import functools
import gc
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from gmip._io import reading
from gmip.auditing.prediction_table import builder_for, table_from_columns
from gmip.auditing.score_table import ScoreTable
from gmip.errors import FileError, InvalidArgument

__all__ = ["SUFFIXES", "read_columns", "read_scores"]

_CSV, _JSON, _PARQUET = (".csv", ".tsv", ".txt"), (".jsonl", ".ndjson"), (".parquet", ".pq")
SUFFIXES: Final = (".csv", ".tsv", *_JSON, *_PARQUET)
_MOST_BYTES: Final = 2 * 2**30  # of a file: tables are held in memory
_LONGEST_LINE: Final = 2**20  # characters of text that are read at once; what a line has beyond begins another
_CHUNK: Final = 65_536  # records that are held as text


def read_scores(
    path: Path, columns: Mapping[str, str | Sequence[str]] | None = None, attacks: Sequence[str] | None = None
) -> ScoreTable:
    """The scores in a file, or those of attacks on the predictions in it; arguments as in `builder_for`.

    What is wrong is one sentence that names the file."""
    with _readable(path):
        if path.suffix.lower() in _PARQUET:
            return table_from_columns(_parquet(path), columns, attacks)
        return _read(path, columns, attacks)


def read_columns(path: Path) -> dict[str, Sequence[Any] | NDArray[Any]]:
    """Every column of a file, by name: text of CSV, what JSON and Parquet hold. Errors name the file."""
    with _readable(path):
        if path.suffix.lower() in _PARQUET:
            return dict(_parquet(path))
        found: dict[str, list[Any]] = {}
        with path.open(encoding="utf-8-sig", newline="") as file, _no_garbage_collection():
            for names, rows in _records(path)(file):
                repeated = next((name for name in names if names.count(name) > 1), None)
                if repeated is not None:
                    raise InvalidArgument(f"The file has two columns {repeated!r}", remedy="rename one of them")
                for place, name in enumerate(names):
                    found.setdefault(name, []).extend(row[place] for row in rows)
        if not found:
            raise _empty()
        return dict(found)


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """What is wrong with a file is one sentence that names it."""
    with reading(path):
        if path.suffix.lower() not in (*_CSV, *_JSON, *_PARQUET):
            raise InvalidArgument(f"{path} is not a known kind of file", remedy=f"pass one of {', '.join(SUFFIXES)}")
        if not path.is_file() and path.exists():
            raise FileError(f"{path} is not a file", remedy=f"pass a table ({', '.join(SUFFIXES)})")
        size = path.stat().st_size
        if size > _MOST_BYTES:
            raise InvalidArgument(
                f"{path} has {size / 2**30:,.1f} GiB, and tables of at most {_MOST_BYTES // 2**30} GiB are read",
                remedy="pass fewer columns, or a random sample of the records",
            )
        try:
            yield
        except InvalidArgument as error:
            if error.argument is not None:
                raise
            raise type(error)(f"{path}: {error.problem}", remedy=error.remedy) from None
        except UnicodeDecodeError:
            raise InvalidArgument(f"{path} is not text in UTF-8", remedy="save it as UTF-8") from None


def _records(path: Path) -> Callable[[Any], Iterator[tuple[list[str], list[Sequence[Any]]]]]:
    return _json_lines if path.suffix.lower() in _JSON else _csv_records


def _read(path: Path, columns: Mapping[str, str | Sequence[str]] | None, attacks: Sequence[str] | None) -> ScoreTable:
    builder: Any = None
    with path.open(encoding="utf-8-sig", newline="") as file, _no_garbage_collection():
        for names, rows in _records(path)(file):
            if builder is None:
                builder = builder_for(names, columns, attacks)
            cells = dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(names, ())
            builder.add({name: cells[name] for name in builder.columns.all()})
    if builder is None:
        raise _empty()
    table: ScoreTable = builder.table()
    return table


def _empty() -> InvalidArgument:
    return InvalidArgument("The file is empty", remedy="write a line of column names, and a record on each line below")


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Millions of short lists and texts hold no cycles; looking for some takes as long as reading them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _csv_records(file: Any) -> Iterator[tuple[list[str], list[Sequence[str]]]]:
    """The names of the columns and the next records, again and again."""
    try:
        header = file.readline(_LONGEST_LINE)
        if len(header) == _LONGEST_LINE:
            raise InvalidArgument("The first line is too long for names of columns", remedy="save it as CSV again")
        delimiter = max(",;\t", key=header.count)
        names = [name.strip() for name in next(csv.reader([header], delimiter=delimiter), [])]
        if not any(names):
            return
        reader = csv.reader(iter(functools.partial(file.readline, _LONGEST_LINE), ""), delimiter=delimiter)
        done = 0
        while chunk := list(itertools.islice(reader, _CHUNK)):
            rows: list[Sequence[str]] = [row for row in chunk if row]
            if set(map(len, rows)) - {len(names)}:
                row, cells = next((i, cells) for i, cells in enumerate(rows) if len(cells) != len(names))
                raise InvalidArgument(
                    f"Record {done + row + 1} has {len(cells)} cells where the header has {len(names)}",
                    remedy="fix the line, or quote cells that hold a delimiter",
                )
            yield names, rows
            done += len(rows)
        if not done:
            yield names, []
    except csv.Error as error:
        raise InvalidArgument(f"The file is not CSV ({error})", remedy="save it as CSV again") from None


def _json_lines(file: Any) -> Iterator[tuple[list[str], list[Sequence[Any]]]]:
    names: list[str] = []
    line = 0
    while chunk := list(itertools.islice(file, _CHUNK)):
        rows: list[Sequence[Any]] = []
        for text in chunk:
            line += 1
            if not text.strip():
                continue
            try:
                record = json.loads(text)
            except (ValueError, RecursionError):
                raise InvalidArgument(
                    f"Line {line} is not JSON", remedy="write one object a line, such as {'member': 1, 'score': 0.5}"
                ) from None
            if not isinstance(record, dict):
                raise InvalidArgument(f"Line {line} is not a JSON object", remedy="write one object a line")
            names = names or list(record)
            lacking = next((name for name in names if name not in record), None)
            if lacking is not None:
                raise InvalidArgument(
                    f"Line {line} has no {lacking!r}, which line 1 has", remedy="write all keys in each"
                )
            rows.append([record[name] for name in names])
        if names:
            yield names, rows


def _parquet(path: Path) -> dict[str, Any]:
    try:
        from pyarrow import parquet

        table = parquet.read_table(path)
        return {name: table.column(name).to_numpy() for name in table.column_names}
    except ModuleNotFoundError:
        pass
    except (ValueError, TypeError, NotImplementedError) as error:
        raise _damaged(error) from None
    try:
        import pandas

        frame = pandas.read_parquet(path)
        return {str(name): frame[name].to_numpy() for name in frame.columns}
    except ImportError:
        raise InvalidArgument(
            "Parquet needs pyarrow or pandas, and neither is installed",
            remedy="pip install pyarrow, or pass a CSV file",
        ) from None
    except (ValueError, TypeError, NotImplementedError) as error:
        raise _damaged(error) from None


def _damaged(error: Exception) -> InvalidArgument:
    why = " ".join(str(error).split())[:100]
    return InvalidArgument(f"The file is not Parquet that can be read ({why})", remedy="write it again")
