"""Settings that several commands share: the run, whose privacy it is, the target, workers, and how an answer is
printed. Each makes the type that the library takes."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Final, Self

from pydantic import Field, InstanceOf, model_validator

import gmip
from gmip._validate import listed
from gmip.cli import parse
from gmip.cli.errors import BadRequest, option_name
from gmip.cli.options import (
    Count,
    NonNegative,
    Option,
    Positive,
    Probability,
    Settings,
)
from gmip.vocabulary import ANY, NOTIONS, SAMPLINGS, NoisySGD, Notion, PrivacyTarget, Sampling

RUN, NOISE, TARGET, ACCOUNTING = "The run", "Noise", "Privacy target", "Accounting"
WORKERS: Final = "Where it runs"
YAML: Final = (".yaml", ".yml")  # files of settings


class OutputSettings(Settings):
    """How an answer is printed."""

    as_json: Annotated[
        bool,
        Option(),
        Field(description='Print one JSON object and nothing else. Infinity is the string "Infinity".'),
    ] = False


class AnswerSettings(OutputSettings):
    """An answer of the accountant."""

    explain: Annotated[bool, Option(), Field(description="Also print what the answer assumes.")] = False


# -- the run -----------------------------------------------------------------------------------------------------------


class _Sizes(Settings):
    """Sizes, sampling and clipping."""

    dataset_size: Annotated[Count | None, Option("N", RUN), Field(description="Training examples (required).")] = None
    batch_size: Annotated[
        Count | None,
        Option("n", RUN),
        Field(description="Examples averaged in one step; with poisson, on average (required)."),
    ] = None
    num_steps: Annotated[
        Count | None, Option("T", RUN), Field(description="Optimizer steps (this or --epochs is required).")
    ] = None
    epochs: Annotated[
        Positive | None,
        Option("E", RUN),
        Field(description="Passes over the data instead of --steps: N/n steps each, rounded up."),
    ] = None
    num_params: Annotated[
        Count | None, Option("d", RUN), Field(description="Trainable parameters (required, but with --notion gdp).")
    ] = None
    sampling: Annotated[
        Sampling,
        Option("|".join(SAMPLINGS), RUN),
        Field(
            description="How batches are drawn. fixed: a new random batch of n examples each step. poisson: each "
            "example on its own, with probability n/N. full: all examples in every step. shuffled: each example once "
            "in every epoch, in random order. balls-in-bins: each example once in every epoch, in a batch drawn for "
            "each example on its own."
        ),
    ] = "fixed"
    rows_per_person: Annotated[
        Count,
        Option("K", RUN),
        Field(
            description="Protect persons with up to K examples each instead of single examples. N and n still count "
            "examples. Not for shuffled epochs and balls-in-bins."
        ),
    ] = 1
    clip_norm: Annotated[
        Positive | None,
        Option("C", NOISE),
        Field(description="Clipping norm: the largest norm of one example's gradient."),
    ] = None


class NoiseSettings(Settings):
    """Noise, in the convention of Opacus."""

    noise_multiplier: Annotated[
        NonNegative | None,
        Option("S", NOISE),
        Field(
            description="Standard deviation of the noise on the SUM of a batch, in units of --clip, as in Opacus "
            "(default 0). gmip convert computes it from the std on the batch MEAN."
        ),
    ] = None


class RunSettings(NoiseSettings, _Sizes):
    """A run; a schedule of several phases is for Python."""

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        once(self, "num_steps", "epochs", "number")
        return self

    @property
    def _noise_alone(self) -> bool:
        """Whether the noise alone counts, whatever the number of parameters."""
        return getattr(self, "notion", None) == "gdp"

    def run(self) -> NoisySGD:
        """What will run; with one parameter, where their number is not given and does not count."""
        needed = ("dataset_size", "batch_size", "num_steps", "num_params")
        said = {"num_steps": self.epochs is not None, "num_params": self._noise_alone}
        lacking = [name for name in needed if getattr(self, name) is None and not said.get(name, False)]
        if lacking:
            example = " ".join(f"{option_name(name)} {_EXAMPLES[name]}" for name in lacking)
            be, pronoun = ("is", "it") if len(lacking) == 1 else ("are", "them")
            raise BadRequest(
                f"{listed([option_name(name) for name in lacking])} {be} missing",
                remedy=f"add {pronoun}, as in {example}",
            )
        known = {field.name for field in dataclasses.fields(NoisySGD)}
        given = {name: value for name, value in self if name in known and value is not None}
        run = NoisySGD(**{"num_steps": 1, "num_params": 1, **given})
        if self.epochs is not None:
            run = run.with_epochs(self.epochs)
        return run if not self.noise_multiplier else run.with_noise_multiplier(self.noise_multiplier)


_EXAMPLES: Final = {"dataset_size": 48000, "batch_size": 400, "num_steps": 1200, "num_params": 650}


def once(given: Settings, one: str, other: str, what: str) -> None:
    """Refuses two names of the same number."""
    if getattr(given, one) is not None and getattr(given, other) is not None:
        raise BadRequest(
            f"{option_name(one)} and {option_name(other)} set the same {what}", remedy="pass only one of them"
        )


def slow_because(run: NoisySGD, record: Any) -> str:
    """Why an answer takes its time, to be said if it does."""
    what = [
        "epochs" if run.in_epochs else "",
        "the worst spread of a random record" if isinstance(record, str) else "",
    ]
    named = " and ".join(one for one in what if one)
    return f"Still computing: {named} can take minutes" if named else "Still computing"


# -- the privacy target ------------------------------------------------------------------------------------------------


def _susceptibility(option: str, text: str) -> float | str:
    if text in ANY:
        return text
    return parse.positive(option, text, f"{', '.join(ANY)} or a finite number above 0")


class NotionSettings(Settings):
    """Which privacy it is."""

    notion: Annotated[
        Notion,
        Option("|".join(NOTIONS), ACCOUNTING),
        Field(
            description="gmip: membership-inference privacy. gdp: differential privacy, for any record and an attacker "
            "who knows all other members (neighbours replace one record; with poisson, add or remove one; with "
            "shuffled, zero out one)."
        ),
    ] = "gmip"


class WhoseSettings(NotionSettings):
    """Whose privacy it is."""

    susceptibility: Annotated[
        float | str | None,
        Option("any|any-constant|K", ACCOUNTING, _susceptibility),
        Field(
            description="Which records: K, those whose gradients have a squared Mahalanobis norm of at most K "
            "(default: --params, a typical record). any: a random record, whatever the records are like. any-constant: "
            "the same, if K does not change from step to step."
        ),
    ] = None
    attacker_knows: Annotated[
        Probability,
        Option("SHARE", ACCOUNTING),
        Field(
            description="Share of the other members whose records the attacker holds, from 0 (default) to 1; at 1 only "
            "noise protects. The attacker does not know who is in which batch."
        ),
    ] = 0.0


class AskedRun(WhoseSettings, RunSettings):
    """A run, and whose privacy it is."""


def as_understood(run: NoisySGD, asked: AskedRun) -> dict[str, Any]:
    """All that is known of a run, as JSON."""
    known = dataclasses.asdict(run) | ({"num_params": None} if asked.num_params is None else {})
    return known | {
        "noise_multiplier": run.noise_multiplier,
        "sample_rate": run.sample_rate,
        "steps_per_epoch": run.steps_per_epoch,
        "epochs": run.epochs,
    }


def asked_as_json(run: NoisySGD, asked: AskedRun) -> dict[str, Any]:
    """What an answer of the accountant is about, as JSON."""
    record = asked.susceptibility
    return {
        "gmip": gmip.__version__,
        "run": as_understood(run, asked),
        "notion": asked.notion,
        "susceptibility": record if record is None or isinstance(record, str) else [record],
        "attacker_knows": asked.attacker_knows,
        "rows_per_person": run.rows_per_person,
        "bound": "tight",
        "composition": "exact",
    }


class TargetSettings(NotionSettings):
    """What a run has to keep."""

    target: Annotated[
        InstanceOf[PrivacyTarget] | None,
        Option("MEASURE=VALUE", TARGET, PrivacyTarget.parse, once=True),
        Field(
            description="What the run must keep. tpr=0.05@0.01: an attacker finds at most 5% of the members at 1% "
            "false alarms. mu=0.5: mu of the run, over FPRs from 1e-5 to 1 - 1e-5. advantage=0.1: TPR - FPR. "
            "epsilon=3@1e-5: epsilon of membership at that delta; with --notion gdp, of differential privacy."
        ),
    ] = None

    def wanted(self, **whose: Any) -> PrivacyTarget:
        """The target with its notion and `whose` privacy it is about."""
        if self.target is None:
            raise BadRequest("No privacy target was given", remedy="add one, as in --target tpr=0.05@0.01")
        return dataclasses.replace(self.target, notion=self.notion, **whose)


# -- where it runs -----------------------------------------------------------------------------------------------------


def _workplace(option: str, text: str) -> dict[str, Any]:
    """Keywords of `gmip.parallel.Workers` from 4, dask://host:8786, ray://host:10001 or ray://auto."""
    backend, on, address = text.partition("://")
    if not on:
        return {"workers": parse.count(option, text)}
    if backend not in ("dask", "ray") or not address:
        raise BadRequest(
            f"must be a number of processes, dask://HOST:PORT, ray://HOST:PORT or ray://auto, not {text!r}",
            argument=option,
            remedy="pass one such as 4 or dask://10.0.0.1:8786",
        )
    if text == "ray://auto":
        return {"backend": "ray"}
    return {"backend": backend, "scheduler_address": text if backend == "ray" else f"tcp://{address}"}


class WorkerSettings(Settings):
    """Where parallel work runs."""

    workers: Annotated[
        dict[str, Any],
        Option("W", WORKERS, _workplace),
        Field(
            description="Processes at once, such as shadow models in training (default: one for each core), or a "
            "cluster: dask://10.0.0.1:8786, ray://auto (the one that runs here, or a new one).",
            default_factory=dict,
        ),
    ]
