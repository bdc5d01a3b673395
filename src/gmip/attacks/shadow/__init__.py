"""Shadow models: trained like the target on records that are known, to learn what a member looks like."""

from __future__ import annotations

from gmip.attacks.shadow.engine import shadow_set
from gmip.attacks.shadow.settings import Shadows, Signal
from gmip.attacks.shadow.store import ShadowModel, ShadowSet

__all__ = ["ShadowModel", "ShadowSet", "Shadows", "Signal", "shadow_set"]
