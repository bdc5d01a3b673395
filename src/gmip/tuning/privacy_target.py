"""What a recipe has to keep: a target, whose promise it is, and the least noise that keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np

from gmip import _validate as check
from gmip.accounting.account import NOTIONS, Notion, Susceptibility, account
from gmip.accounting.calibrate import Target, calibrate
from gmip.accounting.random_record import ANY
from gmip.accounting.tradeoff import TradeOff
from gmip.errors import InvalidArgument
from gmip.vocabulary import NoisySGD, Rate, RateLike, Recipe

__all__ = ["PrivacyTarget", "noise_at"]

_HAIR: Final = 1.0 + 1.0e-12  # so that rounding while noise is scaled by C leaves it on the safe side


@dataclass(frozen=True, kw_only=True)
class PrivacyTarget:
    """A privacy target: exactly one of the first four, and whose promise it is. Keywords as in `gmip.calibrate`.

    Guarantees
    ----------
    A recipe from `calibrated` keeps the target by `gmip.account` with the same notion, susceptibility and attacker.
    """

    target_mu: float | None = None
    target_tpr: RateLike | None = None
    target_advantage: float | None = None
    target_epsilon: float | None = None
    delta: float | None = None
    notion: Notion = "gmip"
    susceptibility: Susceptibility = None
    attacker_knows: float = 0.0

    def __post_init__(self) -> None:
        _ = self._goal  # complains about targets
        if self.target_tpr is not None:
            object.__setattr__(self, "target_tpr", Rate.parse("target_tpr", self.target_tpr))
        check.one_of("notion", self.notion, NOTIONS)
        check.probability("attacker_knows", self.attacker_knows)
        given = self.susceptibility
        if isinstance(given, str):
            check.one_of("susceptibility", given, ANY)
        elif given is not None:
            values = check.susceptibilities(given)
            plain: Any = float(values[0]) if values.size == 1 else tuple(values.tolist())
            object.__setattr__(self, "susceptibility", plain)
        for name, value in (("susceptibility", given), ("attacker_knows", self.attacker_knows or None)):
            if self.notion == "gdp" and value is not None:
                raise InvalidArgument("does not apply to `notion` = 'gdp'", argument=name, remedy="leave it out")

    @property
    def value(self) -> float:
        """What must not be exceeded."""
        return self._goal.value

    @property
    def words(self) -> str:
        """As in "TPR = 0.05 at FPR = 0.01"."""
        return self._goal.words

    @property
    def whose(self) -> dict[str, Any]:
        """Keywords of `gmip.account`."""
        return {"notion": self.notion, "susceptibility": self.susceptibility, "attacker_knows": self.attacker_knows}

    @property
    def keywords(self) -> dict[str, Any]:
        """Keywords of `gmip.calibrate`."""
        return self.goal | self.whose

    @property
    def goal(self) -> dict[str, Any]:
        """The target alone, as keywords."""
        names = ("target_mu", "target_tpr", "target_advantage", "target_epsilon", "delta")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def calibrated(self, recipe: Recipe, num_params: int) -> Recipe:
        """The recipe with the least noise; its own is ignored.

        The noise multiplier depends on sizes, steps and sampling only, and is computed once for each of them in a
        process: recipes that differ in clipping norm, learning rate or optimizer share it.

        Raises
        ------
        UnreachableTarget : no noise meets the target.
        InvalidArgument : noise is needed, and the recipe does not clip.
        """
        run = recipe.run(num_params).replace(noise_std=0.0)
        if recipe.clip_norm is None:
            return recipe.replace(noise_std=calibrate(run, **self.keywords).noise_std)
        return recipe.replace(noise_std=noise_at(recipe.clip_norm, _least_noise(self, run.replace(clip_norm=1.0))))

    def curve(self, recipe: Recipe, num_params: int) -> TradeOff:
        """What an attacker faces, for whom the target is about."""
        return account(recipe.run(num_params), **self.whose)

    def exposure(self, recipe: Recipe, num_params: int) -> float:
        """What the recipe promises, measured as the target is: at most `value` if it keeps it."""
        if recipe.clip_norm is None:
            return self.measure(self.curve(recipe, num_params))
        # Noise in units of C, so that recipes that differ in C are measured once.
        run = recipe.run(num_params)
        return _exposure(self, run.replace(clip_norm=1.0, noise_std=run.noise_std / recipe.clip_norm))

    def measure(self, curve: TradeOff) -> float:
        """What the target is about, on any curve."""
        return self._goal.measure(curve)

    @cached_property
    def _goal(self) -> Target:
        return Target.of(**self.goal)


def noise_at(clip_norm: float, unit: float) -> float:
    """The noise_std at that clip norm of a run that needs `unit` at a clip norm of 1."""
    return unit * clip_norm * _HAIR


@lru_cache(maxsize=4096)
def _least_noise(target: PrivacyTarget, run: NoisySGD) -> float:
    return calibrate(run, **_as_arrays(target.keywords)).noise_std


@lru_cache(maxsize=4096)
def _exposure(target: PrivacyTarget, run: NoisySGD) -> float:
    return target.measure(account(run, **_as_arrays(target.whose)))


def _as_arrays(keywords: dict[str, Any]) -> dict[str, Any]:
    values = keywords["susceptibility"]
    return keywords | {"susceptibility": np.array(values) if isinstance(values, tuple) else values}
