"""Shadow models: trained like the released model on records that are known, to learn what a member looks like."""

from __future__ import annotations

from gmip.attacks.shadow.shadow_models import ShadowModel, Shadows, ShadowSet, Signal
from gmip.attacks.shadow.shadow_training import shadow_set

__all__ = ["ShadowModel", "ShadowSet", "Shadows", "Signal", "shadow_set"]
