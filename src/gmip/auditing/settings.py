"""What is to be audited: the settings of `gmip.audit`, of `gmip audit` and of audit.yaml."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Self

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

from gmip._validate import did_you_mean
from gmip.attacks import attack_table
from gmip.attacks.attack_table import Attacker
from gmip.attacks.work import as_seconds
from gmip.auditing.curves import given_curve
from gmip.auditing.judge import GOOD_ENOUGH, JudgeSettings
from gmip.errors import InvalidArgument
from gmip.parallel import BACKENDS
from gmip.vocabulary import EpsilonAtDelta, Notion, PrivacyTarget, Rate, Recipe

__all__ = [
    "TEMPLATE",
    "AttackConfig",
    "AttackSettings",
    "AuditConfig",
    "RunConfig",
    "ShadowConfig",
    "make_config",
    "recipe_problem",
]

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


def _rate(given: Any) -> Rate:
    try:
        return Rate.parse("rate", given)
    except InvalidArgument as error:
        raise ValueError(f"{error.problem}: {error.remedy}") from None


RateSetting = Annotated[Rate, BeforeValidator(_rate)]  # written 0.05@0.01


def _epsilon(given: Any) -> EpsilonAtDelta:
    try:
        return EpsilonAtDelta.parse("epsilon", given)
    except InvalidArgument as error:
        raise ValueError(f"{error.problem}: {error.remedy}") from None


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


def recipe_problem(changes: Mapping[str, Any], targeted: bool) -> str | None:
    """What is wrong with changes to a task's recipe, of a run that is trained to a privacy target or not."""
    names = {field.name for field in dataclasses.fields(Recipe)}
    unknown = next((key for key in changes if key not in names), None)
    if unknown is not None:
        return f"has an unknown setting {unknown!r} in its recipe{did_you_mean(unknown, names)}"
    if targeted and "noise_std" in changes:
        return "has a target and a noise_std: the target determines the noise, leave one out"
    return None


