"""The pipeline: from settings to an `AuditResult`, stage by stage, each kept so that an interruption loses little."""

from __future__ import annotations

from gmip.auditing import Audited, hold_folder
from gmip.pipeline.config import TEMPLATE, AuditConfig, make_config, read_yaml
from gmip.pipeline.orchestrate import audit, run_audit

__all__ = ["TEMPLATE", "AuditConfig", "Audited", "audit", "hold_folder", "make_config", "read_yaml", "run_audit"]
