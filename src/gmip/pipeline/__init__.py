"""The pipeline: from settings to an `AuditResult`, stage by stage, each kept so that an interruption loses little."""

from __future__ import annotations

from gmip.pipeline.config import TEMPLATE, AuditConfig, make_config, read_yaml
from gmip.pipeline.estimators import audit_estimator
from gmip.pipeline.orchestrate import audit, run_audit
from gmip.pipeline.recompute import check_run

__all__ = [
    "TEMPLATE",
    "AuditConfig",
    "audit",
    "audit_estimator",
    "check_run",
    "make_config",
    "read_yaml",
    "run_audit",
]
