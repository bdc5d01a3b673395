"""Linear models whose weights are an optimum that is known: the gradients of all records there."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

__all__ = ["LinearOptimum", "linear_optimum"]

Array = NDArray[np.float64]


class LinearOptimum(NamedTuple):
    """Gradients of the records' losses at the weights, shape (n, d), and of the penalty, shape (d,), which the members'
    mean gradient cancels."""

    gradients: Array
    penalty_gradient: Array


def linear_optimum(model: Any, X: Any, y: NDArray[Any], members: int) -> LinearOptimum | None:
    """None where the optimum is not known: not a linear model of scikit-learn with an L2 penalty, or weighted classes.

    LogisticRegression minimises C sum loss + |w|^2/2 (so l2 = 1/(C N) on the mean), Ridge the sum of squared errors
    + alpha |w|^2; neither penalises the intercept.
    """
    for step in getattr(model, "steps", [("", model)])[:-1]:
        X = step[1].transform(X)
    last = model.steps[-1][1] if hasattr(model, "steps") else model
    inputs = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    weights = getattr(last, "coef_", None)
    if weights is None or getattr(last, "class_weight", None) is not None or not hasattr(last, "intercept_"):
        return None
    rows = np.column_stack([inputs, np.ones(len(inputs))]) if last.fit_intercept else inputs
    coef = np.atleast_2d(np.asarray(weights, dtype=np.float64))
    flat = np.column_stack([coef, np.zeros(len(coef))]) if last.fit_intercept else coef
    outputs = inputs @ coef.T + np.asarray(last.intercept_, dtype=np.float64)
    kind = type(last).__name__
    if kind == "LogisticRegression" and getattr(last, "penalty", "l2") in ("l2", "deprecated"):
        if getattr(last, "l1_ratio", None):
            return None
        errors = _class_errors(outputs, y, last.classes_)
        return LinearOptimum(_outer(errors, rows), (flat / (last.C * members)).reshape(-1))
    if kind == "Ridge" and np.ndim(last.alpha) == 0 and y.dtype.kind == "f":
        errors = 2.0 * (outputs - y[:, None])
        return LinearOptimum(_outer(errors, rows), (2.0 * last.alpha / members * flat).reshape(-1))
    return None


def _class_errors(outputs: Array, y: NDArray[Any], classes: NDArray[Any]) -> Array:
    """Derivative of the loss by the outputs: one for two classes, else one for each."""
    if outputs.shape[1] == 1:
        return np.asarray(expit(outputs) - (y == classes[1])[:, None])
    return np.asarray(softmax(outputs, axis=1) - (y[:, None] == classes[None, :]))


def _outer(errors: Array, rows: Array) -> Array:
    return np.asarray(np.einsum("nk,nd->nkd", errors, rows).reshape(len(rows), -1))
