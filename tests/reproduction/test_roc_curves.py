from __future__ import annotations

import math

import numpy as np
import pytest

from gmip import Gaussian
from gmip.accounting.gaussian_pair import ChiSquared
from gmip.stats.scores import auc
from reproduction import figures, roc_curves
from reproduction.roc_curves import RATES, column


def test_a_row_has_the_rates_that_scores_have():
    rng = np.random.default_rng(0)
    members, others = rng.normal(1.0, 1.0, 300), rng.normal(0.0, 1.0, 500)
    row = roc_curves.attack_row(members, others)
    assert row["auc"] == pytest.approx(auc(members, others), rel=1.0e-4) and row["candidates"] == 300
    threshold = np.sort(others)[::-1][5]  # five non-members are above: FPR 1%
    assert row[column(0.01)] == pytest.approx(np.mean(members > threshold), rel=1.0e-4)


def test_no_rate_is_told_below_two_false_alarms():
    row = roc_curves.attack_row(np.arange(200.0), np.arange(200.0))
    told = {rate for rate in RATES if row[column(rate)] is not None}
    assert min(told) >= 0.01 and told == {rate for rate in RATES if rate >= 0.01} and 0.01 in told


def test_a_curve_has_its_own_rates():
    row = roc_curves.curve_row(Gaussian(1.14))
    assert row["auc"] == pytest.approx(0.78989, abs=2.0e-4)
    assert [row[column(a)] for a in RATES] == pytest.approx([Gaussian(1.14).tpr_at(a) for a in RATES], rel=1.0e-4)


def test_records_that_are_alike_give_the_theorem():
    composed = roc_curves.over_records(np.full(50, 30.0), dimension=30, batch_size=20)
    theorem = ChiSquared(dimension=30, susceptibility=30.0, batch_size=20)
    assert composed.auc() == pytest.approx(theorem.auc(), abs=2.0e-3)
    mixed = roc_curves.over_records(np.array([1.0, 200.0]), dimension=30, batch_size=20)
    assert mixed.tpr_at(0.01) > 0.4 * ChiSquared(dimension=30, susceptibility=200.0, batch_size=20).tpr_at(0.01)


def made_up(areas, tpr=0.5, candidates=100):
    return [{"curve": "a", "candidates": candidates, "auc": area} | {column(a): tpr for a in RATES} for area in areas]


def test_bands_are_of_two_standard_errors():
    found = roc_curves.band(made_up([0.6, 0.7, 0.8]))
    assert (
        found.auc == pytest.approx(0.7) and found.auc_error == pytest.approx(0.1 / math.sqrt(3)) and found.size == 300
    )
    rows = made_up([0.6, 0.6])
    rows[0][column(0.1)], rows[1][column(0.1)] = 0.2, 0.4
    found, place = roc_curves.band(rows), RATES.index(0.1)
    assert (found.low[place], found.mean[place], found.high[place]) == pytest.approx((0.1, 0.3, 0.5))
    alone = roc_curves.band(made_up([0.6]))
    assert alone.auc_error == 0.0 and alone.area_error() == pytest.approx(1.0 / math.sqrt(600))


def test_excess_knows_noise_from_a_broken_bound():
    """Scores of N(mu, 1) against the curve of mu: within noise; against that of a smaller mu: far above."""
    rng = np.random.default_rng(1)
    rows = [{"curve": "x"} | roc_curves.attack_row(rng.normal(1, 1, 4000), rng.normal(0, 1, 4000)) for _ in range(5)]
    found = roc_curves.band(rows)
    right, wrong = (roc_curves.band([{"curve": "b"} | roc_curves.curve_row(Gaussian(mu))]) for mu in (1.0, 0.8))
    assert np.nanmax(found.excess(right)) < 4.0 and np.nanmax(found.excess(wrong)) > 8.0
    assert (
        np.nanmax(roc_curves.band(rows[:1]).excess(right)) < 4.0
        and np.nanmax(roc_curves.band(rows[:1]).excess(wrong)) > 4.0
    )


@pytest.mark.parametrize("log", [False, True])
def test_what_is_not_told_is_not_drawn(log):
    rows = made_up([0.6, 0.7])
    for row in rows:
        row[column(RATES[0])] = None
    with figures.style():
        _, (axes,) = figures.panels(1)
        roc_curves.draw(axes, roc_curves.band(rows), shaded=True, log=log, color="red")
        (line,) = axes.get_lines()
        x, y = (np.asarray(values) for values in line.get_data())
    assert not np.isnan(y).any() and RATES[0] not in x and (log or (x[0], x[-1]) == (0.0, 1.0))
