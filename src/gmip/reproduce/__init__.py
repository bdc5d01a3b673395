"""The paper's experiments, run again: what was published beside what is measured, as CSV, figures and one page."""

from __future__ import annotations

from gmip.reproduce.base import Cell, Claim, Drawing, Experiment, Row
from gmip.reproduce.engine import prepare, reproduce
from gmip.reproduce.output import Outcome, redraw
from gmip.reproduce.registry import experiment, names

__all__ = [
    "Cell",
    "Claim",
    "Drawing",
    "Experiment",
    "Outcome",
    "Row",
    "experiment",
    "names",
    "prepare",
    "redraw",
    "reproduce",
]
