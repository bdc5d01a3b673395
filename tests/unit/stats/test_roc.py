"""ROC, AUC and TPR at a FPR against brute force over all thresholds and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from gmip.errors import InvalidArgument
from gmip.stats import auc, roc_curve, tpr_at_fpr

few_values = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=12)


def brute_force(ins: list[float], outs: list[float]) -> list[tuple[float, float]]:
    """(FPR, TPR) of "score > t" for a t in every gap."""
    values = sorted({*ins, *outs})
    cuts = [values[0] - 1.0, *values]
    return [(float(np.mean([o > t for o in outs])), float(np.mean([i > t for i in ins]))) for t in cuts]


@given(few_values, few_values, st.sampled_from([0.0, 0.1, 0.25, 1.0 / 3.0, 0.5, 0.9, 1.0]))
def test_ties_by_brute_force(ins: list[float], outs: list[float], fpr: float) -> None:
    points = brute_force(ins, outs)
    below = max(point for point in points if point[0] <= fpr)
    after = min((point for point in points if point[0] > fpr), default=below)  # with a coin: on the line between
    coin = (fpr - below[0]) / (after[0] - below[0]) if after > below else 0.0
    assert tpr_at_fpr(ins, outs, fpr) == pytest.approx(below[1] + coin * (after[1] - below[1]), abs=1.0e-12)
    pairs = np.mean([[(i > o) + 0.5 * (i == o) for o in outs] for i in ins])
    assert auc(ins, outs) == pytest.approx(pairs, abs=1.0e-12)
    curve = roc_curve(ins, outs)
    np.testing.assert_allclose(np.column_stack([curve.fpr, curve.tpr]), points[::-1], atol=1.0e-12)


def test_against_scikit_learn() -> None:
    rng = np.random.default_rng(1)
    ins, outs = np.round(rng.normal(0.7, 1.0, 700), 2), np.round(rng.normal(0.0, 1.0, 900), 2)
    labels, scores = np.repeat([1, 0], [700, 900]), np.concatenate([ins, outs])
    assert auc(ins, outs) == pytest.approx(metrics.roc_auc_score(labels, scores), abs=1.0e-12)
    fpr, tpr, thresholds = metrics.roc_curve(labels, scores, drop_intermediate=False)
    curve = roc_curve(ins, outs)
    np.testing.assert_allclose(curve.fpr, fpr, atol=1.0e-12)
    np.testing.assert_allclose(curve.tpr, tpr, atol=1.0e-12)
    np.testing.assert_array_equal(curve.thresholds, thresholds)


def test_rates_that_floats_do_not_hit() -> None:
    outs = np.arange(100.0)
    ins = outs + 0.5
    assert tpr_at_fpr(ins, outs, 0.29) == pytest.approx(0.30)  # 29 false positives: 0.29 * 100 is 28.999999999999996
    np.testing.assert_allclose(tpr_at_fpr(ins, outs, [0.0, 0.009, 0.01, 1.0]), [0.01, 0.01, 0.02, 1.0])
    assert tpr_at_fpr([1.0, 1.0], [1.0], 0.5) == 0.5  # a tie with the only non-member: a coin


def test_ties_find_no_fewer_than_guessing() -> None:
    """A tree that is sure of all members and of half of the others: AUC 0.75, and a coin finds two of each 100."""
    ins, outs = np.ones(100), np.repeat([1.0, 0.0], 50)
    np.testing.assert_allclose(tpr_at_fpr(ins, outs, [0.0, 0.001, 0.01, 0.5, 0.6]), [0.0, 0.002, 0.02, 1.0, 1.0])
    np.testing.assert_allclose(tpr_at_fpr(outs, outs, [0.001, 0.01, 0.7]), [0.001, 0.01, 0.7])  # guessing


def test_perfect_and_useless() -> None:
    assert auc([2.0, 3.0], [0.0, 1.0]) == 1.0 and auc([0.0], [1.0]) == 0.0 and auc([1.0], [1.0]) == 0.5
    assert tpr_at_fpr([2.0, 3.0], [0.0, 1.0], 0.0) == 1.0


def test_arguments() -> None:
    with pytest.raises(InvalidArgument, match="members is empty"):
        auc([], [1.0])
    with pytest.raises(InvalidArgument, match="non_members is empty"):
        roc_curve([1.0], [])
    with pytest.raises(InvalidArgument, match="members has 1 NaN"):
        auc([np.nan], [1.0])
    with pytest.raises(InvalidArgument, match="fpr"):
        tpr_at_fpr([1.0], [1.0], 1.5)
