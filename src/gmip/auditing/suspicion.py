"""Whether the attacks may have looked at the wrong thing: then what they did not find says nothing."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Final

from gmip.auditing.schema import AttackOutcome, RunFacts, Suspicion
from gmip.stats import Pooled, bounds

__all__ = ["is_turned", "suspicion"]

_ERRORS: Final = 2.0  # standard errors within which an accuracy is that of guessing


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
        if right < chance - margin:
            return Suspicion(kind="worse-than-guessing", blinding=True, accuracy=right, guessing=chance)
        if right <= chance + margin:
            return Suspicion(kind="no-better-than-guessing", blinding=False, accuracy=right, guessing=chance)
    turned = [one for one in attacks if one.turned]
    if not turned or any(one.mu_lower > 0.0 for one in attacks):
        return None
    worst = min(turned, key=lambda one: one.auc.value)
    return Suspicion(kind="turned", blinding=True, attack=worst.attack)
