"""One step of (noisy) SGD: what an attacker learns from a published mean gradient, given that the record is in it.

What hides a record is the randomness of the others that are averaged with it, and noise. `tight_step` bounds the
test that is left from sizes, noise, susceptibility and what the attacker knows, whatever the spectrum of the gradients.
docs/theory/one-step.md carries the derivations named here, docs/theory/reuse.md those for records that are used again
and again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gmip.accounting._loss import mixture
from gmip.accounting.families import Discrete, Gaussian
from gmip.accounting.gaussian_pair import LEAST_DROP, ChiSquared, GaussianPair, gaussian_pair
from gmip.accounting.tradeoff import TradeOff
from gmip.vocabulary import RANDOM_SIZES, NoisySGD

Array = NDArray[np.float64]
Bound = Literal["tight", "paper"]

_GROUPS = 12  # of batches by how many records in them the attacker does not know
_DEVIATIONS = 8.3  # beyond which batches of another composition have a probability below 1e-15


def corollary_mu(*, num_params: float, susceptibility: float, effective_batch_size: float) -> float:
    """mu_step of the paper's Corollary 5.1: (d + (2 n - 1) K)/(n sqrt(2 d + 4 n K)), n the effective batch size.

    Guarantees
    ----------
    An approximation for large d and n (a Gaussian in place of the chi-squared curve), not a bound.
    """
    d, k, n = num_params, susceptibility, effective_batch_size
    return (d + (2.0 * n - 1.0) * k) / (n * math.sqrt(2.0 * d + 4.0 * n * k))


def gdp_mu_step(run: NoisySGD, *, replaced: bool = False) -> float:
    """mu_DP of one step, given that the record takes part: the gradient sum moves by at most 2C when a record is
    `replaced` (always in "fixed" and "full"), by C when one is added, removed or zeroed out. Infinity without noise."""
    return _noise_mu(run, 2.0 if replaced or run.sampling in ("fixed", "full") else 1.0)


def noise_mu_step(run: NoisySGD) -> float:
    """mu of noise alone in the game of membership inference, given that the record takes part: 2C where somebody else
    is in its place otherwise, C where nobody is ("poisson", "balls-in-bins")."""
    return _noise_mu(run, 1.0 if run.sampling in RANDOM_SIZES else 2.0)


def noise_step(run: NoisySGD) -> Gaussian:
    """The test of one step by noise alone."""
    return Gaussian(noise_mu_step(run))


def _noise_mu(run: NoisySGD, sensitivity: float) -> float:
    if run.noise_std == 0.0 or run.clip_norm is None:
        return math.inf
    return sensitivity * (run.clip_norm / run.batch_size) / run.noise_std


def combined_mu(*, data_mu: float, gdp_mu: float) -> float:
    """1/mu^2 = 1/mu_data^2 + 1/mu_DP^2: noise and data randomness add up (docs/theory/one-step.md, Theorem 1)."""
    if data_mu == 0.0 or gdp_mu == 0.0:
        return 0.0
    large, small = max(data_mu, gdp_mu), min(data_mu, gdp_mu)
    return small if large == math.inf else small / math.hypot(1.0, small / large)


def paper_mu_step(run: NoisySGD, susceptibility: float, attacker_knows: float = 0.0) -> float:
    """The paper's one-step mu: the smaller of Corollary 5.1 with n_eff and mu_DP."""
    unknown = run.effective_batch_size - attacker_knows * run.batch_size
    if unknown <= 0.0:
        return noise_mu_step(run)
    corollary = corollary_mu(num_params=run.num_params, susceptibility=susceptibility, effective_batch_size=unknown)
    return min(corollary, noise_mu_step(run))


