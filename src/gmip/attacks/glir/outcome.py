"""What GLiR found."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gmip.attacks.glir.selfplay import Prediction

__all__ = ["GlirOutcome"]

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class GlirOutcome:
    """What GLiR found about c candidates.

    Attributes
    ----------
    method : how the scores were made.
    scores : array of shape (c,), higher = member: the log-likelihood ratio, or for "paper" minus the log of the
        product of the steps' p-values.
    llr : array of shape (c,), the model's log-likelihood ratio of "member" against "not a member" ("paper": of "in
        every batch"); right up to the calibration below.
    p_values : array of shape (c,) or None. With self-play: the rank of the score among the play examples', none of
        which is a member. They and non-member candidates are exchangeable given what was published, so
        P(p <= a | not a member) <= a whatever the distribution. With known parameters: from the model, which holds for
        steps on fresh data. None where neither is at hand.
    susceptibility : array of shape (c,), K of each candidate, the mean over the steps ("joint": of the stacked step);
        None when the background is too small to estimate it.
    ranks : for each step the number of directions kept.
    spectra : for each step its sample spectrum in falling order, or (D, D) the upper triangle of the covariance, if
        the scores were had without its spectrum; see `eigenvalues`.
    cutoff, ridge : what was used, chosen by self-play if it was not given.
    calibration : (a, b) such that a * score + b is the log-odds of membership at even prior odds; None if unknown.
    null_scores : array, scores of the held-out play examples against the real run; empty without self-play.
    prediction : what self-play expects of this attack, or None.
    """

    method: str
    scores: Array
    llr: Array
    p_values: Array | None
    susceptibility: Array | None
    ranks: tuple[int, ...]
    spectra: tuple[Array, ...]
    cutoff: float
    ridge: float
    calibration: tuple[float, float] | None
    null_scores: Array
    prediction: Prediction | None

    @cached_property
    def eigenvalues(self) -> tuple[Array, ...]:
        """For each step the sample spectrum in falling order."""
        return tuple(s if s.ndim == 1 else np.asarray(np.linalg.eigvalsh(s, "U")[::-1]) for s in self.spectra)
