"""Options that several commands share, and the run that they describe.

All options reach a command as text and are parsed by `gmip._cli.parse`, so that every complaint is ours.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import numpy as np
import typer
from numpy.typing import NDArray

from gmip._cli import parse
from gmip._cli.errors import BadRequest, listed
from gmip.accounting.account import BOUNDS, COMPOSITIONS, NOTIONS, Composition
from gmip.accounting.mechanism import SAMPLINGS, NoisySGD
from gmip.accounting.step import Bound

__all__ = [
    "ACCOUNTING",
    "NOISE",
    "RUN",
    "BatchSize",
    "BoundOption",
    "Clip",
    "CompositionOption",
    "DatasetSize",
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
    "build_run",
    "needed",
    "read_bound",
    "read_composition",
    "read_susceptibility",
]

RUN, NOISE, ACCOUNTING = "The run", "Noise", "Accounting"


def _option(name: str, metavar: str, panel: str, help: str) -> Any:
    return typer.Option(name, metavar=metavar, rich_help_panel=panel, help=help, show_default=False)


DatasetSize = Annotated[str | None, _option("--dataset-size", "N", RUN, "Training examples (required).")]
BatchSize = Annotated[
    str | None,
    _option("--batch-size", "n", RUN, "Examples averaged in one step; if poisson, expected (required)."),
]
Steps = Annotated[str | None, _option("--steps", "T", RUN, "Optimizer steps, not epochs (required).")]
Params = Annotated[str | None, _option("--params", "d", RUN, "Trainable parameters (required).")]
SamplingOption = Annotated[
    str | None,
    _option(
        "--sampling",
        "|".join(SAMPLINGS),
        RUN,
        "How batches are drawn: fixed size without replacement, anew each step (default); poisson, each example on its "
        "own; full, all examples every step.",
    ),
]
Rank = Annotated[
    str | None, _option("--rank", "r", RUN, "Effective rank of the gradient covariance, if known to be below --params.")
]
Clip = Annotated[str | None, _option("--clip", "C", NOISE, "Clipping bound on the norm of each example's gradient.")]
NoiseStd = Annotated[
    str | None, _option("--noise-std", "STD", NOISE, "Standard deviation of the noise on the batch MEAN (default 0).")
]
NoiseMultiplier = Annotated[
    str | None,
    _option(
        "--noise-multiplier",
        "S",
        NOISE,
        "The same noise as Opacus counts it: std of the noise on the batch SUM in units of --clip, S = STD n / C.",
    ),
]
Susceptibility = Annotated[
    str | None,
    _option(
        "--susceptibility",
        "K",
        ACCOUNTING,
        "Squared Mahalanobis norm of a record's gradient; default --params, a typical record.",
    ),
]
SusceptibilityFile = Annotated[
    str | None,
    _option(
        "--susceptibility-file",
        "FILE",
        ACCOUNTING,
        "Measured susceptibilities, text or CSV with one number a line, or .npy: the curve of a random one of them.",
    ),
]
BoundOption = Annotated[
    str | None,
    _option("--bound", "|".join(BOUNDS), ACCOUNTING, "One step: the tight bound (default), or the paper's."),
]
CompositionOption = Annotated[
    str | None,
    _option(
        "--composition",
        "|".join(COMPOSITIONS),
        ACCOUNTING,
        "Many steps: exact, on the safe side (default), or the paper's central limit theorem, which can be optimistic.",
    ),
]
NotionOption = Annotated[
    str | None,
    _option(
        "--notion",
        "|".join(NOTIONS),
        ACCOUNTING,
        "Membership-inference privacy (default), or differential privacy (replace-one; add-or-remove-one if poisson).",
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", help='Print one JSON object and nothing else; an infinite number is the string "Infinity".'),
]

_EXAMPLES: Final = {"--dataset-size": "48000", "--batch-size": "400", "--steps": "1200", "--params": "650"}


def needed(**given: str | None) -> dict[str, str]:
    """The same values, none of them missing; names as in Python, an underscore for the hyphen."""
    missing = [f"--{name.replace('_', '-')}" for name, value in given.items() if value is None]
    if missing:
        example = " ".join(f"{option} {_EXAMPLES[option]}" for option in missing)
        be, pronoun = ("is", "it") if len(missing) == 1 else ("are", "them")
        raise BadRequest(f"{listed(missing)} {be} missing: add {pronoun}, as in {example}.")
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
    sizes = needed(dataset_size=dataset_size, batch_size=batch_size, steps=steps, params=params)
    if noise_std is not None and noise_multiplier is not None:
        raise BadRequest("--noise-std and --noise-multiplier are two names for one thing: pass only one of them.")
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
        raise BadRequest("--susceptibility and --susceptibility-file exclude each other: pass only one of them.")
    if path is not None:
        return parse.number_file("--susceptibility-file", path)
    return None if value is None else np.array([parse.positive("--susceptibility", value)])
