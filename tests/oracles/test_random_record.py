"""The guarantee for a random record against the worst records that a search finds.

A record has a level (its susceptibility over the mean of all) at each step; over records and steps levels have the mean
1. The search mixes up to three kinds of records with up to three levels in time, composes each kind by itself and pools
them by stochastic composition: random mixtures first, then changes to the best of them.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from gmip import Gaussian, NoisySGD, TradeOff, account, compose
from gmip.accounting.composition import stochastic_composition
from gmip.accounting.gaussian_pair import ChiSquared
from tests.statistical.games import assert_bound

Kind = tuple[tuple[float, int], ...]  # levels and in how many steps each
Mixture = tuple[list[Kind], np.ndarray]  # kinds of records and their shares

QUIET = NoisySGD(dataset_size=1000, batch_size=100, num_steps=10, num_params=20)
NOISY = NoisySGD(dataset_size=300, batch_size=60, num_steps=10, num_params=9, clip_norm=1.0).with_noise_multiplier(2.5)
RATES = (1e-3, 1e-2, 0.1)


@cache
def step(run: NoisySGD, level: float, noise_alone: bool) -> TradeOff:
    """One step of a record that is in the batch with probability n/N, from the formulas of the theory."""
    if noise_alone:  # |theta_x - theta_x'|^2 = 2 C^2 level
        assert run.noise_multiplier is not None
        return Gaussian(math.sqrt(2.0 * level) / run.noise_multiplier).subsample(run.sample_rate)
    leverage, n, m = level * run.num_params, run.batch_size, run.dataset_size - 1
    if leverage >= m:
        return Gaussian(math.inf).subsample(run.sample_rate)
    k = (m + 1) * leverage / (m - leverage)
    spread, change = n * (m - n) / (m - 1), (m + 1 - 2 * n) / (m - 1)
    test = ChiSquared(dimension=run.num_params, susceptibility=k / change, batch_size=spread / change)
    return test.subsample(run.sample_rate)


def tpr_of(run: NoisySGD, mixture: Mixture, noise_alone: bool, fpr: float) -> float:
    curves = []
    for kind in mixture[0]:
        parts = [(step(run, level, noise_alone), steps) for level, steps in kind if level > 0.0 and steps > 0]
        curves.append(compose(parts) if parts else Gaussian(0.0))
    pooled = stochastic_composition(curves, mixture[1])
    return pooled.tpr_at(fpr) - pooled.tpr_error


def on_grid(level: float, top: float) -> float:
    """A level of which steps are computed once: powers of the fourth root of 2."""
    return min(2.0 ** (math.floor(4.0 * math.log2(level)) / 4.0), top) if level > 0.05 else 0.0


def affordable(run: NoisySGD, kinds: list[Kind], shares: np.ndarray) -> Mixture:
    """With records that are never exposed, as many as it takes for a mean level of at most 1."""
    costs = np.array([sum(level * steps for level, steps in kind) / run.num_steps for kind in kinds])
    spent = float(shares @ costs)
    if spent > 1.0:
        return [*kinds, ((0.0, run.num_steps),)], np.append(shares / spent, 1.0 - 1.0 / spent + 1e-12)
    return kinds, shares


def drawn(rng: np.random.Generator, run: NoisySGD, steady: bool, top: float) -> Mixture:
    kinds: list[Kind] = []
    for _ in range(int(rng.integers(1, 4))):
        cuts = [] if steady else np.sort(rng.integers(0, run.num_steps + 1, size=2)).tolist()
        lengths = np.diff([0, *cuts, run.num_steps]).tolist()
        levels = 10 ** rng.uniform(-0.5, math.log10(top), size=len(lengths))
        if not steady:
            levels[rng.random(levels.size) < 0.4] = 0.0
        kinds.append(tuple((on_grid(level, top), length) for level, length in zip(levels, lengths, strict=True)))
    return affordable(run, kinds, rng.dirichlet(np.ones(len(kinds))))


def changed(rng: np.random.Generator, run: NoisySGD, mixture: Mixture, top: float) -> Mixture:
    kinds, shares = [], []
    for kind, share in zip(*mixture, strict=True):
        if not any(level > 0.0 and length > 0 for level, length in kind):
            continue
        levels = [on_grid(1.001 * level * 2.0 ** (int(rng.integers(-2, 3)) / 4.0), top) for level, _ in kind]
        lengths = [length for _, length in kind]
        if len(lengths) > 1 and rng.uniform() < 0.5:
            a, b = rng.choice(len(lengths), size=2, replace=False)
            moved = min(int(rng.integers(1, 3)), lengths[a])
            lengths[a], lengths[b] = lengths[a] - moved, lengths[b] + moved
        kinds.append(tuple(zip(levels, lengths, strict=True)))
        shares.append(share * math.exp(0.3 * rng.normal()))
    return affordable(run, kinds, np.array(shares) / sum(shares)) if kinds else mixture


def worst_found(run: NoisySGD, fpr: float, *, steady: bool, noise_alone: bool, top: float, tries: int) -> float:
    rng = np.random.default_rng(14)
    mixtures = [affordable(run, [((1.0, run.num_steps),)], np.ones(1))]
    for steps in (run.num_steps,) if steady else (1, 2, 4, run.num_steps):  # few records, in a few steps
        for level in {on_grid(1.001 * 2.0 ** (i / 2.0), top) for i in range(12)}:
            rest = () if steps == run.num_steps else ((0.0, run.num_steps - steps),)
            mixtures.append(affordable(run, [((level, steps), *rest)], np.ones(1)))
    mixtures += [drawn(rng, run, steady, top) for _ in range(tries)]
    best, found = max(((tpr_of(run, m, noise_alone, fpr), m) for m in mixtures), key=lambda pair: pair[0])
    for _ in range(2 * tries):
        new = changed(rng, run, found, top)
        value = tpr_of(run, new, noise_alone, fpr)
        if value > best:
            best, found = value, new
    return best


@pytest.mark.slow
@pytest.mark.parametrize("fpr", [RATES[0], RATES[-1]])
@pytest.mark.parametrize("record", ["any", "any-constant"])
@pytest.mark.parametrize("noise_alone", [False, True])
def test_no_records_are_worse(noise_alone: bool, record: str, fpr: float) -> None:
    run, known = (NOISY, 1.0) if noise_alone else (QUIET, 0.0)
    top = 2.0 if noise_alone else 48.0  # clipping allows no more; beyond, a record gives itself away
    curve = account(run, susceptibility=record, attacker_knows=known)
    assert curve.kind == ("bound" if record == "any-constant" else "forecast")
    worst = worst_found(run, fpr, steady=record == "any-constant", noise_alone=noise_alone, top=top, tries=4)
    typical = tpr_of(run, ([((1.0, run.num_steps),)], np.ones(1)), noise_alone, fpr)
    assert typical <= worst <= curve.tpr_at(fpr)
    # The search comes near: the bound is not high for nothing.
    assert curve.tpr_at(fpr) <= (1.15 if record == "any-constant" else 1.3) * worst


def test_one_shuffled_epoch_covers_records_that_are_exposed_in_some_batches() -> None:
    """The best test of one epoch against records of `level` times the mean K in `exposed` of 20 batches, 0 elsewhere.

    In the batch that holds the record, N(0, I) is tested against N(shift e_1, (1 - 1/n) I), shift^2 = K/n. The record
    is in each batch with the same chance, so the likelihood ratio of the epoch is the mean of those of its batches.
    """
    run = NoisySGD(dataset_size=2000, batch_size=100, num_steps=20, num_params=100, sampling="shuffled")
    curve = account(run, susceptibility="any")
    assert curve.kind == "forecast" and "in a share of the steps" in curve.for_whom
    rng, games, batches, n, d = np.random.default_rng(25), 100_000, 20, 100, 100
    narrow = 1.0 - 1.0 / n
    for level, exposed in ((4.0, 5), (2.0, 10), (20.0, 1), (1.0, 20)):
        shift = np.where(np.arange(batches) < exposed, math.sqrt(level * d / n), 0.0)

        def losses(member: bool, shift: np.ndarray = shift) -> np.ndarray:
            along, rest = rng.standard_normal((games, batches)), rng.chisquare(d - 1, (games, batches))
            if member:
                rows, holds = np.arange(games), rng.integers(batches, size=games)
                along[rows, holds] = shift[holds] + math.sqrt(narrow) * along[rows, holds]
                rest[rows, holds] *= narrow
            loss = 0.5 * (along**2 + rest) - 0.5 * ((along - shift) ** 2 + rest) / narrow - 0.5 * d * math.log(narrow)
            return np.asarray(np.exp(loss).mean(axis=1))

        null, member = losses(False), losses(True)
        assert_bound(curve, null, member, rates=(0.01, 0.05, 0.1, 0.3))
        if exposed == 5:  # where "any" once said .1916
            assert np.mean(member > np.quantile(null, 0.9)) == pytest.approx(0.209, abs=0.006)


def test_one_step_of_a_random_record() -> None:
    run = NoisySGD(dataset_size=400, batch_size=400, num_steps=1, num_params=650, sampling="full")
    curve = account(run, susceptibility="any")
    assert curve.tpr_at(np.array([1e-3, 1e-2, 0.1])) == pytest.approx([0.122, 0.210, 0.498], rel=0.03)  # cells: 2%
    typical = account(run).tpr_at(np.array([1e-3, 1e-2, 0.1]))
    assert typical == pytest.approx([0.035, 0.146, 0.498], abs=1e-3)


def test_the_papers_run() -> None:
    # 15.4 / 19.2 / 31.6% were found without leverage: a record of six times the mean stands out 8% more against the
    # others alone than against all.
    run = NoisySGD(dataset_size=48_000, batch_size=400, num_steps=1_200, num_params=650)
    curve = account(run, susceptibility="any-constant")
    got = curve.tpr_at(np.array([1e-3, 1e-2, 0.1]))
    assert np.all(got >= [0.154, 0.192, 0.316])
    assert got == pytest.approx([0.154, 0.192, 0.316], rel=0.11)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "total", "steps", "target", "worst_case", "random"),
    [
        (300, 600, 20, (0.10, 0.01), 4.46, 3.83),
        (400, 48_000, 1_200, (0.03, 0.01), 1.87, 1.74),
        (1_000, 43_000, 860, (0.03, 0.01), 3.42, 3.09),
        (100, 1_000, 100, (0.05, 0.01), 3.32, 2.96),
    ],
)
def test_noise_that_a_random_record_needs(
    n: int, total: int, steps: int, target: tuple[float, float], worst_case: float, random: float
) -> None:
    tpr, fpr = target
    run = NoisySGD(dataset_size=total, batch_size=n, num_steps=steps, num_params=10, clip_norm=1.0)

    def found(noise_multiplier: float, record: str | None) -> float:
        noisy = run.with_noise_multiplier(noise_multiplier)
        return account(noisy, susceptibility=record, attacker_knows=1.0).tpr_at(fpr)

    assert found(0.98 * worst_case, None) > tpr > found(1.02 * worst_case, None)
    assert found(0.98 * random, "any-constant") > tpr > found(1.02 * random, "any-constant")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampling", "known"),
    [(s, q) for s in ("fixed", "poisson", "full", "shuffled") for q in (0.0, 1.0)] + [("fixed", 0.5)],
)
def test_a_random_record_is_never_worse_off_than_with_noise_alone(sampling: str, known: float) -> None:
    n = 200 if sampling == "full" else 50
    run = NoisySGD(dataset_size=200, batch_size=n, num_steps=8, num_params=30, clip_norm=1.0, sampling=sampling)
    run = run.with_noise_multiplier(8.0 if sampling == "full" else 3.0)
    noise = account(run, attacker_knows=1.0)
    curve = account(run, susceptibility="any-constant", attacker_knows=known)
    rates = np.array([1e-4, *RATES])
    assert np.all(curve.tpr_at(rates) <= noise.tpr_at(rates) + noise.tpr_error + 1e-6)
