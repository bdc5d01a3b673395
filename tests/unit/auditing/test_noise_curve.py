from __future__ import annotations

import math

import pytest
from scipy.special import ndtr, ndtri

from gmip import NoisySGD, account, calibrate
from gmip.auditing.advice import noise_curve

RUN = NoisySGD(dataset_size=600, batch_size=100, num_steps=20, num_params=170, clip_norm=1.0, noise_std=0.01)


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_every_number_is_the_accountants(sampling: str) -> None:
    run = RUN.replace(sampling=sampling)
    needed = calibrate(run, target_tpr=(0.05, 0.01)).noise_std
    curve = noise_curve([run], fpr=0.01, needed=needed)
    assert curve is not None and curve.kind == "forecast"
    assert {0.0, 0.01, needed} <= set(curve.noise_std) and list(curve.noise_std) == sorted(curve.noise_std)
    for tau, tpr in zip(curve.noise_std, curve.tpr, strict=True):
        assert tpr == account(run.replace(noise_std=tau)).tpr_at(0.01)
    assert curve.noise_std[curve.own] == 0.01
    place = curve.noise_std.index(needed)
    assert curve.tpr[place] <= 0.05 < curve.tpr[place - 1]


def test_shuffled_epochs_are_never_shown_as_less_exposed() -> None:
    run = RUN.replace(sampling="shuffled", num_steps=6)
    curve = noise_curve([run], fpr=0.01)
    assert curve is not None
    for tau, tpr in zip(curve.noise_std[:3], curve.tpr, strict=False):
        exact = account(run.replace(noise_std=tau)).tpr_at(0.01)
        assert exact <= tpr <= exact * 1.02


def test_where_noise_alone_protects_it_is_gaussian() -> None:
    curve = noise_curve([RUN.replace(sampling="full", batch_size=600, num_params=10**7)], fpr=0.01, needed=0.02)
    assert curve is not None
    for tau, tpr in zip(curve.noise_std, curve.tpr, strict=True):
        if tau:
            assert tpr == pytest.approx(float(ndtr(2 * math.sqrt(20) / (600 * tau) + ndtri(0.01))), rel=1e-4)


def test_a_schedule_keeps_its_shape() -> None:
    runs = [RUN, RUN.replace(batch_size=50, num_steps=5, noise_std=0.02)]
    curve = noise_curve(runs, fpr=0.01)
    assert curve is not None
    for tau, tpr in zip(curve.noise_std, curve.tpr, strict=True):
        scaled = [run.replace(noise_std=run.noise_std * tau / 0.01) for run in runs]
        assert tpr == pytest.approx(account(scaled).tpr_at(0.01), rel=1e-9)
    quiet = [run.replace(noise_std=0.0) for run in runs]
    curve = noise_curve(quiet, fpr=0.01, needed=0.02)  # a noise multiplier of 2 in all phases
    assert curve is not None
    both = [run.with_noise_multiplier(2.0) for run in quiet]
    assert curve.tpr[curve.noise_std.index(0.02)] == pytest.approx(account(both).tpr_at(0.01), rel=1e-9)


def test_nothing_to_change_or_nothing_known() -> None:
    curve = noise_curve([RUN.replace(clip_norm=None, noise_std=0.0)], fpr=0.01)
    assert curve is not None and curve.noise_std == (0.0,)  # noise needs clipping
    assert noise_curve([], fpr=0.01) is None
