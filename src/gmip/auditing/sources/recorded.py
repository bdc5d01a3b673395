"""Runs of a task that were recorded, and runs that are trained to be audited."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gmip._io import sha256
from gmip.accounting.calibrate import with_least_noise
from gmip.attacks.attack import Attack
from gmip.attacks.work import WorkPlan
from gmip.auditing.attack_runs import (
    AuditedRun,
    Workplace,
    attack_background,
    attack_seconds,
    choose_candidates,
    lacking_steps,
    opened_runs,
)
from gmip.auditing.settings import AuditConfig, recipe_problem
from gmip.auditing.sources import TaskSource
from gmip.errors import GmipWarning, InvalidArgument, UnsupportedModel
from gmip.tasks import Task
from gmip.trace import ModelOptions, Trace
from gmip.training import count_params, initial_model, recipe_of, train
from gmip.training.models import usable_device
from gmip.vocabulary import PrivacyTarget, Recipe


@dataclass(frozen=True, eq=False)
class Recorded(TaskSource):
    """A run that `gmip train` or `gmip.record` left in a folder.

    Parameters
    ----------
    path : its folder.
    task : the task, its name, or path/to/file.py:make_task.
    name : what reports call it; None: the folder's name.

    Guarantees
    ----------
    They are those of `gmip.audit`. What the accountant says about the recorded steps is tested unless there is a claim,
    and the record is checked against the declared run first: where it does not match, nothing is guaranteed.
    """

    path: str | os.PathLike[str]
    task: str | Task
    name: str | None = None

    def called(self) -> str:
        """The name, or that of the folder."""
        return self.name or Path(self.path).resolve().name

    def plain(self) -> dict[str, Any]:
        """The run as audit.yaml writes it."""
        return {"path": os.fspath(self.path), "name": self.name}

    def opened(self, task: Task, name: str, number: int, work: Workplace) -> AuditedRun:
        """The recorded run, and as many repetitions of it as the settings ask for, trained by its recipe."""
        first = _checked(task, self.path)
        traces = [first]
        if work.settings.repeats > 1:
            recipe, options = recipe_of(task, first), first.header.provenance.options
            traces += _repetitions(task, recipe, options, name, number, 1, work)
        return AuditedRun(
            name=name,
            task=task,
            source="recorded",
            targets=tuple(traces),
            path=str(first.path),
            task_source=self.task_name,
        )


@dataclass(frozen=True, eq=False)
class ToTrain(TaskSource):
    """A run that is trained for the audit: the task's recipe, with changes and a privacy target where there are any.

    Parameters
    ----------
    task : the task, its name, or path/to/file.py:make_task.
    recipe : settings of `gmip.Recipe` that differ from those of the task's recipe.
    target : what the run is trained to, with the least noise; None: with the recipe's noise.
    name : what reports call it; None: its target, or "run".

    Guarantees
    ----------
    They are those of `gmip.Recorded`.
    """

    task: str | Task
    _: KW_ONLY
    recipe: Mapping[str, Any] = field(default_factory=dict)
    target: PrivacyTarget | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        problem = recipe_problem(self.recipe, self.target is not None)
        if problem is not None:
            raise InvalidArgument(f"A run to train {problem}")

    def called(self) -> str:
        """The name, or the target."""
        if self.name or self.target is None:
            return self.name or "run"
        return f"{self.target.notion.upper()} {self.target.measure} {self.target.rate or self.target.value}"

    def plain(self) -> dict[str, Any]:
        """The run as audit.yaml writes it."""
        target = {} if self.target is None else dataclasses.asdict(self.target)
        plain = {name: value for name, value in target.items() if value is not None}
        return {"recipe": dict(self.recipe), **plain, "name": self.name}

    def opened(self, task: Task, name: str, number: int, work: Workplace) -> AuditedRun:
        """The run and its repetitions, trained."""
        try:
            recipe = task.recipe.replace(**self.recipe)
        except TypeError as error:
            raise InvalidArgument(
                f"of run {self.name or task.name!r} cannot be used ({error})", argument="recipe"
            ) from error
        if self.target is not None:
            recipe = with_least_noise(recipe, count_params(initial_model(task, 0)), self.target)
        options = ModelOptions(device=work.settings.device)
        return AuditedRun(
            name=name,
            task=task,
            source="trained",
            targets=tuple(_repetitions(task, recipe, options, name, number, 0, work)),
            task_source=self.task_name,
        )


def _checked(task: Task, path: str | os.PathLike[str]) -> Trace:
    trace = Trace.open(path)
    trace.check_data(task.fingerprints)
    if not trace.num_steps:
        raise InvalidArgument(f"{trace.path} has no steps, so there is nothing to audit", remedy="train at least one")
    if trace.members is None or trace.non_members is None or not len(trace.members) or not len(trace.non_members):
        raise InvalidArgument(
            f"{path} does not name both members and non-members, which an audit needs",
            remedy="pass `members` and `non_members` to gmip.record",
        )
    return trace


def _repetitions(
    task: Task, recipe: Recipe, options: ModelOptions, name: str, number: int, first: int, work: Workplace
) -> list[Trace]:
    """Repetitions of a run from number `first` on, trained, or what is left to train of them."""
    repeats, traces = work.settings.repeats, []
    how = dataclasses.asdict(options)
    for repeat in range(first, repeats):
        progress = work.watch(f"training {name}" if repeats == 1 else f"training {name}, {repeat + 1} of {repeats}")
        seed = repeat_seed(work.seed, number, repeat)
        # The folder's name has all in it that the run depends on.
        facts = json.dumps([task.name, task.fingerprints, dataclasses.asdict(recipe), how, seed], sort_keys=True)
        folder = work.folder / "runs" / f"{_slug(name)}-{sha256(facts)[:12]}"
        train(task, recipe, seed=seed, out=folder, resume=True, progress=progress, **how)
        progress(recipe.num_steps, recipe.num_steps)
        traces.append(Trace.open(folder))
    return traces


def repeat_seed(seed: int, number: int, repeat: int) -> int:
    """The seed of the training of that number, in a repetition of it."""
    state = np.random.SeedSequence([seed, number, repeat]).generate_state(1, np.uint64)[0]
    return int(state >> np.uint64(1))


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "run"


# -- what an audit of recorded runs is going to do ---------------------------------------------------------------------


@dataclass(frozen=True)
class PlannedAttack:
    """An attack on a run, and what it is going to do.

    work : None where the attack does not say, or cannot run: `error` says why.
    """

    run: str
    attack: str
    work: WorkPlan | None = None
    error: str | None = None

    def as_json(self, workers: int | None) -> dict[str, Any]:
        """Fields for programs; without the sums where nobody knows how many workers there are."""
        found: dict[str, Any] = {"run": self.run, "attack": self.attack, "error": self.error, "work": None}
        if self.work is not None:
            found["work"] = dataclasses.asdict(self.work)
            if workers is not None:
                sums = {"seconds": self.work.seconds(workers), "bytes_moved": self.work.bytes_moved(workers)}
                found["work"] |= sums
        return found


def plan_audit(config: AuditConfig, sources: Sequence[TaskSource], task: Task | None = None) -> list[PlannedAttack]:
    """What the attacks of an audit of recorded runs are going to do, without what an earlier attempt has finished.

    A piece of each is measured; nothing is trained, attacked or written.
    """
    if config.repeats > 1 or not all(isinstance(one, Recorded) for one in sources):
        raise InvalidArgument(
            "A plan is made for recorded runs, and this audit would train or read others first",
            remedy="pass recorded runs, and `repeats` = 1",
        )
    settings = config.model_copy(update={"device": usable_device(config.device)})
    work = Workplace(settings=settings, folder=Path(config.out), seed=config.seed or 0)
    runs, attacks = opened_runs(sources, work)
    found = []
    for run in runs:
        ids = choose_candidates(run.target, settings.candidates, work.seed)
        share = None if settings.budget is None else attack_seconds(settings.budget) / len(attacks)
        for attack in attacks:
            try:
                found.append(PlannedAttack(run.name, attack.name, _planned(run, attack, ids, share)))
            except (InvalidArgument, UnsupportedModel) as error:
                found.append(PlannedAttack(run.name, attack.name, error=str(error)))
    return found


def _planned(run: AuditedRun, attack: Attack, ids: NDArray[np.int64], seconds: float | None) -> WorkPlan | None:
    lacking = lacking_steps(run, attack)
    if lacking is not None:
        raise lacking
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GmipWarning)  # the audit says them
        others = attack_background(run.task, run.target, attack, ids)
        return attack.planned(run.task, run.target, ids, others, budget=seconds)
