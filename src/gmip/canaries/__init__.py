"""Canaries: records planted into a run by fair coins, so that one run tests what it guarantees (docs/canaries.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gmip._lazy import lazy

if TYPE_CHECKING:
    from gmip.canaries.planted import DirectionCanaries as DirectionCanaries
    from gmip.canaries.planted import RecordCanaries as RecordCanaries

_HOMES: Final = {"DirectionCanaries": "gmip.canaries.planted", "RecordCanaries": "gmip.canaries.planted"}

__all__ = sorted(_HOMES)
__getattr__, __dir__ = lazy(__name__, _HOMES, __all__)
