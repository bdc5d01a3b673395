"""Is the noise as large as declared? An e-process over directions of the gradients, valid whenever training stops."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from gmip import _validate as check
from gmip.auditing.schema import CheckOutcome, RunCheck

_SHARES: Final = np.array([0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99])  # of the declared noise that are bet on
_AUDITED: Final = 0.01  # the error of the test in audits


class NoiseTest:
    """Bets that the noise is smaller than declared, step by step.

    In a direction that was drawn independently of the run, a published sum is what the records add plus Gaussian noise.
    The bet on the share r pays N(x; 0, r^2)/N(x; 0, 1), x in units of the declared standard deviation. The capital,
    which begins at 1, is the mean over all r.

    Attributes
    ----------
    steps : steps seen.
    refuted_at : the step, from 1, at which the capital reached 1/error for the first time; None: it never did.

    Guarantees
    ----------
    If every step adds fresh Gaussian noise of the declared standard deviation or more, the capital is a non-negative
    supermartingale, whatever the records add: a bet pays most, on average, where they add nothing (Anderson 1955). So
    it ever reaches 1/error with a chance of at most `error` (Ville), whenever one looks and whenever one stops. The
    size of the noise is all that is tested, not that it is new in each step (`gmip check` does).
    """

    def __init__(self, error: float = 0.05) -> None:
        self.error = check.above_zero("error", error)
        self.steps = 0
        self.refuted_at: int | None = None
        self._count, self._squares, self._most = 0, 0.0, 0.0

    def add(self, seen: NDArray[np.float64], declared: float) -> bool:
        """One step: projections of the published sum, shape (k,), and the declared standard deviation of its noise in
        the same unit. Returns whether this step is the one that refutes."""
        self.steps += 1
        self._count += len(seen)
        self._squares += float(np.sum((seen / declared) ** 2))
        self._most = max(self._most, self.log_capital)
        if self.refuted_at is None and self._most >= -math.log(self.error):
            self.refuted_at = self.steps
            return True
        return False

    @property
    def log_capital(self) -> float:
        """The logarithm of what the bets have made of 1; evidence against the declared noise."""
        logs = -self._count * np.log(_SHARES) - 0.5 * self._squares * (_SHARES**-2.0 - 1.0)
        return float(np.logaddexp.reduce(logs) - math.log(len(_SHARES)))

    @property
    def p_value(self) -> float:
        """At most this was the chance of so much capital, at any step so far, with the declared noise."""
        return min(1.0, math.exp(-self._most))

    @property
    def check(self) -> RunCheck | None:
        """The test as audits take it, at an error of 1% as other checks of a run; None: no noise was declared. The size
        that it tells is that of noise and records together."""
        if not self._count:
            return None
        small = self.p_value <= _AUDITED
        found = CheckOutcome(
            check="noise-size",
            status="failed" if small else "passed",
            finding="noise-size" if small else "as-declared",
            value=math.sqrt(self._squares / self._count),
            expected=1.0,
            p_value=self.p_value,
            steps=self.steps,
        )
        return RunCheck(outcomes=(found,), level=_AUDITED)

    def share_upper(self, confidence: float = 0.95) -> float:
        """The noise is at most this share of the declared, at this confidence, for one look at a number of steps that
        was fixed beforehand.

        Guarantees
        ----------
        For Gaussian noise: what the records add can only make the sum of squares, and with it this bound, larger.
        """
        error = 1.0 - check.inside("confidence", confidence)
        if not self._count:
            return math.inf
        return math.sqrt(self._squares / float(chi2.ppf(error, self._count)))
