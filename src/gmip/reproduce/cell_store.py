"""Rows of finished cells on disk: a file each, whole or not at all, found again by what they depend on."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from gmip._io import make_folder, sha256, write
from gmip.errors import InvalidArgument
from gmip.reproduce.experiments import Cell, Experiment, Row, rows_of

__all__ = ["CellStore", "Done"]

FORMAT: Final = "gmip-cell"


class Done(NamedTuple):
    """Rows of a cell, how long they took and on which machine."""

    rows: list[Row]
    seconds: float
    machine: str


class CellStore:
    """OUT/work: one file for each cell, named by a hash of the experiment, its version, the cell and its data."""

    def __init__(self, out: Path) -> None:
        self.path = out / "work"
        make_folder(self.path, shared=True)
        write(self.path / ".gitignore", "*\n")  # results are worth committing, the work behind them is not

    def file(self, experiment: Experiment, cell: Cell, data: Mapping[str, str]) -> Path:
        """Where the rows of a cell are. data : part of the task -> fingerprint."""
        text = json.dumps(_facts(experiment, cell, data), sort_keys=True, allow_nan=False)
        return self.path / rows_of(experiment) / f"{sha256(text)[:32]}.json"

    def read(self, experiment: Experiment, cell: Cell, data: Mapping[str, str]) -> Done | None:
        """The rows, or None where there are none, or not those of this cell."""
        try:
            found: Any = json.loads(self.file(experiment, cell, data).read_bytes())
            done = Done([dict(row) for row in found["rows"]], float(found["seconds"]), str(found["machine"]))
            ours = found["format"] == FORMAT and found["facts"] == _facts(experiment, cell, data)
        except (OSError, ValueError, KeyError, TypeError):
            return None  # missing or damaged: computed again
        return done if ours else None

    def write(self, experiment: Experiment, cell: Cell, data: Mapping[str, str], done: Done) -> None:
        """Keep the rows."""
        content = {
            "format": FORMAT,
            "facts": _facts(experiment, cell, data),
            "seconds": done.seconds,
            "machine": done.machine,
            "rows": done.rows,
        }
        try:
            text = json.dumps(content, indent=1, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(
                f"A row of {experiment.NAME} is not plain ({error})",
                remedy="let run return strings, finite numbers and None",
            ) from None
        path = self.file(experiment, cell, data)
        make_folder(path.parent, shared=True)
        write(path, text + "\n", shared=True)


def _facts(experiment: Experiment, cell: Cell, data: Mapping[str, str]) -> dict[str, Any]:
    facts = {
        "experiment": rows_of(experiment),
        "version": experiment.VERSION,
        "kind": type(cell).__name__,
        "cell": dataclasses.asdict(cell),
        "data": dict(data),
    }
    plain: dict[str, Any] = json.loads(json.dumps(facts, allow_nan=False))  # tuples become lists, as in the file
    return plain
