"""Curves for figures: thin, and still true."""

from __future__ import annotations

import numpy as np
import pytest

from gmip.auditing.schema import Band, Curve
from gmip.report.curves import KEY_RATES, overview_figure, run_figure
from gmip.stats.roc import roc_curve, tpr_at_fpr
from tests.unit.report import sample


def series_of(ins, outs):
    curve = roc_curve(ins, outs)
    attack = sample.attack(1.0, seed=1).model_copy(
        update={"roc": Curve(fpr=tuple(curve.fpr), tpr=tuple(curve.tpr)), "non_members": len(outs)}
    )
    run = sample.consistent().runs[0].model_copy(update={"attacks": (attack,)})
    return run_figure(run, "f", 0.01).series[0]


@pytest.mark.parametrize("seed", range(3))
def test_thinned_steps_stay_close_and_exact_at_round_rates(seed):
    rng = np.random.default_rng(seed)
    ins, outs = rng.normal(1.2, 1, 5_000), rng.normal(0, 1, 6_000)
    series = series_of(ins, outs)
    assert len(series.fpr) < 700
    for rate in np.concatenate([np.logspace(-3.7, 0, 200), rng.uniform(0, 1, 200)]):
        true = tpr_at_fpr(ins, outs, float(rate))
        found = series.at(float(rate))
        assert found is not None and true - 0.0021 <= found <= true and found >= true * 0.97
    for rate in KEY_RATES:
        assert series.at(rate) == (None if rate < 1 / 6_000 else tpr_at_fpr(ins, outs, rate))


def test_small_curves_are_not_thinned():
    ins, outs = [3.0, 2.0, 0.5], [1.0, 0.0]
    series = series_of(ins, outs)
    assert series.fpr.tolist() == [0.0, 0.5, 1.0] and series.tpr.tolist() == pytest.approx([2 / 3, 1.0, 1.0])
    assert series.at(0.49) is None and series.at(0.5) == 1.0  # one false alarm among two is the least


def test_points_in_any_order():
    attack = sample.attack(1.0, seed=1).model_copy(
        update={"roc": Curve(fpr=(1.0, 0.0, 0.5), tpr=(1.0, 0.2, 0.7)), "non_members": 2}
    )
    run = sample.consistent().runs[0].model_copy(update={"attacks": (attack,)})
    assert run_figure(run, "f", 0.01).series[0].tpr.tolist() == [0.2, 0.7, 1.0]


def test_promises_have_their_exact_values():
    run = sample.consistent().runs[0]
    exact = run.promises[0].model_copy(
        update={"curve": Curve(fpr=(0.0, 1.0), tpr=(0.0, 1.0)), "tpr_at": {"0.003": 0.1, "0.01": 0.25}}
    )
    figure = run_figure(run.model_copy(update={"promises": (exact,)}), "f", 0.01)
    claimed = figure.series[3]
    assert claimed.at(0.003) == 0.1 and claimed.at(0.01) == 0.25
    assert claimed.at(0.002) == pytest.approx(0.002, rel=0.2) and claimed.at(0.9) == pytest.approx(0.9)
    assert np.all(np.diff(claimed.tpr) >= 0)


def test_promises_follow_their_curve():
    run = sample.consistent().runs[0]
    figure = run_figure(run, "f", 0.01)
    claimed = figure.series[len(run.attacks)]
    for rate in np.logspace(-4, 0, 60):
        true = np.interp(rate, run.promises[0].curve.fpr, run.promises[0].curve.tpr)
        assert claimed.at(float(rate)) == pytest.approx(true, rel=0.01)


@pytest.mark.parametrize(
    ("others", "smallest", "lowest"),
    [
        (500, 1e-5, 1e-4),  # a promise goes one power of ten further
        (500, 1e-3, 1e-3),
        (50, 0.5, 1e-3),  # at least down to 0.1%
        (2_000, 1e-3, 1e-4),  # one false alarm is 5e-4
        (10_000, 1e-9, 1e-5),
        (10_000_000, 1e-9, 1e-5),  # where the accountant ends
        (1_000, 1e-3, 1e-3),
    ],
)
def test_where_axes_begin(others, smallest, lowest):
    run = sample.consistent().runs[0]
    attack = run.attacks[0].model_copy(update={"non_members": others})
    promise = run.promises[0].model_copy(update={"curve": sample.gaussian_curve(1.0, smallest)})
    figure = run_figure(run.model_copy(update={"attacks": (attack,), "promises": (promise,)}), "f", 0.01)
    assert figure.lowest == lowest


def test_nothing_known():
    figure = run_figure(sample.bare().runs[0], "f", 1e-9)
    assert [s.name for s in figure.series] == ["Guessing"] and figure.lowest == figure.rate == 1e-3
    assert figure.series[0].at(0.123) == pytest.approx(0.123)


def test_only_the_strongest_has_a_band():
    run = sample.consistent().runs[0]
    bands = [s.band for s in run_figure(run, "f", 0.01).series]
    assert bands[0] is not None and all(band is None for band in bands[1:])
    wide = Band(fpr=tuple(np.linspace(0, 1, 999)), lower=(0.0,) * 999, upper=(1.0,) * 999)
    run = run.model_copy(update={"attacks": (run.attacks[0].model_copy(update={"band": wide}),)})
    band = run_figure(run, "f", 0.01).series[0].band
    assert band is not None and band.shape == (3, 200) and band[0, 0] == 0 and band[0, -1] == 1
    empty = run.attacks[0].model_copy(update={"band": Band(fpr=(), lower=(), upper=())})
    assert run_figure(run.model_copy(update={"attacks": (empty,)}), "f", 0.01).series[0].band is None


def test_no_two_curves_look_the_same():
    run = sample.consistent().runs[0]
    attacks = tuple(run.attacks[0].model_copy(update={"title": str(i)}) for i in range(5))
    series = run_figure(run.model_copy(update={"attacks": attacks}), "f", 0.01).series
    assert len({s.look for s in series}) == len(series) == 10
    assert len({(s.look.split()[1], s.marker) for s in series}) == len(series)  # without the colours too
    overview = overview_figure(sample.three_runs(), "f", 0.01)
    assert len({s.look for s in overview.series}) == len(overview.series) == 7
    assert [s.name for s in overview.series[:2]] == ["no noise: measured", "no noise: promised"]
