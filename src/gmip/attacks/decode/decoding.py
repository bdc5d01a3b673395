"""Who of a list was in: all candidates at once, from the published sums of gradients (docs/theory/attackers.md).

Arrays only. A published step is a sum over its batch, y = sum_i b_i x_i + rest, with b_i = 1 for the candidates in the
batch. What is known about b is a Gaussian in each step (expectation propagation); what a candidate's steps have in
common, membership, is exact.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, logsumexp

from gmip import _validate as check
from gmip.attacks.decode.listed_sum import PublishedSum, Solution, counted, equal_groups
from gmip.attacks.work import Budget
from gmip.errors import InvalidArgument
from gmip.store import NOWHERE, Store

__all__ = ["MISFIT", "DecodeOutcome", "decode"]

Array = NDArray[np.float64]

_LEAST_SPREAD: Final = 1.0e-9  # of 1 - D s: what rounding leaves of a cavity
_LEAST_VARIANCE: Final = 1.0e-12  # of b
_SETTLED: Final = 1.0e-3  # change of a probability
_UNTOLD: Final = 0.3  # of the most there can be: if not all are listed and nothing tells how many are
_MOST_BUT_NOT_ALL: Final = 0.95
_REFUTED: Final = 3.0  # standard errors
MISFIT: Final = 2.0  # more than this is not explained by the list and the noise
_DECIDES: Final = math.log(100.0)  # log-odds
_VAGUE: Final = 0.05  # standard deviation of a coverage below 1
_GIVE_UP: Final = 4  # sweeps that do not fit, one after the other
_ROUNDING: Final = 0.1  # of the variance that rounding may have, what it has at least
_FIRST_SWEEPS: Final = 4  # before one of two coverages is chosen
_MOST_KEPT: Final = 2**23  # bytes of a sweep that is worth a file
_STATE: Final = ("llr", "mean", "var", "says", "chance", "chi", "fit")  # what sweeps change
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(20)  # of a standard normal
_WEIGHTS /= _WEIGHTS.sum()


@dataclass(frozen=True, kw_only=True, eq=False)
class DecodeOutcome:
    """Attributes
    ----------
    log_odds : array of shape (c,), of membership at even prior odds.
    batches : array of shape (steps, c), the probability that a candidate was in the batch of a step.
    coverage : q, the share of the members that is listed: as given, or estimated.
    prior : the share of the candidates who are members, by it.
    sweeps, settled : passes over the steps, and whether the probabilities stopped changing.
    late : whether there was no time for more of them.
    misfit : what the list leaves unexplained, squared, in units of what it should; 1 where the model is right.
    sure : the share of candidates whose membership the steps decide, at odds of 100 to 1.
    gain : bits per candidate that the steps tell beyond the prior; near 0 where nothing can be decoded.
    """

    log_odds: Array
    batches: Array
    coverage: float
    prior: float
    sweeps: int
    settled: bool
    late: bool
    misfit: float
    sure: float
    gain: float


def decode(
    steps: Iterable[PublishedSum],
    *,
    dataset_size: int,
    epochs: Sequence[Sequence[int]] | None = None,
    coverage: float | None = None,
    most_sweeps: int = 15,
    most_work: float = math.inf,
    progress: Callable[[int, int], Any] = lambda done, total: None,
    budget: Budget | None = None,
    parts: Store = NOWHERE,
) -> DecodeOutcome:
    """Log-odds of membership of all candidates, jointly.

    Parameters
    ----------
    steps : of one run, all with the same candidates, read once. Full batches: one element, the steps stacked.
    dataset_size : N, members.
    epochs : numbers of steps of which a member is in at most one (shuffled epochs); None: each step is drawn anew.
    coverage : q, the share of the members that is listed; None: estimated.
    most_sweeps : passes over all steps.
    most_work : floating-point operations of all sweeps, about; the first sweep is always made.
    progress : called with (done, total).
    budget : no sweep is begun that would not be ready in time, but for the first.
    parts : where what is known after each sweep is kept, and found by an attempt that goes on.
    """
    check.count("dataset_size", dataset_size)
    listed = list(steps)
    if not listed or len({step.count for step in listed}) > 1:
        raise InvalidArgument("must hold at least one published sum, all of the same candidates", argument="steps")
    groups = [[t] for t in range(len(listed))] if epochs is None else [list(group) for group in epochs]
    if sorted(t for group in groups for t in group) != list(range(len(listed))):
        raise InvalidArgument("must name every step once", argument="epochs", value=groups)
    equal = equal_groups(listed)
    sweep = sum(step.work for step in listed)
    allowed = 1.0 if sweep == 0.0 else max(1.0, most_work / sweep)  # sweeps
    if coverage is not None:
        beliefs = _Beliefs(listed, groups, check.probability("coverage", coverage), dataset_size, budget, parts, equal)
        beliefs.settle(int(min(most_sweeps, allowed)), progress)
        return beliefs.answer()
    most = min(1.0, listed[0].count / dataset_size)
    share, error = _likely(listed, most, dataset_size)
    shares = [most, share] if share >= most - _REFUTED * error else [share]
    found = [_Beliefs(listed, groups, one, dataset_size, budget, parts, equal) for one in shares]
    first = int(max(1, min(most_sweeps, _FIRST_SWEEPS, allowed / 2.0)))
    for beliefs in found:
        beliefs.settle(first)
    best = max(found, key=lambda one: one.weight)
    best.settle(int(max(1, min(most_sweeps, allowed - len(found) * (min(best.sweeps, first) - 1)))), progress)
    return best.answer()


def _likely(steps: Sequence[PublishedSum], most: float, members: int) -> tuple[float, float]:
    """The coverage, below `most`, and its standard error: by moments if background records tell of the unlisted; else
    one that claims little, with an infinite error."""
    found = [(step.share, *step.listed(members * step.share)) for step in steps]
    weight = sum(share**2 * precision for share, _, precision in found)
    count = steps[0].count
    if weight > 0.0:  # of chances p q N/c
        share = sum(share * precision * chance for share, chance, precision in found) / weight * count / members
        return float(np.clip(share, 0.0, _MOST_BUT_NOT_ALL * most)), float(count / members / np.sqrt(weight))
    return _UNTOLD * most, math.inf


def _repeats(steps: Sequence[PublishedSum], group_of: Mapping[int, int]) -> Array:
    """In how many steps what an unlisted member of a batch says about a candidate is said again, on average.

    They are the same people in all steps: one who was drawn in step t is drawn in step s with the chance p_s (never in
    another batch of the same epoch), and says the same about a candidate as far as the gradients of two records are as
    alike as before.
    """
    same = np.maximum(np.array([step.alike for step in steps]) @ np.array([step.alike for step in steps]).T, 0.0)
    of = np.array([group_of[t] for t in range(len(steps))])
    same[of[:, None] == of] = 0.0
    return np.asarray(1.0 + same @ np.array([step.share for step in steps]))


def _left(precision: Array, log_odds: Array) -> Array:
    """The mean posterior variance of b, seen through Gaussian noise of this precision, at prior log-odds."""
    root, chance = np.sqrt(precision), expit(log_odds)
    total = np.zeros_like(precision)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        noise = root * node
        for sign, share in ((0.5, chance), (-0.5, 1.0 - chance)):
            odds = log_odds + sign * precision + noise
            total += weight * share * expit(odds) * expit(-odds)
    # No more than a linear estimate leaves.
    return np.minimum(total, 1.0 / (precision + 1.0 / np.maximum(chance * expit(-log_odds), _LEAST_VARIANCE)))


class _Beliefs:
    """Expectation propagation: messages between the steps and the candidates."""

    def __init__(
        self,
        steps: Sequence[PublishedSum],
        groups: Sequence[Sequence[int]],
        coverage: float,
        members: int,
        budget: Budget | None,
        parts: Store,
        equal: Sequence[NDArray[np.intp]],
    ) -> None:
        self.steps, self.coverage, self.members = steps, coverage, members
        self.budget, self.parts = budget, parts
        count = steps[0].count
        self.prior = float(np.clip(coverage * members / count, 0.5 / count, 1.0 - 0.5 / count))
        self.groups = groups
        self.group_of = {t: g for g, group in enumerate(groups) for t in group}
        self.repeats = _repeats(steps, self.group_of)
        shape = (len(steps), count)
        self.llr = np.zeros(shape)  # what a step says on b = 1 against b = 0
        chance = self.prior * np.array([[step.share] for step in steps])
        self.mean = np.broadcast_to(chance, shape).copy()  # of the Gaussian that stands for all else known of b
        self.var = np.broadcast_to(chance * (1.0 - chance), shape).copy()
        self.says = np.zeros((len(groups), count))  # what a group says on membership
        self.chance = self.mean.copy()  # posterior of b
        self.equal = equal  # candidates who look alike to every sum
        self.chi = np.ones(len(steps))
        self.fit = np.zeros(len(steps))
        self.sweeps, self.settled, self.bad = 0, False, 0
        self.late = False  # whether there was no time for more
        self.longest = 0.0  # seconds of a sweep

    def _saved(self) -> bool:
        """What was kept of the next sweep by an earlier attempt takes its place."""
        found = self.parts.get(self._name(self.sweeps + 1))
        if found is None:
            return False
        for name in _STATE:
            getattr(self, name)[:] = found.arrays[name]
        self.settled, self.bad = found.fields["settled"], found.fields["bad"]
        misfit, evidence = found.fields["misfit"], found.fields["evidence"]
        self.kept = misfit, found.arrays["kept_says"], found.arrays["kept_chance"], evidence
        return True

    def _save(self) -> None:
        misfit, says, chance, evidence = self.kept
        state = {name: getattr(self, name) for name in _STATE} | {"kept_says": says, "kept_chance": chance}
        scalars = {"misfit": misfit, "evidence": evidence, "settled": bool(self.settled), "bad": self.bad}
        if sum(array.nbytes for array in state.values()) <= _MOST_KEPT:
            self.parts.put(self._name(self.sweeps), state, scalars)

    def _name(self, sweep: int) -> str:
        return f"swept-{sweep}-of-{len(self.steps)}-{sum(step.dims for step in self.steps)}-{self.coverage!r}"

    def settle(self, most: int, progress: Callable[[int, int], Any] = lambda done, total: None) -> None:
        """More passes over the steps, until nothing changes or there have been `most`; the first is linear."""
        while self.sweeps < most and not self.settled and self.bad < _GIVE_UP:
            if self._saved():
                self.sweeps += 1
                progress(self.sweeps, most)
                continue
            start = time.monotonic()
            if self.sweeps and self.budget is not None and self.budget.left() < self.longest:
                self.late = True
                break
            damping = max(0.3, 0.95**self.sweeps)
            changes = [self._update(t, damping) for t in range(len(self.steps))]
            self.sweeps += 1
            self.settled = max(changes) < _SETTLED
            # A sweep may end in something that does not fit: the last one that did, or the linear one, counts.
            self.bad = 0 if self.fits else self.bad + 1
            if self.fits or self.sweeps == 1:
                self.kept = self.misfit, self.says.copy(), self.chance.copy(), self.evidence
            self._save()
            self.longest = max(self.longest, time.monotonic() - start)
            progress(self.sweeps, most)
        progress(1, 1)

    def _solve(self, t: int) -> Solution:
        """What step t says, with b as known by all else; and how well it fits."""
        step = self.steps[t]
        drawn = self.members * step.share
        missing = (1.0 - self.coverage) * drawn
        # Who is listed is by chance, and who is in the batch (but for its size): so is the number of those who are not
        # listed; and the share itself is not known exactly (docs/theory/attackers.md).
        varies = 0.0
        if missing > 0.0:
            varies = 1.0 - step.share if step.draw == "poisson" else self.coverage
            varies += _VAGUE**2 * drawn / (1.0 - self.coverage)
        found = step.solve(missing, varies, drawn, self.mean[t], self.var[t], repeats=float(self.repeats[t]))
        # What should be left: by the candidates' part, and by noise; of rounding only the most is known.
        explained = float((1.0 - found.kept).sum())
        sure = 1.0 if step.noisy or missing > 0.0 else _ROUNDING
        self.chi[t] = found.misfit / (explained + sure * max(0.0, step.dims - explained))
        return found

    def _update(self, t: int, damping: float) -> float:
        """One step: what it says about each candidate, given all that is known about the others."""
        found = self._solve(t)
        spread = np.maximum(found.kept, _LEAST_SPREAD)
        spread *= max(1.0, self.chi[t])  # more is left than should be: all else is less certain than was thought
        precision = found.squared / spread  # of b given all others: N(b; centre, 1/precision)
        pull = self.mean[t] * precision + found.pulled / spread  # precision * centre
        self.llr[t] = pull - precision / 2.0
        wider = 1.0 + self.var[t] * precision
        gauss = precision * self.mean[t] ** 2 - 2.0 * self.mean[t] * pull - self.var[t] * pull**2
        fit = (np.log(wider) + gauss / wider) / 2.0
        before = self.chance[t].copy()
        tied = self._tie(t, found, fit)
        self.fit[t] = float(fit.sum()) - (found.misfit + found.log_det) / 2.0
        known = self._odds(t)
        after = expit(known + self.llr[t])
        # The Gaussian with which the cavity has the mean of b, and the variance that b has on average at this
        # precision: its own may exceed the cavity's, which no Gaussian makes up for, and sweeps would diverge.
        left = _left(precision, known)
        wide = np.clip(left / np.maximum(1.0 - precision * left, _LEAST_SPREAD), _LEAST_VARIANCE, 0.25)
        centre = after + wide * (precision * after - pull)
        for group, one_wide, one_centre in tied:
            wide[group], centre[group] = one_wide, one_centre
        self.var[t] += damping * (wide - self.var[t])
        self.mean[t] += damping * (centre - self.mean[t])
        self.chance[t] = after
        return float(np.abs(after - before).max())

    def _tie(self, t: int, found: Solution, fit: Array) -> list[tuple[NDArray[np.intp], float, float]]:
        """What a sum says on each of some equal candidates: it tells how many are in, so all counts are considered.

        Rounding never tells them apart. Returns the variance and mean of the Gaussian that stands for each of a group.
        """
        if not self.equal:
            return []
        tied = []
        known = self._odds(t)
        for group in self.equal:
            size, first = len(group), group[0]
            mean, var = self.mean[t, first], self.var[t, first]
            squared, pulled = float(found.squared[group].mean()), float(found.pulled[group].mean())
            spread = max(1.0 - size * var * squared, _LEAST_SPREAD) * max(1.0, self.chi[t])
            precision = squared / spread  # of their number, given all others
            pull = size * mean * precision + pulled / spread
            group_count = counted(size, precision, pull, float(known[first]))
            self.llr[t, group] = group_count.llr
            wider = 1.0 + size * var * precision
            gauss = size * mean**2 * precision - 2.0 * mean * pull - var * pull**2
            alone = np.logaddexp(0.0, known[first] + group_count.llr) - np.logaddexp(0.0, known[first])
            fit[group] = (np.log(wider) + size * gauss / wider) / (2.0 * size) + group_count.log_mean / size - alone
            # No more than a linear estimate leaves.
            prior = max(size * float(expit(known[first]) * expit(-known[first])), _LEAST_VARIANCE)
            left = min(group_count.variance, 1.0 / (precision + 1.0 / prior))
            wide = float(np.clip(left / max(1.0 - precision * left, _LEAST_SPREAD), _LEAST_VARIANCE, 0.25 * size))
            centre = group_count.mean + wide * (precision * group_count.mean - pull)
            tied.append((group, wide / size, centre / size))
        return tied

    def _odds(self, t: int) -> Array:
        """Log-odds of b in step t by all other steps; renews what the step's group says on membership."""
        g = self.group_of[t]
        group = list(self.groups[g])
        shares = np.array([self.steps[s].share for s in group])
        out = max(0.0, 1.0 - float(shares.sum()))  # in no recorded batch of the group
        logs = np.log(shares)[:, None] + self.llr[group]
        others = logit(self.prior) + self.says.sum(0) - self.says[g]
        absent = np.full((1, logs.shape[1]), np.log(out) if out > 0.0 else -np.inf)
        self.says[g] = logsumexp(np.vstack([logs, absent]), axis=0)
        elsewhere = np.vstack([np.delete(logs, group.index(t), axis=0), absent])
        with np.errstate(divide="ignore"):
            member_elsewhere = others + logsumexp(elsewhere, axis=0)
        return np.asarray(others + np.log(self.steps[t].share) - np.logaddexp(0.0, member_elsewhere))

    @property
    def evidence(self) -> float:
        """Log-likelihood of the published sums under this coverage, up to a constant (Bethe's approximation)."""
        known = np.logaddexp(np.log1p(-self.prior), np.log(self.prior) + self.says.sum(0))
        return float(self.fit.sum() + known.sum())

    @property
    def fits(self) -> bool:
        """Whether the list and the noise explain the published sums."""
        return self.misfit < MISFIT

    @property
    def weight(self) -> tuple[bool, float]:
        """The weight by which one coverage is preferred to another."""
        return self.fits, self.evidence if self.fits else -self.misfit

    @property
    def misfit(self) -> float:
        sizes = np.array([step.dims for step in self.steps])
        return float(self.chi @ sizes / sizes.sum())

    def answer(self) -> DecodeOutcome:
        misfit, says, chance, _ = self.kept
        evidence = says.sum(0)
        odds = logit(self.prior) + evidence
        for group in self.equal:  # that some of them are in decides nobody, however few members there are
            evidence[group] = np.clip(evidence[group], np.minimum(odds[group], 0.0), np.maximum(odds[group], 0.0))
        return DecodeOutcome(
            log_odds=evidence,
            batches=chance,
            coverage=self.coverage,
            prior=self.prior,
            sweeps=self.sweeps,
            settled=self.settled,
            late=self.late,
            misfit=misfit,
            sure=float(np.mean(np.minimum(np.abs(odds), np.abs(evidence)) > _DECIDES)),
            gain=float(_bits(np.array(self.prior)) - _bits(expit(odds)).mean()),
        )


def _bits(chance: Array) -> Array:
    p = np.clip(chance, 1.0e-12, 1.0 - 1.0e-12)
    return np.asarray(-p * np.log2(p) - (1.0 - p) * np.log2(1.0 - p))
