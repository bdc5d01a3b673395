"""Trade-off functions: the least false-negative rate f(a) of any attacker who keeps false positives at a.

f is convex, continuous on (0, 1], non-increasing and at most 1 - a (Dong, Roth and Su, 2022). A lower f means a
stronger attacker. `TradeOff` is what every bound in this package returns; families are in `families` and `step`.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, ndtr, ndtri, ndtri_exp

from gmip import _validate as check
from gmip._numbers import rate
from gmip.accounting._loss import Atoms
from gmip.errors import InvalidArgument
from gmip.vocabulary import Claim, Kind, PrivacyTarget

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]

# `equivalent_mu` looks at false-positive rates in this range unless told otherwise.
DEFAULT_FPR_RANGE = (1.0e-5, 1.0 - 1.0e-5)


class TradeOff(ABC):
    """A trade-off function, with the questions that people ask of it.

    Guarantees
    ----------
    A `TradeOff` of kind "bound" that stems from `account` is a lower bound on the false-negative rate of any attacker
    of `for_whom`, under `assumptions`; all its answers (TPR, advantage, mu, epsilon) are upper bounds on the attacker.
    """

    #: What the curve says, and about whom.
    claim: Claim = Claim()

    #: A mu with f >= g_mu at every false-positive rate, where one is known: what "mu-GDP" means. Not the smallest.
    gdp_mu: float | None = None

    #: Of a curve that covers both directions, the one in which false positives belong to the run without the record.
    _added: TradeOff | None = None

    @property
    def kind(self) -> Kind:
        """ "bound" or "forecast": see `Claim`."""
        return self.claim.kind

    @property
    def for_whom(self) -> str:
        """The record and the attacker that the curve is about."""
        return self.claim.for_whom

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What has to hold for the curve, as sentences."""
        return self.claim.assumptions

    @property
    def tpr_error(self) -> float:
        """How much of any TPR is at most owed to the grid of exact composition; 0 for curves in closed form."""
        return 0.0

    @property
    def divergence(self) -> float:
        """2 KL(P1 || P0) of the test behind the curve: mu^2 if it is Gaussian."""
        atoms = self._atoms()
        return math.inf if atoms.certain > 1.0e-12 else 2.0 * float(atoms.mass1 @ atoms.loss)

    @abstractmethod
    def _log_fnr(self, fpr: Array) -> Array:
        """log f at false-positive rates in [0, 1], array of any shape."""

    @abstractmethod
    def _delta(self, epsilon: float) -> float:
        """sup_a 1 - f(a) - e^epsilon a, for any real epsilon."""

    def _deltas(self, epsilons: Array) -> Array:
        """`_delta` at many epsilons."""
        return np.array([self._delta(float(epsilon)) for epsilon in epsilons])

    @abstractmethod
    def _atoms(self) -> Atoms:
        """A discrete test at most as hard as this one: what composition works on."""

    def _parts(self) -> Sequence[tuple[Atoms, int]]:
        return [(self._atoms(), 1)]

    def _balance(self) -> float:
        """A false-positive rate at which the slope is -1: where the concave 1 - a - f(a) is largest."""
        low, high = 0.0, 1.0
        for _ in range(8):
            rates = np.linspace(low, high, 65)
            best = int(np.argmax(1.0 - rates - np.exp(self._log_fnr(rates))))
            low, high = float(rates[max(best - 1, 0)]), float(rates[min(best + 1, 64)])
        return 0.5 * (low + high)

    # -- evaluation -----------------------------------------------------------------------------------------------

    @overload
    def log_fnr(self, fpr: float) -> float: ...
    @overload
    def log_fnr(self, fpr: Sequence[float] | Array) -> Array: ...
    def log_fnr(self, fpr: ArrayLike) -> float | Array:
        """Logarithm of the least false-negative rate, accurate however small it is."""
        values = check.probability_array("fpr", fpr)
        return _like(fpr, self._log_fnr(values))

    @overload
    def fnr_at(self, fpr: float) -> float: ...
    @overload
    def fnr_at(self, fpr: Sequence[float] | Array) -> Array: ...
    def fnr_at(self, fpr: ArrayLike) -> float | Array:
        """Least false-negative rate f(fpr); the curve itself, also as `curve(fpr)`."""
        values = check.probability_array("fpr", fpr)
        return _like(fpr, np.exp(self._log_fnr(values)))

    __call__ = fnr_at

    @overload
    def tpr_at(self, fpr: float) -> float: ...
    @overload
    def tpr_at(self, fpr: Sequence[float] | Array) -> Array: ...
    def tpr_at(self, fpr: ArrayLike) -> float | Array:
        """Largest true-positive rate: the share of members found by an attacker who accepts `fpr` false alarms."""
        values = check.probability_array("fpr", fpr)
        return _like(fpr, np.clip(-np.expm1(self._log_fnr(values)), 0.0, 1.0))

    @overload
    def mu_at(self, fpr: float) -> float: ...
    @overload
    def mu_at(self, fpr: Sequence[float] | Array) -> Array: ...
    def mu_at(self, fpr: ArrayLike) -> float | Array:
        """The mu of the Gaussian curve through this one's point at `fpr`, 0 < fpr < 1."""
        values = check.probability_array("fpr", fpr)
        if np.any((values <= 0.0) | (values >= 1.0)):
            raise InvalidArgument(
                "fpr must lie strictly between 0 and 1 for mu_at: every curve meets there at the ends."
            )
        return _like(fpr, self._mu_at(values))

    def _mu_at(self, fpr: Array) -> Array:
        return np.maximum(-ndtri(fpr) - ndtri_exp(self._log_fnr(fpr)), 0.0)

    # -- one number -----------------------------------------------------------------------------------------------

    def exposure(self, target: PrivacyTarget) -> float:
        """The number that a target is about, on this curve: at most `target.value` if the curve keeps it.

        The curve is that of one run; if the target is about the best of several, so is the number.
        """
        if target.best_of is not None:
            return self.best_of(target.best_of).exposure(dataclasses.replace(target, best_of=None))
        if target.rate is not None:
            return self.tpr_at(target.rate.fpr)
        if target.delta is not None:
            return self.epsilon(target.delta)
        return self.equivalent_mu() if target.target_mu is not None else self.advantage()

    def equivalent_mu(self, fpr_range: tuple[float, float] = DEFAULT_FPR_RANGE) -> float:
        """The smallest mu with f >= g_mu for all false-positive rates in `fpr_range`; infinity if there is none.

        Composed curves are not Gaussian: their mu grows slowly as the false-positive rate falls, so the range is part
        of the answer; a curve that is not Gaussian is mu-GDP for no such mu. The maximum is sought over 257 rates,
        evenly spaced in their normal score, and then between the neighbours of the largest.
        """
        low = check.inside("fpr_range[0]", fpr_range[0])
        high = check.inside("fpr_range[1]", fpr_range[1])
        if low > high:
            raise InvalidArgument(f"fpr_range = {fpr_range} is empty: pass (low, high) with low <= high.")
        return self._equivalent_mu(low, high)

    def _equivalent_mu(self, low: float, high: float) -> float:
        scores = np.linspace(float(ndtri(low)), float(ndtri(high)), 257)
        for _ in range(3):
            values = self._mu_at(ndtr(scores))
            best = int(np.argmax(values))
            if best in (0, scores.size - 1) or low == high:
                break
            scores = np.linspace(scores[best - 1], scores[best + 1], 33)
        return float(values[best])

    def advantage(self) -> float:
        """max over fpr of TPR - FPR: how much better than guessing; also the total variation distance."""
        return min(max(self._delta(0.0), 0.0), 1.0)

    def auc(self) -> float:
        """Area under the attacker's ROC curve, 1 - integral of f."""
        scores = np.linspace(-9.0, 9.0, 1001)
        fnr = np.exp(self._log_fnr(ndtr(scores)))
        density = np.exp(-0.5 * scores**2) / math.sqrt(2.0 * math.pi)
        return float(1.0 - np.trapezoid(fnr * density, scores))

    @overload
    def risk(self, baseline: float) -> float: ...
    @overload
    def risk(self, baseline: Sequence[float] | Array) -> Array: ...
    def risk(self, baseline: ArrayLike) -> float | Array:
        """The largest chance to learn a secret of a member: an attribute, who somebody is, what a record looks like.

        baseline : the chance of the same attacker against a model that was trained without that member. If nothing
            else that the model saw tells the secret, it is that of the best blind guess, such as 1/10 for one of ten
            equally likely values.

        Guarantees
        ----------
        "The attacker is right" is a membership test, with `baseline` as its false-positive rate, so the chance is at
        most 1 - f(baseline), whatever the secret, its prior and the attack (docs/theory/risks.md). It holds for the
        records and attackers of `for_whom`: on average over random records if the curve is about one. A secret of two
        values has a tighter answer where the neighbours are "replace-one": `bayes_accuracy` at its prior.
        """
        values = check.probability_array("baseline", baseline)
        curve = self if self._added is None else self._added
        return _like(baseline, np.clip(-np.expm1(curve._log_fnr(values)), 0.0, 1.0))

    def bayes_accuracy(self, prior: float = 0.5) -> float:
        """Share of right answers of the best attacker when a candidate is a member with probability `prior`."""
        prior = check.probability("prior", prior)
        if prior in (0.0, 1.0):
            return 1.0
        odds = (1.0 - prior) / prior
        return min((1.0 - prior) + prior * max(self._delta(math.log(odds)), 0.0), 1.0)

    def delta(self, epsilon: float) -> float:
        """sup over fpr of TPR - e^epsilon FPR: the smallest delta that goes with `epsilon` in this direction.

        On a membership-privacy (f-MIP) curve this is not the delta of differential privacy; use notion="gdp" for that.
        """
        epsilon = check.number("epsilon", epsilon)
        return min(max(self._delta(epsilon), 0.0), 1.0)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon >= 0 with delta(epsilon) <= delta; infinity if there is none. See `delta`."""
        delta = check.probability("delta", delta)
        if self._delta(0.0) <= delta:
            return 0.0
        high = 1.0
        while self._delta(high) > delta:
            high *= 2.0
            if high > 1.0e12:
                return math.inf
        low = 0.0 if high == 1.0 else high / 2.0
        while high - low > 1.0e-13 * high:
            middle = 0.5 * (low + high)
            if middle in (low, high):
                break
            low, high = (middle, high) if self._delta(middle) > delta else (low, middle)
        return high

    # -- operations -----------------------------------------------------------------------------------------------

    def inverse(self) -> TradeOff:
        """The curve with the two kinds of error swapped, f^-1; of a curve about members, it claims nothing."""
        return Inverse(self)

    def symmetrise(self) -> TradeOff:
        """The largest symmetric trade-off function below f and f^-1, as differential privacy needs it."""
        from gmip.accounting.families import PiecewiseLinear

        polygon = PiecewiseLinear._from_atoms(self._atoms())
        polygon.claim = self.claim
        return polygon.symmetrise()

    def subsample(self, rate: float) -> TradeOff:
        """rate f + (1 - rate)(1 - a): the record takes part only with probability `rate`; one-sided, as f-MIP needs
        it. The symmetric operator C_p of f-DP is `f.subsample(rate).symmetrise()`."""
        rate = check.probability("rate", rate)
        if rate == 0.0:
            from gmip.accounting.families import Gaussian

            nothing = Gaussian(0.0)
            nothing.claim = self.claim
            return nothing
        return self if rate == 1.0 else Subsampled(self, rate)

    def __matmul__(self, other: TradeOff) -> TradeOff:
        """Composition: the attacker sees the outcomes of both, `f @ g`; a lower bound on f tensor g."""
        from gmip.accounting.composition import compose

        if not isinstance(other, TradeOff):
            return NotImplemented
        return compose([(self, 1), (other, 1)])

    def best_of(self, expected_trials: float) -> TradeOff:
        """What choosing the best of several runs on the same data costs, if only the best is published.

        expected_trials : m. The number of runs has to be drawn from the geometric distribution with mean m, before and
            independently of everything else, and the runs have to be independent of each other: settings drawn at
            random beforehand, no search that learns from earlier runs. What is adaptive, a fixed number of runs, or
            runs that are published, too, compose (`compose`).

        Guarantees
        ----------
        A bound for curves of differential privacy that are bounds, whatever the score by which the best is chosen
        (docs/theory/trials.md). Membership privacy by the randomness of data is not covered: trials share the data.
        """
        from gmip.accounting.families import PiecewiseLinear

        trials = check.number("expected_trials", expected_trials)
        if not 1.0 <= trials < math.inf:
            raise InvalidArgument("must be at least 1", argument="expected_trials", value=trials)
        if self.claim.not_a_member is not None:
            raise InvalidArgument(
                "is known for differential privacy only",
                argument="expected_trials",
                remedy="account with `notion` = 'gdp'",
            )
        return self if trials == 1.0 else PiecewiseLinear.of_best(self.symmetrise(), trials)

    def compose(self, times: int) -> TradeOff:
        """f @ f @ ... @ f, `times` times."""
        from gmip.accounting.composition import compose

        return compose([(self, check.count("times", times))])

    def is_at_least(self, other: TradeOff, *, tolerance: float = 1.0e-12) -> bool:
        """Whether f >= other - tolerance at 2,001 false-positive rates, evenly spaced in their normal score, and 0."""
        rates = np.concatenate([[0.0], ndtr(np.linspace(-8.0, 8.0, 2001)), [1.0]])
        return bool(np.all(np.exp(self._log_fnr(rates)) >= np.exp(other._log_fnr(rates)) - tolerance))

    def __ge__(self, other: TradeOff) -> bool:
        return self.is_at_least(other)

    def __le__(self, other: TradeOff) -> bool:
        return other.is_at_least(self)

    def plot(self, ax: Axes | None = None, *, log: bool = True, name: str | None = None) -> Axes:
        """Draws the attacker's ROC curve (log-log by default) and guessing with matplotlib, on `ax` or a new figure."""
        if ax is None:
            try:
                from matplotlib import pyplot
            except ImportError:
                raise InvalidArgument("plot needs matplotlib", remedy="pip install 'gmip[plot]'") from None
            ax = pyplot.subplots()[1]
        rates = ndtr(np.linspace(-4.75, 4.75, 301)) if log else np.linspace(0.0, 1.0, 301)
        ax.plot(rates, self.tpr_at(rates), label=name or self._label)
        ax.plot(rates, rates, linestyle=":", color="grey", label="guessing")
        scale = "log" if log else "linear"
        ax.set(xscale=scale, yscale=scale, xlabel="false-positive rate", ylabel="true-positive rate")
        ax.legend()
        return ax

    @property
    def _label(self) -> str:
        return "attacker, at most" if self.kind == "bound" else "attacker, about"

    def _repr_html_(self) -> str:
        """Notebooks show the curve, and the members found at three false-alarm rates."""
        from gmip._html import card
        from gmip._svg import Series, guessing, picture

        rates = np.unique(np.concatenate([[0.0], np.geomspace(1.0e-6, 1.0, 121), np.linspace(0.0, 1.0, 51)]))
        curve = Series(
            self._label,
            "claim",
            "vermillion solid",
            rates,
            np.maximum.accumulate(self.tpr_at(rates)),
            forecast=self.kind == "forecast",
        )
        rows = [(f"members found at {rate(x)} false alarms", curve.text(self.tpr_at(x))) for x in (0.001, 0.01, 0.1)]
        drawing = picture([curve, guessing()], label="Members found against false alarms", lowest=1.0e-5)
        return card(repr(self), rows, drawing)


