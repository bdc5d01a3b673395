"""Recipes with the least noise that keeps a target, computed once for all that are the same to the accountant."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from gmip.accounting.account import account
from gmip.accounting.calibrate import calibrate, with_least_noise
from gmip.accounting.tradeoff import TradeOff
from gmip.vocabulary import NoisySGD, PrivacyTarget, Recipe

__all__ = ["calibrated", "curve_of", "exposure", "noise_at"]

_HAIR: Final = 1.0 + 1.0e-12  # so that rounding while noise is scaled by C leaves it on the safe side


def calibrated(recipe: Recipe, num_params: int, target: PrivacyTarget) -> Recipe:
    """The recipe with the least noise; its own is ignored.

    The noise multiplier depends on sizes, steps and sampling only, and is computed once for each of them in a process:
    recipes that differ in clipping norm, learning rate or optimizer share it.

    Guarantees
    ----------
    The recipe keeps the target by `gmip.account` with the same notion, susceptibility and attacker.

    Raises
    ------
    UnreachableTarget : no noise meets the target.
    InvalidArgument : noise is needed, and the recipe does not clip.
    """
    quiet = recipe.replace(noise_std=0.0)
    if recipe.clip_norm is None:
        return with_least_noise(quiet, num_params, target)
    unit = _least_noise(target, quiet.run(num_params).replace(clip_norm=1.0))
    return recipe.replace(noise_std=noise_at(recipe.clip_norm, unit))


def curve_of(recipe: Recipe, num_params: int, target: PrivacyTarget) -> TradeOff:
    """What an attacker faces, for whom the target is about."""
    return account(recipe.run(num_params), **target.whose)


def exposure(recipe: Recipe, num_params: int, target: PrivacyTarget) -> float:
    """The number that the target is about: at most `target.value` if the recipe keeps it."""
    if recipe.clip_norm is None:
        return curve_of(recipe, num_params, target).exposure(target)
    # Noise in units of C, so that recipes that differ in C are measured once.
    run = recipe.run(num_params)
    return _exposure(target, run.replace(clip_norm=1.0, noise_std=run.noise_std / recipe.clip_norm))


def noise_at(clip_norm: float, unit: float) -> float:
    """The noise_std at that clip norm of a run that needs `unit` at a clip norm of 1."""
    return unit * clip_norm * _HAIR


@lru_cache(maxsize=4096)
def _least_noise(target: PrivacyTarget, run: NoisySGD) -> float:
    return calibrate(run, target).noise_std


@lru_cache(maxsize=4096)
def _exposure(target: PrivacyTarget, run: NoisySGD) -> float:
    return account(run, **target.whose).exposure(target)
