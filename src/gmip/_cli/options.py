"""Options that several commands share, and the run that they describe.

All options reach a command as text and are parsed by `gmip._cli.parse`, so that every complaint is ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from gmip import _numbers
from gmip._cli import parse
from gmip._cli.errors import BadRequest, listed
from gmip.accounting.account import BOUNDS, COMPOSITIONS, NOTIONS, Composition
from gmip.accounting.mechanism import SAMPLINGS, NoisySGD
from gmip.accounting.step import Bound
from gmip.accounting.tradeoff import TradeOff

__all__ = [
    "ACCOUNTING",
    "NOISE",
    "RUN",
    "TARGET",
    "BatchSize",
    "BoundOption",
    "Clip",
    "CompositionOption",
    "DatasetSize",
    "Explain",
    "Json",
    "NoiseMultiplier",
    "NoiseStd",
    "NotionOption",
    "Params",
    "Rank",
    "SamplingOption",
    "Steps",
    "Susceptibility",
    "SusceptibilityFile",
    "Target",
    "TargetAdvantage",
    "TargetMu",
    "TargetTpr",
    "build_run",
    "option",
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
Steps = Annotated[str | None, option("--steps", "T", RUN, "Optimizer steps, not epochs (required).")]
Params = Annotated[str | None, option("--params", "d", RUN, "Trainable parameters (required).")]
SamplingOption = Annotated[
    str | None,
    option(
        "--sampling",
        "|".join(SAMPLINGS),
        RUN,
        "How batches are drawn. fixed (default): a new random batch of n examples each step. poisson: each example on "
        "its own, with probability n/N. full: all examples in every step. shuffled: epochs over shuffled data; no "
        "privacy from sampling is counted.",
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
        "K",
        ACCOUNTING,
        "Squared Mahalanobis norm of the record's gradient (default: --params, a typical record).",
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
        "poisson, add or remove one).",
    ),
]
Explain = Annotated[bool, typer.Option("--explain", help="Also print what the answer assumes.")]
Json = Annotated[
    bool,
    typer.Option("--json", help='Print one JSON object and nothing else. Infinity is the string "Infinity".'),
]

TargetMu = Annotated[str | None, option("--target-mu", "MU", TARGET, "The mu of the run is at most MU.")]
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

_EXAMPLES: Final = {"--dataset-size": "48000", "--batch-size": "400", "--steps": "1200", "--params": "650"}


def _needed(**given: str | None) -> dict[str, str]:
    """The same values, none of them missing; names as in Python, an underscore for the hyphen."""
    missing = [f"--{name.replace('_', '-')}" for name, value in given.items() if value is None]
    if missing:
        example = " ".join(f"{name} {_EXAMPLES[name]}" for name in missing)
        be, pronoun = ("is", "it") if len(missing) == 1 else ("are", "them")
        raise BadRequest(f"{listed(missing)} {be} missing", remedy=f"add {pronoun}, as in {example}")
    return {name: value for name, value in given.items() if value is not None}


def build_run(
    *,
    dataset_size: str | None,
    batch_size: str | None,
    steps: str | None,
    params: str | None,
    sampling: str | None,
    rank: str | None,
    clip: str | None,
    noise_std: str | None,
    noise_multiplier: str | None,
) -> NoisySGD:
    """The run that the options describe."""
    sizes = _needed(dataset_size=dataset_size, batch_size=batch_size, steps=steps, params=params)
    if noise_std is not None and noise_multiplier is not None:
        raise BadRequest("--noise-std and --noise-multiplier set the same noise", remedy="pass only one of them")
    run = NoisySGD(
        dataset_size=parse.count("--dataset-size", sizes["dataset_size"]),
        batch_size=parse.count("--batch-size", sizes["batch_size"]),
        num_steps=parse.count("--steps", sizes["steps"]),
        num_params=parse.count("--params", sizes["params"]),
        clip_norm=None if clip is None else parse.positive("--clip", clip),
        noise_std=0.0 if noise_std is None else parse.non_negative("--noise-std", noise_std),
        sampling="fixed" if sampling is None else parse.one_of("--sampling", sampling, SAMPLINGS),
        rank=None if rank is None else parse.count("--rank", rank),
    )
    if noise_multiplier is None:
        return run
    return run.with_noise_multiplier(parse.non_negative("--noise-multiplier", noise_multiplier))


def read_bound(bound: str | None) -> Bound:
    return "tight" if bound is None else parse.one_of("--bound", bound, BOUNDS)


def read_composition(composition: str | None) -> Composition:
    return "exact" if composition is None else parse.one_of("--composition", composition, COMPOSITIONS)


def read_susceptibility(value: str | None, path: str | None) -> NDArray[np.float64] | None:
    """Array of shape (n,): n = 1 for a single K; None when K is left to its default."""
    if value is not None and path is not None:
        raise BadRequest(
            "--susceptibility and --susceptibility-file set the same number", remedy="pass only one of them"
        )
    if path is not None:
        return parse.number_file("--susceptibility-file", path)
    return None if value is None else np.array([parse.positive("--susceptibility", value)])


# -- the privacy target --


class Target(NamedTuple):
    """A privacy goal."""

    name: str  # of what is measured, in tables
    keywords: dict[str, Any]  # of gmip.calibrate
    answer: dict[str, float]  # in JSON
    measure: Callable[[TradeOff], float]
    words: str  # what holds once it is met

    def shown(self, value: float) -> str:
        """What was measured, rounded up."""
        return _numbers.number(value, "up") if "mu" in self.answer else _numbers.percent(value, "up")


def read_target(mu: str | None, tpr: str | None, advantage: str | None) -> Target:
    given = [value for value in (mu, tpr, advantage) if value is not None]
    if not given:
        raise BadRequest(
            "No privacy target was given", remedy="pass one of --target-mu, --target-tpr and --target-advantage"
        )
    if len(given) > 1:
        raise BadRequest(f"{len(given)} privacy targets were given", remedy="pass only one of them")
    if mu is not None:
        value = parse.positive("--target-mu", mu)
        return Target(
            "mu",
            {"target_mu": value},
            {"mu": value},
            lambda c: c.equivalent_mu(),
            f"the mu of the run is at most {value}",
        )
    if tpr is not None:
        most, rate = parse.tpr_at_fpr("--target-tpr", tpr)
        return Target(
            f"members found at {_numbers.rate(rate)} false alarms",
            {"target_tpr": (most, rate)},
            {"tpr": most, "fpr": rate},
            lambda c: c.tpr_at(rate),
            f"at a {_numbers.rate(rate)} false-alarm rate, an attacker finds at most "
            f"{_numbers.rate(most)} of the members",
        )
    value = parse.probability("--target-advantage", given[0])
    words = f"the attacker's advantage (TPR - FPR) is at most {_numbers.rate(value)}"
    return Target(
        "advantage (TPR - FPR)", {"target_advantage": value}, {"advantage": value}, lambda c: c.advantage(), words
    )