def _like(asked: ArrayLike, values: Array) -> float | Array:
    return float(values) if np.ndim(asked) == 0 else values


class Inverse(TradeOff):
    """f^-1, for families with no closed form of it."""

    def __init__(self, curve: TradeOff) -> None:
        self._curve = curve
        self.claim = curve.claim.mirrored

    def __repr__(self) -> str:
        return f"{self._curve!r}.inverse()"

    @property
    def tpr_error(self) -> float:
        return self._curve.tpr_error

    def _log_fnr(self, fpr: Array) -> Array:
        # f^-1(a) = inf {x: f(x) <= a}; bisect on the normal score of x, which resolves both ends.
        flat = np.ravel(fpr)
        with np.errstate(divide="ignore"):
            wanted = np.log(flat)
        low, high = np.full(flat.shape, -38.0), np.full(flat.shape, 8.2)
        for _ in range(60):
            middle = 0.5 * (low + high)
            above = self._curve._log_fnr(ndtr(middle)) > wanted
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        result = log_ndtr(high)
        result = np.where(self._curve._log_fnr(np.zeros(1)) <= wanted, -np.inf, result)
        return np.where(flat == 0.0, self._at_zero(), result).reshape(np.shape(fpr))

    def _at_zero(self) -> float:
        """log of the smallest x with f(x) = 0."""
        low, high = 0.0, 1.0
        if float(self._curve._log_fnr(np.zeros(()))) == -math.inf:
            return -math.inf
        for _ in range(60):
            middle = 0.5 * (low + high)
            if float(self._curve._log_fnr(np.asarray(middle))) > -math.inf:
                low = middle
            else:
                high = middle
        return math.log(high)

    def _delta(self, epsilon: float) -> float:
        if epsilon <= 1.0:
            return -math.expm1(epsilon) + math.exp(epsilon) * self._curve._delta(-epsilon)
        # That cancels for a large epsilon: look for sup_x 1 - x - e^eps f(x) itself, which is concave in x.
        low, high = -38.0, 8.2
        for _ in range(4):
            scores = np.linspace(low, high, 401)
            with np.errstate(over="ignore"):
                gain = ndtr(-scores) - np.exp(epsilon + self._curve._log_fnr(ndtr(scores)))
            best = int(np.argmax(gain))
            low, high = scores[max(best - 1, 0)], scores[min(best + 1, 400)]
        return max(float(gain[best]), 1.0 - math.exp(self._at_zero()))

    def _atoms(self) -> Atoms:
        return self._curve._atoms().mirrored()

    def _balance(self) -> float:
        return math.exp(float(self._curve._log_fnr(np.asarray(self._curve._balance()))))

    def inverse(self) -> TradeOff:
        return self._curve


