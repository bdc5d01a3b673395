"""What a search found: the recipe, how good it is on records that played no part, and the price of other targets."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from gmip import _numbers
from gmip.tuning.privacy_target import PrivacyTarget
from gmip.tuning.recipe_search import Tried
from gmip.vocabulary import Kind, Rate, Recipe

__all__ = ["FrontierPoint", "Quality", "TuneResult"]


@dataclass(frozen=True)
class Quality:
    """The metric of several models: one for each seed."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def error(self) -> float:
        """Standard error of the mean; NaN for a single one."""
        return float(np.std(self.values, ddof=1) / math.sqrt(len(self.values))) if len(self.values) > 1 else math.nan


@dataclass(frozen=True)
class FrontierPoint:
    """A recipe, what it promises (as the target is measured), and the metric of its models on test records."""

    name: str
    recipe: Recipe
    exposure: float
    quality: Quality


@dataclass(frozen=True, kw_only=True, eq=False)
class TuneResult:
    """The best recipe that a search found.

    Attributes
    ----------
    task, task_spec : its name, and how `gmip.tasks.load` finds it.
    recipe : with the noise that keeps `target`.
    exposure : what it promises, measured as the target is.
    kind : "bound" or "forecast": what the accountant says of that promise; for_whom, caveat, adjacency : about whom it
        is, what it does not cover, and the neighbours of differential privacy. not_a_member : what that means here.
    own_sampling : of the recipe that the search began with.
    quality : of its models on the task's test records, which no choice depends on. Models are trained on
        `trained_on` outsiders, who may be fewer than the members will be.
    own : the task's own recipe with the noise that keeps the target, measured in the same way; None where none does.
    frontier : the best recipe with less and more noise, from strict to loose, the target and no noise among them.
    tried : every training of the search.
    leakage : a sentence on what the search gives away about members.
    """

    task: str
    task_spec: str
    target: PrivacyTarget
    metric: str
    recipe: Recipe
    num_params: int
    exposure: float
    kind: Kind
    for_whom: str
    caveat: str | None
    adjacency: str | None
    not_a_member: str | None
    own_sampling: str
    quality: Quality
    own: FrontierPoint | None
    frontier: tuple[FrontierPoint, ...]
    tried: tuple[Tried, ...]
    trainings: int
    seconds: float
    trained_on: int
    split_seed: int
    seed: int
    leakage: str

    def __repr__(self) -> str:
        return f"<TuneResult of {self.task}: {self.target.words}, {self.metric} {self.shown(self.quality.mean)}>"

    def shown(self, value: float) -> str:
        """A value of the metric for people: loss as loss, shares in percent."""
        if self.metric == "loss":
            return _numbers.number(-value, "nearest")
        share = self.metric.endswith("accuracy") and 0.0 <= value <= 1.0
        return _numbers.percent(value, "nearest") if share else _numbers.number(value, "nearest")

    def stricter(self) -> FrontierPoint | None:
        """The frontier's next point on the strict side of the target."""
        below = [
            point for point in self.frontier if point.exposure < 0.99 * self.target.value and point.recipe.noise_std
        ]
        return max(below, key=lambda point: point.exposure, default=None)

    def promise(self) -> list[str]:
        """What the promise is worth, in sentences: bound or forecast, for whom, and what it is about."""
        bound = self.kind == "bound"
        said = [f"The promise is a {'proved bound' if bound else 'forecast, not a bound'}, for {self.for_whom}."]
        if isinstance(self.target.susceptibility, tuple):
            said.append(
                "Susceptibilities were measured in other runs and change with clipping norm and weights: measure them "
                "again in the run to come."
            )
        if self.target.notion == "gmip" and self.target.attacker_knows < 1.0:
            said.append("A bound for any record needs more noise: ask for it with --attacker-knows 1.")
        if self.adjacency is not None:
            said.append(f"Neighbours: {self.adjacency}.")
        if self.not_a_member is not None:
            said.append(f"Not a member means: {self.not_a_member}.")
            if (self.own_sampling == "poisson") != (self.recipe.sampling == "poisson"):
                said.append(
                    f"That is another question than with the {self.own_sampling} batches of the task's own recipe, and "
                    f"the two numbers cannot be compared: --try sampling={self.own_sampling} keeps to them."
                )
        return said if self.caveat is None else [*said, self.caveat]

    def summary(self) -> dict[str, Any]:
        """Plain JSON (infinity and NaN as strings), without trials, and without `split_seed`: that says who is in."""
        plain: dict[str, Any] = _finite(
            {
                "format": "gmip-tune",
                "version": 1,
                "gmip": version("gmip"),
                "task": self.task,
                "target": _plain_target(self.target),
                "metric": self.metric,
                "recipe": dataclasses.asdict(self.recipe),
                "num_params": self.num_params,
                "noise_multiplier": self.recipe.noise_multiplier,
                "exposure": self.exposure,
                "kind": self.kind,
                "for_whom": self.for_whom,
                "caveat": self.caveat,
                "adjacency": self.adjacency,
                "not_a_member": self.not_a_member,
                "promise": self.promise(),
                "test": _quality(self.quality),
                "own": None if self.own is None else _point(self.own),
                "frontier": [_point(point) for point in self.frontier],
                "trials": len(self.tried),
                "trainings": self.trainings,
                "seconds": self.seconds,
                "trained_on": self.trained_on,
                "seed": self.seed,
                "leakage": self.leakage,
            }
        )
        return plain

    def recipe_yaml(self) -> str:
        """The file that `gmip train --recipe` takes."""
        goal = ", ".join(f"{name}: {_scalar(value)}" for name, value in _plain_target(self.target).items())
        lines = [
            f"# Found by gmip tune (gmip {version('gmip')}): {self.metric} {self.shown(self.quality.mean)} on test",
            f"# records, {self.target.words}. Train with: gmip train --recipe FILE --out runs/a",
            f"task: {_scalar(self.task_spec)}",
            f"# {self.leakage[:1].upper()}{self.leakage[1:]}",
            "# Who will be a member follows from the split_seed and the task's data: keep this file to yourself.",
            f"split_seed: {self.split_seed}",
            f"target: {{{goal}}}",
            "recipe:",
            *(f"  {name}: {_scalar(value)}" for name, value in dataclasses.asdict(self.recipe).items()),
        ]
        return "\n".join(lines) + "\n"


def _finite(value: Any) -> Any:
    """JSON has neither infinity nor NaN: strings that float() reads."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    return [_finite(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def _scalar(value: Any) -> str:
    """YAML, of which JSON is a part, but for floats such as 1e-05, which YAML 1.1 takes for text."""
    if isinstance(value, float):
        text = repr(value)
        return text.replace("e", ".0e", 1) if "e" in text and "." not in text else text
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(key)}: {_scalar(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_scalar(entry) for entry in value) + "]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return {None: "null", True: "true", False: "false"}.get(value, str(value))


def _plain_target(target: PrivacyTarget) -> dict[str, Any]:
    whose = {name: value for name, value in target.whose.items() if value not in (None, 0.0)}
    goal = {name: [value.tpr, value.fpr] if isinstance(value, Rate) else value for name, value in target.goal.items()}
    return goal | whose


def _quality(quality: Quality) -> dict[str, Any]:
    error = quality.error
    return {"mean": quality.mean, "error": None if math.isnan(error) else error, "values": list(quality.values)}


def _point(point: FrontierPoint) -> dict[str, Any]:
    return {
        "name": point.name,
        "exposure": point.exposure,
        "recipe": dataclasses.asdict(point.recipe),
        "test": _quality(point.quality),
    }
