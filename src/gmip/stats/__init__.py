"""Statistics without a deep-learning framework: covariance models, exact ROCs, scored candidates, bounds of audits."""

from __future__ import annotations

from gmip.stats.bounds import (
    candidates_needed,
    claim_p_value,
    epsilon_lower_bound,
    mu_lower_bound,
    noticeable_mu,
    noticeable_tpr,
    tie_blocks,
    tpr_lower_bound,
)
from gmip.stats.covariance import GaussianModel
from gmip.stats.intervals import roc_band, summary
from gmip.stats.scores import (
    ExpectedRoc,
    Pooled,
    RocCurve,
    RunScores,
    ScoreSet,
    auc,
    logistic_calibration,
    pool,
    roc_curve,
    tpr_at_fpr,
)

__all__ = [
    "ExpectedRoc",
    "GaussianModel",
    "Pooled",
    "RocCurve",
    "RunScores",
    "ScoreSet",
    "auc",
    "candidates_needed",
    "claim_p_value",
    "epsilon_lower_bound",
    "logistic_calibration",
    "mu_lower_bound",
    "noticeable_mu",
    "noticeable_tpr",
    "pool",
    "roc_band",
    "roc_curve",
    "summary",
    "tie_blocks",
    "tpr_at_fpr",
    "tpr_lower_bound",
]
