"""Attacks: from a recorded run to one membership score per candidate.

`gmip.attacks.glir` works on arrays and imports no deep-learning framework; attacks on models need torch and are loaded
when first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gmip._lazy import lazy
from gmip.attacks.attack_table import ATTACKS

if TYPE_CHECKING:  # for readers and type checkers; what is missing here is Any to them
    from gmip.attacks.attack import Attack as Attack
    from gmip.attacks.counterfactual import CFD as CFD
    from gmip.attacks.counterfactual import CFDLRT as CFDLRT
    from gmip.attacks.decode_attack import Decode as Decode
    from gmip.attacks.glir.glir_attack import DoubtClipping as DoubtClipping
    from gmip.attacks.glir.glir_attack import DoubtNoise as DoubtNoise
    from gmip.attacks.glir.glir_attack import GLiR as GLiR
    from gmip.attacks.loss import Loss as Loss
    from gmip.attacks.loss import MinK as MinK
    from gmip.attacks.loss import Reference as Reference
    from gmip.attacks.loss import Window as Window
    from gmip.attacks.rehearsal_attack import Rehearsal as Rehearsal
    from gmip.attacks.rehearsal_attack import RehearsalSteps as RehearsalSteps
    from gmip.attacks.released_attacks import Influence as Influence
    from gmip.attacks.released_attacks import Optimum as Optimum
    from gmip.attacks.released_attacks import OptimumDecode as OptimumDecode
    from gmip.attacks.seed import Seed as Seed
    from gmip.attacks.shadow import RMIA as RMIA
    from gmip.attacks.shadow import LiRA as LiRA
    from gmip.attacks.shadow import ShadowAttack as ShadowAttack
    from gmip.attacks.shadow import Shadows as Shadows

_HOMES: Final = {
    "Attack": "gmip.attacks.attack",
    "ShadowAttack": "gmip.attacks.shadow",
    "Shadows": "gmip.attacks.shadow",
    **{one.home[1]: one.home[0] for one in ATTACKS.values() if one.home is not None},
}

__all__ = sorted(_HOMES)
__getattr__, __dir__ = lazy(__name__, _HOMES, __all__)
