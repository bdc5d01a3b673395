from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from gmip.auditing.outcomes import measured_curve
from gmip.stats.bounds import METHODS
from tests.unit.auditing.scored import measured, scores


def test_measurement() -> None:
    one = measured(1.0, 2000, 1.5)
    truth = norm.cdf(1.0 / np.sqrt(2.0))
    assert one.auc.lower < truth < one.auc.upper
    assert one.tpr_at["0.1"].lower < norm.sf(norm.isf(0.1) - 1.0) < one.tpr_at["0.1"].upper
    assert 0.75 < one.mu_lower <= 1.05
    assert tuple(bound.method for bound in one.mu_bounds) == METHODS
    assert one.claim_p_value is not None and one.claim_p_value > 0.5 and not one.exceeds_claim
    assert (one.members, one.non_members, one.repeats) == (2000, 2000, 1)
    assert (np.array(one.band.lower) <= np.array(one.band.upper)).all()


def test_a_measured_curve_is_its_corners() -> None:
    curve = measured_curve(np.array([3.0, 2.0, 1.0]), np.array([2.0, 0.0, -1.0, -2.0]))
    assert list(zip(curve.fpr, curve.tpr, strict=True)) == [
        (0.0, 0.0),
        (0.0, pytest.approx(1 / 3)),
        (0.25, pytest.approx(2 / 3)),
        (0.25, 1.0),
        (1.0, 1.0),
    ]


def test_a_long_curve_is_thinned_and_stays_below_itself() -> None:
    run = scores(0.5, 40_000)
    curve = measured_curve(run.members, run.non_members)
    assert len(curve.fpr) <= 1600
    fpr, tpr = np.array(curve.fpr), np.array(curve.tpr)
    assert (np.diff(fpr) >= 0).all() and (np.diff(tpr) >= 0).all()
    at = np.searchsorted(fpr, 0.01, side="right") - 1
    assert tpr[at] == pytest.approx(np.mean(run.members > np.quantile(run.non_members, 0.99)), abs=0.005)
