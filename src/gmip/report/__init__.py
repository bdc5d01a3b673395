"""Reports: `AuditResult` -> one self-contained HTML page, Markdown for a model card, JSON and JUnit XML. No torch."""

from __future__ import annotations

from gmip.report.evidence import to_metrics, write_for
from gmip.report.html import to_html
from gmip.report.markdown import to_markdown
from gmip.report.tuning_page import write_tuning
from gmip.report.write import Written, read_result, write_junit, write_report

__all__ = [
    "Written",
    "read_result",
    "to_html",
    "to_markdown",
    "to_metrics",
    "write_for",
    "write_junit",
    "write_report",
    "write_tuning",
]