def tight_step(run: NoisySGD, susceptibility: float, attacker_knows: float = 0.0) -> TradeOff:
    """The test of one step given that the record takes part, from sizes, noise and susceptibility alone.

    attacker_knows : q, the share of the other members that the attacker holds, together with who of them is in which
        batch: what is left to hide the record is the rest, and noise.

    Guarantees
    ----------
    If sums of unknown gradients are Gaussian, no harder than the optimal test against any record of susceptibility at
    most K, whatever the spectrum: Theorem 1 (full and shuffled batches: the others are new to the attacker), Theorem 3
    (fixed batches: the others are given, who of them is in the batch is random) and Theorem 4 (Poisson batches,
    likewise) of docs/theory. Without noise and with others who are new it is Theorem 5.1 of the paper, exact at K.
    Balls in bins: noise alone.
    """
    if attacker_knows == 1.0 or run.sampling == "balls-in-bins":
        return noise_step(run)
    if run.sampling == "poisson":
        crowd = poisson_crowd(run, attacker_knows)
        return Gaussian(combined_mu(data_mu=poisson_mu(run, susceptibility, crowd), gdp_mu=noise_mu_step(run)))
    return hidden(
        run,
        attacker_knows,
        lambda crowd: crowd.test(susceptibility, rank_of(run), noise_on_sum(run), stacked=_stacked(run)),
    )


def poisson_mu(run: NoisySGD, susceptibility: float, crowd: float) -> float:
    """mu of a Poisson step by data randomness and shaped noise: Theorem 4, and its section on shaped noise.

    crowd : expected number of unknown others in a batch, times their chance not to be in it.
    """
    spread = max(crowd, 1.0e-300)
    return math.sqrt(susceptibility / (spread + shaped_on_sum(run)) + 1.0 / spread)


def shaped_on_sum(run: NoisySGD) -> float:
    """Variance of shaped noise on the sum of a batch's gradients, in units of their covariance: (n t)^2. Of stacked
    gradients, whose covariance is at most T times that of the steps apart, only a T-th."""
    return min(run.batch_size * run.shaped_noise, 1.0e100) ** 2 / _stacked(run)


def _stacked(run: NoisySGD) -> int:
    """How many steps' gradients are taken together, as those of full batches are."""
    return run.num_steps if run.batch_size == run.dataset_size and run.sampling != "poisson" else 1


def rank_of(run: NoisySGD) -> float:
    return float(run.rank or run.num_params)


def noise_on_sum(run: NoisySGD) -> float:
    """Variance of the noise on the sum of a batch's gradients, in units of C^2: (n tau/C)^2."""
    if run.noise_std == 0.0:
        return 0.0
    assert run.clip_norm is not None
    return min(run.noise_std / (run.clip_norm / run.batch_size), 1.0e100) ** 2


def hidden(run: NoisySGD, attacker_knows: float, test: Callable[[Crowd], TradeOff]) -> TradeOff:
    """The test of a step, given the one for each crowd of unknown records that a batch may hold (not for Poisson)."""
    shaped = shaped_on_sum(run)
    if run.batch_size == run.dataset_size:
        return test(Crowd.new((1.0 - attacker_knows) * run.batch_size, shaped))
    others, unknown = run.dataset_size - 1, unknown_others(run, attacker_knows)
    drawn = run.sampling == "fixed"
    if attacker_knows == 0.0:
        return test(Crowd.drawn(run.batch_size, others, shaped) if drawn else Crowd.new(run.batch_size, shaped))
    if unknown < 2:
        return noise_step(run)
    tests = {}
    parts = []
    for null, alternative, size, more in _unknown_in_batch(run.batch_size, others, unknown):
        if size not in tests:
            crowd = Crowd.drawn(size, unknown - more, shaped) if drawn else Crowd.new(size, shaped)
            tests[size] = test(crowd)._atoms()
        parts.append((null, alternative, tests[size]))
    return Discrete(mixture(parts))


def unknown_others(run: NoisySGD, attacker_knows: float) -> int:
    """How many of the other members the attacker does not hold."""
    return math.floor((1.0 - attacker_knows) * (run.dataset_size - 1))


def poisson_crowd(run: NoisySGD, attacker_knows: float) -> float:
    """Expected number of unknown others in a Poisson batch, times their chance not to be in it."""
    return run.sample_rate * (1.0 - run.sample_rate) * unknown_others(run, attacker_knows)


