"""Tables in files: CSV, JSON lines, Parquet. Nothing is executed or unpickled."""

from __future__ import annotations

import contextlib
import csv
import functools
import gc
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from gmip._io import reading
from gmip.errors import FileError, InvalidArgument

_CSV, _JSON, _PARQUET = (".csv", ".tsv", ".txt"), (".jsonl", ".ndjson"), (".parquet", ".pq")
SUFFIXES: Final = (".csv", ".tsv", *_JSON, *_PARQUET)
_CSV_BY_PANDAS: Final = "save it as CSV, in Python with pandas.{}(...).to_csv('scores.csv', index=False)"
_WAYS_OUT: Final = {
    **dict.fromkeys((".xlsx", ".xls", ".ods", ".numbers"), "save the sheet as CSV (UTF-8)"),
    **dict.fromkeys((".sav", ".zsav"), _CSV_BY_PANDAS.format("read_spss")),
    ".dta": _CSV_BY_PANDAS.format("read_stata"),
    ".sas7bdat": _CSV_BY_PANDAS.format("read_sas"),
    ".feather": _CSV_BY_PANDAS.format("read_feather"),
    ".rds": "save it as CSV, in R with write.csv(readRDS('scores.rds'), 'scores.csv', row.names = FALSE)",
    **dict.fromkeys((".rdata", ".rda"), "save it as CSV, in R with write.csv(scores, 'scores.csv', row.names = FALSE)"),
    **dict.fromkeys(
        (".pkl", ".pickle", ".joblib"),
        "load it yourself (gmip runs no code from files), and write what it answers to predictions.csv, or pass the "
        "estimator to gmip.Estimator",
    ),
    **dict.fromkeys(
        (".pt", ".pth", ".bin", ".safetensors"),
        "weights go with a task: gmip audit my_project.py:make_task --model FILE --members FILE --non-members FILE",
    ),
}
_MOST_BYTES: Final = 2 * 2**30  # of a file: tables are held in memory
_LONGEST_LINE: Final = 2**20  # characters of text that are read at once; what a line has beyond begins another
_CHUNK: Final = 65_536  # records that are held as text


def read_columns(path: Path) -> dict[str, Sequence[Any] | NDArray[Any]]:
    """Every column of a file, by name: text of CSV, what JSON and Parquet hold. Errors name the file."""
    with in_file(path):
        if is_parquet(path):
            return dict(_parquet(path))
        found: dict[str, list[Any]] = {}
        for names, columns in pieces(path):
            repeated = next((name for name in names if names.count(name) > 1), None)
            if repeated is not None:
                raise InvalidArgument(f"The file has two columns {repeated!r}", remedy="rename one of them")
            for name, cells in columns.items():
                found.setdefault(name, []).extend(cells)
        return dict(found)


def is_parquet(path: Path) -> bool:
    """Whether a file is read as a whole, not in pieces."""
    return path.suffix.lower() in _PARQUET


def pieces(path: Path) -> Iterator[tuple[list[str], dict[str, Sequence[Any]]]]:
    """The names of the columns of a text file and some thousand records, column by column, again and again. Read them
    within `in_file`, which words the errors."""
    some = False
    with path.open(encoding="utf-8-sig", newline="") as file, _no_garbage_collection():
        for names, rows in (_json_lines if path.suffix.lower() in _JSON else _csv_records)(file):
            some = True
            yield names, dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(names, ())
    if not some:
        raise InvalidArgument(
            "The file is empty", remedy="write a line of column names, and a record on each line below"
        )


@contextlib.contextmanager
def in_file(path: Path) -> Iterator[None]:
    """What is wrong with a file is one sentence that names it."""
    with reading(path):
        if path.suffix.lower() not in (*_CSV, *_JSON, *_PARQUET):
            raise InvalidArgument(
                f"{path} is not a known kind of table",
                remedy=_WAYS_OUT.get(path.suffix.lower(), f"pass one of {', '.join(SUFFIXES)}"),
            )
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
