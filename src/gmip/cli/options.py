"""Options that several commands share, and how they are read; `gmip.cli.schedule` makes the run of them.

All options reach a command as text and are parsed by `gmip.cli.parse`, so that every complaint is ours.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import numpy as np
import typer
from numpy.typing import NDArray

from gmip import _numbers
from gmip.accounting.account import BOUNDS, COMPOSITIONS, Composition
from gmip.accounting.step import Bound
from gmip.accounting.tradeoff import TradeOff
from gmip.cli import parse
from gmip.cli.errors import BadRequest
from gmip.vocabulary import ANY, NOTIONS, SAMPLINGS, AnyRecord, PrivacyTarget, Rate

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
    "shown",
    "target_as_json",
    "target_name",
    "target_sentence",
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

_ADVANTAGE: Final = "advantage (TPR - FPR)"


def read_target(
    mu: str | None,
    tpr: str | None,
    advantage: str | None,
    epsilon: str | None = None,
    delta: str | None = None,
    **whose: Any,
) -> PrivacyTarget:
    """The target that was typed; `whose` are the other keywords of `PrivacyTarget`."""
    return PrivacyTarget(
        target_mu=None if mu is None else parse.positive("--target-mu", mu),
        target_tpr=None if tpr is None else Rate.parse("--target-tpr", tpr),
        target_advantage=None if advantage is None else parse.probability("--target-advantage", advantage),
        target_epsilon=None if epsilon is None else parse.positive("--target-epsilon", epsilon),
        delta=None if delta is None else parse.delta("--delta", delta),
        **whose,
    )


def target_name(target: PrivacyTarget) -> str:
    """What is measured, in tables."""
    if target.rate is not None:
        return f"members found at {_numbers.rate(target.rate.fpr)} false alarms"
    if target.delta is not None:
        return f"epsilon at delta = {target.delta:g}"
    return "mu of the run, FPRs from 1e-5 to 1 - 1e-5" if target.measure == "mu" else _ADVANTAGE


def target_as_json(target: PrivacyTarget) -> dict[str, float]:
    """What must not be exceeded, and where."""
    where = {"fpr": target.rate.fpr} if target.rate is not None else {"delta": target.delta} if target.delta else {}
    return {target.measure: target.value, **where}


def target_sentence(target: PrivacyTarget, curve: TradeOff) -> str:
    """What holds once it is met, in the words that the curve's kind allows; of differential privacy no mu without its
    range."""
    bound = curve.kind == "bound"
    if target.rate is not None:
        at, most = f"at a {_numbers.rate(target.rate.fpr)} false-alarm rate", _numbers.rate(target.rate.tpr)
        if bound:
            return f"{at}, an attacker finds at most {most} of the members"
        return f"{at}, an attacker is expected to find about {most} of the members or fewer"
    at = "" if target.delta is None else f" at delta = {target.delta:g}"
    if target.measure == "advantage":
        what, most = f"the attacker's {_ADVANTAGE}", _numbers.rate(target.value)
    elif target.measure == "epsilon":
        what, most = "epsilon", f"{target.value:g}"
    else:
        over = "" if curve.claim.adjacency is None else " over FPRs from 1e-5 to 1 - 1e-5"
        what, most = f"the mu of the run{over}", f"{target.value}"
    return f"{what} is {'at most' if bound else 'expected to stay within'} {most}{at}"


def shown(target: PrivacyTarget, value: float) -> str:
    """What was measured, rounded up."""
    return _numbers.percent(value, "up") if target.is_share else _numbers.number(value, "up")
