"""Games of membership inference: what a test measured on a sample says about a curve."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gmip import TradeOff

Array = NDArray[np.float64]

SCORES = 4.0  # standard errors on each side
RATES = (0.001, 0.01, 0.05, 0.1, 0.3)


def measured(null: Array, member: Array, rate: float) -> tuple[float, float, float, float]:
    """FPR and TPR of the threshold that accuses `rate` of the non-members, each with its standard error."""
    threshold = np.quantile(null, 1.0 - rate)
    fpr, tpr = float(np.mean(null > threshold)), float(np.mean(member > threshold))
    return fpr, (fpr * (1.0 - fpr) / null.size) ** 0.5, tpr, (tpr * (1.0 - tpr) / member.size) ** 0.5


def assert_bound(curve: TradeOff, null: Array, member: Array, rates: tuple[float, ...] = RATES) -> None:
    """No threshold finds more members than the curve allows, beyond the error of the sample."""
    for rate in rates:
        fpr, fpr_error, tpr, tpr_error = measured(null, member, rate)
        allowed = curve.tpr_at(fpr + SCORES * fpr_error)
        assert tpr - SCORES * tpr_error <= allowed, (rate, tpr, allowed)


def assert_reached(curve: TradeOff, null: Array, member: Array, rates: tuple[float, ...] = RATES) -> None:
    """The test finds as many members as the curve says, within the error of the sample."""
    for rate in rates:
        fpr, fpr_error, tpr, tpr_error = measured(null, member, rate)
        claimed = curve.tpr_at(max(fpr - SCORES * fpr_error, 0.0)) - curve.tpr_error
        assert tpr + SCORES * tpr_error >= claimed, (rate, tpr, claimed)
