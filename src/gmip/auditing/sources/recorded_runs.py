"""The runs of an audit: recorded ones are opened, the others trained, each with its repetitions."""

from __future__ import annotations

import dataclasses
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gmip._io import read_if_there, sha256, write
from gmip._progress import Progress, Watch
from gmip.accounting.calibrate import with_least_noise
from gmip.attacks.attack import RunTraits
from gmip.attacks.signals import released_model
from gmip.auditing.settings import AuditConfig, RunConfig
from gmip.auditing.sources.released import released_run
from gmip.errors import InvalidArgument
from gmip.tasks import Task
from gmip.trace import ModelOptions, Trace
from gmip.training import count_params, evaluate, initial_model, recipe_of, train
from gmip.training.models import has_classes
from gmip.vocabulary import Recipe

__all__ = ["AuditedRun", "audit_seed", "make_runs", "repeat_seed"]


@dataclass(frozen=True, eq=False)
class AuditedRun:
    """One run of an audit, and further runs of the same recipe with other seeds."""

    name: str
    task: Task
    traces: tuple[Trace, ...]
    recorded: bool  # the first one is the user's, not trained here
    released: str | None = None  # where the model is from of which nothing was recorded
    warnings: tuple[str, ...] = ()

    @property
    def trace(self) -> Trace:
        """The run itself."""
        return self.traces[0]

    @property
    def path(self) -> str | None:
        """Where the run is from; None: it was trained here."""
        return self.released or (str(self.trace.path) if self.recorded else None)

    def traits(self) -> RunTraits:
        """What attacks may know to decide whether they run unasked."""
        return RunTraits(
            noisy=any(info.noise_std > 0.0 for info in self.trace.infos),
            recorded=self.recorded,
            seeded=self.released is None and self.trace.header.provenance.task == self.task.name,
            published=self.released is None,
        )

    def accuracies(self) -> dict[str, float | None]:
        """The accuracies of the trained model; empty where the trace holds none."""
        if self.trace.final_state() is None:
            return {}
        model = released_model(self.task, self.trace)
        parts = {"train_accuracy": self.task.pool[self.trace.members], "test_accuracy": self.task.test}
        found = {name: evaluate(self.task, model, part)[1] if len(part) else None for name, part in parts.items()}
        targets = parts["train_accuracy"].targets
        return found | {"chance_accuracy": 1.0 / len(targets.unique()) if has_classes(targets) else None}


def audit_seed(config: AuditConfig, folder: Path) -> int:
    """The seed of the audit: the given one, that of an audit which this one resumes, or a fresh one."""
    if config.seed is not None:
        return config.seed
    path = folder / "seed"
    try:
        return int(read_if_there(path) or b"")
    except ValueError:
        drawn = secrets.randbits(63)
        write(path, f"{drawn}\n")
        return drawn


def make_runs(task: Task, config: AuditConfig, folder: Path, seed: int, watch: Watch) -> list[AuditedRun]:
    """All runs of the audit; trained ones are in `folder`, where an interrupted audit finds them again."""
    runs: list[AuditedRun] = []
    names = _names(config.runs)
    for number, (name, wanted) in enumerate(zip(names, config.runs, strict=True)):
        if wanted.model is not None:
            if config.repeats > 1:
                raise InvalidArgument(
                    "needs runs that can be trained again, and a released model cannot",
                    argument="repeats",
                    value=config.repeats,
                    remedy="leave it out",
                )
            own, trace, said = released_run(task, wanted, folder)
            runs.append(AuditedRun(name, own, (trace,), recorded=True, released=wanted.model, warnings=said))
            continue
        if wanted.path is not None:
            first = _recorded(task, wanted.path)
            recipe = None if config.repeats == 1 else recipe_of(task, first)
            options = first.header.provenance.options
            traces = [first]
        else:
            recipe = _recipe(task, wanted)
            options, traces = ModelOptions(device=config.device), []
        for repeat in range(len(traces), config.repeats):
            assert recipe is not None
            stage = watch(
                f"training {name}" if config.repeats == 1 else f"training {name}, {repeat + 1} of {config.repeats}"
            )
            traces.append(_trained(task, recipe, options, folder, name, repeat_seed(seed, number, repeat), stage))
        runs.append(AuditedRun(name, task, tuple(traces), wanted.path is not None))
    return runs


def _recorded(task: Task, path: str) -> Trace:
    trace = Trace.open(path)
    trace.check_data(task.fingerprints)
    if not trace.num_steps:
        raise InvalidArgument(f"{trace.path} has no steps, so there is nothing to audit", remedy="train at least one")
    if trace.members is None or trace.non_members is None or not len(trace.members) or not len(trace.non_members):
        raise InvalidArgument(
            f"{path} does not name both members and non-members, by which an audit judges an attack",
            remedy="pass `members` and `non_members` to gmip.record",
        )
    return trace


def _recipe(task: Task, wanted: RunConfig) -> Recipe:
    try:
        recipe = task.recipe.replace(**wanted.recipe)
    except TypeError as error:
        raise InvalidArgument(
            f"of run {wanted.name or task.name!r} cannot be used ({error})", argument="recipe"
        ) from error
    target = wanted.target()
    return recipe if target is None else with_least_noise(recipe, count_params(initial_model(task, 0)), target)


def _trained(
    task: Task, recipe: Recipe, options: ModelOptions, parent: Path, name: str, seed: int, progress: Progress
) -> Trace:
    """Trained, or what is left to train. The folder's name has all in it that the run depends on."""
    how = dataclasses.asdict(options)
    facts = json.dumps([task.name, task.fingerprints, dataclasses.asdict(recipe), how, seed], sort_keys=True)
    folder = parent / f"{_slug(name)}-{sha256(facts)[:12]}"
    train(
        task,
        recipe,
        seed=seed,
        out=folder,
        resume=True,
        progress=progress,
        **how,
    )
    progress(recipe.num_steps, recipe.num_steps)
    return Trace.open(folder)


def repeat_seed(seed: int, number: int, repeat: int) -> int:
    """The seed of the training of that number, in a repetition of it."""
    state = np.random.SeedSequence([seed, number, repeat]).generate_state(1, np.uint64)[0]
    return int(state >> np.uint64(1))


def _names(runs: Sequence[RunConfig]) -> list[str]:
    """Given names, else the path's last part, else what is special about the run; numbered where they repeat."""
    names: list[str] = []
    for run in runs:
        target = run.target()
        made = "run"
        if run.path is not None:
            made = Path(run.path).resolve().name
        elif run.model is not None:
            made = Path(run.model).resolve().stem or "model"
        elif target is not None:
            made = f"{target.notion.upper()} {target.measure} {target.rate or target.value}"
        name = base = run.name or made
        count = 1
        while name in names:
            count += 1
            name = f"{base} ({count})"
        names.append(name)
    return names


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "run"
