"""The same records in every step: attackers who know all others never find more than the bound allows.

The others are given, and frozen: their gradients are the same in all steps. Batches are drawn from them, sums are what
they are (no Gaussian model); the attacker scores them by the likelihood ratio of the Gaussian model. Steps are
independent given the others, so a run is a sum of independent scores, drawn from a pool of simulated steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from gmip import NoisySGD, account
from tests.statistical.games import assert_bound, assert_reached, measured

Array = NDArray[np.float64]

POOL = 30_000
GAMES = 30_000


def standardised(rng: np.random.Generator, count: int, d: int) -> Array:
    """Records of mean 0 and covariance I, exactly."""
    x = rng.normal(size=(count, d))
    x -= x.mean(axis=0)
    return np.asarray(np.linalg.solve(np.linalg.cholesky(x.T @ x / count), x.T).T)


def drawn_sums(rng: np.random.Generator, others: Array, size: int, pool: int) -> Array:
    """Sums of `size` of the others, drawn without replacement."""
    total = []
    for part in np.array_split(np.arange(pool), max(pool * len(others) // 4_000_000, 1)):
        chosen = rng.random((part.size, len(others))).argpartition(size - 1, axis=1)[:, :size] if size else None
        total.append(others[chosen].sum(axis=1) if chosen is not None else np.zeros((part.size, others.shape[1])))
    return np.concatenate(total)


def bernoulli_sums(rng: np.random.Generator, others: Array, rate: float, pool: int) -> Array:
    parts = np.array_split(np.arange(pool), max(pool * len(others) // 4_000_000, 1))
    return np.concatenate([(rng.random((part.size, len(others))) < rate).astype(float) @ others for part in parts])


def log_density(x: Array, mean: Array, covariance: Array) -> Array:
    root = np.linalg.cholesky(covariance)
    z = np.linalg.solve(root, (x - mean).T)
    return np.asarray(-0.5 * np.sum(z**2, axis=0) - np.log(np.diag(root)).sum())


def runs(rng: np.random.Generator, steps: int, rate: float, outside: Array, inside: Array) -> tuple[Array, Array]:
    """Scores of runs without and with the record, from pools of the scores of steps without and with it."""
    null, member = np.zeros(GAMES), np.zeros(GAMES)
    for _ in range(steps):
        null += rng.choice(outside, GAMES)
        member += np.where(rng.random(GAMES) < rate, rng.choice(inside, GAMES), rng.choice(outside, GAMES))
    return null, member


def fixed_batches(
    rng: np.random.Generator, others: Array, theta: Array, n: int, steps: int, noise: float = 0.0
) -> tuple[Array, Array]:
    m, d = others.shape
    rate = n / (m + 1)
    mean = others.mean(axis=0)
    s = np.cov(others.T, bias=True).reshape(d, d)
    extra = noise**2 * np.eye(d)

    def score(x: Array) -> Array:
        out = log_density(x, n * mean, n * (m - n) / (m - 1) * s + extra)
        within = log_density(x, (n - 1) * mean + theta, (n - 1) * (m - n + 1) / (m - 1) * s + extra)
        return np.log1p(rate * np.expm1(within - out))

    pool = POOL if m < 500 else POOL // 4
    outside = drawn_sums(rng, others, n, pool) + noise * rng.normal(size=(pool, d))
    inside = drawn_sums(rng, others, n - 1, pool) + theta + noise * rng.normal(size=(pool, d))
    return runs(rng, steps, rate, score(outside), score(inside))


def poisson_batches(
    rng: np.random.Generator, others: Array, theta: Array, rate: float, steps: int, noise: float = 0.0
) -> tuple[Array, Array]:
    d = others.shape[1]
    covariance = rate * (1.0 - rate) * others.T @ others + noise**2 * np.eye(d)
    mean = rate * others.sum(axis=0)
    direction = np.linalg.solve(covariance, theta)

    def score(x: Array) -> Array:
        return np.log1p(rate * np.expm1((x - mean) @ direction - 0.5 * theta @ direction))

    outside = bernoulli_sums(rng, others, rate, POOL) + noise * rng.normal(size=(POOL, d))
    inside = bernoulli_sums(rng, others, rate, POOL) + theta + noise * rng.normal(size=(POOL, d))
    return runs(rng, steps, rate, score(outside), score(inside))


def candidate(rng: np.random.Generator, others: Array, k: float) -> Array:
    """A record of susceptibility k against the others."""
    d = others.shape[1]
    s = np.cov(others.T, bias=True).reshape(d, d)
    direction = rng.normal(size=d)
    return np.asarray(others.mean(axis=0) + direction * math.sqrt(k / (direction @ np.linalg.solve(s, direction))))


def test_where_the_forecast_for_fresh_data_is_exceeded() -> None:
    rng = np.random.default_rng(1)
    others = standardised(rng, 199, 5)
    null, member = fixed_batches(rng, others, candidate(rng, others, 5.0), 60, 40)
    run = NoisySGD(dataset_size=200, batch_size=60, num_steps=40, num_params=5)
    bound, paper = account(run, susceptibility=5.0), account(run, susceptibility=5.0, bound="paper")
    assert bound.kind == "bound" and paper.kind == "forecast"
    assert bound.tpr_at(0.05) == pytest.approx(0.165, abs=1e-3)
    assert_bound(bound, null, member)
    fpr, fpr_error, tpr, tpr_error = measured(null, member, 0.05)
    assert tpr == pytest.approx(0.164, abs=6e-3)
    assert tpr - 4.0 * tpr_error > paper.tpr_at(fpr + 4.0 * fpr_error)


@pytest.mark.parametrize(
    ("total", "n", "d", "steps", "k"),
    [
        (2000, 20, 5, 100, 20.0),
        (400, 40, 5, 100, 20.0),
        (300, 90, 3, 40, 3.0),
        (200, 120, 5, 30, 5.0),  # from here on the sums spread more with the record in
        (200, 160, 8, 20, 8.0),
        (100, 80, 20, 10, 10.0),
    ],
)
def test_fixed_batches(total: int, n: int, d: int, steps: int, k: float) -> None:
    rng = np.random.default_rng(n)
    others = standardised(rng, total - 1, d)
    null, member = fixed_batches(rng, others, candidate(rng, others, k), n, steps)
    curve = account(NoisySGD(dataset_size=total, batch_size=n, num_steps=steps, num_params=d), susceptibility=k)
    assert_bound(curve, null, member)
    # The bound is what the Gaussian model allows, and sums of this many records are almost Gaussian.
    fpr, fpr_error, tpr, tpr_error = measured(null, member, 0.1)
    assert tpr + 4.0 * tpr_error >= 0.95 * curve.tpr_at(fpr - 4.0 * fpr_error)


@pytest.mark.parametrize("centre", [0.0, 2.0], ids=["centred", "far from the origin"])
@pytest.mark.parametrize(
    ("total", "rate", "steps", "k"), [(1000, 0.02, 60, 12.0), (300, 0.3, 20, 6.0), (200, 0.8, 20, 4.0)]
)
def test_poisson_batches(total: int, rate: float, steps: int, k: float, centre: float) -> None:
    rng = np.random.default_rng(total)
    d = 4
    others = standardised(rng, total - 1, d)
    theta = np.zeros(d)
    theta[0] = math.sqrt(k)
    # The worst place for the mean: theta'(S + m m')^-1 theta = K + 1 for m = (theta - m)/K.
    shift = centre * theta / k
    null, member = poisson_batches(rng, others + shift, theta + shift, rate, steps)
    run = NoisySGD(
        dataset_size=total, batch_size=round(rate * total), num_steps=steps, num_params=d, sampling="poisson"
    )
    assert_bound(account(run, susceptibility=k), null, member)


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
@pytest.mark.parametrize(("n", "noise"), [(20, 1.5), (140, 3.0)])
def test_with_noise(sampling: str, n: int, noise: float) -> None:
    # Clipped records of uneven spectrum; the candidate as far from their mean as clipping allows.
    rng = np.random.default_rng(n)
    total, d, steps = 200, 4, 30
    others = rng.normal(size=(total - 1, d)) * np.array([1.0, 0.5, 0.2, 0.05])
    others /= np.maximum(np.linalg.norm(others, axis=1, keepdims=True), 1.0)
    worst = 0.0
    for theta in (np.array([0.0, 0.0, 0.0, 1.0]), np.array([-1.0, 0.0, 0.0, 0.0]), np.array([0.5, 0.5, 0.5, 0.5])):
        away = theta - others.mean(axis=0)
        k = float(away @ np.linalg.solve(np.cov(others.T, bias=True), away))
        worst = max(worst, k)
        attack: Callable[..., tuple[Array, Array]] = fixed_batches if sampling == "fixed" else poisson_batches
        null, member = attack(rng, others, theta, n if sampling == "fixed" else n / total, steps, noise)
        run = NoisySGD(
            dataset_size=total, batch_size=n, num_steps=steps, num_params=d, sampling=sampling, clip_norm=1.0
        )
        assert_bound(account(run.with_noise_multiplier(noise), susceptibility=k), null, member)
    assert worst > 100.0  # the small direction makes one of them stand out


@pytest.mark.parametrize("frozen", [True, False])
def test_full_batches_are_taken_together(frozen: bool) -> None:
    # The gradients of all steps, stacked: the same in all steps (rank d), or different ones (rank T d).
    n, d, steps, k = 30, 4, 5, 4.0
    rank = d if frozen else steps * d
    rng = np.random.default_rng(3)
    games = 200_000
    theta = np.zeros(rank)
    theta[0] = math.sqrt(steps * k)  # the most that the bound covers
    null = math.sqrt(n) * rng.normal(size=(games, rank))
    member = theta + math.sqrt(n - 1) * rng.normal(size=(games, rank))

    def score(x: Array) -> Array:
        return np.asarray(np.sum(x**2 / n - (x - theta) ** 2 / (n - 1), axis=1))

    run = NoisySGD(dataset_size=n, batch_size=n, num_steps=steps, num_params=d, sampling="full")
    assert_bound(account(run, susceptibility=k), score(null), score(member))


@pytest.mark.parametrize(
    ("batches", "total", "k", "attack", "forecast"), [(4, 200, 5.0, 0.064, 0.178), (10, 400, 10.0, 0.077, 0.186)]
)
def test_epochs_on_the_same_records(batches: int, total: int, k: float, attack: float, forecast: float) -> None:
    # Nobody else is known; gradients are frozen. The attacker takes each epoch's batches against their mean (their sum
    # is the same in every epoch), and the sum once.
    games, d, epochs, n = 3_000, int(k), 20, total // batches
    rng = np.random.default_rng(batches)
    theta = np.zeros(d)
    theta[0] = math.sqrt(k)

    def scores(member: bool) -> tuple[Array, Array]:
        contrast = np.zeros(games)
        total_score = np.zeros(games)
        for part in np.array_split(np.arange(games), 20):
            records = rng.normal(size=(part.size, total, d)).astype(np.float32)
            if member:
                records[:, 0] = theta
            whole = records.sum(axis=1)
            total_score[part] = whole @ theta / total
            for _ in range(epochs):
                order = rng.random((part.size, total)).argsort(axis=1)
                sums = (
                    np.take_along_axis(records, order[:, :, None], axis=1).reshape(part.size, batches, n, d).sum(axis=2)
                )
                loss = (sums - whole[:, None] / batches) @ theta / n
                loss -= 0.5 * k * (1.0 - 1.0 / batches) / n
                contrast[part] += np.log(np.mean(np.exp(loss), axis=1))
        return contrast, total_score

    (null, null_sum), (member, member_sum) = scores(False), scores(True)
    run = NoisySGD(dataset_size=total, batch_size=n, num_steps=batches * epochs, num_params=d, sampling="shuffled")
    curve = account(run, susceptibility=k)
    assert curve.kind == "forecast"
    assert curve.tpr_at(0.05) == pytest.approx(forecast, abs=3e-3)
    assert measured(null, member, 0.05)[2] == pytest.approx(attack, abs=0.025)
    for weight in (0.0, 0.5, 1.0):
        assert_bound(curve, null + weight * null_sum, member + weight * member_sum)


@pytest.mark.parametrize(("n", "steps", "shaped"), [(60, 20, 0.05), (150, 10, 0.1), (1, 60, 2.0)])
def test_noise_shaped_like_the_gradients_fixed_batches(n: int, steps: int, shaped: float) -> None:
    """The others have the covariance I, so noise of their shape on a sum is (n shaped)^2 I; nothing is clipped."""
    rng, k = np.random.default_rng(n), 8.0
    others = standardised(rng, 199, 5) + 2.0
    null, member = fixed_batches(rng, others, candidate(rng, others, k), n, steps, noise=n * shaped)
    run = NoisySGD(dataset_size=200, batch_size=n, num_steps=steps, num_params=5, shaped_noise=shaped)
    curve = account(run, susceptibility=k)
    assert curve.kind == "bound" and "shape does not depend on the record" in " ".join(curve.assumptions)
    assert_bound(curve, null, member)
    assert_reached(curve, null, member)
    plain = run.replace(shaped_noise=0.0)
    assert account(plain, susceptibility=k).tpr_at(0.05) > curve.tpr_at(0.05) + 0.01
    assert account(run, attacker_knows=1.0).tpr_at(0.0) > 0.0  # nothing but not being drawn: as without it


@pytest.mark.parametrize("mean", [0.0, 3.0])
def test_noise_shaped_like_the_gradients_poisson_batches(mean: float) -> None:
    rng, n, k, shaped = np.random.default_rng(7), 40, 8.0, 0.1
    others = standardised(rng, 199, 5)
    others[:, 0] += mean
    null, member = poisson_batches(rng, others, candidate(rng, others, k), n / 200, 20, noise=n * shaped)
    run = NoisySGD(dataset_size=200, batch_size=n, num_steps=20, num_params=5, shaped_noise=shaped, sampling="poisson")
    curve = account(run, susceptibility=k)
    assert curve.kind == "bound"
    assert_bound(curve, null, member)
    assert account(run.replace(shaped_noise=0.0), susceptibility=k).tpr_at(0.05) > curve.tpr_at(0.05) + 0.01
