"""A shadow set: train the models that are missing, and store each the moment it is ready."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gmip._progress import Progress, silent
from gmip.attacks.shadow.membership import Membership
from gmip.attacks.shadow.shadow_models import (
    Job,
    Outputs,
    Shadows,
    ShadowSet,
    ShadowTraining,
    Signal,
    store_signals,
    stored,
)
from gmip.attacks.work import Budget
from gmip.errors import InvalidArgument
from gmip.parallel import compute, one_thread
from gmip.store import Store
from gmip.tasks import Examples, Task
from gmip.tasks.inputs import answer
from gmip.trace import ModelOptions, Trace, fingerprint
from gmip.training.devices import usable_device
from gmip.training.loop import initial_model
from gmip.training.train_result import recipe_of
from gmip.vocabulary import Recipe

__all__ = ["shadow_set"]

_FEWEST = 4  # models of a set for which there was little time
_PROBED = 8  # records on which the untrained model is evaluated, to know it again


def shadow_set(
    task: Task,
    trace: Trace,
    candidates: NDArray[np.int64],
    background: Examples,
    signals: Sequence[Signal],
    settings: Shadows,
    *,
    progress: Progress | None = None,
    budget: Budget | None = None,
) -> ShadowSet:
    """Shadow models of a run, trained by its own recipe, as far as they are not stored yet.

    Parameters
    ----------
    task, trace : the run; data or a task other than the run's are refused.
    candidates : ids, rows of the task's pool, shape (c,). Each model is trained on a random half of them.
    background : further records of the same distribution. They fill models up; some are kept out of all (population).
    signals : what is computed with each model for candidates and population, and stored.
    settings : how many, where, and by whom.
    progress : called with (models that are done, models in all), at the start and after each.
    budget : no model is begun that would not be ready in time, so that the set may have fewer (four at least, and
        whole pairs); a later call trains the others.

    Guarantees
    ----------
    Model i follows from task, recipe, candidates, background, settings.seed and i. Who was in the run plays no part,
    nor do the backend, the number of workers, deaths of workers or interruptions: stored bits are the same on machines
    whose arithmetic is (same processor, same torch). Each model is stored the moment it is ready, and a later call
    trains only what is missing. Memory here does not grow with the number of models.

    Raises
    ------
    InvalidArgument : too little background, an unknown address, a folder that holds something else.
    TraceMismatch : the run is of another task, data or recipe.
    GmipError : a model could not be trained; errors of a kind of their own keep it, and the message names the model.
    """
    trace.check_data(task.fingerprints)
    candidates = np.asarray(candidates, dtype=np.int64)
    wanted = _signals(signals)
    recipe = recipe_of(task, trace)
    options = trace.header.provenance.options
    options = dataclasses.replace(options, device=usable_device(options.device))
    plan = Membership(
        num_candidates=len(candidates),
        num_background=len(background),
        dataset_size=recipe.dataset_size,
        seed=settings.seed,
    )
    store = Store(settings.parent, "shadow-set", _facts(task, recipe, options, plan, candidates, background))
    population = background[plan.population]
    missing = {}
    for index in range(settings.count):
        keys = {key for key, one in wanted.items() if stored(store, index, one) is None}
        if keys:
            missing[index] = frozenset(keys)
    progress = progress or silent("shadow models")
    progress(settings.count - len(missing), settings.count)
    if missing:
        nothing = task.pool[[]]
        work = ShadowTraining(
            task=dataclasses.replace(task, pool=nothing, test=nothing, background=None, groups={}, record_names=None),
            recipe=recipe,
            options=options,
            plan=plan,
            candidates=task.pool[candidates],
            filling=background[plan.filling],
            population=population,
            signals=tuple(wanted.values()),
        )
        done, start = settings.count - len(missing), time.monotonic()
        jobs = sorted(missing.items())
        begun, needed = 0, sum(index < _FEWEST for index in missing)

        def take(job: Job, outputs: Outputs) -> None:
            nonlocal done
            store_signals(store, job[0], outputs)
            del missing[job[0]]
            done += 1
            progress(done, settings.count)

        def more() -> bool:
            nonlocal begun
            trained = len(jobs) - len(missing)
            pace = (time.monotonic() - start) / trained if trained else 0.0
            if budget is not None and begun >= needed and budget.left() < pace:
                return False
            begun += 1
            return True

        compute(work, jobs, settings, take, more=more)
    ready = min(missing, default=settings.count)
    count = ready - ready % 2 if missing else ready
    return ShadowSet(store, count, plan, candidates, population, wanted.values())


def _signals(signals: Sequence[Signal]) -> dict[str, Signal]:
    found: dict[str, Signal] = {}
    for signal in signals:
        if not re.fullmatch(r"[A-Za-z0-9._-]+", signal.key):
            raise InvalidArgument(
                f"Signal key {signal.key!r} may have letters, digits, dots, hyphens and underscores only"
            )
        if found.setdefault(signal.key, signal).population != signal.population:
            raise InvalidArgument(
                f"Two signals have the key {signal.key!r} and differ in population", remedy="rename one"
            )
    if not found:
        raise InvalidArgument(
            "is empty, and nothing else is stored of a shadow model", argument="signals", remedy="name at least one"
        )
    return found


def _facts(
    task: Task,
    recipe: Recipe,
    options: ModelOptions,
    plan: Membership,
    candidates: NDArray[np.int64],
    background: Examples,
) -> dict[str, Any]:
    """All that the models of a set depend on, but for their number."""
    return {
        "torch": torch.__version__,
        "task": task.name,
        "model": _probe(task, options.fix, task.pool[candidates[:_PROBED]]),
        "data": task.fingerprints,
        "background": background.fingerprint,
        "recipe": dataclasses.asdict(recipe),
        "options": dataclasses.asdict(options),
        "candidates": fingerprint(candidates),
        "seed": plan.seed,
        "draws": fingerprint(plan.population, plan.inside(0)),  # NumPy may draw otherwise in another version
    }


def _probe(task: Task, fix: bool, examples: Examples) -> str:
    """A name for what the task's code makes: structure and weights of a model, and its losses on some records."""
    with one_thread(), torch.no_grad(), torch.random.fork_rng():
        model = initial_model(task, 0, fix=fix, checked=False).eval()
        torch.manual_seed(0)
        losses = task.loss(answer(model, examples.inputs), examples.targets)
        return fingerprint(np.array(repr(model)), *map(_bytes, [*model.state_dict().values(), losses]))


def _bytes(values: torch.Tensor) -> NDArray[np.uint8]:
    found: NDArray[np.uint8] = values.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return found
