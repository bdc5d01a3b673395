"""Finished cells on disk: a file each, whole or not at all, found by what decides the rows."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from gmip._io import make_folder, sha256, write
from gmip.errors import InvalidArgument
from reproduction.experiment import Cell, Experiment, Row

__all__ = ["CellKey", "CellResult", "CellStore"]

FORMAT: Final = "gmip-cell"


class CellKey(NamedTuple):
    """What decides the rows of a cell: its experiment, and as JSON its version, the cell and the data."""

    experiment: str
    facts: str

    @classmethod
    def of(cls, experiment: Experiment, cell: Cell, data: Mapping[str, str]) -> CellKey:
        """The key of a cell. data : part of the task -> fingerprint."""
        facts = {
            "version": experiment.version,
            "kind": type(cell).__name__,
            "cell": dataclasses.asdict(cell),
            "data": dict(data),
        }
        return cls(experiment.source, json.dumps(facts, sort_keys=True, allow_nan=False))


class CellResult(NamedTuple):
    """The rows of a cell, how long they took and on which machine."""

    rows: list[Row]
    seconds: float
    machine: str


class CellStore:
    """OUT/work: one file for each cell, named by a hash of its key."""

    def __init__(self, out: Path) -> None:
        self.path = out / "work"
        make_folder(self.path, shared=True)
        write(self.path / ".gitignore", "*\n")  # results are worth committing, the work behind them is not

    def file(self, key: CellKey) -> Path:
        """Where the rows of a cell are."""
        return self.path / key.experiment / f"{sha256(key.facts)[:32]}.json"

    def read(self, key: CellKey) -> CellResult | None:
        """The rows; None where there are none, or the file is damaged or of another cell."""
        try:
            found: Any = json.loads(self.file(key).read_bytes())
            result = CellResult([dict(row) for row in found["rows"]], float(found["seconds"]), str(found["machine"]))
            matches = found["format"] == FORMAT and found["facts"] == key.facts
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return result if matches else None

    def write(self, key: CellKey, result: CellResult) -> None:
        """Keep the rows."""
        try:
            text = json.dumps({"format": FORMAT, "facts": key.facts} | result._asdict(), indent=1, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(
                f"A row of {key.experiment} is not plain ({error})",
                remedy="let run return strings, finite numbers and None",
            ) from None
        path = self.file(key)
        make_folder(path.parent, shared=True)
        write(path, text + "\n", shared=True)
