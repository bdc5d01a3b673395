"""Reports: `AuditResult` -> one self-contained HTML page, Markdown for a model card, JSON and JUnit XML. No torch.

Every name is imported when it is first used: an answer of the accountant needs its words alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gmip._lazy import lazy

if TYPE_CHECKING:
    from gmip.report.evidence import to_metrics as to_metrics
    from gmip.report.evidence import write_for as write_for
    from gmip.report.html import to_html as to_html
    from gmip.report.markdown import to_markdown as to_markdown
    from gmip.report.tuning_page import write_tuning as write_tuning
    from gmip.report.write import ReportFiles as ReportFiles
    from gmip.report.write import read_result as read_result
    from gmip.report.write import write_junit as write_junit
    from gmip.report.write import write_report as write_report

_PUBLIC = {
    "evidence": ("to_metrics", "write_for"),
    "html": ("to_html",),
    "markdown": ("to_markdown",),
    "tuning_page": ("write_tuning",),
    "write": ("ReportFiles", "read_result", "write_junit", "write_report"),
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _PUBLIC.items() for name in names}

__all__ = sorted(_HOMES)
__getattr__, __dir__ = lazy(__name__, _HOMES, __all__)
