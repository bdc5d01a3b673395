"""Auditing: scores and the accountant's curve -> `AuditResult`. No deep-learning framework."""

from __future__ import annotations

from gmip.auditing.advice import advise
from gmip.auditing.curves import claimed_curve, joint_run, predicted, promise
from gmip.auditing.measure import attack_outcome
from gmip.auditing.merge import merged
from gmip.auditing.schema import AuditResult
from gmip.auditing.verdict import THREAT_MODEL, gate, verdict

__all__ = [
    "THREAT_MODEL",
    "AuditResult",
    "advise",
    "attack_outcome",
    "claimed_curve",
    "gate",
    "joint_run",
    "merged",
    "predicted",
    "promise",
    "verdict",
]
