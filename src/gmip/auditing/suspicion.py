"""Whether the attacks may have looked at the wrong thing: then what they did not find says nothing."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from gmip._numbers import number, percent
from gmip.auditing.schema import AttackOutcome, RunFacts
from gmip.stats import Pooled, bounds

__all__ = ["Suspicion", "is_turned", "suspicion"]

_ERRORS: Final = 2.0  # standard errors within which an accuracy is that of guessing
_CHECK: Final = "check the weights, the order of the classes and the preprocessing"


class Suspicion(NamedTuple):
    """Why, in words; `blinding`: an audit that finds nothing then clears nothing, and no gate passes by it."""

    words: str
    blinding: bool


def is_turned(scores: Pooled, *, confidence: float, seed: int) -> bool:
    """Whether members score lower than non-members, beyond chance: scores that say nothing are called so with a chance
    of at most a fifth of 1 - confidence, because a sound audit that is called blind is a nuisance."""
    confidence = 1.0 - (1.0 - confidence) / 5.0
    turned = dataclasses.replace(scores, members=-scores.members, non_members=-scores.non_members)
    return bounds.mu_lower_bound(turned, confidence=confidence, method="gaussian-sum", seed=seed).mu > 0.0


def suspicion(facts: RunFacts, attacks: Sequence[AttackOutcome]) -> Suspicion | None:
    """A model that answers its own records no better than guessing (noise explains that; nothing else should), or
    attacks that all find less than guessing."""
    right, chance = facts.train_accuracy, facts.chance_accuracy
    if right is not None and chance is not None and not facts.noise_std:
        records = facts.dataset_size or max(one.members for one in attacks)
        margin = _ERRORS * math.sqrt(chance * (1.0 - chance) / max(records, 1))
        numbers = f"({percent(right, 'nearest')} right, guessing: {percent(chance, 'nearest')})"
        if right < chance - margin:
            words = f"The model answers its own training records worse than guessing {numbers}: {_CHECK}."
            return Suspicion(f"{words} Until then nothing that was not found is evidence.", True)
        if right <= chance + margin:
            return Suspicion(
                f"The model answers its own training records no better than guessing {numbers}: if that is not what "
                f"you expect, {_CHECK}.",
                False,
            )
    turned = [one for one in attacks if one.turned]
    if not turned or any(one.mu_lower > 0.0 for one in attacks):
        return None
    worst = min(turned, key=lambda one: one.auc.value)
    cause = (
        "A score must be high for a member: if it means the opposite, as a loss does, negate it and audit again."
        if worst.sees == "scores"
        else f"Members are fitted, so this should not be: {_CHECK}, and that members and non-members are not exchanged."
    )
    found = f"{worst.title}, AUC {number(worst.auc.value, 'nearest')}"
    return Suspicion(f"Members score lower than non-members, beyond chance ({found}). {cause}", True)
