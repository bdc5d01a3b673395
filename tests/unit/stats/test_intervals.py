from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from gmip.errors import InvalidArgument
from gmip.stats._rank_tests import binomial_lower, binomial_upper, rank_sum
from gmip.stats.intervals import Interval, roc_band, summary
from gmip.stats.scores import RunScores, auc, pool, tpr_at_fpr


def gaussian_run(mu, members, non_members, seed=0):
    rng = np.random.default_rng(seed)
    return RunScores(rng.normal(mu, 1.0, members), rng.normal(0.0, 1.0, non_members))


@pytest.mark.parametrize(("k", "n"), [(0, 10), (10, 10), (3, 10), (1, 1), (0, 1), (17, 4000)])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.999])
def test_binomial_bounds_are_those_of_scipy(k, n, confidence):
    above = binomtest(k, n, alternative="greater").proportion_ci(confidence, method="exact")
    below = binomtest(k, n, alternative="less").proportion_ci(confidence, method="exact")
    found = [float(bound(np.array(k), n, 1.0 - confidence)) for bound in (binomial_lower, binomial_upper)]
    assert found == pytest.approx([above.low, below.high], abs=1e-12)


def test_summary_of_known_scores():
    run = gaussian_run(1.0, 2000, 3000)
    metrics = summary(run, fprs=(0.01, 0.1))
    assert metrics.auc.value == pytest.approx(auc(run.members, run.non_members), abs=1e-12)
    assert list(metrics.tpr) == [0.01, 0.1]
    assert metrics.tpr[0.1].value == tpr_at_fpr(run.members, run.non_members, 0.1)
    for estimate, truth in (
        (metrics.auc, 0.7602),
        (metrics.tpr[0.01], 0.0924),
        (metrics.tpr[0.1], 0.3891),
        (metrics.advantage, 0.3829),
        (metrics.balanced_accuracy, 0.6915),
    ):
        assert type(estimate.lower) is float
        assert estimate.lower < truth < estimate.upper
        assert estimate.lower <= estimate.value <= estimate.upper
    assert metrics.balanced_accuracy.value == 0.5 + 0.5 * metrics.advantage.value


def test_delong_variance_by_brute_force():
    run = gaussian_run(0.7, 30, 20)
    wins = (run.members[:, None] > run.non_members[None, :]).astype(float)
    by_hand = wins.mean(1).var(ddof=1) / 30 + wins.mean(0).var(ddof=1) / 20
    assert rank_sum(pool(run)).variance == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize("same_scale", [True, False])
def test_jackknife_over_runs_by_brute_force(same_scale):
    runs = [gaussian_run(0.5, 4 + k, 9 - k, seed=k) for k in range(6)]

    def losses(kept):
        if same_scale:
            return 1.0 - auc(np.concatenate([r.members for r in kept]), np.concatenate([r.non_members for r in kept]))
        pairs = [r.members.size * r.non_members.size for r in kept]
        return 1.0 - np.average([auc(r.members, r.non_members) for r in kept], weights=pairs)

    left_out = np.array([losses(runs[:k] + runs[k + 1 :]) for k in range(6)])
    result = rank_sum(pool(runs, same_scale=same_scale))
    assert result.losses == pytest.approx(losses(runs), abs=1e-12)
    assert result.between == pytest.approx(5 / 6 * ((left_out - left_out.mean()) ** 2).sum(), rel=1e-9)


def test_runs_that_differ_widen_the_intervals():
    rng = np.random.default_rng(3)
    shifts = rng.normal(1.0, 0.8, 8)
    runs = [RunScores(rng.normal(shift, 1.0, 300), rng.normal(0.0, 1.0, 300)) for shift in shifts]
    one = RunScores(np.concatenate([r.members for r in runs]), np.concatenate([r.non_members for r in runs]))
    several, pooled = summary(runs), summary(one)
    for name in ("auc", "advantage", "balanced_accuracy"):
        wide, narrow = getattr(several, name), getattr(pooled, name)
        assert wide.value == pytest.approx(narrow.value, abs=0.02)
        assert wide.upper - wide.lower > 1.5 * (narrow.upper - narrow.lower)
    assert several.tpr[0.1].upper - several.tpr[0.1].lower > 1.5 * (pooled.tpr[0.1].upper - pooled.tpr[0.1].lower)


