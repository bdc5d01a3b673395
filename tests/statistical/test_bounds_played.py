"""The best attacks that we know against bounds, each in the game of its bound. docs/theory/guarantees.md lists all."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from gmip import NoisySGD, account
from tests.statistical.games import assert_bound, assert_reached

GAMES = 40_000
RATES = (0.01, 0.05, 0.1, 0.3)
Array = np.ndarray


def mixed(x: Array, rate: float, shift: float) -> Array:
    """log of (1 - rate) N(0, 1) + rate N(shift, 1) over N(0, 1), added up over the steps."""
    return np.log1p(rate * np.expm1(shift * x - 0.5 * shift**2)).sum(axis=1)


@pytest.mark.parametrize("sampling", ["fixed", "poisson", "full"])
def test_differential_privacy_on_chosen_data(sampling):
    """Others at 0 (fixed and full: the record is at 1 or at -1, the largest change; Poisson: at 1 or left out)."""
    rng, steps, noise = np.random.default_rng(1), 10, 3.0
    total, n = 60, 60 if sampling == "full" else 12
    run = NoisySGD(dataset_size=total, batch_size=n, num_steps=steps, num_params=1, clip_norm=1.0, sampling=sampling)
    curve = account(run.with_noise_multiplier(noise), notion="gdp")
    assert curve.kind == "bound"
    drawn = rng.random((2, GAMES, steps)) < n / total
    low, high = (0.0, 1.0) if sampling == "poisson" else (-1.0, 1.0)
    seen = [(value * drawn[i]) / noise + rng.standard_normal((GAMES, steps)) for i, value in enumerate((low, high))]
    null, member = (mixed(x, n / total, high / noise) - mixed(x, n / total, low / noise) for x in seen)
    for one, other in ((null, member), (-member, -null)):
        assert_bound(curve, one, other, RATES)
    if sampling == "full":
        assert_reached(curve, null, member, RATES)
    if sampling == "poisson":  # one of the two directions is the curve, where false positives are rare
        assert_reached(curve, null, member, (0.01, 0.05))


def test_whoever_is_told_the_batches_of_a_fixed_size_is_not_covered():
    """He accuses in steps that the record, whoever it is, was drawn for: with the chance rate, by norm.sf."""
    run = NoisySGD(dataset_size=60, batch_size=12, num_steps=1, num_params=1, clip_norm=1.0).with_noise_multiplier(1.0)
    told = 0.2 * norm.sf(norm.isf(0.01 / 0.2) - 2.0)
    for options in ({"notion": "gdp"}, {"notion": "gdp", "rows_per_person": 2}, {"attacker_knows": 1.0}):
        curve = account(run, **options)
        assert curve.kind == "bound" and "batches" in curve.for_whom
        assert any("an attacker who knows which batches the others are in" in said for said in curve.assumptions)
        if options == {"notion": "gdp"}:
            assert told > curve.tpr_at(0.01) + 0.01
    poisson = account(run.replace(sampling="poisson"), notion="gdp")
    assert "batches" not in poisson.for_whom


def test_poisson_batches_with_half_of_the_others_known():
    """Sums of the unknown half as they are drawn, record by record; the other half is told, with its batches."""
    rng, total, rate, steps, d = np.random.default_rng(2), 201, 0.2, 10, 3
    unknown = rng.standard_normal((100, d))
    record = np.array([3.0, 0.0, 0.0])
    spread = np.cov(unknown.T, bias=True)
    centred = record - unknown.mean(axis=0)
    k = float(centred @ np.linalg.solve(spread, centred))
    run = NoisySGD(dataset_size=total, batch_size=40, num_steps=steps, num_params=d, sampling="poisson")
    rate = run.sample_rate
    curve = account(run, susceptibility=k, attacker_knows=0.5)
    assert curve.kind == "bound"
    covariance = rate * (1.0 - rate) * unknown.T @ unknown
    towards = np.linalg.solve(covariance, record)
    length = math.sqrt(record @ towards)
    scores = np.zeros((2, 20_000))
    for member in (0, 1):
        for _ in range(steps):
            sums = (rng.random((20_000, 100)) < rate) @ unknown - rate * unknown.sum(axis=0)
            sums += member * (rng.random((20_000, 1)) < rate) * record
            scores[member] += mixed((sums @ towards / length)[:, None], rate, length)
    assert_bound(curve, scores[0], scores[1], RATES)


def full_step(k: Array, n: int, d: int, seed: int) -> tuple[Array, Array]:
    """The optimal test of one full batch of Gaussian gradients against records of these susceptibilities."""
    rng, scores = np.random.default_rng(seed), []
    shift = np.sqrt(k / n)
    for member in (0, 1):
        scale = math.sqrt(1.0 - member / n)
        along = member * shift + scale * rng.standard_normal(k.size)
        across = scale**2 * rng.chisquare(d - 1, k.size)
        squares = along**2 + across
        after = (along - shift) ** 2 + across
        scores.append(0.5 * squares - 0.5 * after / (1.0 - 1.0 / n) - 0.5 * d * math.log1p(-1.0 / n))
    return scores[0], scores[1]


def test_measured_susceptibilities():
    n, d, values = 50, 20, np.array([5.0, 10.0, 20.0, 150.0])
    run = NoisySGD(dataset_size=n, batch_size=n, num_steps=1, num_params=d, sampling="full")
    curve = account(run, susceptibility=values)
    null, member = full_step(np.tile(values, GAMES // 4), n, d, seed=3)
    assert curve.kind == "bound"
    assert_bound(curve, null, member, RATES)
    assert_reached(curve, null, member, RATES)


def test_a_random_record_in_one_step():
    """K = level times the mean for one in `level` records, and 0 for the others."""
    n, d = 50, 20
    run = NoisySGD(dataset_size=n, batch_size=n, num_steps=1, num_params=d, sampling="full")
    curve = account(run, susceptibility="any")
    assert curve.kind == "bound"
    for level in (1.0, 3.0, 8.0, 20.0):
        exposed = np.arange(GAMES) < GAMES / level
        null, member = full_step(np.where(exposed, level * d, 0.0), n, d, seed=4)
        assert_bound(curve, null, member, RATES)


def test_a_random_record_whose_susceptibility_stays_the_same():
    """Fixed batches in the Gaussian model, no noise; the candidate's direction alone is looked at."""
    rng, total, n, d, steps = np.random.default_rng(5), 200, 40, 5, 15
    run = NoisySGD(dataset_size=total, batch_size=n, num_steps=steps, num_params=d)
    curve = account(run, susceptibility="any-constant")
    assert curve.kind == "bound"
    others = total - 1
    for level in (1.0, 4.0, 10.0):
        k = total * level * d / (others - level * d)  # against the others alone
        shift = math.sqrt(k / n * (others - 1) / (others - n))
        exposed = np.arange(GAMES) < GAMES / level
        scores = []
        for member in (0, 1):
            x = rng.standard_normal((GAMES, steps))
            x += member * shift * (rng.random((GAMES, steps)) < n / total) * exposed[:, None]
            scores.append(np.where(exposed, mixed(x, n / total, shift), 0.0) + 1e-9 * rng.standard_normal(GAMES))
        assert_bound(curve, scores[0], scores[1], RATES)


