"""Results on disk: OUT/<experiment>.csv, .svg and .json (claims, table, command, machine, time), and their page."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import platform
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import Any, Final

from gmip._io import make_folder, write
from gmip.errors import GmipWarning, InvalidArgument
from gmip.report.tables import Cell as TableCell
from gmip.report.tables import Table
from gmip.reproduce import experiments, figure_style
from gmip.reproduce.cell_store import Done
from gmip.reproduce.experiments import Claim, Experiment, Row, rows_of
from gmip.reproduce.result_page import Section, to_html, to_markdown

__all__ = [
    "CLAIMS",
    "INDEX",
    "Outcome",
    "check_folder",
    "csv_file",
    "publish",
    "read_csv",
    "read_outcome",
    "redraw",
    "to_csv",
    "write_index",
]

FORMAT, VERSION = "gmip-reproduction", 1
INDEX: Final = "index.html"
CLAIMS: Final = "claims.md"
_PACKAGES: Final = ("gmip", "numpy", "scipy", "torch", "opacus", "matplotlib")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What an experiment gave.

    Parameters
    ----------
    skipped : task -> how to get its data.
    seconds : computing time of all cells, one thread each.
    figures : file name -> what it shows, in words.
    """

    experiment: str
    quick: bool
    claims: tuple[Claim, ...]
    skipped: Mapping[str, str]
    table: Table
    figures: Mapping[str, str]
    cells: int
    seconds: float
    machines: tuple[str, ...]
    versions: Mapping[str, str]
    command: str
    created: str


def check_folder(folder: Path, names: Collection[str], *, quick: bool) -> None:
    """Refuses to replace full results by quick ones."""
    if folder.exists() and not folder.is_dir():
        raise InvalidArgument("is a file", argument="out", value=str(folder), remedy="pass a folder for the results")
    rows = [rows_of(experiments.experiment(name)) for name in names]
    for name in {*names, *rows} if quick else ():
        found = _read(folder, name)
        if found is not None and not found.quick:
            raise InvalidArgument(
                f"{folder / f'{name}.json'} is of a full run and would be replaced by a quick one",
                remedy="pass another folder",
            )


