"""What is to be audited: the settings of `gmip.audit`, of `gmip audit` and of audit.yaml."""

from __future__ import annotations

import dataclasses
import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from gmip._validate import did_you_mean, fields_at
from gmip.attacks import attack_table
from gmip.attacks.attack_table import Attacker
from gmip.attacks.work import as_seconds
from gmip.errors import GmipError, InvalidArgument
from gmip.parallel import BACKENDS, Workers
from gmip.vocabulary import GOOD_ENOUGH, Notion, PrivacyTarget, Rate, Recipe, as_claim

if TYPE_CHECKING:
    from gmip.auditing.judge import JudgeSettings

Positive = Annotated[float, Field(gt=0.0)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(gt=0.0, lt=1.0)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth(cls, given: Any, about: ValidationInfo) -> Any:
        """Python takes true for 1, and YAML takes yes for true."""
        several = given if isinstance(given, (list, tuple)) else (given,)
        wants_truth = cls.model_fields[str(about.field_name)].annotation is bool
        if not wants_truth and any(isinstance(one, bool) for one in several):
            raise ValueError("should not be true or false (quote it if it is text)")
        return given


class AttackConfig(_Strict):
    """An attack and its options, such as {name: glir, options: {method: paper}}; a name alone will do."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        return {"name": given} if isinstance(given, str) else given


def _known_backend(given: str) -> str:
    if given not in BACKENDS:
        raise ValueError(f"is not known{did_you_mean(given, BACKENDS)}: pass one of {', '.join(BACKENDS)}")
    return given


def _budget(given: Any) -> Any:
    """Seconds, or None for no limit."""
    if given is not None and not isinstance(given, (int, float, str)):
        return given
    try:
        seconds = as_seconds("budget", given)
    except InvalidArgument:
        raise ValueError("should be a length of time, such as 5min, 90s, 2h or none") from None
    return None if seconds == float("inf") else seconds


def _device(given: str) -> str:
    if re.fullmatch(r"(cpu|cuda|mps|xpu)(:\d+)?", given) is None:
        raise ValueError("is not a device: pass cpu, cuda (or cuda:1, ...) or mps")
    return given


class ShadowConfig(_Strict):
    """Shadow models, for the attacks that need them."""

    count: Count = 64
    seed: Seed = 0
    folder: str | None = None
    workers: Count | None = None
    backend: Annotated[str, AfterValidator(_known_backend)] = "local"
    scheduler_address: str | None = None

    def asked_workers(self) -> Workers | None:
        """Who computes what else can be shared; None where nobody named workers: starting them takes seconds."""
        if self.workers is None and self.backend == "local":
            return None
        return Workers(workers=self.workers, backend=self.backend, scheduler_address=self.scheduler_address)


def recipe_problem(changes: Mapping[str, Any], targeted: bool) -> str | None:
    """What is wrong with changes to a task's recipe, of a run that is trained to a privacy target or not."""
    names = {field.name for field in dataclasses.fields(Recipe)}
    unknown = next((key for key in changes if key not in names), None)
    if unknown is not None:
        return f"has an unknown setting {unknown!r} in its recipe{did_you_mean(unknown, names)}"
    if targeted and "noise_std" in changes:
        return "has a target and a noise_std: the target determines the noise, leave one out"
    return None


def _target(given: str) -> str:
    PrivacyTarget.parse("target", given)
    return given


class RunConfig(_Strict):
    """A run to audit: a recorded one (`path`), a released model (`model`, with files or ids of its members and of
    non-members), or one to train, with changes to the task's recipe and a target."""

    name: str | None = None
    path: str | None = None
    model: str | None = None
    members: str | tuple[Annotated[int, Field(ge=0)], ...] | None = None
    non_members: str | tuple[Annotated[int, Field(ge=0)], ...] | None = None
    recipe: dict[str, Any] = Field(default_factory=dict)
    target: Annotated[str | None, AfterValidator(_target)] = None
    notion: Notion = "gmip"

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        return {"path": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        targeted = self.target is not None
        if self.path is not None and (self.recipe or targeted):
            raise ValueError("has a path, so the run is trained already: leave out recipe and target")
        who = (self.members, self.non_members)
        if self.model is not None:
            if self.path is not None or self.recipe or targeted:
                raise ValueError("has a model, which is trained already: leave out path, recipe and target")
            if None in who:
                raise ValueError("has a model: say who was in with members and non_members, files or ids")
        elif who != (None, None):
            raise ValueError("has members or non_members, which are for a released model: add model, or leave them out")
        if self.notion != "gmip" and not targeted:
            raise ValueError("has a notion but no target: add one, or leave out notion")
        problem = recipe_problem(self.recipe, targeted)
        if problem is not None:
            raise ValueError(problem)
        return self

    def trained_to(self) -> PrivacyTarget | None:
        """What the run is trained to."""
        if self.target is None:
            return None
        return dataclasses.replace(PrivacyTarget.parse("target", self.target), notion=self.notion)


def _several(given: Any) -> Any:
    return [given] if isinstance(given, (str, Mapping)) else given


def _attacks(given: Any) -> Any:
    """Also text: glir,loss."""
    if isinstance(given, str):
        return [name.strip() for name in given.split(",") if name.strip()]
    return _several(given)


def _judged_by(given: Any) -> Rate:
    rate = Rate.of_target("target", given)
    PrivacyTarget(target_tpr=rate)  # one that can be reached
    return rate


class AttackSettings(_Strict):
    """How runs of a task are attacked."""

    attacks: Annotated[tuple[AttackConfig, ...], BeforeValidator(_attacks)] = Field(
        default=(),
        description=f"Attacks: {', '.join(attack_table.names())}; gmip attacks says what each needs. Default: glir, "
        "decode (which holds a list of candidates) and loss; for noisy runs also glir-no-noise and glir-no-clip; "
        "for recorded runs also differences; for runs of gmip train also seed; for predictions every attack that "
        "their columns allow.",
        examples=["{name: glir, options: {method: likelihood-ratio}}"],
    )
    attacker: Attacker = Field(
        default="gradients",
        description="What the attacker sees: every gradient (gradients, as in federated learning), the released "
        "model (weights), or only its predictions. Attackers who see less are always included.",
    )
    candidates: Count = Field(  # as in gmip.training.batch_log.CANDIDATES
        default=2000, description="The most members that are attacked, and the most non-members."
    )
    repeats: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=1,
        description="How often the recipe is trained, each time with another seed. Members of one run share its "
        "gradients, so their scores are not independent; from 5 repeats on the intervals take that into account.",
    )
    group_by: str | None = Field(
        default=None,
        description='Groups to compare: a name in the task\'s groups, "class", or a file with columns id (row of the '
        "pool) and group. null: the first of the task's groups, else its classes.",
    )
    shadows: ShadowConfig = Field(
        default=ShadowConfig(),
        description="Shadow models, for the attacks that need them. Backends: "
        f"{', '.join(BACKENDS)} (dask needs scheduler_address). Workers that are named here also compute the inner "
        "products of glir and decode.",
    )
    budget: Annotated[float | None, BeforeValidator(_budget)] = Field(
        default="10min",
        validate_default=True,
        description="Time for a run: the run check, attacks and judging, such as 5min, 90s or 2h; none: no limit. "
        "Attacks have half of it at least, leave out what does not fit (steps, background or dimensions of gradients; "
        "shadow models are fewer), and the report says so.",
    )
    device: Annotated[str, AfterValidator(_device)] = Field(
        default="cpu",
        description="Where to compute: cpu, cuda or mps. Where there is none, the CPU is used, with a warning.",
    )


class AuditConfig(AttackSettings):
    """All settings of an audit of runs of a task; `gmip init` writes them with their descriptions."""

    task: str = Field(
        default="digits",
        description="What is audited: a built-in task (digits, breast-cancer, cifar10, adult, purchase, location), or "
        "your own as path/to/file.py:make_task, a function that returns a gmip.Task (see docs/tasks.md).",
    )
    runs: Annotated[tuple[RunConfig, ...], BeforeValidator(_several), Field(min_length=1)] = Field(
        default=(RunConfig(),),
        description="The runs, compared in one report: a recorded one by its folder (of gmip train or gmip.record), a "
        "released model and who was in (files with rows of the task's pool, or with records), or one to train, by the "
        "task's recipe, with changes and a privacy target where you want them.",
        examples=[
            "{name: as deployed, path: runs/a}",
            "{model: weights.safetensors, members: members.csv, non_members: others.csv}",
            "{name: no noise}",
            "{name: GMIP, target: tpr=0.05@0.01}",
            "{name: GDP, target: tpr=0.05@0.01, notion: gdp}",
            "{name: larger batches, recipe: {batch_size: 200, learning_rate: 1.0}}",
        ],
    )
    seed: Seed | None = Field(
        default=None,
        description="Seed of the audit (training, candidates, resampling). Default: a random one, which is kept in "
        "the folder.",
    )
    out: str = Field(default="audit", description="Folder for the report and for unfinished work.")
    confidence: Annotated[float, Field(ge=0.5, lt=1.0)] = Field(
        default=0.95, description="Confidence of intervals, bounds and verdict."
    )
    delta: Share = Field(default=1.0e-5, description="The delta of lower bounds on epsilon.")
    fprs: Annotated[tuple[Share, ...], Field(min_length=1)] = Field(
        default=(0.001, 0.01, 0.1), description="False-alarm rates at which the members found are reported."
    )
    claim: Annotated[float | tuple[float, float] | None, BeforeValidator(as_claim)] = Field(
        default=None,
        description="The claim to test: mu=0.5, or differential privacy as epsilon=3@1e-5 (without @: at delta 0), "
        "which is also tested against attackers with a list. Default: what gmip account says about the run.",
    )
    target: Annotated[Rate, BeforeValidator(_judged_by)] = Field(
        default=f"tpr={GOOD_ENOUGH}",
        validate_default=True,
        description="What is good enough: tpr=0.05@0.01, at most 5% of the members found at 1% false alarms. The "
        "verdict and the advice refer to it.",
    )
    gate: bool = Field(
        default=False,
        description="Exit with code 1 if the run fails the target or probably fails it, or if finding nothing is no "
        "evidence.",
    )
    try_advice: bool = Field(
        default=False,
        description="Train each way to the target a few times, on non-members, to measure its "
        "accuracy. It takes up to a quarter of the budget, on top of it.",
    )
    title: str | None = Field(default=None, description="Title of the report. null: made from the task's name.")

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        twice = _repeated([attack.name for attack in self.attacks]) or _repeated([run.name for run in self.runs])
        if twice:
            raise ValueError(f"names {twice!r} twice: name each attack and each run once")
        return self

    def judge_settings(self, seed: int) -> JudgeSettings:
        """The settings of the judge, with the seed that was given or drawn."""
        from gmip.auditing.judge import JudgeSettings

        shared = ("claim", "confidence", "delta", "fprs", "target", "gate")
        return JudgeSettings(seed=seed, **{name: getattr(self, name) for name in shared})


def make_config(given: Mapping[str, Any], source: str | None = None) -> AuditConfig:
    """Settings from plain values; `source` is the file they are from. A mistake is one sentence that names the setting,
    and the nearest valid one."""
    try:
        return AuditConfig.model_validate(dict(given))
    except ValidationError as error:
        raise refusal(error, source) from None


def refusal(error: ValidationError, source: str | None = None) -> InvalidArgument:
    """One sentence about the first thing that is wrong."""
    first = error.errors()[0]
    places = [str(place) for place in first["loc"]]
    where = f"in {source} " if source else ""
    own = first.get("ctx", {}).get("error")
    if isinstance(own, GmipError):
        value = {} if own.shown is None else {"value": own.value}
        return InvalidArgument(f"{where}{own.problem}", argument=".".join(places), remedy=own.remedy, **value)
    if first["type"] == "extra_forbidden":
        known = fields_at(AuditConfig, first["loc"][:-1])
        return InvalidArgument(
            f"{where}is not a setting{did_you_mean(places[-1], known)}",
            argument=".".join(places),
            remedy=f"the settings are {', '.join(known)}",
        )
    said = _PLAIN.get(first["type"], first["msg"])
    message = said.removeprefix("Value error, ").removeprefix("Input ").rstrip(".") or "is not valid"
    return InvalidArgument(f"{where}{message[0].lower()}{message[1:]}", argument=".".join(places) or "the audit")


# What pydantic says in Python's terms.
_PLAIN: Final = {
    "tuple_type": "should be a list",
    "model_type": "should be settings, such as {name: value}",
    "dict_type": "should be settings, such as {name: value}",
    "string_type": "should be text",
    "int_type": "should be a whole number",
    "int_parsing": "should be a whole number",
    "int_from_float": "should be a whole number",
    "float_type": "should be a number",
    "float_parsing": "should be a number",
    "too_short": "should not be empty",
    "bool_type": "should be true or false",
    "bool_parsing": "should be true or false",
}


def _repeated(names: Sequence[str | None]) -> str | None:
    given = [name for name in names if name is not None]
    return next((name for name in given if given.count(name) > 1), None)


def template() -> str:
    """All settings with their descriptions and defaults, as `gmip init` writes them."""
    fields = AuditConfig.model_fields
    lines = [
        "# Settings of a membership audit: gmip audit audit.yaml",
        "# Every line shows its default; remove or change what you like. Unknown settings are refused.",
    ]
    for name in ("task", "runs", *(name for name in fields if name not in ("task", "runs"))):
        said = textwrap.wrap(fields[name].description or "", 118, break_on_hyphens=False, break_long_words=False)
        lines += ["", *(f"# {line}" for line in said), *(f"#   - {one}" for one in fields[name].examples or ())]
        default = fields[name].default
        if isinstance(default, ShadowConfig):
            lines += ["shadows:", *(f"  {key}: {_in_yaml(value)}" for key, value in default)]
        else:
            lines.append(f"{name}: {'[{}]' if name == 'runs' else _in_yaml(default)}")
    return "\n".join([*lines, ""])


def _in_yaml(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
