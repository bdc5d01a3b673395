"""Recipes with the least noise for a target."""

from __future__ import annotations

import numpy as np
import pytest

from gmip.accounting.account import account
from gmip.accounting.calibrate import calibrate
from gmip.errors import InvalidArgument
from gmip.tuning.search_space import calibrated, exposure
from gmip.vocabulary import PrivacyTarget, Recipe

RECIPE = Recipe(dataset_size=600, batch_size=100, num_steps=50, learning_rate=1.0, clip_norm=3.0)
TARGETS: dict[str, dict] = {
    "tpr": {"target_tpr": (0.05, 0.01)},
    "gdp": {"target_tpr": (0.05, 0.01), "notion": "gdp"},
    "mu": {"target_mu": 0.3},
    "advantage": {"target_advantage": 0.1, "attacker_knows": 0.5},
    "epsilon": {"target_epsilon": 1.0, "delta": 1e-3, "notion": "gdp"},
    "measured": {"target_tpr": (0.1, 0.01), "susceptibility": np.array([100.0, 300.0])},
}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("clip_norm", [1e-4, 700.0])
def test_noise_scales_with_the_clip_norm_and_keeps_the_target(name: str, clip_norm: float):
    given = TARGETS[name]
    target, recipe = PrivacyTarget(**given), RECIPE.replace(clip_norm=clip_norm)
    found = calibrated(recipe, 200, target)
    run = found.run(200)
    assert found.noise_std == pytest.approx(calibrate(recipe.run(200), **given).noise_std, rel=1e-4)
    whose = {key: value for key, value in given.items() if not key.startswith(("target", "delta"))}
    measured = account(run, **whose).exposure(target)
    assert 0.99 * target.value < measured <= target.value
    assert exposure(found, 200, target) == pytest.approx(measured, rel=1e-9)


def test_equal_sizes_are_calibrated_once(monkeypatch):
    from gmip.tuning import search_space as least_noise

    calls = []

    def counted(run, target):
        calls.append(run)
        return calibrate(run, target)

    monkeypatch.setattr(least_noise, "calibrate", counted)
    target = PrivacyTarget(target_tpr=(0.04123, 0.01))
    for clip_norm, rate in [(1.0, 0.1), (2.0, 0.1), (2.0, 5.0)]:
        calibrated(RECIPE.replace(clip_norm=clip_norm, learning_rate=rate), 200, target)
    assert len(calls) == 1
    calibrated(RECIPE.replace(num_steps=51), 200, target)
    assert len(calls) == 2


def test_without_clipping_only_what_needs_no_noise_passes():
    loose, strict = PrivacyTarget(target_tpr=(0.9, 0.01)), PrivacyTarget(target_tpr=(0.011, 0.01))
    assert calibrated(RECIPE.replace(clip_norm=None), 5, loose).noise_std == 0.0
    with pytest.raises(InvalidArgument, match="clip_norm is missing"):
        calibrated(RECIPE.replace(clip_norm=None), 5, strict)


@pytest.mark.parametrize("clip_norm", [0.02, 40.0])
def test_google_agrees_that_differential_privacy_is_kept(clip_norm: float):
    """dp-accounting's loss distributions, add or remove one record, on the recipe as it would be trained."""
    import dp_accounting
    from dp_accounting import pld

    target = PrivacyTarget(target_epsilon=2.0, delta=1e-5, notion="gdp")
    found = calibrated(RECIPE.replace(clip_norm=clip_norm, sampling="poisson"), 200, target)
    multiplier = found.noise_std * found.batch_size / clip_norm  # on the sum, in units of C
    step = dp_accounting.PoissonSampledDpEvent(
        found.batch_size / found.dataset_size, dp_accounting.GaussianDpEvent(multiplier)
    )
    accountant = pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-4)
    accountant.compose(dp_accounting.SelfComposedDpEvent(step, found.num_steps))
    assert 1.98 < accountant.get_epsilon(1e-5) < 2.001  # its own grid is good to 1e-4
