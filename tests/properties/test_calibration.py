"""Calibration cannot fail: random valid runs, every kind of sampling, targets from 0.01 to 50.

200 runs with a target mu in every build, and 20 with each other target; GMIP_SWEEP=2000 tries ten times as many of all.
"""

import math
import os

import numpy as np
import pytest

from gmip import NoisySGD, account, calibrate

RUNS_PER_CHUNK = 50
SWEEP = int(os.environ.get("GMIP_SWEEP", "200"))


def random_run(rng: np.random.Generator) -> NoisySGD:
    def log_uniform(low: float, high: float) -> float:
        return float(10 ** rng.uniform(math.log10(low), math.log10(high)))

    dataset_size = int(log_uniform(1e2, 1e9))
    batch_size = dataset_size if rng.uniform() < 0.1 else int(log_uniform(1, dataset_size))
    kinds = ("fixed", "poisson", "full") if batch_size == dataset_size else ("fixed", "poisson")
    return NoisySGD(
        dataset_size=dataset_size,
        batch_size=batch_size,
        num_steps=int(log_uniform(1, 1e6)),
        num_params=int(log_uniform(1, 1e9)),
        clip_norm=log_uniform(1e-3, 1e3),
        sampling=str(rng.choice(kinds)),
    )


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(SWEEP // RUNS_PER_CHUNK))
def test_sweep(chunk: int) -> None:
    rng = np.random.default_rng(chunk)
    for i in range(RUNS_PER_CHUNK):
        run, target = random_run(rng), float(10 ** rng.uniform(-2.0, math.log10(50.0)))
        quiet = calibrate(run, target_mu=target)
        achieved = account(quiet).equivalent_mu()
        assert achieved <= target, (run, target)
        if quiet.noise_std > 0.0:
            assert achieved >= target * (1.0 - 1e-6), (run, target)
        if i % 5 == 0:
            looser = calibrate(run, target_mu=1.3 * target)
            assert looser.noise_std <= quiet.noise_std, (run, target)
            assert looser.noise_std < quiet.noise_std or quiet.noise_std == 0.0, (run, target)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(SWEEP // 100))
@pytest.mark.parametrize("target", ["tpr", "advantage", "gdp", "clt", "paper"])
def test_sweep_of_other_targets(chunk: int, target: str) -> None:
    rng = np.random.default_rng(1000 + chunk)
    for _ in range(10):
        run = random_run(rng)
        if target == "tpr":
            fpr = float(10 ** rng.uniform(-5, -0.5))
            wanted = fpr + (1 - fpr) * float(10 ** rng.uniform(-2, -0.01))
            quiet = calibrate(run, target_tpr=(wanted, fpr))
            achieved = account(quiet).tpr_at(fpr)
        elif target == "advantage":
            wanted = float(10 ** rng.uniform(-3, -0.01))
            quiet = calibrate(run, target_advantage=wanted)
            achieved = account(quiet).advantage()
        else:
            wanted = float(10 ** rng.uniform(-2.0, math.log10(50.0)))
            options = {"gdp": {"notion": "gdp"}, "clt": {"composition": "clt"}, "paper": {"bound": "paper"}}[target]
            quiet = calibrate(run, target_mu=wanted, **options)
            achieved = account(quiet, **options).equivalent_mu()
        assert achieved <= wanted, (run, wanted)
        if quiet.noise_std > 0.0:
            assert achieved >= wanted * (1.0 - 1e-6), (run, wanted)


@pytest.mark.slow
def test_known_grid_error_stays_below_1e_4() -> None:
    rng = np.random.default_rng(4)
    worst = 0.0
    for _ in range(60):
        run = random_run(rng)
        if run.noise_std == 0.0 and rng.uniform() < 0.5:
            run = run.with_noise_multiplier(float(10 ** rng.uniform(-1, 1.5)))
        curve = account(run)
        if curve.equivalent_mu() < 20.0:  # beyond, every member is found
            worst = max(worst, curve.tpr_error)
    assert 0.0 < worst < 1e-4