@dataclass(frozen=True)
class Crowd:
    """The unknown records that a record hides among in one batch.

    spread : variance of the sum of their gradients when the record is not among them, in units of their covariance, and
        of shaped noise on it
    change : how much of that variance goes when the record takes the place of one of them (in the same units)
    """

    spread: float
    change: float

    @classmethod
    def new(cls, size: float, shaped: float = 0.0) -> Crowd:
        """`size` records that are new to the attacker; the record takes the place of one (the paper's model)."""
        return cls(size + shaped, 1.0)

    @classmethod
    def drawn(cls, size: float, others: float, shaped: float = 0.0) -> Crowd:
        """`size` of `others` given records, drawn without replacement; with the record, one fewer is drawn."""
        if others < 2:
            return cls(0.0, 0.0)
        return cls(size * (others - size) / (others - 1) + shaped, (others + 1 - 2 * size) / (others - 1))

    def test(
        self,
        susceptibility: float,
        rank: float,
        noise: float,
        *,
        reach: float = 4.0,
        share: float | None = None,
        stacked: int = 1,
    ) -> TradeOff:
        """Theorems 1 and 3.

        noise : variance of the noise on the sum of gradients, in units of C^2.
        reach : largest |theta - mean|^2 of the record's gradient, in the same units; clipping allows 4.
        share : x of the theorems; the best one if None.
        stacked : number of steps whose gradients are taken together, as those of full batches are.
        """
        k = susceptibility
        if noise == 0.0:
            if self.spread <= 0.0 or self.change >= self.spread:
                return Gaussian(math.inf)  # nobody to hide among
            if self.change > LEAST_DROP * self.spread:
                return ChiSquared(dimension=rank, susceptibility=k / self.change, batch_size=self.spread / self.change)
            return _pair([self.change / self.spread], [math.sqrt(k / self.spread)], [rank])
        if k <= reach and stacked == 1:  # Sigma <= C^2 I says more than the reach: the paper's n_eff, with its proof
            total = self.spread + noise
            return _pair([self.change / total], [math.sqrt(k / total)], [rank])
        best = share is None
        if share is None:
            share = self.best_share(k, rank, noise, reach=reach, stacked=stacked)
        own, rest = self._scales(k / reach, noise, share, stacked)
        if best and 0.0 < self.change < self.spread:  # noise is added to what hides the record without it
            without = k / self.spread + rank * _widening(self.change / self.spread)
            if without <= k / own + _widening(self.change / own) + rank * _widening(self.change / rest):
                return self.test(k, rank, 0.0)
        return _pair([self.change / own, self.change / rest], [math.sqrt(k / own), 0.0], [1.0, rank])

    def _scales(self, ratio: float, noise: float, share: float, stacked: int) -> tuple[float, float]:
        """Variances of Theorem 1 in the candidate's direction and in the others, for 0 <= share <= 1."""
        rest = self.spread + share * (noise / stacked)  # the covariance of stacked gradients may reach `stacked` C^2
        return rest + noise * (1.0 - share) * ratio, rest

    def best_share(self, k: float, rank: float, noise: float, *, reach: float = 4.0, stacked: int = 1) -> float:
        """Every share gives a valid bound; take the one of least divergence (golden section on its logarithm)."""

        def divergence(log_share: float) -> float:
            own, rest = self._scales(k / reach, noise, math.exp(log_share), stacked)
            return k / own + _widening(self.change / own) + rank * _widening(self.change / rest)

        low, high, golden = -40.0, 0.0, 0.5 * (math.sqrt(5.0) - 1.0)
        a, b = high - golden * (high - low), low + golden * (high - low)
        f_a, f_b = divergence(a), divergence(b)
        for _ in range(60):
            if f_a <= f_b:
                high, b, f_b = b, a, f_a
                a = high - golden * (high - low)
                f_a = divergence(a)
            else:
                low, a, f_a = a, b, f_b
                b = low + golden * (high - low)
                f_b = divergence(b)
        return math.exp(0.5 * (low + high))


