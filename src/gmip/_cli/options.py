"""Options that several commands share, and how they are read; `gmip._cli.schedule` makes the run of them.

All options reach a command as text and are parsed by `gmip._cli.parse`, so that every complaint is ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from gmip import _numbers
from gmip._cli import parse
from gmip._cli.errors import BadRequest
from gmip.accounting.account import BOUNDS, COMPOSITIONS, NOTIONS, Composition
from gmip.accounting.random_record import ANY, AnyRecord
from gmip.accounting.step import Bound
from gmip.accounting.tradeoff import TradeOff
from gmip.vocabulary import SAMPLINGS, Rate

__all__ = [
    "ACCOUNTING",
    "NOISE",
    "RUN",
    "TARGET",
    "AttackerKnows",
    "BatchSize",
    "BoundOption",
    "Clip",
    "CompositionOption",
    "DatasetSize",
    "DeltaOption",
    "DropLast",
    "Epochs",
    "Explain",
    "Json",
    "NoiseMultiplier",
    "NoiseStd",
    "NotionOption",
    "Params",
    "PhaseOption",
    "Rank",
    "SamplingOption",
    "Steps",
    "Susceptibility",
    "SusceptibilityFile",
    "Target",
    "TargetAdvantage",
    "TargetEpsilon",
    "TargetMu",
    "TargetTpr",
    "option",
    "read_attacker",
    "read_bound",
    "read_composition",
    "read_susceptibility",
    "read_target",
]

RUN, NOISE, TARGET, ACCOUNTING = "The run", "Noise", "Privacy target (pass one)", "Accounting"


def option(name: str, metavar: str | None, panel: str, help: str) -> Any:
    """One option as all commands write it: its default is said in `help`, where there is one to say."""
    return typer.Option(name, metavar=metavar, rich_help_panel=panel, help=help, show_default=False)


DatasetSize = Annotated[str | None, option("--dataset-size", "N", RUN, "Training examples (required).")]
BatchSize = Annotated[
    str | None,
    option("--batch-size", "n", RUN, "Examples averaged in one step; with poisson, on average (required)."),
]
Steps = Annotated[str | None, option("--steps", "T", RUN, "Optimizer steps (this or --epochs is required).")]
Epochs = Annotated[
    str | None, option("--epochs", "E", RUN, "Passes over the data instead of --steps: N/n steps each, rounded up.")
]
Params = Annotated[str | None, option("--params", "d", RUN, "Trainable parameters (required).")]
SamplingOption = Annotated[
    str | None,
    option(
        "--sampling",
        "|".join(SAMPLINGS),
        RUN,
        "How batches are drawn. fixed (default): a new random batch of n examples each step. poisson: each example on "
        "its own, with probability n/N. full: all examples in every step. shuffled: each example once in every epoch, "
        "in random order.",
    ),
]
DropLast = Annotated[
    bool, option("--drop-last", None, RUN, "With shuffled: epochs leave out their incomplete last batch.")
]
PhaseOption = Annotated[
    list[str] | None,
    option(
        "--phase",
        "NAME=VALUE,...",
        RUN,
        "One phase of a schedule, as in steps=300,noise-multiplier=1.5,batch-size=800; repeat it for each phase, in "
        "order. Names are options of the run and of its noise, which hold for every phase that does not set its own.",
    ),
]
Rank = Annotated[
    str | None,
    option("--rank", "r", RUN, "Effective rank of the gradient covariance, if you know that it is below --params."),
]
Clip = Annotated[str | None, option("--clip", "C", NOISE, "Clipping norm: the largest norm of one example's gradient.")]
NoiseStd = Annotated[
    str | None, option("--noise-std", "STD", NOISE, "Standard deviation of the noise on the batch MEAN (default 0).")
]
NoiseMultiplier = Annotated[
    str | None,
    option(
        "--noise-multiplier",
        "S",
        NOISE,
        "The same noise in the convention of Opacus: std on the batch SUM, in units of --clip. S = STD n / C.",
    ),
]
Susceptibility = Annotated[
    str | None,
    option(
        "--susceptibility",
        "any|any-constant|K",
        ACCOUNTING,
        "Whose promise it is. K: records whose gradients have a squared Mahalanobis norm of at most K (default: "
        "--params, a typical record). any: a random record, whatever the records are like. any-constant: the same, if "
        "K does not change from step to step.",
    ),
]
AttackerKnows = Annotated[
    str | None,
    option(
        "--attacker-knows",
        "SHARE",
        ACCOUNTING,
        "Share of the other members whose records the attacker holds, from 0 (default) to 1: then only noise protects. "
        "He is not told who is in which batch.",
    ),
]
SusceptibilityFile = Annotated[
    str | None,
    option(
        "--susceptibility-file",
        "FILE",
        ACCOUNTING,
        "Measured susceptibilities, one number per line (text, CSV) or .npy: the answer is for a random one of them.",
    ),
]
BoundOption = Annotated[
    str | None,
    option("--bound", "|".join(BOUNDS), ACCOUNTING, "Bound on one step: tight (default), or the paper's."),
]
CompositionOption = Annotated[
    str | None,
    option(
        "--composition",
        "|".join(COMPOSITIONS),
        ACCOUNTING,
        "How steps add up: exact, rounded to the safe side (default), or clt, the paper's limit theorem, which can be "
        "too optimistic.",
    ),
]
NotionOption = Annotated[
    str | None,
    option(
        "--notion",
        "|".join(NOTIONS),
        ACCOUNTING,
        "gmip: membership-inference privacy (default). gdp: differential privacy (neighbours replace one record; with "
        "poisson, add or remove one; with shuffled, zero out one).",
    ),
]
Explain = Annotated[bool, typer.Option("--explain", help="Also print what the answer assumes.")]
Json = Annotated[
    bool,
    typer.Option("--json", help='Print one JSON object and nothing else. Infinity is the string "Infinity".'),
]

TargetMu = Annotated[
    str | None,
    option("--target-mu", "MU", TARGET, "The mu of the run, over FPRs from 1e-5 to 1 - 1e-5, is at most MU."),
]
TargetTpr = Annotated[
    str | None,
    option(
        "--target-tpr",
        "TPR@FPR",
        TARGET,
        "At most this share of members is found at this false-alarm rate: 0.05@0.01 is 5% at 1%.",
    ),
]
TargetAdvantage = Annotated[
    str | None,
    option("--target-advantage", "A", TARGET, "The attacker's advantage (TPR - FPR) is at most A, from 0 to 1."),
]
TargetEpsilon = Annotated[
    str | None, option("--target-epsilon", "E", TARGET, "epsilon at --delta is at most E (both notions).")
]
DeltaOption = Annotated[str | None, option("--delta", "D", TARGET, "With --target-epsilon: delta, between 0 and 1.")]


def read_bound(bound: str | None) -> Bound:
    return "tight" if bound is None else parse.one_of("--bound", bound, BOUNDS)


def read_composition(composition: str | None) -> Composition:
    return "exact" if composition is None else parse.one_of("--composition", composition, COMPOSITIONS)


def read_attacker(knows: str | None) -> float:
    return 0.0 if knows is None else parse.probability("--attacker-knows", knows)


def read_susceptibility(value: str | None, path: str | None) -> NDArray[np.float64] | AnyRecord | None:
    """Array of shape (n,): n = 1 for a single K; None when K is left to its default."""
    if value is not None and path is not None:
        raise BadRequest(
            "--susceptibility and --susceptibility-file set the same number", remedy="pass only one of them"
        )
    if path is not None:
        return parse.number_file("--susceptibility-file", path)
    if value is None:
        return None
    known: AnyRecord
    for known in ANY:
        if value == known:
            return known
    return np.array([parse.positive("--susceptibility", value, f"{', '.join(ANY)} or a finite number above 0")])


# -- the privacy target --


class Target(NamedTuple):
    """A privacy goal."""

    name: str  # of what is measured, in tables
    keywords: dict[str, Any]  # of gmip.calibrate
    answer: dict[str, float]  # in JSON
    measure: Callable[[TradeOff], float]
    words: tuple[str, str]  # what holds once it is met: of a bound, of a forecast

    def sentence(self, curve: TradeOff) -> str:
        """What holds, in the words that the curve's kind allows; of differential privacy no mu without its range."""
        words = self.words[0] if curve.kind == "bound" else self.words[1]
        plain = curve.claim.adjacency is None
        return words if plain else words.replace("mu of the run", "mu of the run over FPRs from 1e-5 to 1 - 1e-5")

    def shown(self, value: float) -> str:
        """What was measured, rounded up."""
        plain = "mu" in self.answer or "epsilon" in self.answer
        return _numbers.number(value, "up") if plain else _numbers.percent(value, "up")


