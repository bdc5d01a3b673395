"""Curves as a report shows them: points of the accountant's trade-offs and of measured ROCs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gmip._curves import corners, thin_steps
from gmip._numbers import rate_key
from gmip.accounting.account import account
from gmip.accounting.families import Gaussian
from gmip.accounting.mechanism import NoisySGD
from gmip.accounting.tradeoff import TradeOff
from gmip.auditing.schema import Curve, Promise
from gmip.stats import roc_curve

__all__ = ["GRID", "claimed_curve", "joint_run", "measured_curve", "predicted", "promise"]

Array = NDArray[np.float64]
GRID: Final[Array] = np.unique(
    np.concatenate([[0.0], np.geomspace(1.0e-6, 0.1, 51), np.linspace(0.1, 1.0, 46)])
)  # FPRs: a logarithmic part for the left, an even one for the rest
_MOST_POINTS: Final = 1500
# Where an ROC of more points stays exact.
_KEPT_RATES: Final[Array] = np.concatenate(
    [np.linspace(0.0, 1.0, _MOST_POINTS // 2), np.geomspace(1.0e-6, 1.0, _MOST_POINTS // 2)]
)


def claimed_curve(runs: Sequence[NoisySGD], claim_mu: float | None) -> TradeOff:
    """What was promised: mu-GMIP if somebody said so, else the accountant's curve for what was run."""
    return account(list(runs)) if claim_mu is None else Gaussian(claim_mu)


def joint_run(run: NoisySGD) -> NoisySGD:
    """Several full-batch steps as one step on stacked gradients: T d entries, of a norm of at most sqrt(T) C.

    With the susceptibilities of stacked gradients this is the tighter composition of THEORY 9: the steps share their
    data, so they are no T independent looks at it.
    """
    clip = None if run.clip_norm is None else run.clip_norm * math.sqrt(run.num_steps)
    return run.replace(num_params=run.num_params * run.num_steps, num_steps=1, clip_norm=clip)


def promise(key: str, name: str, curve: TradeOff, *, standing: str, fprs: Sequence[float]) -> Promise:
    """A trade-off as points."""
    mu = curve.equivalent_mu()
    return Promise.model_validate(
        {
            "key": key,
            "name": name,
            "standing": standing,
            "curve": _points(GRID, curve.tpr_at(GRID)),
            "mu": mu if math.isfinite(mu) else None,
            "auc": min(1.0, curve.auc()),
            "tpr_at": {rate_key(fpr): _share(curve.tpr_at(fpr)) for fpr in fprs},
            "assumptions": tuple(curve.assumptions),
        }
    )


def predicted(fpr: Array, tpr: Array, auc: float, fprs: Sequence[float]) -> Promise:
    """The ROC that GLiR's self-play expects, from its points."""
    at = {rate_key(rate): _share(float(tpr[np.searchsorted(fpr, rate, side="right") - 1])) for rate in fprs}
    return Promise(
        key="prediction",
        name="Expected by self-play, without member labels",
        standing="measured",
        curve=_roc_points(fpr, tpr),
        mu=None,
        auc=_share(auc),
        tpr_at=at,
        assumptions=("Simulated with background records: members are assumed to come from the same distribution.",),
    )


def measured_curve(members: Array, non_members: Array) -> Curve:
    """The ROC over every distinct score: its corners, which are all of it, or as many as a report can use."""
    roc = roc_curve(members, non_members)
    fpr, tpr = roc.fpr, roc.tpr
    inner = np.ones(fpr.size, dtype=bool)
    inner[1:-1] = ~(
        ((fpr[:-2] == fpr[1:-1]) & (fpr[1:-1] == fpr[2:])) | ((tpr[:-2] == tpr[1:-1]) & (tpr[1:-1] == tpr[2:]))
    )
    return _roc_points(fpr[inner], tpr[inner])


def _roc_points(fpr: Array, tpr: Array) -> Curve:
    if fpr.size > _MOST_POINTS:
        xs, ys = thin_steps(*corners(fpr, tpr), _KEPT_RATES)
        fpr, tpr = np.append(0.0, xs), np.append(0.0, ys)
    return _points(fpr, tpr)


def _points(fpr: Array, tpr: Array) -> Curve:
    return Curve(
        fpr=tuple(float(x) for x in fpr), tpr=tuple(float(y) for y in np.clip(np.asarray(tpr, dtype=float), 0.0, 1.0))
    )


def _share(value: float) -> float:
    return min(1.0, max(0.0, float(value)))
