"""Auditing: scores and the accountant's curve -> `AuditResult`. No deep-learning framework."""

from __future__ import annotations

from gmip.auditing.schema import AuditResult

__all__ = ["AuditResult"]