def read_target(
    mu: str | None, tpr: str | None, advantage: str | None, epsilon: str | None = None, delta: str | None = None
) -> Target:
    given = [value for value in (mu, tpr, advantage, epsilon) if value is not None]
    if not given:
        raise BadRequest(
            "No privacy target was given",
            remedy="pass one of --target-mu, --target-tpr, --target-advantage and --target-epsilon",
        )
    if len(given) > 1:
        raise BadRequest(f"{len(given)} privacy targets were given", remedy="pass only one of them")
    if delta is not None and epsilon is None:
        raise BadRequest("--delta belongs to --target-epsilon", remedy="leave it out, or aim at an epsilon")
    if epsilon is not None:
        return _epsilon_target(epsilon, delta)
    if mu is not None:
        value = parse.positive("--target-mu", mu)
        return Target(
            "mu of the run, FPRs from 1e-5 to 1 - 1e-5",
            {"target_mu": value},
            {"mu": value},
            lambda c: c.equivalent_mu(),
            (f"the mu of the run is at most {value}", f"the mu of the run is expected to stay within {value}"),
        )
    if tpr is not None:
        wanted = Rate.parse("--target-tpr", tpr)
        most, rate = wanted.tpr, wanted.fpr
        at = f"at a {_numbers.rate(rate)} false-alarm rate"
        return Target(
            f"members found at {_numbers.rate(rate)} false alarms",
            {"target_tpr": wanted},
            {"tpr": most, "fpr": rate},
            lambda c: c.tpr_at(rate),
            (
                f"{at}, an attacker finds at most {_numbers.rate(most)} of the members",
                f"{at}, an attacker is expected to find about {_numbers.rate(most)} of the members or fewer",
            ),
        )
    value = parse.probability("--target-advantage", given[0])
    name = "advantage (TPR - FPR)"
    words = (
        f"the attacker's {name} is at most {_numbers.rate(value)}",
        f"the attacker's {name} is expected to stay within {_numbers.rate(value)}",
    )
    return Target(name, {"target_advantage": value}, {"advantage": value}, lambda c: c.advantage(), words)


def _epsilon_target(epsilon: str, delta: str | None) -> Target:
    if delta is None:
        raise BadRequest("--delta is missing", remedy="add it beside --target-epsilon, as in --delta 1e-6")
    value, small = parse.positive("--target-epsilon", epsilon), parse.delta("--delta", delta)
    return Target(
        f"epsilon at delta = {small:g}",
        {"target_epsilon": value, "delta": small},
        {"epsilon": value, "delta": small},
        lambda c: c.epsilon(small),
        (
            f"epsilon is at most {value:g} at delta = {small:g}",
            f"epsilon is expected to stay within {value:g} at delta = {small:g}",
        ),
    )
