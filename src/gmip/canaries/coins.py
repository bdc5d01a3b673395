"""What all canaries have in common: each is in by a fair coin of its own, and the audit compares those in and out."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gmip import _validate as check
from gmip._random import CanaryStream
from gmip.auditing import AuditResult, audit_scores
from gmip.errors import InvalidArgument

__all__ = ["Coins"]

_FEWEST: Final = 10


class Coins:
    """`count` canaries, each in with probability 1/2.

    Parameters
    ----------
    seed : of the coins, and of all that is random about the canaries; None: a random one. Who knows it knows who is in:
        a run under test must not.

    Attributes
    ----------
    inside : array of shape (count,), which are in.
    """

    def __init__(self, count: int, seed: int | None) -> None:
        self.count = check.count("count", count)
        if self.count < _FEWEST:
            raise InvalidArgument(
                "are too few to tell anything", argument="count", value=count, remedy=f"plant at least {_FEWEST}"
            )
        self.seed = secrets.randbits(63) if seed is None else check.seed(seed)
        self.inside: NDArray[np.bool_] = CanaryStream.COINS.rng(self.seed).random(self.count) < 0.5
        self.inside.flags.writeable = False

    def _audited(
        self,
        scores: ArrayLike,
        *,
        claim: Any = None,
        delta: float = 1.0e-5,
        confidence: float = 0.95,
        fprs: Sequence[float] = (0.01, 0.1),
        title: str | None = None,
    ) -> AuditResult:
        """The audit of one score for each canary (higher = in): see `gmip.audit_scores`.

        Guarantees
        ----------
        As of `gmip.audit_scores`. Coins are fair and independent, so method "one-run" among the bounds holds for any
        dependence between the scores, if the run is differentially private as claimed; the others take the scores to be
        independent given the run.
        """
        values = check.vector("scores", scores, length=self.count)
        return audit_scores(
            {"canaries": values[self.inside]},
            {"canaries": values[~self.inside]},
            claim=claim,
            delta=delta,
            confidence=confidence,
            fprs=fprs,
            title=title or f"Audit of {self.count} canaries",
        )
