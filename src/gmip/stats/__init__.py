"""Statistics without a deep-learning framework: covariance models, exact ROC curves, scored candidates."""

from __future__ import annotations

from gmip.stats.covariance import GaussianModel
from gmip.stats.roc import RocCurve, auc, roc_curve, tpr_at_fpr
from gmip.stats.scores import ScoreSet, logistic_calibration

__all__ = ["GaussianModel", "RocCurve", "ScoreSet", "auc", "logistic_calibration", "roc_curve", "tpr_at_fpr"]
