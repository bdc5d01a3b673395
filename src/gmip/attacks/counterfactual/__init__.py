"""Counterfactual distance: how far a record is from where the model changes its mind, and the attacks that use it."""

from __future__ import annotations

from gmip.attacks.counterfactual.distance_attacks import CFD, CFDLRT
from gmip.attacks.counterfactual.search import Counterfactuals, counterfactuals

__all__ = ["CFD", "CFDLRT", "Counterfactuals", "counterfactuals"]
