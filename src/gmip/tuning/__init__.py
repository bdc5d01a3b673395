"""Finding the best recipe that keeps a privacy target."""

from __future__ import annotations

from gmip.tuning.model_metrics import METRICS, Metric, measure
from gmip.tuning.privacy_target import PrivacyTarget
from gmip.tuning.search_records import SearchRecords, search_records
from gmip.tuning.trials import Trial, num_params_of, train_once, trial

__all__ = [
    "METRICS",
    "Metric",
    "PrivacyTarget",
    "SearchRecords",
    "Trial",
    "measure",
    "num_params_of",
    "search_records",
    "train_once",
    "trial",
]
