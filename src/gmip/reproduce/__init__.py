"""The paper's experiments, run again: published and measured numbers compared, as CSV files, figures and one page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gmip._lazy import lazy
from gmip.reproduce.experiments import Cell, Claim, Drawing, Experiment, Row, experiment, names

if TYPE_CHECKING:
    from gmip.reproduce.reproduction import Plan, prepare, reproduce
    from gmip.reproduce.result_files import Outcome, redraw

__all__ = [
    "Cell",
    "Claim",
    "Drawing",
    "Experiment",
    "Outcome",
    "Plan",
    "Row",
    "experiment",
    "names",
    "prepare",
    "redraw",
    "reproduce",
]

# Found when first asked for, because they need torch: the command line's help needs only the names.
_LAZY = {
    "Outcome": "gmip.reproduce.result_files",
    "Plan": "gmip.reproduce.reproduction",
    "prepare": "gmip.reproduce.reproduction",
    "redraw": "gmip.reproduce.result_files",
    "reproduce": "gmip.reproduce.reproduction",
}


__getattr__, __dir__ = lazy(__name__, _LAZY, __all__)
