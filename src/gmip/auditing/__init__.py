"""Auditing: scores and the accountant's curve -> `AuditResult`. No deep-learning framework."""

from __future__ import annotations

from gmip.auditing.advice import advise
from gmip.auditing.groups import Groups, group_outcomes
from gmip.auditing.individual_promises import OwnNorms
from gmip.auditing.judge import AttackEvidence, Criteria, Evidence, Labels, Scored, judge
from gmip.auditing.outcomes import attack_outcome
from gmip.auditing.prediction_audit import audit_predictions, prediction_scores
from gmip.auditing.prediction_table import PREDICTION_ROLES
from gmip.auditing.promises import given_curve, predicted, promise, stacked_run
from gmip.auditing.recorded import AttackFindings, recorded_evidence
from gmip.auditing.schema import AuditResult, Candidate, Candidates, merged
from gmip.auditing.score_audit import Claim, Standards, audit_score_table, audit_scores
from gmip.auditing.score_files import SUFFIXES, read_columns, read_scores
from gmip.auditing.score_table import ROLES, About, ScoreTable
from gmip.auditing.verdict import gate, verdict

__all__ = [
    "PREDICTION_ROLES",
    "ROLES",
    "SUFFIXES",
    "About",
    "AttackEvidence",
    "AttackFindings",
    "AuditResult",
    "Candidate",
    "Candidates",
    "Claim",
    "Criteria",
    "Evidence",
    "Groups",
    "Labels",
    "OwnNorms",
    "ScoreTable",
    "Scored",
    "Standards",
    "advise",
    "attack_outcome",
    "audit_predictions",
    "audit_score_table",
    "audit_scores",
    "gate",
    "given_curve",
    "group_outcomes",
    "judge",
    "merged",
    "predicted",
    "prediction_scores",
    "promise",
    "read_columns",
    "read_scores",
    "recorded_evidence",
    "stacked_run",
    "verdict",
]
