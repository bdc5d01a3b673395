"""A tour of the accountant: how exposed is the paper's CIFAR-10 run, and how much noise does a target need?

    python examples/accounting.py

The run is the one of the paper: 48,000 images, batches of 400, 1,200 steps, 650 trainable parameters, gradients clipped
to norm 500. Printed numbers are rounded to the safe side: bounds and noise up.
"""

from __future__ import annotations

import math

from rich.console import Console
from rich.table import Table

import gmip

RUN = gmip.NoisySGD(dataset_size=48_000, batch_size=400, num_steps=1_200, num_params=650, clip_norm=500)
TARGET_MU = 0.4

console = Console(highlight=False)


def up(value: float, decimals: int) -> str:
    """Rounded up: a bound must not look better than it is (the hair absorbs binary fractions such as 0.1 + 0.2)."""
    scale = 10**decimals
    return f"{math.ceil(value * scale - 1e-9) / scale:.{decimals}f}"


def exposure() -> None:
    console.rule("How exposed is the run, without any noise?")
    tight = gmip.account(RUN)
    paper = gmip.account(RUN, bound="paper", composition="clt")
    table = Table("bound on any attacker", "paper's bound, CLT", "tight bound, exact")
    for fpr in (0.001, 0.01, 0.1):
        cells = [f"{up(100 * curve.tpr_at(fpr), 2)}%" for curve in (paper, tight)]
        table.add_row(f"members found at {100 * fpr:g}% false alarms", *cells)
    table.add_row("advantage over guessing", *(f"{up(100 * curve.advantage(), 2)}%" for curve in (paper, tight)))
    table.add_row("mu", *(up(curve.equivalent_mu(), 3) for curve in (paper, tight)))
    console.print(table)
    found, claimed = (up(100 * curve.tpr_at(0.01), 2) for curve in (tight, paper))
    console.print(
        f"At a 1% false-alarm rate, an attacker finds at most {found}% of the members. The paper's accounting says "
        f"{claimed}%: its lemma is a limit for a two-sided test, and a membership test is one-sided."
    )


def noise() -> None:
    console.rule(f"How much noise does mu = {TARGET_MU} need?")
    ways = {
        "differential privacy": gmip.calibrate(RUN, target_mu=TARGET_MU, notion="gdp"),
        "membership, the paper's": gmip.calibrate(RUN, target_mu=TARGET_MU, bound="paper", composition="clt"),
        "membership, tight": gmip.calibrate(RUN, target_mu=TARGET_MU),
    }
    table = Table("privacy", "noise std, mean gradient", "multiplier (Opacus)")
    for name, run in ways.items():
        assert run.noise_multiplier is not None
        table.add_row(name, up(run.noise_std, 3), up(run.noise_multiplier, 3))
    console.print(table)
    dp, paper, tight = ways.values()
    console.print(f"Differential privacy, which holds for any data, needs noise of std {up(dp.noise_std, 3)}.")
    console.print(
        f"The paper's membership accounting needs {up(paper.noise_std, 3)}, {_compare(paper, dp)} differential "
        "privacy: its bound on a step is the smaller of two terms, here that of differential privacy."
    )
    console.print(
        f"The tight accounting needs {up(tight.noise_std, 3)}, {_compare(tight, dp)} differential privacy: noise and "
        "the randomness of the data add up."
    )


def _compare(run: gmip.NoisySGD, other: gmip.NoisySGD) -> str:
    share = round(100 * (1 - run.noise_std / other.noise_std))
    return f"{share}% less than" if share > 0 else f"{-share}% more than" if share < 0 else "about as much as"


def assumptions() -> None:
    console.rule("What these numbers assume")
    for sentence in gmip.account(RUN).assumptions:
        console.print(f"- {sentence}", style="dim", markup=False)


if __name__ == "__main__":
    exposure()
    noise()
    assumptions()
