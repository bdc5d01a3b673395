"""Auditing: sources yield evidence, the judge says what it means, an `AuditResult` holds it.

Every name is imported when it is first used: scores and predictions need no deep-learning framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gmip._lazy import lazy

if TYPE_CHECKING:
    from gmip.auditing.audit import audit as audit
    from gmip.auditing.audit import audit_sources as audit_sources
    from gmip.auditing.audit import run_audit as run_audit
    from gmip.auditing.judge import AttackEvidence as AttackEvidence
    from gmip.auditing.judge import Evidence as Evidence
    from gmip.auditing.judge import JudgeSettings as JudgeSettings
    from gmip.auditing.prediction_table import read_scores as read_scores
    from gmip.auditing.recompute import check_run as check_run
    from gmip.auditing.schema import AuditResult as AuditResult
    from gmip.auditing.schema import Candidate as Candidate
    from gmip.auditing.schema import Candidates as Candidates
    from gmip.auditing.schema import merged as merged
    from gmip.auditing.settings import AuditConfig as AuditConfig
    from gmip.auditing.settings import make_config as make_config
    from gmip.auditing.settings import template as template

_PUBLIC = {
    "audit": ("audit", "audit_sources", "run_audit"),
    "judge": ("AttackEvidence", "Evidence", "JudgeSettings"),
    "prediction_table": ("read_scores",),
    "recompute": ("check_run",),
    "schema": ("AuditResult", "Candidate", "Candidates", "merged"),
    "settings": ("AuditConfig", "make_config", "template"),
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _PUBLIC.items() for name in names}

__all__ = sorted(_HOMES)

_find, __dir__ = lazy(__name__, _HOMES, __all__)


def __getattr__(name: str) -> Any:
    return _find(name)
