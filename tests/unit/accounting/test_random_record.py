from __future__ import annotations

import numpy as np
import pytest

from gmip import NoisySGD, account
from gmip.accounting.account import _exact, _in_a_share
from gmip.accounting.random_record import _Family, _others_only
from gmip.accounting.step import Crowd, tight_step
from gmip.vocabulary import Sampling

RATES = np.array([0.001, 0.01, 0.1])


def test_leverage_of_the_others_alone() -> None:
    rng = np.random.default_rng(0)
    g = rng.standard_normal((30, 4)) + 1.0
    mean, cov = g.mean(0), np.cov(g.T, bias=True)
    leverage = np.einsum("ij,ij->i", (g - mean) @ np.linalg.inv(cov), g - mean)
    assert leverage.mean() == pytest.approx(4.0)
    others, raw = g[1:], g.T @ g / 30
    away = g[0] - others.mean(0)
    alone = away @ np.linalg.solve(np.cov(others.T, bias=True), away)
    assert _others_only(float(leverage[0]), 29, 30) == pytest.approx(alone)
    assert away @ away == pytest.approx((30 / 29) ** 2 * float(np.sum((g[0] - mean) ** 2)))
    moment = g[0] @ np.linalg.solve(others.T @ others / 29, g[0])
    assert _others_only(float(g[0] @ np.linalg.solve(raw, g[0])), 30, 29) == pytest.approx(moment)


def test_the_ray_is_the_cheapest_place_of_an_exposure() -> None:
    """No record off the ray has the mean shift of one on it at a lower cost (docs/theory/random-record.md)."""
    run = NoisySGD(dataset_size=600, batch_size=300, num_steps=1, num_params=100, clip_norm=1.0).with_noise_multiplier(
        2.0
    )
    family = _Family([run], 0.0, _in_a_share)
    weight, spread, n, m = family._data_share(run), Crowd.drawn(300, 599).spread, 600, 599
    assert family._share(run) < 1e-6

    ks = np.geomspace(1.0, 598.0, 4000)

    def shift(k: np.ndarray, y: float) -> np.ndarray:
        return 1.0 / (spread * (m - k) / (n * k) + 4.0 * (m / n) ** 2 / y)

    for level in (0.5, 1.0, 3.0, 5.0):
        target = shift(np.array(100.0 * level), min(level, 4.0 * (m / n) ** 2))
        for y in np.linspace(0.05, 4.0 * (m / n) ** 2, 80):
            enough = ks[shift(ks, y) >= target]
            if enough.size:
                assert weight * enough[0] / 100.0 + (1.0 - weight) * y >= family.cost(level) * (1.0 - 1e-3)


def test_fewer_unknown_others_have_more_leverage() -> None:
    run = NoisySGD(dataset_size=60, batch_size=5, num_steps=1, num_params=10)  # 41 of the others are unknown
    ours = _Family([run], 0.3, _in_a_share).test(run, 2.0)
    assert ours(RATES) == pytest.approx(tight_step(run, 42 * 20 / (41 - 20), 0.3)(RATES))


def test_a_few_batches_that_give_the_record_away_do_not_hide_the_rest() -> None:
    run = NoisySGD(dataset_size=60, batch_size=5, num_steps=5, num_params=10)
    curve = _exact([run], lambda r: tight_step(r, 20.0, 0.3))
    epsilons = np.linspace(-3.0, 6.0, 19)
    assert curve._deltas(epsilons) == pytest.approx([curve._delta(e) for e in epsilons], abs=1e-9)
    assert curve._delta(0.0) > 0.2


def test_noise_limits_a_record_that_data_do_not_hide() -> None:
    run = NoisySGD(dataset_size=60, batch_size=30, num_steps=1, num_params=650, clip_norm=1.0).with_noise_multiplier(
        4.0
    )
    nobody_known, all_known = (account(run, attacker_knows=q, susceptibility="any") for q in (0.0, 1.0))
    assert np.all(nobody_known(RATES) >= all_known(RATES) - 1e-3)


def test_steps_at_the_mean_count() -> None:
    """A record at the mean of the others still changes the variance of a batch."""
    run = NoisySGD(dataset_size=200, batch_size=5, num_steps=30, num_params=50)
    family = _Family([run], 0.0, _in_a_share)
    assert family._idle > 0.02
    one_step = _Family([run.replace(num_steps=1)], 0.0, _in_a_share).deltas(1.0, 2.0)
    assert np.max(family.deltas(1.0 / 30.0, 2.0) - one_step) > 0.002


@pytest.mark.parametrize("sampling", ["fixed", "poisson", "shuffled"])
def test_without_noise_an_attacker_who_knows_all_others_finds_all_who_took_part(sampling: Sampling) -> None:
    run = NoisySGD(dataset_size=100, batch_size=10, num_steps=30, num_params=5, sampling=sampling)
    curve = account(run, susceptibility="any", attacker_knows=1.0)
    assert curve.tpr_at(0.01) >= 1.0 - 0.9**30 - 1e-9


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
@pytest.mark.parametrize(
    ("total", "n", "known", "record"), [(2, 1, 0.6, "any"), (2, 1, 0.6, "any-constant"), (10, 3, 0.95, "any-constant")]
)
def test_where_nobody_is_unknown_noise_alone_protects(
    total: int, n: int, known: float, sampling: Sampling, record: str
) -> None:
    """floor((1 - q)(N - 1)) = 0: the answer is that for an attacker who knows everybody else."""
    run = NoisySGD(dataset_size=total, batch_size=n, num_steps=2, num_params=3, clip_norm=1.0, sampling=sampling)
    for one in (run, run.with_noise_multiplier(2.0)):
        curve, told = (account(one, susceptibility=record, attacker_knows=q) for q in (known, 1.0))
        assert curve.tpr_at(RATES) == pytest.approx(told.tpr_at(RATES)) and curve.kind == told.kind
        assert "all other members" in curve.for_whom


def test_more_than_one_epoch_never_looks_better_than_one() -> None:
    run = NoisySGD(dataset_size=40, batch_size=20, num_steps=2, num_params=5, clip_norm=1.0, sampling="shuffled")
    run = run.with_noise_multiplier(4.0)
    one, more = (account(run.replace(num_steps=steps), susceptibility="any") for steps in (2, 3))
    assert (one.kind, more.kind) == ("forecast", "forecast")
    assert np.all(one.tpr_at(RATES) <= more.tpr_at(RATES))


def test_odd_sizes_have_an_answer() -> None:
    """One once crashed, one took minutes."""
    run = NoisySGD(dataset_size=2, batch_size=1, num_steps=5000, num_params=1, clip_norm=1.0, sampling="shuffled")
    found = account(run.with_noise_multiplier(0.6), susceptibility="any-constant")
    assert found.tpr_at(0.01) == pytest.approx(1.0)
    rare = NoisySGD(
        dataset_size=10**6, batch_size=2, num_steps=5000, num_params=50, clip_norm=1.0, sampling="poisson"
    ).with_noise_multiplier(5.0)
    curve, alone = (account(rare, susceptibility="any-constant", attacker_knows=q) for q in (0.999, 1.0))
    assert 0.01 <= curve.tpr_at(0.01) <= alone.tpr_at(0.01) + 1e-9
