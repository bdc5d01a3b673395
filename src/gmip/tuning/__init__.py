"""Finding the best recipe that keeps a privacy target."""

from __future__ import annotations

from gmip.tuning.recipe_search import FrontierPoint, Quality, TuneResult, tune
from gmip.tuning.search_space import SearchSpace
from gmip.tuning.trials import (
    METRICS,
    AutoClip,
    Metric,
    SearchRecords,
    auto_clip,
    consider_clipping,
    gradient_norms,
    measure,
    num_params_of,
    search_records,
    train_once,
)

__all__ = [
    "METRICS",
    "AutoClip",
    "FrontierPoint",
    "Metric",
    "Quality",
    "SearchRecords",
    "SearchSpace",
    "TuneResult",
    "auto_clip",
    "consider_clipping",
    "gradient_norms",
    "measure",
    "num_params_of",
    "search_records",
    "train_once",
    "tune",
]
