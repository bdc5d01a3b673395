"""Shuffled epochs against quadratures and simulations that share no code with the doubling of gmip.accounting._epoch.

- reference figures, and the law of an epoch's likelihood ratio by a convolution of log-normal densities;
- two and three batches by integrals of the optimal test, in both directions;
- games with batches whose shift depends on what was published before, with unequal and missing batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtr

from gmip import NoisySGD, TradeOff, account
from tests.statistical.games import assert_bound, assert_reached

Array = NDArray[np.float64]


def noise_only(mu: float, batches: int, epochs: int) -> TradeOff:
    """One-sided: the attacker knows all others, so each batch that holds the record is a shift by mu."""
    run = NoisySGD(
        dataset_size=10 * batches,
        batch_size=10,
        num_steps=batches * epochs,
        num_params=1,
        clip_norm=1.0,
        sampling="shuffled",
    )
    return account(run.with_noise_multiplier(2.0 / mu), attacker_knows=1.0)


# -- reference figures -----------------------------------------------------------------------------------------------

REFERENCES = [  # TPR at FPR .1%, 1%, 10%
    (1.27475, 120, 10, (0.0067, 0.0418, 0.2409)),
    (3.0, 120, 1, (0.0968, 0.2310, 0.5090)),
    (3.0, 20, 5, (0.8623, 0.9554, 0.9943)),
    (1.0, 20, 10, (0.0153, 0.0790, 0.3512)),
    (6.0, 120, 1, (0.9547, 0.9874, 0.9982)),
    (0.5, 10, 20, (0.0097, 0.0576, None)),  # .2976 was given at 10%: the quadrature below says .2969
]


@pytest.mark.parametrize(("mu", "batches", "epochs", "published"), REFERENCES)
def test_reference_figures(mu: float, batches: int, epochs: int, published: tuple[float | None, ...]) -> None:
    curve = noise_only(mu, batches, epochs)
    for fpr, tpr in zip((1e-3, 1e-2, 0.1), published, strict=True):
        if tpr is not None:
            assert curve.tpr_at(fpr) == pytest.approx(tpr, abs=5e-4)


# -- many batches: convolution of densities ---------------------------------------------------------------------------


def epoch_density(mu: float, batches: int, spacing: float, top: float) -> tuple[Array, Array]:
    """P0 density of log Z of one epoch: that of a sum of `batches` log-normal variables by fast Fourier transform."""
    count = int(top / spacing)
    with np.errstate(divide="ignore"):
        edges = np.log(spacing * np.maximum(np.arange(count + 1) - 0.5, 0.0))
    mass = np.diff(ndtr(edges / mu + 0.5 * mu))  # around the multiples of `spacing`
    size = 1 << (count - 1).bit_length()
    total = np.fft.irfft(np.fft.rfft(mass, size) ** batches, size)[:count]
    return spacing * np.arange(count) / batches, np.maximum(total, 0.0) * batches / spacing


def tpr_by_convolution(mu: float, batches: int, epochs: int, spacing: float, top: float, fprs: list[float]) -> Array:
    z, density = epoch_density(mu, batches, spacing, top)
    step, half = 1.0e-3, 1 << 15
    loss = step * np.arange(-half, half)
    at = np.exp(np.clip(loss, math.log(z[1]), math.log(z[-1])))
    law = np.where((loss > math.log(z[1])) & (loss < math.log(z[-1])), np.interp(at, z, density) * at, 0.0) * step
    assert law.sum() == pytest.approx(1.0, abs=1e-6)
    assert law @ np.exp(loss) == pytest.approx(1.0, abs=1e-5)
    power = np.fft.irfft(np.fft.rfft(np.fft.ifftshift(law)) ** epochs, 2 * half)
    null = np.maximum(np.fft.fftshift(power), 0.0)
    null[null < 1e-15] = 0.0
    above0, above1 = np.cumsum(null[::-1]), np.cumsum((null * np.exp(loss))[::-1])
    return np.interp(fprs, above0, above1)


@pytest.mark.parametrize(
    ("mu", "batches", "epochs", "spacing", "top"),
    [(0.5, 10, 20, 5e-4, 80.0), (1.0, 20, 10, 2e-3, 1500.0), (1.27475, 120, 10, 1e-2, 8000.0)],
)
def test_many_batches_by_convolution(mu: float, batches: int, epochs: int, spacing: float, top: float) -> None:
    fprs = [1e-3, 1e-2, 0.1, 0.5]
    true = tpr_by_convolution(mu, batches, epochs, spacing, top, fprs)
    curve = noise_only(mu, batches, epochs)
    got = curve.tpr_at(np.array(fprs))
    assert np.all(got >= true - 3e-6)
    assert np.all(got <= true + curve.tpr_error + 2e-5)
    if mu == 0.5:  # the reference figure of .2976 is too high
        assert true[2] == pytest.approx(0.2969, abs=1e-4)


# -- two and three batches: integrals of the optimal test -------------------------------------------------------------


def one_more(low: Array, share: float, mu: float, level: float, *, above: bool) -> Array:
    """E[(low + share e^(mu x - mu^2/2) - level)+] over x ~ N(0, 1), or of the negative part."""
    strike = np.maximum(level - low, 0.0) / share
    with np.errstate(divide="ignore"):
        x = np.where(strike > 0.0, np.log(strike) / mu + 0.5 * mu, -np.inf)
    positive = (low - level) * ndtr(-x) + share * ndtr(mu - x)
    return positive if above else positive - (low + share - level)


def epoch_delta(mu: float, batches: int, epsilon: float, *, add: bool) -> float:
    """E0[(Z - e^eps)+], or with the roles of both swapped E0[(1 - e^eps Z)+]: the last batch in closed form."""
    step = 0.01 if batches == 2 else 0.04
    x = np.arange(-10.0, 10.0 + mu, step)
    weight = step * np.exp(-0.5 * x**2) / math.sqrt(2.0 * math.pi)
    ratio = np.exp(mu * x - 0.5 * mu**2) / batches
    if batches == 2:
        low, mass = ratio, weight
    else:
        low, mass = np.add.outer(ratio, ratio), np.multiply.outer(weight, weight)
    if add:
        return float(np.sum(mass * one_more(low, 1.0 / batches, mu, math.exp(epsilon), above=True)))
    return math.exp(epsilon) * float(np.sum(mass * one_more(low, 1.0 / batches, mu, math.exp(-epsilon), above=False)))


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("batches", [2, 3])
def test_few_batches_by_quadrature(mu: float, batches: int) -> None:
    curve = noise_only(mu, batches, 1)
    run = NoisySGD(
        dataset_size=batches, batch_size=1, num_steps=batches, num_params=1, clip_norm=1.0, sampling="shuffled"
    )
    both = account(run.with_noise_multiplier(1.0 / mu), notion="gdp")
    for epsilon in (-1.0, -0.1, 0.0, 0.05, 0.3, 1.0, 2.0):
        add = epoch_delta(mu, batches, epsilon, add=True)
        assert add - 1e-10 <= curve.delta(epsilon) <= add + curve.tpr_error + 1e-9
        if epsilon >= 0.0:
            either = max(add, epoch_delta(mu, batches, epsilon, add=False))
            assert either - 1e-10 <= both.delta(epsilon) <= either + both.tpr_error + 1e-9


def test_both_directions_of_many_epochs() -> None:
    # By the same convolution, the other way round: E0[(1 - e^eps Z)+].
    z, density = epoch_density(1.0, 20, 2e-3, 1500.0)
    run = NoisySGD(dataset_size=20, batch_size=1, num_steps=20, num_params=1, clip_norm=1.0, sampling="shuffled")
    both = account(run.with_noise_multiplier(1.0), notion="gdp")
    assert both.claim.adjacency == "zero-out-one"
    mass = density * (z[1] - z[0])
    for epsilon in (0.0, 0.1, 0.3, 0.6, 1.0, 1.5):
        add = float(mass @ np.maximum(z - math.exp(epsilon), 0.0))
        remove = float(mass @ np.maximum(1.0 - math.exp(epsilon) * z, 0.0))
        assert both.delta(epsilon) == pytest.approx(max(add, remove), abs=2e-5)
        assert both.delta(epsilon) >= max(add, remove) - 2e-6


# -- games ------------------------------------------------------------------------------------------------------------

Shift = Callable[[Array, Array], Array]


def turning(seen: Array, evidence: Array) -> Array:
    """A direction of full length that depends on what was published last."""
    angle = 3.0 * seen[:, 0] + evidence
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def bold_when_behind(seen: Array, evidence: Array) -> Array:
    """Shifts by nothing once there is evidence of membership."""
    return turning(seen, evidence) * (evidence < 0.5)[:, None]


def timid(seen: Array, evidence: Array) -> Array:
    return turning(seen, evidence) * np.clip(np.abs(seen[:, 1]), 0.0, 1.0)[:, None]


def adaptive_game(rng: np.random.Generator, mu: float, batches: int, epochs: int, shift: Shift, member: bool) -> Array:
    """Log-likelihood ratios of games in which batches are published one after the other."""
    games = 100_000
    seen, evidence = np.zeros((games, 2)), np.zeros(games)
    for _ in range(epochs):
        where = rng.integers(batches, size=games)
        losses = np.empty((batches, games))
        so_far = np.zeros(games)
        for t in range(batches):
            direction = mu * shift(seen, evidence + so_far)
            seen = rng.normal(size=(games, 2)) + direction * (member & (where == t))[:, None]
            losses[t] = np.sum(direction * seen, axis=1) - 0.5 * np.sum(direction**2, axis=1)
            so_far = np.log1p((np.exp(losses[: t + 1]).sum(axis=0) - (t + 1)) / batches)
        evidence = evidence + logsumexp(losses, axis=0) - math.log(batches)
    return evidence


@pytest.mark.parametrize(("mu", "batches", "epochs"), [(1.0, 5, 4), (2.5, 8, 2), (1.5, 3, 6)])
@pytest.mark.parametrize("shift", [turning, bold_when_behind, timid])
def test_adaptive_games(shift: Shift, mu: float, batches: int, epochs: int) -> None:
    rng = np.random.default_rng(13)
    null, member = (adaptive_game(rng, mu, batches, epochs, shift, is_in) for is_in in (False, True))
    curve = noise_only(mu, batches, epochs)
    assert_bound(curve, null, member)
    if shift is turning:  # only the length of a shift matters
        assert_reached(curve, null, member)


def sums_game(
    rng: np.random.Generator, sizes: list[int], total: int, steps: int, d: int, k: float, noise: float, *, member: bool
) -> Array:
    """Batches of new Gaussian records in d dimensions, sums published; in each epoch the record is in one of them.

    noise : variance of the noise on a sum. Records are distinct within an epoch and new in the next one.
    """
    games = 200_000
    theta = np.zeros(d)
    theta[0] = math.sqrt(k)
    evidence = np.zeros(games)
    weights = np.array(sizes) / total
    for first in range(0, steps, len(sizes)):
        used = min(len(sizes), steps - first)
        place = np.searchsorted(np.cumsum(weights), rng.uniform(size=games), side="right")  # len(sizes): left out
        ratio = np.full(games, 1.0 - weights[:used].sum())
        for t in range(used):
            n, inside = sizes[t], (member & (place == t))[:, None]
            v0, v1 = n + noise, n - 1 + noise
            x = rng.normal(size=(games, d)) * np.sqrt(np.where(inside, v1, v0)) + theta * inside
            loss = 0.5 * d * math.log(v0 / v1) + 0.5 * np.sum(x**2 / v0 - (x - theta) ** 2 / v1, axis=1)
            ratio += weights[t] * np.exp(loss)
        evidence += np.log(ratio)
    return evidence


@pytest.mark.parametrize(
    ("total", "steps", "drop_last"),
    [(50, 6, False), (50, 6, True), (50, 4, False), (50, 3, True), (40, 5, False)],
    ids=["unequal last batch", "dropped last batch", "ends within an epoch", "both", "equal batches, ends within"],
)
@pytest.mark.parametrize("noise_multiplier", [0.0, 3.0])
def test_unequal_and_missing_batches(total: int, steps: int, drop_last: bool, noise_multiplier: float) -> None:
    d, k, n = 3, 3.0, 20
    run = NoisySGD(
        dataset_size=total,
        batch_size=n,
        num_steps=steps,
        num_params=d,
        sampling="shuffled",
        drop_last=drop_last,
        clip_norm=1.0,
    )
    curve = account(run.with_noise_multiplier(noise_multiplier), susceptibility=k)
    sizes = [20, 20] if total == 40 or drop_last else [20, 20, 10]
    rng = np.random.default_rng(steps)
    # With K = 3 <= 4 the bound takes Sigma = C^2 I, which the records of this game have for C = 1.
    null, member = (
        sums_game(rng, sizes, total, steps, d, k, noise_multiplier**2, member=is_in) for is_in in (False, True)
    )
    assert_bound(curve, null, member)
    assert_reached(curve, null, member)


# -- extremes ---------------------------------------------------------------------------------------------------------


def test_a_million_batches_and_a_hundred_thousand_epochs() -> None:
    rates = np.array([1e-4, 1e-2, 0.3])
    fewer = None
    for batches in (10, 10**3, 10**6):
        got = noise_only(2.0, batches, 1).tpr_at(rates)
        assert np.all(np.isfinite(got)) and np.all(got >= rates)
        assert fewer is None or np.all(got < fewer)
        fewer = got
    shorter = rates
    for epochs in (10**3, 10**4, 10**5):
        got = noise_only(0.02, 50, epochs).tpr_at(rates)
        assert np.all(np.isfinite(got)) and np.all(got > shorter)
        shorter = got


@pytest.mark.parametrize("mu", [15.0, 27.0, 33.0, 40.0, 60.0])
def test_a_record_that_stands_out_is_found(mu: float) -> None:
    # e^L leaves the range of doubles from mu = 27 on.
    curve = noise_only(mu, 10, 2)
    assert curve.tpr_at(1e-6) == pytest.approx(1.0, abs=1e-3)
    assert curve.tpr_at(1e-6) >= ndtr(mu - 7.5) - 1e-9