class RunConfig(_Strict):
    """A run to audit: a recorded one (`path`), a released model (`model`, with files or ids of its members and of
    non-members), or one to train, with changes to the task's recipe and a target."""

    name: str | None = None
    path: str | None = None
    model: str | None = None
    members: str | tuple[Annotated[int, Field(ge=0)], ...] | None = None
    non_members: str | tuple[Annotated[int, Field(ge=0)], ...] | None = None
    recipe: dict[str, Any] = Field(default_factory=dict)
    target_mu: Positive | None = None
    target_tpr: RateSetting | None = None
    target_advantage: Share | None = None
    notion: Notion = "gmip"

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        return {"path": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        targets = [self.target_mu, self.target_tpr, self.target_advantage]
        given = sum(target is not None for target in targets)
        if self.path is not None and (self.recipe or given):
            raise ValueError("has a path, so the run is trained already: leave out recipe and targets")
        who = (self.members, self.non_members)
        if self.model is not None:
            if self.path is not None or self.recipe or given:
                raise ValueError("has a model, which is trained already: leave out path, recipe and targets")
            if None in who:
                raise ValueError("has a model: say who was in with members and non_members, files or ids")
        elif who != (None, None):
            raise ValueError("has members or non_members, which are for a released model: add model, or leave them out")
        if given > 1:
            raise ValueError("has more than one target: give one of target_mu, target_tpr, target_advantage")
        if self.notion != "gmip" and not given:
            raise ValueError("has a notion but no target: add one, or leave out notion")
        problem = recipe_problem(self.recipe, bool(given))
        if problem is not None:
            raise ValueError(problem)
        return self

    def target(self) -> PrivacyTarget | None:
        """What the run is trained to."""
        if (self.target_mu, self.target_tpr, self.target_advantage) == (None, None, None):
            return None
        return PrivacyTarget(
            target_mu=self.target_mu,
            target_tpr=self.target_tpr,
            target_advantage=self.target_advantage,
            notion=self.notion,
        )


def _several(given: Any) -> Any:
    return [given] if isinstance(given, (str, Mapping)) else given


class AttackSettings(_Strict):
    """How runs of a task are attacked."""

    attacks: Annotated[tuple[AttackConfig, ...], BeforeValidator(_several)] = ()
    attacker: Attacker = "gradients"
    candidates: Count = 2000  # as in gmip.training.batch_log.CANDIDATES
    repeats: Annotated[int, Field(ge=1, le=1000)] = 1
    group_by: str | None = None
    shadows: ShadowConfig = ShadowConfig()
    budget: Annotated[float | None, BeforeValidator(_budget)] = 600.0
    device: Annotated[str, AfterValidator(_device)] = "cpu"


class AuditConfig(AttackSettings):
    """All settings of an audit of runs of a task; `gmip init` writes them with explanations."""

    task: str = "digits"
    runs: Annotated[tuple[RunConfig, ...], BeforeValidator(_several), Field(min_length=1)] = (RunConfig(),)
    seed: Seed | None = None
    out: str = "audit"
    confidence: Annotated[float, Field(ge=0.5, lt=1.0)] = 0.95
    delta: Share = 1.0e-5
    fprs: Annotated[tuple[Share, ...], Field(min_length=1)] = (0.001, 0.01, 0.1)
    claim_mu: Positive | None = None
    claim_epsilon: Annotated[EpsilonAtDelta, BeforeValidator(_epsilon)] | None = None
    limit: RateSetting = GOOD_ENOUGH
    fail_above_tpr: RateSetting | None = None
    try_advice: bool = False
    title: str | None = None

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        twice = _repeated([attack.name for attack in self.attacks]) or _repeated([run.name for run in self.runs])
        if twice:
            raise ValueError(f"names {twice!r} twice: name each attack and each run once")
        if self.claim_mu is not None and self.claim_epsilon is not None:
            raise ValueError("has claim_mu and claim_epsilon: give one of them")
        return self

    def judge_settings(self, seed: int) -> JudgeSettings:
        """By what the audit judges, with the seed that was given or drawn."""
        return JudgeSettings(
            claim=given_curve(self.claim_mu if self.claim_epsilon is None else self.claim_epsilon),
            confidence=self.confidence,
            delta=self.delta,
            fprs=self.fprs,
            limit=self.limit,
            fail_above_tpr=self.fail_above_tpr,
            seed=seed,
        )


def make_config(given: Mapping[str, Any], source: str | None = None) -> AuditConfig:
    """Settings from plain values; `source` is the file they are from. A mistake is one sentence that names the setting,
    and the nearest valid one."""
    try:
        return AuditConfig.model_validate(dict(given))
    except ValidationError as error:
        raise _refusal(error, source) from None


def _refusal(error: ValidationError, source: str | None) -> InvalidArgument:
    first = error.errors()[0]
    places = [str(place) for place in first["loc"]]
    where = f"in {source} " if source else ""
    if first["type"] == "extra_forbidden":
        known = _fields(places[:-1])
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


def _fields(places: Sequence[str]) -> list[str]:
    """Names of the settings at a place, such as ["shadows"] or ["runs", "0"]."""
    rooms: dict[str, type[BaseModel]] = {
        "runs": RunConfig,
        "attacks": AttackConfig,
        "shadows": ShadowConfig,
    }
    named = [place for place in places if place in rooms]
    return list((rooms[named[-1]] if named else AuditConfig).model_fields)


def _repeated(names: Sequence[str | None]) -> str | None:
    given = [name for name in names if name is not None]
    return next((name for name in given if given.count(name) > 1), None)


# What `gmip init` writes; a test reads it back and compares with the defaults.
TEMPLATE: Final = f"""\
# Settings of a membership audit: gmip audit audit.yaml
# Every line shows its default; remove or change what you like. Unknown settings are refused.

# What is audited: a built-in task, or your own as path/to/file.py:make_task, a function that returns a gmip.Task
# (see docs/tasks.md). Built-in tasks: digits, breast-cancer, cifar10, adult, purchase, location.
task: digits

# The runs, compared in one report. A recorded one by its folder (from gmip train or gmip.record):
#   - {{name: as deployed, path: runs/a}}
# a released model of which nothing was recorded, and who was in (files with rows of the task's pool, or with records):
#   - {{model: weights.safetensors, members: members.csv, non_members: others.csv}}
# or one to train for the audit: the task's recipe, with changes and a privacy target where you want them:
#   - {{name: no noise}}
#   - {{name: GMIP, target_mu: 2.0}}
#   - {{name: GDP, target_mu: 2.0, notion: gdp}}
#   - {{name: larger batches, recipe: {{batch_size: 200, learning_rate: 1.0}}}}
runs:
  - {{}}

# Attacks: {", ".join(attack_table.names())} (gmip attacks says what each needs). With options:
#   - {{name: glir, options: {{method: likelihood-ratio}}}}
# Empty: glir, decode (which holds the candidates as a list) and loss; on noisy runs also glir-no-noise and
# glir-no-clip, which find noise and clipping that do not do what they should, and on recorded ones differences, which
# finds noise that repeats; on recorded runs of gmip train also seed.
attacks: []

# The most members that are attacked, and the most non-members.
candidates: 2000

# How often the recipe is trained, each time with another seed. Members of one run share its gradients, so their scores
# are not independent; from 5 repeats on the intervals take that into account.
repeats: 1

# Seed of the audit: of runs that it trains, of candidates and resampling. null: a random one, which is kept in
# the folder.
seed: null

# Where report.html, report.md, summary.html, result.json and the work in progress go.
out: audit

# Confidence of intervals, bounds and verdict.
confidence: 0.95

# For lower bounds on epsilon.
delta: 1.0e-5

# False-positive rates at which the members found are reported.
fprs: [0.001, 0.01, 0.1]

# The claim to test, as mu-GMIP, or as differential privacy, such as 3@1e-5. null: what the accountant says about the
# run. Differential privacy is about attackers with a list of members, too, and judged by what they find.
claim_mu: null
claim_epsilon: null

# Who is exposed: a name in the task's groups, "class", or a file with columns id (row of the pool) and group. null: the
# first of the task's groups, else its classes.
group_by: null

# What is good enough: at most this TPR at this FPR. The report says whether it is kept, and the advice aims at it.
limit: 0.05@0.01

# Who is out there: gradients (sees every gradient, as in federated learning), weights (sees the released model), or
# predictions (can only ask it). Who sees less is answered for, too.
attacker: gradients

# Whether the ways to the target (more noise, larger batches, fewer steps, ...) are trained a few times to measure their
# accuracy, on records that are not members. It takes up to a quarter of the budget below, on top of it.
try_advice: false

# A gate for pipelines: exit code 1 if the lower bound of the TPR at that FPR exceeds it, such as 0.05@0.01.
fail_above_tpr: null

# Shadow models, for the attacks that need them. Backends: {", ".join(BACKENDS)} (dask needs scheduler_address).
shadows:
  count: 64
  seed: 0
  folder: null
  workers: null
  backend: local
  scheduler_address: null

# Time for the attacks on a run, such as 5min, 90s or 2h; null: no limit. Attacks on gradients leave out what does not
# fit (steps first, then background, then dimensions of gradients); the report says what. Shadow models take their time.
budget: 10min

# Where runs are trained and gradients computed: cpu, cuda or mps. Where there is none, the CPU is used, with a warning.
device: cpu

# The title of the report. null: made from the task's name.
title: null
"""