def publish(
    experiment: Experiment,
    folder: Path,
    done: Sequence[Done],
    skipped: Mapping[str, str],
    *,
    quick: bool,
    command: str,
) -> Outcome:
    """Write an experiment's files, the .json last: its presence says that they are complete."""
    rows = [row for each in done for row in each.rows]
    _write(csv_file(folder, experiment), to_csv(rows))
    outcome = Outcome(
        experiment=experiment.NAME,
        quick=quick,
        claims=(),
        skipped=dict(skipped),
        table=Table("Nothing was measured", (), ()),
        figures={},
        cells=len(done),
        seconds=round(sum(each.seconds for each in done), 1),
        machines=tuple(sorted({each.machine for each in done})),
        versions=_versions(),
        command=command,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return _show(experiment, folder, rows, outcome)


def csv_file(folder: Path, experiment: Experiment) -> Path:
    """Where the rows are: those of another experiment are in its file."""
    return folder / f"{rows_of(experiment)}.csv"


def redraw(names: Sequence[str], out: str | PathLike[str]) -> list[Outcome]:
    """Figures, tables and claims anew from the CSV files in `out`; who computed them when is as it was.

    "all" are those that are there.
    """
    folder = Path(out)
    present = [name for name in experiments.names() if (folder / f"{name}.json").exists()]
    chosen = dict.fromkeys(name for given in names for name in (present if given == "all" else [given]))
    if not chosen:
        raise InvalidArgument(f"{folder} has no results to redraw", remedy="compute them first")
    outcomes = [_redraw(folder, name) for name in chosen]
    write_index(folder)
    return outcomes


def _redraw(folder: Path, name: str) -> Outcome:
    found, path = _read(folder, name), csv_file(folder, experiments.experiment(name))
    if found is None or not path.is_file():
        raise InvalidArgument(f"{folder} has no results of {name} to redraw", remedy="compute them first")
    try:
        rows = read_csv(path.read_text(encoding="utf-8"))
        return _show(experiments.experiment(name), folder, rows, found)
    except (OSError, ValueError, KeyError, StopIteration):
        raise InvalidArgument(f"{path} was not written by this version of {name}", remedy="compute it again") from None


def _show(experiment: Experiment, folder: Path, rows: Sequence[Row], outcome: Outcome) -> Outcome:
    """Write figures and facts of the rows, and give the outcome with them."""
    figures: dict[str, str] = {}
    if rows:
        with figure_style.style():
            for drawing in experiment.drawings(rows):
                name = f"{experiment.NAME}{'-' if drawing.name else ''}{drawing.name}.svg"
                _write(folder / name, figure_style.to_svg(drawing.figure))
                figures[name] = drawing.alt
        outcome = dataclasses.replace(
            outcome, claims=tuple(experiment.claims(rows)), table=experiment.table(rows), figures=figures
        )
    facts: dict[str, Any] = {"format": FORMAT, "version": VERSION} | dataclasses.asdict(outcome)
    facts["table"] = {
        "caption": outcome.table.caption,
        "columns": outcome.table.columns,
        "texts": sorted(outcome.table.texts),
        "rows": ["\t".join("\n".join([cell.text, *cell.details]) for cell in row) for row in outcome.table.rows],
    }
    text = json.dumps(facts, indent=1, allow_nan=False, ensure_ascii=False)
    _write(folder / f"{experiment.NAME}.json", text + "\n")
    return outcome


def read_outcome(folder: Path, name: str) -> Outcome | None:
    """What `publish` wrote; None, with a warning, where it cannot be read."""
    try:
        return _read(folder, name)
    except InvalidArgument as error:
        warnings.warn(f"{error} It is not on the page.", GmipWarning, stacklevel=3)
        return None


def write_index(folder: Path) -> Path:
    """The page, and the claims in Markdown, of all experiments whose results are in the folder."""
    sections = []
    for name in experiments.names():
        outcome = read_outcome(folder, name)
        if outcome is None:
            continue
        experiment = experiments.experiment(name)
        drawn = [
            figure_style.inline((folder / file).read_text(encoding="utf-8"), Path(file).stem, alt)
            for file, alt in outcome.figures.items()
            if (folder / file).is_file()
        ]
        sections.append(Section(experiment, outcome, drawn))
    _write(folder / INDEX, to_html(sections))
    _write(folder / CLAIMS, to_markdown(sections))
    return folder / INDEX


def _read(folder: Path, name: str) -> Outcome | None:
    path = folder / f"{name}.json"
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
        if (found.pop("format"), found.pop("version"), found["experiment"]) != (FORMAT, VERSION, name):
            raise ValueError
        found["claims"] = tuple(Claim(**claim) for claim in found["claims"])
        found["table"] = _table(found["table"])
        found["machines"] = tuple(found["machines"])
        return Outcome(**found)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InvalidArgument(
            f"{path} is not a result of this version of gmip", remedy="remove it, or pass another folder"
        ) from None


def _table(found: dict[str, Any]) -> Table:
    rows = tuple(tuple(_cell(*cell.split("\n")) for cell in row.split("\t")) for row in found["rows"])
    return Table(found["caption"], tuple(found["columns"]), rows, frozenset(found["texts"]))


def _cell(text: str, *details: str) -> TableCell:
    return TableCell(text, details)


def to_csv(rows: Sequence[Row]) -> str:
    """The rows, with all columns that any of them has."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_written(row.get(column)) for column in columns] for row in rows)
    return text.getvalue()


def read_csv(text: str) -> list[Row]:
    """What `to_csv` wrote: numbers, to nine digits, booleans, None and other text."""
    return [{key: _value(value) for key, value in row.items()} for row in csv.DictReader(io.StringIO(text, newline=""))]


def _written(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _value(text: str) -> Any:
    if text in ("", "True", "False"):
        return {"": None, "True": True, "False": False}[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _write(path: Path, text: str) -> None:
    make_folder(path.parent, shared=True)
    write(path, text, shared=True)


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
