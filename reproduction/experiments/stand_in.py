"""The parts that need Purchase-100, on generated records of its shape: who has the file gets them in the usual setting.

They show that every part runs on such a file to its figure. None of the numbers is one of the paper's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from gmip.report.tables import Table
from reproduction.experiment import Cell, Claim, Drawing, Experiment, Row, Study
from reproduction.experiments import audit, loss_attacks, utility
from reproduction.generated import STAND_IN

_LABEL: Final = "Stand-in: generated records, not Purchase-100"


def _run(run: Callable[[Any], list[Row]], cell: Cell) -> list[Row]:
    return [{"data": "generated"} | row for row in run(cell)]


def _named(text: str) -> str:
    return text.replace("Purchase", "Stand-in")


def _labelled(experiment: Experiment, *, quick_only: bool = False) -> Experiment:
    """The experiment with the cells of Purchase alone, and the label in its table, claims and figures.

    quick_only : take the cells of a quick run always: one seed shows that the part runs to its figure.
    """

    def cells(quick: bool) -> list[Any]:
        usual = experiment.cells(quick or quick_only)
        return [dataclasses.replace(cell, task=STAND_IN) for cell in usual if cell.task == "purchase"]

    def drawings(rows: Sequence[Row]) -> list[Drawing]:
        from matplotlib.text import Text

        # Beside the paper's own figure it would pass for a measurement of it.
        found = [each for each in experiment.drawings(rows) if each.name != "beside"]
        for each in found:
            for text in each.figure.findobj(Text):
                text.set_text(_named(text.get_text()))
            each.figure.suptitle(_LABEL)
        return [each._replace(alt=f"{_LABEL}. {_named(each.alt)}") for each in found]

    def table(rows: Sequence[Row]) -> Table:
        found = experiment.table(rows)
        body = tuple(tuple(dataclasses.replace(cell, text=_named(cell.text)) for cell in row) for row in found.rows)
        return dataclasses.replace(found, caption=f"{_LABEL}. {found.caption}", rows=body)

    def claims(rows: Sequence[Row]) -> list[Claim]:
        return [
            dataclasses.replace(each, what=_named(each.what), measured=_named(each.measured), ours=True)
            for each in experiment.claims(rows)
        ]

    return dataclasses.replace(
        experiment,
        name=f"{experiment.name}-stand-in",
        title=f"{experiment.title}: generated stand-in for Purchase-100",
        paper=f"{experiment.paper}, but no data of the paper",
        cells=cells,
        run=partial(_run, experiment.run),
        drawings=drawings,
        table=table,
        claims=claims,
    )


STANDING_IN: Final = Study(
    "What needs Purchase-100, on generated records of its shape",
    "197,324 rows, 600 bits, 100 classes; not the data of the paper",
    (
        _labelled(audit.EXPERIMENT, quick_only=True),
        _labelled(utility.EXPERIMENT),
        _labelled(loss_attacks.EXPERIMENT, quick_only=True),
    ),
)
