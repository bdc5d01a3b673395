"""Calibration cannot fail: random valid runs, every kind of sampling, record and attacker, targets from 0.01 to 50.

30 runs with a target mu in every build, and a few with each other target; GMIP_SWEEP=2000 tries many more.
"""

import math
import os
from typing import Any

import numpy as np
import pytest

from gmip import NoisySGD, TradeOff, account, calibrate

RUNS_PER_CHUNK = 15
SWEEP = int(os.environ.get("GMIP_SWEEP", "30"))
SHUFFLED = 0.1 if SWEEP < 1000 else 0.25  # of the runs: these take seconds
NOTIONS = ("gmip", "gdp")
TOLERANCE = {"fixed": 1e-6, "poisson": 1e-6, "full": 1e-6, "shuffled": 1e-3}  # as `calibrate` says
SHARES = (0.0, 0.3, 0.9, 1.0)
RATES = np.array([1.0e-4, 1.0e-2, 0.1, 0.5])


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(10 ** rng.uniform(math.log10(low), math.log10(high)))


def random_run(rng: np.random.Generator) -> NoisySGD:
    dataset_size = int(log_uniform(rng, 1e2, 1e9))
    batch_size = dataset_size if rng.uniform() < 0.1 else int(log_uniform(rng, 1, dataset_size))
    kinds = ("fixed", "poisson", "full") if batch_size == dataset_size else ("fixed", "poisson")
    sampling = str(rng.choice(kinds))
    if dataset_size / batch_size <= 1e6 and rng.uniform() < SHUFFLED:
        sampling = "shuffled"
    return NoisySGD(
        dataset_size=dataset_size,
        batch_size=batch_size,
        num_steps=int(log_uniform(rng, 1, 1e6)),
        num_params=int(log_uniform(rng, 1, 1e9)),
        clip_norm=log_uniform(rng, 1e-3, 1e3),
        sampling=sampling,
        drop_last=sampling == "shuffled" and rng.uniform() < 0.5,
    )


