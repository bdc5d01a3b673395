"""scikit-learn: exposure beside accuracy in a grid search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gmip import _validate as check
from gmip._io import sha256
from gmip.errors import InvalidArgument
from gmip.stats import tpr_at_fpr


def privacy_scorer(X: Any, y: ArrayLike, *, fpr: float = 0.1) -> Callable[[Any, Any, Any], dict[str, float]]:
    """A scorer for GridSearchCV and cross_validate: accuracy, and how little a loss threshold finds of the records that
    a fold trained on.

        search = GridSearchCV(model, grid, scoring=privacy_scorer(X, y), refit="accuracy")
        search.cv_results_["mean_test_privacy"]

    Parameters
    ----------
    X, y : all records of the search: those that a fold does not test are the members of its model.
    fpr : the false-alarm rate. A fold has few records: at 10% the number rests on more of them than at 1%.

    Returns
    -------
    A scorer that returns "accuracy" (of a regressor: "r2") and "privacy": minus the share of members found at `fpr`, so
    that more is better, as scikit-learn has it. Guessing gives -fpr.

    Guarantees
    ----------
    A measurement with one weak attack, to compare settings by; `gmip.Estimator` audits the chosen one. Records
    that occur twice count as members where one of them was trained on.
    """
    rate = check.inside("fpr", fpr)
    targets = np.asarray(y)
    keys = _keys(X, targets)

    def score(model: Any, X_test: Any, y_test: Any) -> dict[str, float]:
        tested = _keys(X_test, np.asarray(y_test))
        inside = ~np.isin(keys, tested)
        if not np.isin(tested, keys).all() or min(inside.sum(), (~inside).sum()) < 2:
            raise InvalidArgument(
                "does not hold the records of the search", argument="X", remedy="pass what is passed to fit"
            )
        known = _confidence(model, X, targets)
        found = float(tpr_at_fpr(known[inside], known[~inside], rate))
        right = float(model.score(X_test, y_test))
        name = "accuracy" if hasattr(model, "classes_") else "r2"
        return {name: right, "privacy": -found}

    return score


def _confidence(model: Any, X: Any, y: NDArray[Any]) -> NDArray[np.float64]:
    """Higher where the model is surer of the truth."""
    if hasattr(model, "predict_proba"):
        outputs = np.asarray(model.predict_proba(X), dtype=np.float64)
    elif hasattr(model, "decision_function"):
        outputs = np.asarray(model.decision_function(X), dtype=np.float64)
        outputs = np.column_stack([-outputs, outputs]) if outputs.ndim == 1 else outputs
    else:
        return np.asarray(-np.abs(np.asarray(model.predict(X), dtype=np.float64).reshape(-1) - y))
    places = np.searchsorted(model.classes_, y).clip(0, len(model.classes_) - 1)
    seen = model.classes_[places] == y
    return np.asarray(np.where(seen, outputs[np.arange(len(y)), places], outputs.min()))


def _keys(X: Any, y: NDArray[Any]) -> NDArray[Any]:
    """A digest of each record, by which it is found again: the same in every process, which Python's `hash` is not."""
    rows = np.asarray(X.toarray() if hasattr(X, "toarray") else X)
    return np.array([sha256(repr((row.tolist(), str(label)))) for row, label in zip(rows, y, strict=True)])
