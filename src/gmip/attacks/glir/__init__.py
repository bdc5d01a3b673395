"""GLiR, the gradient likelihood-ratio attack: the array-level core needs NumPy and SciPy only."""

from __future__ import annotations

from gmip.attacks.glir.scoring import METHODS, glir_scores
from gmip.attacks.glir.selfplay import GlirOutcome, Play, background_needed
from gmip.attacks.glir.step_fits import View, stack

__all__ = ["METHODS", "GlirOutcome", "Play", "View", "background_needed", "glir_scores", "stack"]
