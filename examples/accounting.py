"""A tour of the accountant: how exposed is the paper's CIFAR-10 run, and how much noise does a target need?

    python examples/accounting.py

The run is the one of the paper: 48,000 images, batches of 400, 1,200 steps, 650 trainable parameters, gradients clipped
to norm 500. Printed numbers are rounded up.
"""

from __future__ import annotations

import math

from rich.console import Console
from rich.table import Table

import gmip

RUN = gmip.NoisySGD(dataset_size=48_000, batch_size=400, num_steps=1_200, num_params=650, clip_norm=500)
SHUFFLED = RUN.replace(sampling="shuffled")  # 10 epochs, each image once in every epoch
TARGET_MU = 0.4
EPSILON, DELTA = 3.0, 1.0e-6

console = Console(highlight=False)


def up(value: float, decimals: int) -> str:
    """Rounded up: an answer must not look better than it is (the hair absorbs binary fractions such as 0.1 + 0.2)."""
    scale = 10**decimals
    return f"{math.ceil(value * scale - 1e-9) / scale:.{decimals}f}"


def exposure() -> None:
    console.rule("How exposed is a typical record, without any noise?")
    curves = (gmip.account(RUN, bound="paper", composition="clt"), gmip.account(RUN), gmip.account(SHUFFLED))
    table = Table("what an attacker finds", "paper, fixed batches", "gmip, fixed batches", "gmip, shuffled epochs")
    for fpr in (0.001, 0.01, 0.1):
        cells = [f"{up(100 * curve.tpr_at(fpr), 2)}%" for curve in curves]
        table.add_row(f"members found at {100 * fpr:g}% false alarms", *cells)
    table.add_row("advantage over guessing", *(f"{up(100 * curve.advantage(), 2)}%" for curve in curves))
    table.add_row("mu", *(up(curve.equivalent_mu(), 3) for curve in curves))
    console.print(table)
    claimed, fixed, shuffled = (up(100 * curve.tpr_at(0.01), 2) for curve in curves)
    console.print(
        f"At a 1% false-alarm rate, an attacker is expected to find about {fixed}% of the members if every step draws "
        f"its batch anew (fixed), and about {shuffled}% if epochs are shuffled. The paper's accounting says "
        f"{claimed}%: its lemma is a limit for a two-sided test, and a membership test is one-sided."
    )


def noise() -> None:
    console.rule(f"How much noise does mu = {TARGET_MU} need, for a typical record?")
    paper = gmip.calibrate(RUN, target_mu=TARGET_MU, bound="paper", composition="clt")
    fixed, shuffled = (gmip.calibrate(run, target_mu=TARGET_MU) for run in (RUN, SHUFFLED))
    private = [gmip.calibrate(run, target_epsilon=EPSILON, delta=DELTA, notion="gdp") for run in (RUN, SHUFFLED)]
    table = Table("privacy", "batches", "noise std, mean gradient", "multiplier (Opacus)")
    target = f"epsilon {EPSILON:g} at delta {DELTA:g}, differential privacy"
    for name, batches, run in (
        (f"mu {TARGET_MU}, membership, the paper's", "fixed", paper),
        (f"mu {TARGET_MU}, membership, tight", "fixed", fixed),
        (f"mu {TARGET_MU}, membership, tight", "shuffled", shuffled),
        (f"{target} (replace one)", "fixed", private[0]),
        (f"{target} (zero out one)", "shuffled", private[1]),
    ):
        assert run.noise_multiplier is not None
        table.add_row(name, batches, up(run.noise_std, 3), up(run.noise_multiplier, 3))
    console.print(table)
    console.print(
        f"The paper's accounting needs noise of std {up(paper.noise_std, 3)}: its bound on a step is the smaller of "
        f"two terms, here that of differential privacy. The tight accounting needs {up(fixed.noise_std, 3)}, "
        f"{_compare(fixed, paper)} that: noise and the randomness of the data add up."
    )


def _compare(run: gmip.NoisySGD, other: gmip.NoisySGD) -> str:
    share = round(100 * (1 - run.noise_std / other.noise_std))
    return f"{share}% less than" if share > 0 else f"{-share}% more than" if share < 0 else "about as much as"


def assumptions() -> None:
    console.rule("What these numbers assume")
    curve = gmip.account(RUN)
    console.print(f"A {curve.kind}, for {curve.for_whom}.")
    for sentence in curve.assumptions:
        console.print(f"- {sentence}", style="dim", markup=False)


if __name__ == "__main__":
    exposure()
    noise()
    assumptions()
