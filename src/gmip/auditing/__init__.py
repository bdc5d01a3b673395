"""Auditing: scores and the accountant's curve -> `AuditResult`. No deep-learning framework."""

from __future__ import annotations

from gmip.auditing.advice import advise
from gmip.auditing.assemble import Attacked, Candidate, Criteria, RateLimit, Scored, assemble, merged
from gmip.auditing.outcomes import attack_outcome
from gmip.auditing.promises import claimed_curve, predicted, promise, stacked_run
from gmip.auditing.schema import AuditResult
from gmip.auditing.verdict import THREAT_MODEL, gate, verdict

__all__ = [
    "THREAT_MODEL",
    "Attacked",
    "AuditResult",
    "Candidate",
    "Criteria",
    "RateLimit",
    "Scored",
    "advise",
    "assemble",
    "attack_outcome",
    "claimed_curve",
    "gate",
    "merged",
    "predicted",
    "promise",
    "stacked_run",
    "verdict",
]
