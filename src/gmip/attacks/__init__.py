"""Attacks: from a recorded run to one membership score per candidate.

`gmip.attacks.glir` works on arrays and imports no deep-learning framework; attacks on models need torch and are loaded
when first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gmip.attacks.attack import Attack
    from gmip.attacks.counterfactual import CFD, CFDLRT
    from gmip.attacks.glir.glir_attack import DoubtClipping, DoubtNoise, GLiR
    from gmip.attacks.lira import LiRA
    from gmip.attacks.loss import Loss
    from gmip.attacks.rmia import RMIA
    from gmip.attacks.seed import Seed
    from gmip.attacks.shadow import Shadows
    from gmip.attacks.shadow_attack import ShadowAttack

__all__ = [
    "CFD",
    "CFDLRT",
    "RMIA",
    "Attack",
    "DoubtClipping",
    "DoubtNoise",
    "GLiR",
    "LiRA",
    "Loss",
    "Seed",
    "ShadowAttack",
    "Shadows",
]

_LAZY = {
    "Attack": "gmip.attacks.attack",
    "CFD": "gmip.attacks.counterfactual",
    "CFDLRT": "gmip.attacks.counterfactual",
    "DoubtClipping": "gmip.attacks.glir.glir_attack",
    "DoubtNoise": "gmip.attacks.glir.glir_attack",
    "GLiR": "gmip.attacks.glir.glir_attack",
    "LiRA": "gmip.attacks.lira",
    "Loss": "gmip.attacks.loss",
    "RMIA": "gmip.attacks.rmia",
    "Seed": "gmip.attacks.seed",
    "ShadowAttack": "gmip.attacks.shadow_attack",
    "Shadows": "gmip.attacks.shadow",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'gmip.attacks' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
