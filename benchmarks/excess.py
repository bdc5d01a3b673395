"""Worst excess of the best attack over a bound, in standard errors of the simulation: persons, bins, the best of runs.

    python benchmarks/excess.py

The attacker plays the optimal test on the data that are worst for the record, 200,000 games each, at false-alarm rates
of .1, 1, 10 and 50%. Where a bound is attained, the largest of several is about 1 to 3 by chance; docs/theory/
guarantees.md has the figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from gmip import Gaussian, NoisySGD, TradeOff, account

Array = NDArray[np.float64]
GAMES = 200_000
RATES = (0.001, 0.01, 0.1, 0.5)


def excess(curve: TradeOff, null: Array, member: Array) -> float:
    """The largest (TPR found - TPR allowed) over its standard error, members and threshold counted."""
    worst = -math.inf
    for fpr in RATES:
        found, allowed, step = np.mean(member > np.quantile(null, 1.0 - fpr)), float(curve.tpr_at(fpr)), 0.1 * fpr
        slope = float(curve.tpr_at(fpr + step) - curve.tpr_at(fpr - step)) / (2.0 * step)
        variance = allowed * (1.0 - allowed) + slope**2 * fpr * (1.0 - fpr)
        worst = max(worst, float(found - allowed) / math.sqrt(variance / null.size))
    return worst


def persons(poisson: bool, rows: int) -> float:
    """The person's gradients are C; the others are 0, or -C where they make room."""
    rng, noise, steps = np.random.default_rng(7), 3.0, 10
    run = NoisySGD(dataset_size=60, batch_size=12, num_steps=steps, num_params=1, clip_norm=1.0)
    run = run.replace(sampling="poisson" if poisson else "fixed", rows_per_person=rows).with_noise_multiplier(noise)
    law = stats.binom(rows, 0.2) if poisson else stats.hypergeom(60, rows, 12)
    shifts = (1.0 if poisson else 2.0) * np.arange(rows + 1) / noise
    scores = []
    for member in (0, 1):
        moved = shifts[law.rvs((GAMES, steps), random_state=rng) * member]
        x = moved + rng.standard_normal((GAMES, steps))
        ratio = sum(p * np.exp(s * x - 0.5 * s**2) for p, s in zip(law.pmf(range(rows + 1)), shifts, strict=True))
        scores.append(np.log(ratio).sum(axis=1))
    return excess(account(run, attacker_knows=1.0), scores[0], scores[1])


def bins(shift: float, number: int, epochs: int) -> float:
    """The attacker is told the bins of all others, whose gradients then do not matter; both directions."""
    rng = np.random.default_rng(5)
    run = NoisySGD(dataset_size=10 * number, batch_size=10, num_steps=number * epochs, num_params=1, clip_norm=1.0)
    curve = account(run.replace(sampling="balls-in-bins").with_noise_multiplier(1.0 / shift))
    scores = np.zeros((2, GAMES))
    for member in (0, 1):
        for _ in range(epochs):
            x = rng.standard_normal((GAMES, number))
            x[:, 0] += shift * member  # by symmetry it may be in the first bin
            scores[member] += np.log(np.exp(shift * x - 0.5 * shift**2).mean(axis=1))
    return max(excess(curve, scores[0], scores[1]), excess(curve.inverse(), -scores[1], -scores[0]))


def best_of(mu: float, trials: float, sign: float) -> float:
    """Runs that are scored by what they publish, or by its opposite; both directions."""
    rng, seen = np.random.default_rng(3), []
    for shift in (0.0, mu):
        counts = rng.geometric(1.0 / trials, GAMES)
        runs = rng.standard_normal(int(counts.sum())) + shift
        seen.append(sign * np.maximum.reduceat(sign * runs, np.append(0, np.cumsum(counts)[:-1])))
    curve = Gaussian(mu).best_of(trials)
    return max(excess(curve, seen[0], seen[1]), excess(curve, -seen[1], -seen[0]))


def games() -> Iterator[tuple[str, float]]:
    """What was played, and its worst excess."""
    for poisson in (True, False):
        for rows in (2, 3, 5):
            yield f"persons, {'Poisson' if poisson else 'fixed'}, {rows} rows", persons(poisson, rows)
    for shift, number, epochs in ((1.0, 8, 3), (2.0, 8, 2), (1.0, 20, 3)):
        yield f"balls in bins, c {shift:g}, {number} bins, {epochs} epochs", bins(shift, number, epochs)
    for mu, trials in ((0.5, 10.0), (1.0, 5.0), (2.0, 3.0)):
        for sign in (1.0, -1.0):
            yield f"best of {trials:g}, mu {mu:g}, {'best' if sign > 0 else 'worst'}", best_of(mu, trials, sign)


if __name__ == "__main__":
    for name, worst in games():
        print(f"{name}: {worst:+.1f}", flush=True)
