"""Attackers who hold some or all of the other members, and noise alone: never more than `account` allows."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import hypergeom

from gmip import NoisySGD, account
from tests.statistical.games import assert_bound, assert_reached, measured

Array = NDArray[np.float64]


# -- a share of the members is listed, with their batches -------------------------------------------------------------


@pytest.mark.parametrize("q", [0.3, 0.7, 0.9])
@pytest.mark.parametrize("noise", [0.0, 2.0])
def test_listed_members(q: float, noise: float) -> None:
    """The listed members are taken off; what is left of a batch is j unknown records, or j - 1 and the candidate.

    Unknown records are given (the same in all steps), whitened, and inside the ball that clipping allows.
    """
    rng = np.random.default_rng(int(10 * q))
    total, n, d, steps, pool, games = 161, 40, 3, 12, 60_000, 60_000
    m = total - 1
    u = math.floor((1.0 - q) * m)
    unknown = rng.normal(size=(u, d))
    unknown -= unknown.mean(axis=0)
    unknown = np.linalg.solve(np.linalg.cholesky(unknown.T @ unknown / u), unknown.T).T
    theta = np.array([math.sqrt(3.0), 0.0, 0.0])
    clip = float(np.max(np.linalg.norm(unknown, axis=1)))
    count0, count1 = hypergeom(m, u, n), hypergeom(m, u, n - 1)  # in a batch without and with the candidate

    def log_gauss(x: Array, mean: Array, variance: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            value = -0.5 * np.sum((x - mean) ** 2, axis=1) / variance - 0.5 * d * np.log(variance)
        exact = np.all(np.abs(x - mean) < 1e-9, axis=1)  # without any randomness left
        return np.where(variance > 0.0, value, np.where(exact, 60.0, -np.inf))

    def score(j: Array, x: Array) -> Array:
        spread0, spread1 = j * (u - j) / (u - 1), (j - 1) * (u - j + 1) / (u - 1)
        out = count0.logpmf(j) + log_gauss(x, np.zeros(d), spread0 + (noise * clip) ** 2)
        within = count1.logpmf(j - 1) + log_gauss(x, theta, spread1 + (noise * clip) ** 2)
        return np.asarray(np.logaddexp(math.log1p(-n / total), math.log(n / total) + np.minimum(within - out, 300.0)))

    def sums(sizes: NDArray[np.int64]) -> Array:
        rank = rng.random((sizes.size, u)).argsort(axis=1).argsort(axis=1)
        return np.asarray((rank < sizes[:, None]).astype(float) @ unknown)

    outside = count0.rvs(size=pool, random_state=rng)
    inside = count1.rvs(size=pool, random_state=rng)
    extra = noise * clip * rng.normal(size=(2, pool, d))
    scores0 = score(outside, sums(outside) + extra[0])
    scores1 = score(inside + 1, sums(inside) + theta + extra[1])
    null, member = np.zeros(games), np.zeros(games)
    for _ in range(steps):
        null += rng.choice(scores0, games)
        member += np.where(rng.random(games) < n / total, rng.choice(scores1, games), rng.choice(scores0, games))
    run = NoisySGD(dataset_size=total, batch_size=n, num_steps=steps, num_params=d, clip_norm=clip)
    run = run.with_noise_multiplier(noise)
    curve = account(run, susceptibility=3.0, attacker_knows=q)
    assert curve.kind == ("bound" if q in (0.0, 1.0) else "forecast")
    assert_bound(curve, null, member)
    # Who knows fewer finds less: the attack is stronger than the bound for q = 0 allows.
    if noise == 0.0 and q > 0.5:
        fpr, fpr_error, tpr, tpr_error = measured(null, member, 0.05)
        assert tpr - 4.0 * tpr_error > account(run, susceptibility=3.0).tpr_at(fpr + 4.0 * fpr_error)


def test_listed_members_of_a_full_batch() -> None:
    rng = np.random.default_rng(2)
    n, d, k, q, games = 40, 6, 6.0, 0.75, 200_000
    theta = np.zeros(d)
    theta[0] = math.sqrt(k)
    left = (1.0 - q) * n  # another unknown record is in the candidate's place

    def score(x: Array) -> Array:
        return np.asarray(np.sum(x**2 / left - (x - theta) ** 2 / (left - 1.0), axis=1))

    null = score(math.sqrt(left) * rng.normal(size=(games, d)))
    member = score(theta + math.sqrt(left - 1.0) * rng.normal(size=(games, d)))
    run = NoisySGD(dataset_size=n, batch_size=n, num_steps=1, num_params=d, sampling="full")
    curve = account(run, susceptibility=k, attacker_knows=q)
    assert_bound(curve, null, member)
    assert_reached(curve, null, member)


@pytest.mark.parametrize("sampling", ["fixed", "poisson", "shuffled"])
def test_who_knows_more_finds_more(sampling: str) -> None:
    run = NoisySGD(dataset_size=400, batch_size=40, num_steps=30, num_params=10, clip_norm=1.0, sampling=sampling)
    rates = np.array([1e-3, 1e-2, 0.1])
    before = rates
    for q in (0.0, 0.2, 0.5, 0.8, 0.95, 1.0):
        curve = account(run.with_noise_multiplier(1.0), susceptibility=10.0, attacker_knows=q)
        assert np.all(curve.tpr_at(rates) >= before - curve.tpr_error)
        before = curve.tpr_at(rates)


# -- everybody is known: noise alone ----------------------------------------------------------------------------------


def subset_sums(records: Array, n: int) -> Array:
    return np.array([records[list(chosen)].sum(axis=0) for chosen in combinations(range(len(records)), n)])


def log_mixture(x: Array, centres: Array, noise: float) -> Array:
    """Log-density, up to a constant, of a batch drawn evenly, with noise."""
    squares = np.sum((x[:, None, :] - centres[None]) ** 2, axis=2)
    return np.asarray(logsumexp(-0.5 * squares / noise**2, axis=1) - math.log(len(centres)))


OPPOSITE = np.array([[-1.0, 0.0]] * 6)
SPREAD = np.array([[-1.0, 0.0], [0.0, 1.0], [0.0, -1.0], [0.6, 0.8], [-0.6, 0.8], [0.3, -0.9]])


@pytest.mark.parametrize("others", [OPPOSITE, SPREAD], ids=["opposite", "spread"])
@pytest.mark.parametrize("n", [2, 5])
def test_everybody_is_known(others: Array, n: int) -> None:
    """The exact likelihood ratio over all batches that can have been drawn, with and without the record."""
    rng = np.random.default_rng(n)
    noise, steps, games = 1.5, 4, 40_000
    record = np.array([[1.0, 0.0]])
    without, within = subset_sums(others, n), subset_sums(np.vstack([others, record]), n)

    def scores(centres: Array) -> Array:
        total = np.zeros(games)
        for _ in range(steps):
            x = centres[rng.integers(len(centres), size=games)] + noise * rng.normal(size=(games, 2))
            total += log_mixture(x, within, noise) - log_mixture(x, without, noise)
        return total

    null, member = scores(without), scores(within)
    run = NoisySGD(dataset_size=7, batch_size=n, num_steps=steps, num_params=2, clip_norm=1.0)
    curve = account(run.with_noise_multiplier(noise), attacker_knows=1.0)
    assert curve.kind == "bound"
    assert_bound(curve, null, member)
    if others is OPPOSITE:
        assert_reached(curve, null, member)


# -- noise alone inside membership privacy: the game decides ----------------------------------------------------------

MANY = NoisySGD(
    dataset_size=1000, batch_size=10, num_steps=1000, num_params=10**9, clip_norm=1.0
).with_noise_multiplier(3.0)


def test_the_others_alone_need_one_side() -> None:
    """d = 1e9: data randomness hides nobody. All others at -C, the record at C: the most that noise has to hide."""
    rng = np.random.default_rng(6)
    rate, mu, games = 0.01, 2.0 / 3.0, 100_000
    null, member = np.zeros(games), np.zeros(games)
    for _ in range(MANY.num_steps):
        x = rng.standard_normal(games, dtype=np.float32)
        null += np.log1p(rate * np.expm1(mu * x - 0.5 * mu**2))
        taken = rng.random(games, dtype=np.float32) < rate
        x = rng.standard_normal(games, dtype=np.float32) + mu * taken
        member += np.log1p(rate * np.expm1(mu * x - 0.5 * mu**2))
    curve = account(MANY)
    assert curve.tpr_at(0.01) == pytest.approx(0.0186, abs=1e-4)
    assert_bound(curve, null, member)
    assert_reached(curve, null, member)


def test_another_record_in_its_place_needs_both_sides() -> None:
    """Differential privacy covers who replaces it: records on either side, and both mixed over the steps."""
    one_sided, both = account(MANY, attacker_knows=1.0), account(MANY, notion="gdp")
    assert both.claim.adjacency == "replace-one"
    assert both.tpr_at(0.01) == pytest.approx(0.0208, abs=1e-4)
    rates = np.array([1e-4, 1e-3, 0.01, 0.1, 0.5])
    for curve in (one_sided, one_sided.inverse()):
        assert np.all(both.tpr_at(rates) >= curve.tpr_at(rates) - curve.tpr_error)


def test_an_attacker_who_is_told_the_batches_of_the_others_is_not_covered_and_the_answer_says_so() -> None:
    """In batches of fixed size one of the others is missing where the record is: nothing published is needed."""
    rng = np.random.default_rng(25)
    total, n, steps, games = 70, 57, 5, 4_000
    run = NoisySGD(dataset_size=total, batch_size=n, num_steps=steps, num_params=4, clip_norm=1.0)
    curve = account(run.with_noise_multiplier(8.0), attacker_knows=1.0)
    drawn = rng.random((games, steps, total)).argsort(axis=2)[:, :, :n]  # the record is number 0
    told = (drawn != 0).sum(axis=2)  # how many of the others are in each batch: n in all of them without the record
    found = float(np.mean((told < n).any(axis=1)))
    assert found > 0.99 > curve.tpr_at(0.01) + 0.5
    assert "but not their batches" in curve.for_whom and "shows who is missing" in " ".join(curve.assumptions)
    poisson = account(run.replace(sampling="poisson").with_noise_multiplier(8.0), attacker_knows=1.0)
    assert "told" not in poisson.for_whom  # there the others' batches say nothing
