"""Finding the best recipe that keeps a privacy target."""

from __future__ import annotations

from gmip.tuning.gradient_norms import AutoClip, auto_clip, gradient_norms, warn_of_loose_clipping
from gmip.tuning.model_metrics import METRICS, Metric, measure
from gmip.tuning.privacy_target import PrivacyTarget
from gmip.tuning.search_records import SearchRecords, search_records
from gmip.tuning.search_space import SearchSpace
from gmip.tuning.trials import Trial, num_params_of, train_once, trial
from gmip.tuning.tune import tune
from gmip.tuning.tune_result import FrontierPoint, Quality, TuneResult, recipe_yaml

__all__ = [
    "METRICS",
    "AutoClip",
    "FrontierPoint",
    "Metric",
    "PrivacyTarget",
    "Quality",
    "SearchRecords",
    "SearchSpace",
    "Trial",
    "TuneResult",
    "auto_clip",
    "gradient_norms",
    "measure",
    "num_params_of",
    "recipe_yaml",
    "search_records",
    "train_once",
    "trial",
    "tune",
    "warn_of_loose_clipping",
]