class Subsampled(TradeOff):
    """rate f + (1 - rate)(1 - a), for 0 < rate < 1."""

    def __init__(self, curve: TradeOff, rate: float) -> None:
        self._curve, self.rate = curve, rate
        self.claim = curve.claim

    def __repr__(self) -> str:
        return f"{self._curve!r}.subsample({self.rate:.6g})"

    @property
    def tpr_error(self) -> float:
        return self.rate * self._curve.tpr_error

    def _log_fnr(self, fpr: Array) -> Array:
        with np.errstate(divide="ignore"):
            idle = np.log1p(-self.rate) + np.log1p(-fpr)
            own = np.log(np.asarray(self.rate)) + self._curve._log_fnr(fpr)
        result: Array = np.minimum(np.logaddexp(own, idle), 0.0)
        return result

    def _delta(self, epsilon: float) -> float:
        # L > eps for the mixture exactly when the step's own loss exceeds log((e^eps - 1 + rate)/rate).
        if epsilon <= math.log1p(-self.rate):
            return max(-math.expm1(epsilon), 0.0)
        own = math.log1p(math.expm1(min(epsilon, 30.0)) / self.rate) if epsilon < 30 else epsilon - math.log(self.rate)
        return self.rate * self._curve._delta(own)

    def _atoms(self) -> Atoms:
        return self._curve._atoms().subsampled(self.rate)

    def symmetrise(self) -> TradeOff:
        # The operator C_p: for a symmetric f the mirror image is crossed once.
        return Symmetrised(self) if self._curve.inverse() is self._curve else super().symmetrise()

    def _balance(self) -> float:
        return self._curve._balance()


