"""Curves as points: thin, and still true."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from gmip._curves import corners, read_bound, read_steps, thin_steps
from gmip.stats.scores import roc_curve, tpr_at_fpr


@pytest.mark.parametrize("seed", range(3))
def test_thinned_steps_are_exact_where_asked_and_never_above(seed):
    rng = np.random.default_rng(seed)
    ins, outs = rng.normal(1.2, 1, 5_000), rng.normal(0, 1, 6_000)
    curve = roc_curve(ins, outs)
    rates = np.concatenate([np.geomspace(1e-4, 1, 150), np.linspace(0, 1, 150), [1e-3, 1e-2, 1e-1]])
    fpr, tpr = thin_steps(*corners(curve.fpr, curve.tpr), rates)
    assert len(fpr) <= 305
    np.testing.assert_array_equal(read_steps(fpr, tpr, rates), tpr_at_fpr(ins, outs, rates))
    others = rng.uniform(0, 1, 500)
    true = np.asarray(tpr_at_fpr(ins, outs, others))
    found = read_steps(fpr, tpr, others)
    assert np.all(found <= true) and np.all(found >= true - 0.05)


def test_small_curves_are_not_thinned():
    curve = roc_curve([3.0, 2.0, 0.5], [1.0, 0.0])
    fpr, tpr = thin_steps(*corners(curve.fpr, curve.tpr), np.linspace(0, 1, 101))
    assert fpr.tolist() == [0.0, 0.5, 1.0] and tpr.tolist() == pytest.approx([2 / 3, 1.0, 1.0])


def test_points_in_any_order():
    fpr, tpr = corners((1.0, 0.5, 0.5, 0.2), (1.0, 0.7, 0.6, 0.1))
    assert fpr.tolist() == [0.0, 0.2, 0.5, 1.0] and tpr.tolist() == [0.0, 0.1, 0.7, 1.0]


@pytest.mark.parametrize("mu", [0.1, 1.0, 4.0])
def test_a_bound_stays_a_bound_between_its_points(mu):
    fpr = np.unique(np.concatenate([[0.0], np.geomspace(1e-6, 0.1, 51), np.linspace(0.1, 1, 46)]))
    tpr = ndtr(ndtri(fpr) + mu)
    rates = np.concatenate([np.geomspace(1e-6, 1, 3001), np.linspace(0, 1, 3001)])
    true, read = ndtr(ndtri(rates) + mu), read_bound(fpr, tpr, rates)
    assert np.all(read >= true - 1e-15) and read.max() <= 1
    inner = rates > 1e-6
    assert np.max(read[inner] - true[inner]) < 0.01
    assert np.any(np.interp(rates, fpr, tpr) < true - 1e-6)  # which straight lines would not do
    np.testing.assert_allclose(read_bound(fpr, tpr, fpr), tpr, rtol=1e-15)


def test_a_bound_of_two_points():
    assert read_bound(np.array([0.0, 1.0]), np.array([0.0, 1.0]), [0.0, 0.5, 1.0]).tolist() == [0.0, 1.0, 1.0]