def test_a_schedule_of_two_samplings_is_about_one_game():
    """Full batches, then Poisson batches, by noise alone: the bound is about the others alone, not about another record
    in the place for the whole run, which finds more."""
    rng, total, n, steps, c = np.random.default_rng(8), 20, 10, 12, 1.0
    full = NoisySGD(dataset_size=total, batch_size=total, num_steps=1, num_params=3, clip_norm=1.0, sampling="full")
    poisson = full.replace(batch_size=n, num_steps=steps, sampling="poisson")
    runs = [run.with_noise_multiplier(1.0 / c) for run in (full, poisson)]
    curve = account(runs, attacker_knows=1.0)
    assert curve.kind == "bound" and curve.claim.not_a_member == "a run on the other records alone"
    for other in (0.0, -c):  # nobody, or -x for the whole run
        scores = []
        for shift in (other, c):
            once = rng.standard_normal(GAMES) + shift
            x = rng.standard_normal((GAMES, steps)) + shift * (rng.random((GAMES, steps)) < n / total)
            scores.append((c - other) * once + mixed(x, n / total, c) - (mixed(x, n / total, other) if other else 0.0))
        if other == 0.0:
            assert_bound(curve, scores[0], scores[1], RATES)
        else:
            with pytest.raises(AssertionError):
                assert_bound(curve, scores[0], scores[1], RATES)