def _widening(drop: float) -> float:
    """-(drop + log(1 - drop)): 2 KL of N(0, 1 - drop) from N(0, 1); infinity where nothing is left of the variance."""
    if drop >= 1.0:
        return math.inf
    if abs(drop) < 1.0e-4:
        return drop * drop * (0.5 + drop * (1.0 / 3.0 + 0.25 * drop))
    return -(drop + math.log1p(-drop))


def _pair(drop: list[float], shift: list[float], multiplicity: list[float]) -> TradeOff:
    """The test of N(0, I) against N(shift, I - drop), all drops of one sign."""
    if max(drop) >= 1.0 - 1.0e-15:
        return Gaussian(math.inf)
    if min(drop) >= 0.0:
        return gaussian_pair(*(np.array(values) for values in (drop, shift, multiplicity)))
    # A wider alternative is the mirror image of a narrower one, scaled to its own unit variance.
    wider = [1.0 - d for d in drop]
    return GaussianPair(
        drop=[-d / w for d, w in zip(drop, wider, strict=True)],
        shift=[s / math.sqrt(w) for s, w in zip(shift, wider, strict=True)],
        multiplicity=multiplicity,
    ).inverse()


def _unknown_in_batch(batch_size: int, others: int, unknown: int) -> list[tuple[float, float, int, int]]:
    """How many records of a batch the attacker does not know: (P0 mass, P1 mass, least number, how many more) of groups
    of batches.

    Under "not a member" `batch_size` of the `others` are drawn, `unknown` of which the attacker does not know; under
    "member, and in the batch" the record is one of the unknown ones. A group counts as its smallest number (the
    attacker is told about the rest: docs/theory/attackers.md), and its masses are put on the ends of its range of
    likelihood ratios: both in the attacker's favour.
    """
    n, m, u = batch_size, others, unknown
    share = u / m
    mean = n * share
    deviation = math.sqrt(max(mean * (1.0 - share) * (m - n) / max(m - 1, 1), 0.0))
    low = max(math.floor(mean - _DEVIATIONS * deviation - 12.0), 0, n - (m - u))
    high = min(math.ceil(mean + _DEVIATIONS * deviation + 40.0), n, u)

    def ratio(j: NDArray[np.float64]) -> Array:
        return j / (u - j + 1.0) * ((m - n + 1.0) / n)

    if deviation > 0.0 and high - low > 100_000:  # so many that they differ by less than a hundredth
        ends = ratio(np.array([low, high], dtype=np.float64))
        at_low = (ends[1] - 1.0) / (ends[1] - ends[0])
        rest = 1.0 - at_low
        return [(at_low, at_low * ends[0], low, high - low), (rest, rest * ends[1], low, high - low)]
    j = np.arange(low, high + 1, dtype=np.float64)
    steps = np.log((u - j[:-1]) * (n - j[:-1])) - np.log((j[:-1] + 1.0) * (m - u - n + j[:-1] + 1.0))
    log_mass = np.concatenate([[0.0], np.cumsum(steps)])
    null = np.exp(log_mass - log_mass.max())
    null /= null.sum()
    alternative = null * ratio(j)
    # All unknown others and the record may be in one batch, which without the record cannot be.
    crowded = max(1.0 - float(alternative.sum()), 0.0) if high == u else 0.0
    alternative *= (1.0 - crowded) / alternative.sum()
    groups = [(0.0, crowded, 1, 0)] if crowded > 1.0e-13 else []
    for part in np.array_split(np.arange(j.size), min(_GROUPS, j.size)):
        p0, p1 = float(null[part].sum()), float(alternative[part].sum())
        if p0 < 1.0e-18 and p1 < 1.0e-18:
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = (alternative[part] / null[part])[[0, -1]]
        size = max(int(j[part[0]]), 1)  # nobody unknown: not the record either
        more = max(int(j[part[-1]]) - size, 0)
        if part.size == 1 or not ends[0] < ends[1]:
            groups.append((p0, p1, size, more))
            continue
        at_low = float(np.clip((ends[1] * p0 - p1) / (ends[1] - ends[0]), 0.0, p0))
        rest = p0 - at_low
        groups += [(at_low, at_low * float(ends[0]), size, more), (rest, rest * float(ends[1]), size, more)]
    return groups