def random_question(rng: np.random.Generator, run: NoisySGD) -> dict[str, Any]:
    """Which record, and against whom: half of the time as `account` takes it by default."""
    options: dict[str, Any] = {}
    if rng.uniform() < 0.3:
        options["susceptibility"] = run.num_params * log_uniform(rng, 0.1, 10.0)
    if rng.uniform() < 0.4:
        options["attacker_knows"] = float(rng.choice(SHARES))
    return options


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(SWEEP // RUNS_PER_CHUNK))
def test_sweep(chunk: int) -> None:
    rng = np.random.default_rng(chunk)
    for i in range(RUNS_PER_CHUNK):
        run, target = random_run(rng), log_uniform(rng, 1e-2, 50.0)
        question = random_question(rng, run)
        quiet = calibrate(run, target_mu=target, **question)
        achieved = account(quiet, **question).equivalent_mu()
        assert achieved <= target, (run, question, target)
        if quiet.noise_std > 0.0:
            assert achieved >= target * (1.0 - TOLERANCE[run.sampling]), (run, question, target)
        if i % 5 == 0:
            looser = calibrate(run, target_mu=1.3 * target, **question)
            assert looser.noise_std <= quiet.noise_std, (run, question, target)
            assert looser.noise_std < quiet.noise_std or quiet.noise_std == 0.0, (run, question, target)


def no_worse(better: TradeOff, worse: TradeOff, *what: object) -> None:
    """`better` is nowhere more exposed than `worse`, up to what both may be overstated by."""
    slack = better.tpr_error + worse.tpr_error + 1e-9
    first, second = better.tpr_at(RATES), worse.tpr_at(RATES)
    assert np.all(np.isfinite(first)) and np.all(np.isfinite(second)), what
    assert np.all(first <= second + slack), (*what, first, second)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(SWEEP // RUNS_PER_CHUNK))
def test_exposure_is_monotone(chunk: int) -> None:
    rng = np.random.default_rng(2000 + chunk)
    for _ in range(RUNS_PER_CHUNK // 2):
        run = random_run(rng)
        if rng.uniform() < 0.7:
            run = run.with_noise_multiplier(log_uniform(rng, 0.1, 30.0))
        k, q = run.num_params * log_uniform(rng, 0.1, 10.0), float(rng.choice(SHARES[:-1]))
        curve = account(run, susceptibility=k, attacker_knows=q)
        no_worse(curve, account(run, susceptibility=1.5 * k, attacker_knows=q), "K", run, k, q)
        no_worse(
            curve, account(run.replace(num_steps=2 * run.num_steps), susceptibility=k, attacker_knows=q), run, k, q
        )
        more = SHARES[SHARES.index(q) + 1]
        no_worse(curve, account(run, susceptibility=k, attacker_knows=more), "q", run, k, q)
        noisier = run.with_noise_multiplier(max(1.5 * (run.noise_multiplier or 0.0), 0.1))
        no_worse(account(noisier, susceptibility=k, attacker_knows=q), curve, "noise", run, k, q)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(max(SWEEP // 100, 1)))
def test_sweep_of_random_records(chunk: int) -> None:
    # The curve of a random record is found by search, which takes seconds: a few runs.
    rng = np.random.default_rng(3000 + chunk)
    for sampling in ("fixed", "poisson", "full", "shuffled"):
        run = random_run(rng)
        run = run.replace(
            sampling=sampling,
            batch_size=run.dataset_size if sampling == "full" else max(run.batch_size, run.dataset_size // 100),
            num_steps=min(run.num_steps, 1000),
        ).with_noise_multiplier(log_uniform(rng, 0.3, 10.0))
        question = {"susceptibility": "any-constant", "attacker_knows": float(rng.choice((0.0, 1.0)))}
        curve = account(run, **question)
        no_worse(account(run.replace(noise_std=2.0 * run.noise_std), **question), curve, "noise", run, question)
        if sampling == "fixed":
            question["susceptibility"] = "any"
            no_worse(curve, account(run, **question), "over time", run, question)
        if sampling == "poisson":
            quiet = calibrate(run, target_tpr=(0.05, 0.01), **question)
            assert account(quiet, **question).tpr_at(0.01) <= 0.05, (run, question)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(max(SWEEP // 100, 1)))
@pytest.mark.parametrize("target", ["tpr", "advantage", "epsilon", "gdp", "clt", "paper"])
def test_sweep_of_other_targets(chunk: int, target: str) -> None:
    rng = np.random.default_rng(1000 + chunk)
    for _ in range(4):
        run = random_run(rng)
        if target == "clt" and run.sampling == "shuffled":
            run = run.replace(sampling="fixed")
        if target == "tpr":
            fpr = log_uniform(rng, 1e-5, 10**-0.5)
            wanted = fpr + (1 - fpr) * float(10 ** rng.uniform(-2, -0.01))
            quiet = calibrate(run, target_tpr=(wanted, fpr))
            achieved = account(quiet).tpr_at(fpr)
        elif target == "advantage":
            wanted = float(10 ** rng.uniform(-3, -0.01))
            quiet = calibrate(run, target_advantage=wanted)
            achieved = account(quiet).advantage()
        elif target == "epsilon":
            wanted, delta, notion = log_uniform(rng, 0.1, 20.0), log_uniform(rng, 1e-10, 1e-3), str(rng.choice(NOTIONS))
            quiet = calibrate(run, target_epsilon=wanted, delta=delta, notion=notion)
            achieved = account(quiet, notion=notion).epsilon(delta)
        else:
            wanted = log_uniform(rng, 1e-2, 50.0)
            options = {"gdp": {"notion": "gdp"}, "clt": {"composition": "clt"}, "paper": {"bound": "paper"}}[target]
            quiet = calibrate(run, target_mu=wanted, **options)
            achieved = account(quiet, **options).equivalent_mu()
        assert achieved <= wanted, (run, wanted)
        if quiet.noise_std > 0.0:
            assert achieved >= wanted * (1.0 - TOLERANCE[run.sampling]), (run, wanted)


@pytest.mark.slow
def test_known_grid_error_stays_below_1e_4() -> None:
    rng = np.random.default_rng(4)
    worst = 0.0
    for _ in range(40):
        run = random_run(rng)
        if run.noise_std == 0.0 and rng.uniform() < 0.5:
            run = run.with_noise_multiplier(float(10 ** rng.uniform(-1, 1.5)))
        curve = account(run)
        if curve.equivalent_mu() < 20.0:  # beyond, every member is found
            worst = max(worst, curve.tpr_error)
    assert 0.0 < worst < 1e-4
