from __future__ import annotations

import math

import pytest
from scipy.special import ndtr, ndtri

from gmip import NoisySGD, account, calibrate
from gmip.auditing.advice import what_if

RUN = NoisySGD(dataset_size=600, batch_size=100, num_steps=20, num_params=170, clip_norm=1.0, noise_std=0.01)


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_every_number_is_the_accountants(sampling: str) -> None:
    run = RUN.replace(sampling=sampling)
    needed = calibrate(run, target_tpr=(0.05, 0.01)).noise_std
    grid = what_if([run], fpr=0.01, needed=needed)
    assert grid is not None and grid.left_out == 0 and grid.kind == "forecast"
    assert grid.batch_size == (25, 50, 100, 200, 400)
    assert {0.0, 0.01, needed} <= set(grid.noise_std) and list(grid.noise_std) == sorted(grid.noise_std)
    for tau, row in zip(grid.noise_std, grid.tpr, strict=True):
        for size, tpr in zip(grid.batch_size, row, strict=True):
            assert tpr == account(run.replace(noise_std=tau, batch_size=size)).tpr_at(0.01)
    i, j = grid.own
    assert (grid.noise_std[i], grid.batch_size[j]) == (0.01, 100)
    assert grid.tpr[grid.noise_std.index(needed)][j] <= 0.05 < grid.tpr[grid.noise_std.index(needed) - 1][j]


def test_shuffled_epochs_are_never_shown_as_less_exposed() -> None:
    run = RUN.replace(sampling="shuffled", num_steps=6)
    grid = what_if([run], fpr=0.01)
    assert grid is not None
    for tau, row in zip(grid.noise_std[:3], grid.tpr, strict=False):
        exact = account(run.replace(noise_std=tau)).tpr_at(0.01)
        assert exact <= row[grid.own[1]] <= exact * 1.02


def test_a_full_batch_has_its_own_size_only() -> None:
    run = RUN.replace(sampling="full", batch_size=600, num_params=10**7)
    grid = what_if([run], fpr=0.01, needed=0.02)
    assert grid is not None and grid.batch_size == (600,)
    for tau, (tpr,) in zip(grid.noise_std, grid.tpr, strict=True):
        if tau:  # with so many parameters noise alone protects
            assert tpr == pytest.approx(float(ndtr(2 * math.sqrt(20) / (600 * tau) + ndtri(0.01))), rel=1e-4)


def test_without_clipping_only_batches_change() -> None:
    grid = what_if([RUN.replace(clip_norm=None, noise_std=0.0)], fpr=0.01)
    assert grid is not None and grid.noise_std == (0.0,) and len(grid.batch_size) == 5
    assert grid.left_out == 0


def test_a_schedule_keeps_its_shape() -> None:
    runs = [RUN, RUN.replace(batch_size=50, num_steps=5, noise_std=0.02)]
    grid = what_if(runs, fpr=0.01)
    assert grid is not None and grid.batch_size == (100,)
    for tau, (tpr,) in zip(grid.noise_std, grid.tpr, strict=True):
        scaled = [run.replace(noise_std=run.noise_std * tau / 0.01) for run in runs]
        assert tpr == pytest.approx(account(scaled).tpr_at(0.01), rel=1e-9)
    quiet = [run.replace(noise_std=0.0) for run in runs]
    grid = what_if(quiet, fpr=0.01, needed=0.02)  # a noise multiplier of 2 in all phases
    assert grid is not None
    both = [run.with_noise_multiplier(2.0) for run in quiet]
    assert grid.tpr[grid.noise_std.index(0.02)][0] == pytest.approx(account(both).tpr_at(0.01), rel=1e-9)


def test_no_time_leaves_columns_out_and_says_so() -> None:
    grid = what_if([RUN], fpr=0.01, seconds=0.0)
    assert grid is not None and grid.batch_size == (100,) and grid.own[1] == 0
    assert grid.left_out == 4
    assert what_if([], fpr=0.01) is None