def test_perfect_and_constant_scores():
    perfect = summary(RunScores(np.ones(50), np.zeros(50)))
    assert perfect.auc == Interval(1.0, 0.025 ** (1 / 50), 1.0)
    assert perfect.advantage.value == 1.0 and 0.85 < perfect.advantage.lower < 1.0
    constant = summary(RunScores(np.zeros(50), np.zeros(50)))
    assert constant.auc.value == 0.5 and constant.auc.lower < 0.5 < constant.auc.upper
    assert constant.advantage.value == 0.0 and constant.advantage.lower == 0.0


def test_members_that_score_lower_do_not_look_like_leakage():
    metrics = summary(gaussian_run(-1.0, 500, 500))
    assert metrics.auc.upper < 0.5
    assert metrics.advantage.value == 0.0 and metrics.balanced_accuracy.value == 0.5


def test_summary_depends_on_the_order_of_scores_only():
    run = gaussian_run(1.0, 200, 300)
    assert summary(run) == summary(RunScores(np.exp(run.members), np.exp(run.non_members)))


def test_runs_on_their_own_scales():
    runs = [gaussian_run(1.0, 100, 200, seed=k) for k in range(3)]
    moved = [RunScores(10.0**k * r.members - 5 * k, 10.0**k * r.non_members - 5 * k) for k, r in enumerate(runs)]
    apart = summary(pool(moved, same_scale=False))
    assert apart == summary(pool(runs, same_scale=False))
    assert apart.auc.value == pytest.approx(np.mean([auc(r.members, r.non_members) for r in runs]), abs=1e-12)
    assert summary(moved).auc.value != pytest.approx(apart.auc.value, abs=0.01)
    assert apart.tpr[0.1].value == pytest.approx(summary(runs).tpr[0.1].value, abs=0.05)


def test_pointwise_band():
    run = gaussian_run(1.0, 1000, 1000)
    grid = np.array([0.5, 0.01, 0.1])
    band = roc_band(run, grid)
    metrics = summary(run, fprs=grid.tolist())
    for i, fpr in enumerate(grid):
        estimate = metrics.tpr[float(fpr)]
        assert (band.tpr[i], band.lower[i], band.upper[i]) == (estimate.value, estimate.lower, estimate.upper)


def test_wide_bands_where_non_members_are_few():
    band = roc_band(gaussian_run(1.0, 1000, 100), np.array([0.001]))
    assert band.lower[0] < 0.3 * 0.0183 < 1.5 * 0.0183 < band.upper[0]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: RunScores([1.0, np.nan], [0.0]), "NaN"),
        (lambda: RunScores([], [0.0]), "members is empty"),
        (lambda: RunScores([1.0], []), "non_members is empty"),
        (lambda: RunScores([[1.0]], [0.0]), "one dimension"),
        (lambda: summary([]), "runs is empty"),
        (lambda: summary(3), "runs must be RunScores"),
        (lambda: summary([np.ones(3), np.zeros(3)]), "runs must be RunScores"),  # type: ignore[list-item]
        (lambda: summary(RunScores([1.0], [0.0, 1.0])), "members hold 1 score"),
        (lambda: summary(RunScores([1.0, 2.0], [0.0])), "non_members hold 1 score"),
        (lambda: summary(gaussian_run(0, 5, 5), confidence=1.0), "confidence = 1.0"),
        (lambda: summary(gaussian_run(0, 5, 5), fprs=(0.0,)), "fprs = 0.0"),
        (lambda: summary(gaussian_run(0, 5, 5), seed=-1), "seed = -1"),
        (lambda: roc_band(gaussian_run(0, 5, 5), [0.0, 0.5]), "fprs must be"),
        (lambda: roc_band(gaussian_run(0, 5, 5), []), "fprs must be"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(InvalidArgument, match=words) as raised:
        call()
    assert str(raised.value).count("\n") == 0


def test_scores_are_copied_and_read_only():
    mine = np.ones(3)
    run = RunScores(mine, [0, 1])
    mine[0] = 7.0
    assert run.members[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        run.members[0] = 2.0
