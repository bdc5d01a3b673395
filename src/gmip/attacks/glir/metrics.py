"""Inner products under the inverse covariance of a published mean, and what they are once a record leaves the fit.

Every test of a step needs x'Wy only, for centred gradients x and published means y, with

    W = V^-1,   V = share (S + ridge) + tau^2,   S the sample covariance of the m records of the fit,

share being 1/n + 1/m nearly (v1 of `likelihood.py`; v0 for the paper's test). `step_fits.py` has two ways to
the same numbers: by the eigenvectors of S, for fewer dimensions than records, and by a Cholesky factor of the records'
inner products, for more. Estimation makes W too large; the temperature of a test, which is measured, makes up for that.

A record of the fit is not like one outside it: W has seen it. `Evidence.left_out` gives what W would be without it, in
closed form (docs/theory/glir.md, "The whole background"). With u = x - mean and beta = share/(m - 1),

    W_without = W + beta q (Wu)(Wu)',   q = 1/(1 - 1/m - beta u'Wu),

and the mean without it moves by u/(m - 1).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gmip.attacks.glir.published_step import StepView

__all__ = ["Drawn", "Evidence", "Metric", "Setting", "StepFit", "anchor_of", "shares", "unbiased", "without_own"]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Setting = tuple[float, float]  # cutoff, ridge
_ALONE = 1.0e-6  # of what a record leaves of a direction: less is rounding, or no better known


@dataclass(frozen=True, eq=False)
class Drawn:
    """Published means of games, before noise: weights (g, h) over h scored records, and noise to come."""

    rows: Rows  # positions of the h records among the scored ones
    weights: Array
    seed: np.random.SeedSequence  # of the noise: the same for every setting


@dataclass(frozen=True, eq=False)
class Evidence:
    """What g published means y say about c records, in products under W.

    Attributes
    ----------
    cross : array of shape (g, c), shift'Wy; length : array of shape (c,), shift'W shift, where shift/n is what the
        record adds to the mean. distance : array of shape (g, c), (y - shift)'W(y - shift).
    offset : array of shape (g,), o'Wy; offset_length : o'Wo; o is (1-p) mean under Poisson sampling, and 0 otherwise.
    """

    cross: Array
    length: Array
    distance: Array
    offset: Array
    offset_length: float

    @classmethod
    def direct(cls, a: Array, k: Array, own: Array, o: tuple[Array, Array, float]) -> Evidence:
        """For records outside the fit: a = u'Wy, k = u'Wu, own = y'Wy, o = (o'Wu, o'Wy, o'Wo)."""
        ou, oy, oo = o
        length = k + 2.0 * ou + oo
        cross = a + oy[:, None]
        return cls(cross, length, own[:, None] - 2.0 * cross + length, oy, oo)

    @classmethod
    def left_out(
        cls,
        a: Array,
        k: Array,
        own: Array,
        o: tuple[Array, Array, float],
        *,
        samples: float,
        beta: float,
        anchor: float,
    ) -> Evidence:
        """For records of the fit, each as if it had not been in it."""
        ou, oy, oo = o
        q = beta / _left(k, samples, beta)
        s = 1.0 / (samples - 1.0)
        c = 1.0 + anchor * s
        t = c * k + ou
        cross = c * a + (c * k + ou) * s + oy[:, None] + (q * t) * (a + k * s)
        length = c * c * k + 2.0 * c * ou + oo + q * t * t
        b = c - s
        gap = a - b * k - ou
        distance = own[:, None] - 2.0 * (b * a + oy[:, None]) + b * b * k + 2.0 * b * ou + oo + q * gap * gap
        return cls(cross, length, distance, oy, oo)

    def of(self, games: slice) -> Evidence:
        """What some of the means say."""
        return Evidence(self.cross[games], self.length, self.distance[games], self.offset[games], self.offset_length)


def _left(k: Array, samples: float, beta: float) -> Array:
    """1 - 1/m - beta k, k the length of a record under a W that has seen it: 0 if it alone spans a direction."""
    return np.asarray(np.maximum(1.0 - 1.0 / samples - beta * k, _ALONE))


class Metric(ABC):
    """W of one step under one setting, and the products of the scored records (R of them) under it.

    Attributes
    ----------
    samples, beta, anchor : m, what leaving a record out takes from V (in units of uu'), the share of the mean in a
        record's shift (1, or p under Poisson sampling).
    share, noise_std : of V. total : the trace of W. free : degrees of freedom that the directions kept leave.
    length : array of shape (R,), u'Wu. cross : array of shape (R,), u'W(M - mean) for the published M. own : M'WM.
    offset : (o'Wu (R,), o'W(M - mean), o'Wo).
    """

    samples: float
    beta: float
    anchor: float
    share: float
    noise_std: float
    total: float
    free: float
    length: Array
    cross: Array
    own: float
    offset: tuple[Array, float, float]

    @abstractmethod
    def mixed(self, drawn: Drawn) -> tuple[Array, Array, Array, Array]:
        """a (g, h) = u'Wy, own (g,) and o'Wy (g,) of means that games publish, y = weights @ u + noise, for the records
        that they are drawn from, and the noise's part of a."""

    def real(self, rows: Rows, *, inside: bool) -> Evidence:
        """Of the published mean, about scored records that are in the fit, or not."""
        ou, oy, oo = self.offset
        given = self.cross[None, rows], self.length[rows], np.array([self.own]), (ou[rows], np.array([oy]), oo)
        return self._evidence(*given, inside=inside)

    def played(self, drawn: Drawn, *, inside: bool) -> Evidence:
        """Of the games' means, about the records they are drawn from."""
        a, own, oy, _ = self.mixed(drawn)
        ou, _, oo = self.offset
        return self._evidence(a, self.length[drawn.rows], own, (ou[drawn.rows], oy, oo), inside=inside)

    def pairs(self, drawn: Drawn, *, inside: bool, both: bool) -> tuple[Array, Array]:
        """Products of records with single others (weights that are 0 but for a 1) and with noise, as a test meets them:
        each of shape (g, h).

        inside : the records are in the fit. both : and the others should not be in it either.
        """
        a, _, _, noise = self.mixed(drawn)
        a = a - noise
        if not inside:
            return a, noise
        m, k = self.samples, self.length[drawn.rows]
        left = _left(k, m, self.beta)
        if not both:
            return (a + k / (m - 1.0)) / left, noise / left
        # W without both, and centred without both, by the inverse of a matrix of two rows
        shared = 1.0 / m + self.beta * a
        gap = left * (drawn.weights @ left)[:, None] - shared * shared
        return (shared / gap - 1.0 / (m - 2.0)) / self.beta, noise / left

    def lone(self, rows: Rows) -> NDArray[np.bool_]:
        """Records of the fit that alone span a direction: nothing is known about it without them."""
        return np.asarray(_left(self.length[rows], self.samples, self.beta) <= _ALONE)

    def _evidence(self, a: Array, k: Array, own: Array, o: tuple[Array, Array, float], *, inside: bool) -> Evidence:
        if not inside:
            return Evidence.direct(a, k, own, o)
        return Evidence.left_out(a, k, own, o, samples=self.samples, beta=self.beta, anchor=self.anchor)


class StepFit(ABC):
    """Mean and covariance of the records of a fit, for tests under any setting.

    Attributes
    ----------
    samples : m. spectrum : of S, falling; empty where it is not known.
    """

    samples: float
    spectrum: Array

    @abstractmethod
    def metric(self, setting: Setting, *, in_batch: bool = True) -> Metric | None:
        """W for the mean of a batch with the candidate in it, or without; None if there are too few samples."""

    @abstractmethod
    def susceptibility(self, setting: Setting, rows: Rows, *, inside: bool) -> Array | None:
        """K of scored records, shape (k,); None if there are too few samples. About the data alone: noise is left out.

        The bias of the inverse is taken out; what the error of the mean adds, about r/m, is on the safe side.
        """

    @abstractmethod
    def directions(self, setting: Setting) -> int:
        """How many directions the setting keeps."""


def shares(view: StepView, samples: float, *, in_batch: bool) -> float:
    """Variance of the mean minus the background mean, as a multiple of Sigma and without noise.

    A batch of one record has no others that vary beside the candidate. Its test takes the variance without the
    candidate: under noise alone, or nothing, every other record's gradient would be out of the question.
    """
    n = view.batch_size
    q = view.sample_rate / n if view.sampling == "poisson" else 1.0 / n
    if not in_batch or q == 1.0:
        return 1.0 / n + 1.0 / samples
    return (1.0 - q) / n + (1.0 - q) ** 2 / samples


def anchor_of(view: StepView) -> float:
    return view.sample_rate if view.sampling == "poisson" else 1.0


def unbiased(lengths: Array, samples: float, free: float) -> Array | None:
    """Lengths under S^-1 as under Sigma^-1; `free` : m - 2 less the (effective) number of directions."""
    return None if free <= 0.0 else np.asarray(lengths * (free / (samples - 1.0)))


def without_own(k: Array, samples: float, beta: float) -> Array:
    """u'Wu of records of the fit as if they had not been in it."""
    return np.asarray((1.0 / _left(k, samples, beta) - samples / (samples - 1.0)) / beta)
