"""Finding the best recipe that keeps a privacy target."""

from __future__ import annotations

from gmip.tuning.gradient_norms import AutoClip, auto_clip, consider_clipping, gradient_norms
from gmip.tuning.model_metrics import METRICS, Metric, measure
from gmip.tuning.recipe_search import FrontierPoint, Quality, TuneResult, tune
from gmip.tuning.search_records import SearchRecords, search_records
from gmip.tuning.search_space import SearchSpace
from gmip.tuning.trials import Trial, num_params_of, train_once, trial

__all__ = [
    "METRICS",
    "AutoClip",
    "FrontierPoint",
    "Metric",
    "Quality",
    "SearchRecords",
    "SearchSpace",
    "Trial",
    "TuneResult",
    "auto_clip",
    "consider_clipping",
    "gradient_norms",
    "measure",
    "num_params_of",
    "search_records",
    "train_once",
    "trial",
    "tune",
]
