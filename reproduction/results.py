"""Results on disk: OUT/<experiment>.csv, .svg and .json (claims, table, command, machine, time), and their page."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import platform
import warnings
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import Any, Final

from gmip._io import make_folder, write
from gmip.errors import GmipWarning, InvalidArgument
from gmip.report.tables import Cell as TableCell
from gmip.report.tables import Table
from reproduction import figures
from reproduction.experiment import CellResult, Claim, Experiment, Outcome, Row, Study
from reproduction.page import Section, to_html, to_markdown

__all__ = [
    "CLAIMS",
    "INDEX",
    "check_folder",
    "csv_file",
    "publish",
    "read_csv",
    "read_outcome",
    "redraw",
    "to_csv",
    "write_index",
]

FORMAT, VERSION = "gmip-reproduction", 2
INDEX: Final = "index.html"
CLAIMS: Final = "claims.md"
_PACKAGES: Final = ("gmip", "numpy", "scipy", "torch", "opacus", "matplotlib")


def check_folder(folder: Path, experiments: Collection[Experiment], *, quick: bool) -> None:
    """Refuse to replace full results by quick ones."""
    if folder.exists() and not folder.is_dir():
        raise InvalidArgument("is a file", argument="out", value=str(folder), remedy="pass a folder for the results")
    for name in {name for one in experiments for name in (one.name, one.source)} if quick else ():
        found = _read(folder, name)
        if found is not None and not found.quick:
            raise InvalidArgument(
                f"{folder / f'{name}.json'} is of a full run and would be replaced by a quick one",
                remedy="pass another folder",
            )


def publish(
    experiment: Experiment,
    folder: Path,
    done: Sequence[CellResult],
    skipped: Mapping[str, str],
    probe: Sequence[Row],
    *,
    quick: bool,
    command: str,
) -> Outcome:
    """Write an experiment's files, the .json last: its presence says that they are complete."""
    rows = [row for each in done for row in each.rows]
    _write(csv_file(folder, experiment), to_csv(rows))
    outcome = Outcome(
        experiment=experiment.name,
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
        decided_by=experiment.decided_by(),
        probe=tuple(probe),
    )
    return _show(experiment, folder, rows, outcome)


def csv_file(folder: Path, experiment: Experiment) -> Path:
    """The file with the rows that an experiment shows."""
    return folder / f"{experiment.source}.csv"


def redraw(study: Study, names: Sequence[str], out: str | PathLike[str]) -> list[Outcome]:
    """Draw figures, fill tables and check claims anew from the CSV files in `out`; the record of who computed the rows
    and when stays. Without names: all experiments whose results are there."""
    folder = Path(out)
    present = [name for name in study.names if (folder / f"{name}.json").exists()]
    if not (names or present):
        raise InvalidArgument(f"{folder} has no results to redraw", remedy="compute them first")
    outcomes = [_redraw(folder, experiment) for experiment in study.select(names or present)]
    write_index(study, folder)
    return outcomes


def _redraw(folder: Path, experiment: Experiment) -> Outcome:
    found, path = _read(folder, experiment.name), csv_file(folder, experiment)
    if found is None or not path.is_file():
        raise InvalidArgument(f"{folder} has no results of {experiment.name} to redraw", remedy="compute them first")
    try:
        return _show(experiment, folder, read_csv(path.read_text(encoding="utf-8")), found)
    except (OSError, ValueError, KeyError, StopIteration):
        raise InvalidArgument(
            f"{path} was not written by this version of {experiment.name}", remedy="compute it again"
        ) from None


def _show(experiment: Experiment, folder: Path, rows: Sequence[Row], outcome: Outcome) -> Outcome:
    """Write figures and facts of the rows, and return the outcome with them."""
    drawn: dict[str, str] = {}
    if rows:
        with figures.style():
            for drawing in experiment.drawings(rows):
                name = f"{experiment.name}{'-' if drawing.name else ''}{drawing.name}.svg"
                _write(folder / name, figures.to_svg(drawing.figure))
                drawn[name] = drawing.alt
        outcome = dataclasses.replace(
            outcome, claims=tuple(experiment.claims(rows)), table=experiment.table(rows), figures=drawn
        )
    facts: dict[str, Any] = {"format": FORMAT, "version": VERSION} | dataclasses.asdict(outcome)
    facts["table"] = {
        "caption": outcome.table.caption,
        "columns": outcome.table.columns,
        "texts": sorted(outcome.table.texts),
        "rows": ["\t".join("\n".join([cell.text, *cell.details]) for cell in row) for row in outcome.table.rows],
    }
    facts["probe"] = to_csv(outcome.probe).splitlines()
    text = json.dumps(facts, indent=1, allow_nan=False, ensure_ascii=False)
    _write(folder / f"{experiment.name}.json", text + "\n")
    return outcome


def read_outcome(folder: Path, name: str) -> Outcome | None:
    """What `publish` wrote; None, with a warning, where it cannot be read."""
    try:
        return _read(folder, name)
    except InvalidArgument as error:
        warnings.warn(f"{error} It is not on the page.", GmipWarning, stacklevel=3)
        return None


def write_index(study: Study, folder: Path) -> Path:
    """Write the page, and the claims in Markdown, of all experiments of the study whose results are in the folder."""
    sections = []
    for experiment in study.experiments:
        outcome = read_outcome(folder, experiment.name)
        if outcome is None:
            continue
        drawn = [
            figures.inline((folder / file).read_text(encoding="utf-8"), Path(file).stem, alt)
            for file, alt in outcome.figures.items()
            if (folder / file).is_file()
        ]
        sections.append(Section(experiment, outcome, drawn))
    _write(folder / INDEX, to_html(study, sections))
    _write(folder / CLAIMS, to_markdown(study, sections))
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
        found["probe"] = tuple(read_csv("\n".join(found["probe"])))
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


def to_csv(rows: Sequence[Row], *, digits: int = 9) -> str:
    """The rows, with all columns that any of them has."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_written(row.get(column), digits) for column in columns] for row in rows)
    return text.getvalue()


def read_csv(text: str) -> list[Row]:
    """What `to_csv` wrote: numbers, to nine digits, booleans, None and other text."""
    return [{key: _value(value) for key, value in row.items()} for row in csv.DictReader(io.StringIO(text, newline=""))]


def _written(value: Any, digits: int) -> str:
    if value is None:
        return ""
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


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
