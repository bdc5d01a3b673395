from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from gmip._curves import corners, read_steps
from gmip.auditing.judge import measured_curve
from gmip.stats import tpr_at_fpr
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
    curve = measured_curve(np.array([3.0, 2.0, 1.0]), np.array([1.5, 0.0, -1.0, -2.0]))
    assert list(zip(curve.fpr, curve.tpr, strict=True)) == [
        (0.0, 0.0),
        (0.0, pytest.approx(2 / 3)),
        (0.25, pytest.approx(2 / 3)),
        (0.25, 1.0),
        (1.0, 1.0),
    ]


def test_a_curve_of_ties_is_read_as_its_table_has_it() -> None:
    ins, outs = np.repeat([2.0, 1.0, 0.0], [30, 10, 10]), np.repeat([2.0, 1.0, 0.0], [10, 20, 20])
    curve = measured_curve(ins, outs)
    rates = [0.001, 0.01, 0.1, 0.25, 0.5, 0.9]
    np.testing.assert_allclose(
        read_steps(*corners(curve.fpr, curve.tpr), rates), tpr_at_fpr(ins, outs, rates), rtol=1e-12
    )
    assert measured_curve(np.zeros(50), np.zeros(40)).fpr == (0.0, 1.0)  # two points: the attack is blind


def test_a_long_curve_is_thinned_and_stays_below_itself() -> None:
    run = scores(0.5, 40_000)
    curve = measured_curve(run.members, run.non_members)
    assert len(curve.fpr) <= 1600
    fpr, tpr = np.array(curve.fpr), np.array(curve.tpr)
    assert (np.diff(fpr) >= 0).all() and (np.diff(tpr) >= 0).all()
    at = np.searchsorted(fpr, 0.01, side="right") - 1
    assert tpr[at] == pytest.approx(np.mean(run.members > np.quantile(run.non_members, 0.99)), abs=0.005)
