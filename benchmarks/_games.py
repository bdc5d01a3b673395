"""What the tables of attacks share: an attack on a run is a row of a CSV, written when it is done."""

from __future__ import annotations

import csv
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from _harness import Row
from torch import nn

from gmip.attacks import Attack
from gmip.errors import GmipWarning
from gmip.stats import ScoreSet
from gmip.stats.scores import auc, tpr_at_fpr
from gmip.tasks import Examples, Task
from gmip.trace import Trace

Ids = np.ndarray[Any, np.dtype[np.int64]]
KEYS = ("part", "setting", "seed", "null", "attack")
NUMBERS = ("auc", "tpr", "p5", "p1", "seconds", "predicted", "coverage", "decoded", "distance")


def network() -> nn.Module:
    """4,810 parameters, for digits."""
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


class Book:
    """All rows, in a file. `only`: the attacks that are run; None: all. `numbers`: the columns beside the key."""

    def __init__(self, path: Path, only: Iterable[str] | None = None, *, numbers: Sequence[str] = NUMBERS) -> None:
        self.path, self.only, self.numbers = path, None if only is None else set(only), numbers
        self.rows: list[Row] = []
        if path.exists():
            with path.open(newline="", encoding="utf-8") as file:
                for line in csv.DictReader(file):
                    told = {key: float(line[key]) for key in numbers if line[key]}
                    named = {"part": line["part"], "setting": line["setting"], "attack": line["attack"]}
                    self.rows.append(named | {"seed": int(line["seed"]), "null": line["null"] == "yes"} | told)
        self._known = {self._key(row) for row in self.rows}

    @staticmethod
    def _key(row: Row) -> tuple[Any, ...]:
        return tuple(row[key] for key in KEYS)

    def wants(self, key: Row) -> bool:
        return self._key(key) not in self._known and (self.only is None or key["attack"] in self.only)

    def add(self, row: Row) -> None:
        new = not self.path.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            if new:
                writer.writerow([*KEYS, *self.numbers])
            keys = [row["part"], row["setting"], row["seed"], "yes" if row["null"] else "no", row["attack"]]
            writer.writerow([*keys, *(f"{row[key]:.6g}" if key in row else "" for key in self.numbers)])
        self.rows.append(row)
        self._known.add(self._key(row))

    def found(self, **key: Any) -> list[Row]:
        return [row for row in self.rows if all(row[name] == value for name, value in key.items())]


@dataclass(frozen=True)
class Page:
    """A run: where the rows of the attacks on it go."""

    book: Book
    part: str
    setting: str
    seed: int
    null: bool

    def wants(self, *attacks: str) -> bool:
        """Whether one of them is still to be run."""
        return any(self.book.wants(self._row(attack)) for attack in attacks)

    def _row(self, attack: str) -> Row:
        return {"part": self.part, "setting": self.setting, "seed": self.seed, "null": self.null, "attack": attack}

    def attack(
        self, name: str, attack: Attack, task: Task, trace: Trace, ins: Ids, outs: Ids, background: Examples | None
    ) -> None:
        """Run it, unless its row is there, on candidates of whom `ins` are members (of a null run: called so)."""
        if not self.wants(name):
            return

        def run() -> tuple[ScoreSet, Ids]:
            found = attack.run(task, trace, np.concatenate([ins, outs]), background)
            return found, np.isin(found.ids, ins)

        self.scored(name, run)

    def scored(self, name: str, run: Callable[[], tuple[ScoreSet, Ids]]) -> None:
        """A row from scores and who of the candidates is in."""
        if not self.wants(name):
            return
        start = time.process_time()
        with warnings.catch_warnings(action="ignore", category=GmipWarning):
            found, inside = run()
        row = self._row(name) | {"seconds": time.process_time() - start}
        members, others = found.scores[inside], found.scores[~inside]
        row |= {"auc": auc(members, others), "tpr": float(tpr_at_fpr(members, others, 0.01))}
        if found.p_values is not None:
            strangers = found.p_values if self.null else found.p_values[~inside]
            row |= {f"p{percent}": float(np.mean(strangers <= percent / 100.0)) for percent in (1, 5)}
        if found.prediction is not None:
            row["predicted"] = found.prediction.auc
        row |= {key: float(found.facts[key]) for key in ("coverage", "decoded", "distance") if key in found.facts}
        self.book.add(row)

    def timed(self, name: str, seconds: float) -> None:
        """A row that is a cost alone."""
        self.book.add(self._row(name) | {"seconds": seconds})


def error(values: list[float]) -> float:
    """Standard error of a mean."""
    return stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def decimal(value: float) -> str:
    """.862, 1.000"""
    return f"{value:.3f}".removeprefix("0")


def percent(rows: list[Row], key: str = "tpr", digits: int = 1) -> str:
    """Mean of a share, in per cent."""
    values = [100.0 * row[key] for row in rows if key in row]
    return f"{mean(values):.{digits}f}%" if values else ""


def both(rows: list[Row], digits: int = 1) -> str:
    """Mean AUC, and mean TPR."""
    return f"{decimal(mean(row['auc'] for row in rows))}, {percent(rows, digits=digits)}" if rows else ""


def errors(cells: Iterable[list[Row]]) -> str:
    """A line below a table of means: how large their standard errors are at most."""
    cells = [rows for rows in cells if len(rows) > 1]
    largest = [max(error([row[key] for row in rows]) for rows in cells) for key in ("auc", "tpr")]
    return f"\nStandard errors: at most {decimal(largest[0])}, and {100.0 * largest[1]:.1f} points.\n"


def markdown(heads: list[str], lines: Iterable[list[str]]) -> str:
    cells = [heads, ["---"] * len(heads), *lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in cells) + "\n"
