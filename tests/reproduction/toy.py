"""An experiment small enough for tests. `calls` counts the cells that were computed in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gmip.errors import DataUnavailable, InvalidArgument
from gmip.report.tables import Cell as TableCell
from gmip.report.tables import Table
from reproduction import figures
from reproduction.experiment import Cell, Claim, Drawing, Experiment, Row, Study

calls: list[float] = []
troubles: dict[float, Exception] = {}  # by number
tasks: dict[float, str] = {}


@dataclass(frozen=True, kw_only=True)
class Number(Cell):
    number: float


def cells(quick: bool) -> list[Number]:
    return [Number(number=float(k), task=tasks.get(k)) for k in range(3 if quick else 4)]


def run(cell: Number) -> list[Row]:
    calls.append(cell.number)
    if cell.number in troubles:
        raise troubles[cell.number]
    return [{"number": cell.number, "square": cell.number**2, "name": "a,b", "none": None}]


def drawings(rows: Sequence[Row]) -> list[Drawing]:
    figure, (axes,) = figures.panels(1)
    axes.plot([row["number"] for row in rows], [row["square"] for row in rows], "o", label="squares")
    other, _ = figures.panels(2)
    return [Drawing("", figure, 'squares & "more"'), Drawing("empty", other, "nothing")]


def table(rows: Sequence[Row]) -> Table:
    body = tuple((TableCell(f"{row['number']:g}", ("a detail",)), TableCell(f"{row['square']:g}")) for row in rows)
    return Table("Squares", ("Number", "Square"), body)


def claims(rows: Sequence[Row]) -> list[Claim]:
    return [Claim(what="They grow", published="<b>yes</b>", measured=str(len(rows)), verdict="agrees", words="Really.")]


EXPERIMENT = Experiment(
    name="toy",
    title="A toy <experiment>",
    paper="Figure 0",
    claim="Squares grow.",
    quick="the last cell.",
    version=1,
    cells=cells,
    run=run,
    drawings=drawings,
    table=table,
    claims=claims,
    probe=lambda: [{"one": 1.5}],
)
STUDY = Study("Toys & more", "Nothing to learn", (EXPERIMENT,))
unavailable = DataUnavailable("The set is not here: fetch it.")
invalid = InvalidArgument("number = 2 is bad: pass another.")
