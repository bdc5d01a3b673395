"""What a notebook shows of a result."""

from __future__ import annotations

from gmip._html import card
from gmip._svg import picture
from gmip.auditing.schema import AuditResult
from gmip.report import verdict_words
from gmip.report.overlay import overview_figure, run_figure

__all__ = ["to_card"]


def to_card(result: AuditResult) -> str:
    """The verdicts and the curves as HTML; no record and no folder is named."""
    rows = [(run.name, verdict_words.headline(run)) for run in result.runs]
    figure = run_figure(result.runs[0], "", 0.01) if len(result.runs) == 1 else overview_figure(result, "", 0.01)
    label = "Members found against false alarms"
    drawing = picture(figure.series, label=label, lowest=figure.lowest, unmeasured=figure.first_measured)
    return card(result.title, rows, drawing)
