"""Audits of scores keep their level: on noise of any kind, and for the strongest of five attacks.

GMIP_NULL_AUDITS sets the number of simulations of each test (1,000 takes minutes).
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from scipy.stats import binom, norm

import gmip

pytestmark = pytest.mark.slow

MANY = os.environ.get("GMIP_NULL_AUDITS")


def most(simulations: int) -> int:
    """Failures that a true rate of 5% exceeds once in a hundred."""
    return int(binom.ppf(0.99, simulations, 0.05))


def noise(rng: np.random.Generator, kind: str) -> tuple[np.ndarray, np.ndarray]:
    draw = {
        "normal": lambda n: rng.normal(size=n),
        "ties": lambda n: rng.integers(0, 4, n).astype(float),
        "constant": lambda n: np.ones(n),
        "heavy tails": lambda n: rng.standard_cauchy(n),
        "10 against 1,000": lambda n: rng.normal(size=n),
    }[kind]
    sizes = (10, 1000) if kind == "10 against 1,000" else (80, 80)
    return draw(sizes[0]), draw(sizes[1])


def test_noise_is_not_accused():
    kinds = ("normal", "ties", "constant", "heavy tails", "10 against 1,000")
    count = int(MANY or 40)
    accused = gates = 0
    for i in range(count):
        scores = noise(np.random.default_rng(i), kinds[i % len(kinds)])
        run = gmip.audit(gmip.Scores(*scores), claim=0.0, target=(0.01, 0.01), gate=True).runs[0]
        accused += run.verdict.kind == "exposed" or run.attacks[0].mu_lower > 0.0
        gates += run.gate is not None and not run.gate.passed
    assert accused <= most(count) and gates <= most(count)


@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_the_strongest_of_five_attacks(mu):
    """Without sharing the error, 18% of these audits have a bound above the truth."""
    count = int(MANY or 10)
    tpr = float(norm.sf(norm.isf(0.01) - mu))
    over = exposed = gates = 0
    for i in range(count):
        rng = np.random.default_rng([i, 7])
        ins, outs = ({f"a{k}": rng.normal(shift, 1.0, 80) for k in range(5)} for shift in (mu, 0.0))
        run = gmip.audit(gmip.Scores(ins, outs), claim=mu, target=(tpr, 0.01), gate=True).runs[0]
        over += max(one.mu_lower for one in run.attacks) > mu
        exposed += run.verdict.kind == "exposed"
        gates += run.gate is not None and run.gate.tpr_lower > run.gate.limit  # a run at the limit may probably fail
    assert max(over, exposed, gates) <= most(count)
