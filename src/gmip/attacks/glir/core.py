"""GLiR on arrays: from views of a run to one score per candidate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from gmip.accounting import _validate as check
from gmip.attacks.glir._tails import llr_p_values
from gmip.attacks.glir.likelihood import StepTest, inflation, susceptibility
from gmip.attacks.glir.selfplay import Play, Prediction, game_aucs, measured, play as play_games, split, step_scores
from gmip.attacks.glir.views import View, same_run, stack
from gmip.errors import InvalidArgument
from gmip.stats.covariance import DEFAULT_CUTOFF, GaussianModel, Shrinkage

__all__ = ["METHODS", "GlirOutcome", "glir_scores"]