class Symmetrised(TradeOff):
    """min(f, f^-1) made convex, for a curve that crosses its mirror image once: f down to slope -1, a line, then the
    mirror image (Dong et al. 2022, Def. F.1)."""

    def __init__(self, curve: TradeOff) -> None:
        self.claim = curve.claim
        # The lower of the two where false positives are rare; they cross once, on the diagonal.
        epsilon, mirror = 2.0 * curve._delta(0.0), curve.inverse()
        if mirror._delta(epsilon) > curve._delta(epsilon):
            curve, mirror = mirror, curve
        balance = curve._balance()
        fnr = math.exp(float(curve._log_fnr(np.asarray(balance))))
        if fnr < balance:  # the diagonal is met before the slope is -1: no line between the curve and its mirror image
            low, high = 0.0, balance
            for _ in range(60):
                balance = 0.5 * (low + high)
                above = math.exp(float(curve._log_fnr(np.asarray(balance)))) > balance
                low, high = (balance, high) if above else (low, balance)
            balance = fnr = high
        self._curve, self._mirror, self._low, self._high = curve, mirror, balance, fnr

    def __repr__(self) -> str:
        return f"{self._curve!r}.symmetrise()"

    @property
    def tpr_error(self) -> float:
        return max(self._curve.tpr_error, self._mirror.tpr_error)

    def _log_fnr(self, fpr: Array) -> Array:
        result: Array
        with np.errstate(divide="ignore"):
            line = np.log(np.maximum(self._low + self._high - fpr, 0.0))
        result = np.where(fpr <= self._low, self._curve._log_fnr(np.minimum(fpr, self._low)), line)
        mirrored = self._mirror._log_fnr(fpr)
        result = np.where(fpr >= self._high, mirrored, result)
        # Should the two cross elsewhere too, the lower one still holds.
        lowest: Array = np.minimum(np.minimum(result, mirrored), self._curve._log_fnr(fpr))
        return lowest

    def _delta(self, epsilon: float) -> float:
        return max(self._curve._delta(epsilon), self._mirror._delta(epsilon))

    def _atoms(self) -> Atoms:
        return self._curve._atoms().symmetrised()

    def _balance(self) -> float:
        return self._low

    def inverse(self) -> TradeOff:
        return self

    def symmetrise(self) -> TradeOff:
        return self
