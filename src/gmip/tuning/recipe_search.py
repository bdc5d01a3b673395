"""`gmip.tune`: the best recipe that keeps a privacy target."""

from __future__ import annotations

import math
import os
import re
import secrets
from collections.abc import Mapping
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np

from gmip import _io, _numbers
from gmip import _validate as check
from gmip._progress import Watch, silent
from gmip.accounting.account import Notion, Susceptibility
from gmip.errors import InvalidArgument
from gmip.parallel import Workers, hired
from gmip.store import Store
from gmip.tasks.catalog import load
from gmip.tasks.task import Task
from gmip.tuning.gradient_norms import gradient_norms
from gmip.tuning.model_metrics import Metric, metric_name
from gmip.tuning.privacy_target import PrivacyTarget
from gmip.tuning.search_records import outsider_fingerprints, search_records
from gmip.tuning.search_rounds import Schedule, Search
from gmip.tuning.search_space import SearchSpace
from gmip.tuning.trial_work import Pieces, Training, TrialWork
from gmip.tuning.trials import num_params_of
from gmip.tuning.tune_result import FrontierPoint, Quality, TuneResult
from gmip.vocabulary import Rate, RateLike, Recipe

__all__ = ["MOST_TRIALS", "tune"]

MOST_TRIALS: Final = 120  # of a budget in time: more hardly help
_FEWEST_TRIALS: Final = 24
_PILOT: Final = 4
_TEST_SEEDS: Final = 3
_LEVELS: Final = {"much stricter": 0.25, "stricter": 0.5, "looser": 2.0}
_UNITS: Final = {"s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}
_SPLIT_SEED: Final = "split_seed"  # the file: who will be a member
_AFTERWARDS: Final = 40  # trainings on top of the trials: tests and the frontier


def tune(
    task: str | Task,
    *,
    target_mu: float | None = None,
    target_tpr: RateLike | None = None,
    target_advantage: float | None = None,
    target_epsilon: float | None = None,
    delta: float | None = None,
    notion: Notion = "gmip",
    susceptibility: Susceptibility = None,
    attacker_knows: float = 0.0,
    recipe: Recipe | None = None,
    space: Mapping[str, Any] | None = None,
    metric: Metric = "accuracy",
    budget: float | str = "10min",
    trials: int | None = None,
    split_seed: int | None = None,
    seed: int = 0,
    workers: Workers | int | None = None,
    folder: str | os.PathLike[str] | None = None,
    watch: Watch = silent,
    spec: str | None = None,
) -> TuneResult:
    """The recipe with the best metric among those that keep a privacy target.

    Every recipe that is tried gets the least noise that keeps the target first, so that all of them keep it. Batch size
    and sampling are chosen for each number of steps by that noise; the rest is tried. A search
    begins evenly, goes on where a Gaussian process of the trials expects the best, and ends with a final between the
    best few, with new seeds. Bad trials are ended half-way.

    Parameters
    ----------
    task : a task, its name, or path/to/file.py:make_task.
    target_mu, target_tpr, target_advantage, target_epsilon, delta, notion, susceptibility, attacker_knows : the target,
        as in `gmip.calibrate`.
    recipe : what the search begins with and what it leaves as it is, such as dataset_size; None: the task's own.
    space : what to search: name -> (lowest, highest) for clip_norm and learning_rate, choices for batch_size,
        num_steps, optimizer and sampling; a single value fixes it. Differential privacy has other neighbours under
        other samplings: by default only samplings with those of the recipe's are tried then.
    metric : "accuracy", "balanced-accuracy", "loss", or a function of task, model and records (more is better).
    budget : about how long, in seconds or as "10min"; it sets the number of trials, from the first few (24 to 120).
    trials : the number of trainings instead, to within two; 24 at least. On top come 30 or so to measure the recipe and
        the frontier: `TuneResult.trainings` counts all.
    split_seed : of `task.split`, which says who will be a member: the search trains and measures on all others. Who
        knows it and the task's data knows the members. None: a random one, kept in `folder` for the next call.
    seed : of the search.
    workers : processes at once, or `gmip.parallel.Workers` for a cluster; None: one for each core.
    folder : where finished work is kept; the same call goes on from there after an interruption. None: nowhere.
    watch : is told how far the search is.
    spec : how `gmip.tasks.load` finds a task that is passed as an object, for recipe.yaml.

    Guarantees
    ----------
    The recipe keeps the target by the accountant, for whom the target is about; `kind` says whether that is a bound or
    a forecast. No record of `task.split(dataset_size, split_seed).members` has any influence on the result: the search
    gives nothing away about them, whatever it prints, unless the task's own code looked at them before, as where it
    standardises by statistics of the pool. With `split_seed` or `folder`, the same call gives the same result after any
    interruption, and (with `trials`) with any number of workers.

    Raises
    ------
    UnreachableTarget : no recipe keeps the target.
    InvalidArgument : too few records that will not be members; too few trials; a metric that is never finite.
    """
    spec = spec or (task if isinstance(task, str) else task.name)
    task = load(task) if isinstance(task, str) else task
    target = PrivacyTarget(
        target_mu=target_mu,
        target_tpr=target_tpr,
        target_advantage=target_advantage,
        target_epsilon=target_epsilon,
        delta=delta,
        notion=notion,
        susceptibility=susceptibility,
        attacker_knows=attacker_knows,
    )
    name, seconds = metric_name(metric), _seconds(budget)
    count = None if trials is None else check.count("trials", trials)
    if count is not None and count < _FEWEST_TRIALS:
        raise InvalidArgument(
            f"are fewer than the {_FEWEST_TRIALS} that a search needs at least",
            argument="trials",
            value=count,
            remedy="raise it",
        )
    own = task.recipe if recipe is None else recipe
    seed = check.seed(seed)
    place = None if folder is None else Path(folder)
    split_seed = _members_seed(place) if split_seed is None else check.seed(split_seed)
    norms = gradient_norms(task, own.dataset_size, split_seed=split_seed)
    params = num_params_of(task)
    typical = float(np.median(norms))
    around = SearchSpace.around(own, num_params=params, typical_norm=typical, target=target, given=space)
    work = TrialWork(task=task, num_params=params, metric=metric, split_seed=split_seed, on="outsiders")
    facts = {
        "task": task.name,
        "data": outsider_fingerprints(task, task.split(own.dataset_size, split_seed).members),
        "metric": name,
        "split_seed": split_seed,
        "norm": typical,  # of the untrained model: knows it again
        "torch": version("torch"),
    }
    settings = workers if isinstance(workers, Workers) else Workers(workers=workers)
    if place is not None:
        _io.make_folder(place)
    lock = nullcontext() if place is None else _io.Lock(place / ".lock", wait=False, signed=True)
    with lock, hired(work, settings, MOST_TRIALS) as crew:
        pieces = Pieces(crew, Store(place, "trials", facts))
        search = Search(around, target, pieces, seed=seed, own=own, watch=watch)
        search.choose_sizes()
        if count is None:
            share = seconds / search.pilot(_PILOT) * pieces.workers
            count = int(min(MOST_TRIALS, max(_FEWEST_TRIALS, share - _AFTERWARDS)))
        best = search.run(Schedule(count))[0]
        return _measured(search, best.recipe, best.exposure, task, spec, params, name, split_seed, watch)


def _measured(
    search: Search,
    recipe: Recipe,
    exposure: float,
    task: Task,
    spec: str,
    params: int,
    metric: str,
    split_seed: int,
    watch: Watch,
) -> TuneResult:
    """The result: the recipe and its neighbours on test records, with seeds of their own."""
    target, pieces = search.target, search.pieces
    seeds = [search.trial_seed(1000 + number) for number in range(_TEST_SEEDS)]

    def tested(candidates: list[Recipe]) -> list[tuple[float, Quality]]:
        jobs = [Training(recipe=one, seed=seed, tested=True) for one in candidates for seed in seeds]
        outcomes = pieces.outcomes(jobs, "on test records", watch)
        rows = [outcomes[i : i + len(seeds)] for i in range(0, len(jobs), len(seeds))]
        return [(float(np.mean([o.metric for o in row])), Quality(tuple(o.test for o in row))) for row in rows]

    levels = {name: _scaled(target, factor) for name, factor in _LEVELS.items()}
    found: dict[str, list[tuple[Recipe, float]]] = {"the target": [(recipe, exposure)]}
    for name, level in levels.items():
        # Less noise lets the weights go farther, more noise not as far: try the recipe, and half or twice its pace.
        factor = 2.0 if level.value > target.value else 0.5
        near = [recipe, recipe.replace(learning_rate=factor * recipe.learning_rate)]
        kept = [made for made in search.calibrated(near, level) if made is not None]
        if kept:
            found[name] = kept
    quiet = recipe.replace(noise_std=0.0)
    if recipe.noise_std:
        found["no noise"] = [
            (quiet.replace(learning_rate=f * quiet.learning_rate), _exposure(target, quiet, params)) for f in (1.0, 2.0)
        ]
    own = search.calibrated([search.own.replace(clip_norm=search.own.clip_norm or search.space.typical_norm)], target)[
        0
    ]
    candidates = [made for several in found.values() for made in several] + ([] if own is None else [own])
    qualities = dict(zip(map(repr, candidates), tested([one for one, _ in candidates]), strict=True))
    points = []
    for name, several in found.items():
        best = max(several, key=lambda made: _nan_last(qualities[repr(made)][0]))
        points.append(FrontierPoint(name, *best, qualities[repr(best)][1]))
    points.sort(key=lambda point: point.exposure)
    curve = target.curve(recipe, params)
    records = search_records(task, recipe.dataset_size, seed=seeds[0], split_seed=split_seed)
    fewer = "" if len(records.train) == recipe.dataset_size else f", {len(records.train)} at a time"
    return TuneResult(
        task=task.name,
        task_spec=spec,
        target=target,
        metric=metric,
        recipe=recipe,
        num_params=params,
        exposure=target.measure(curve),
        # Measured susceptibilities are those of other runs: with another clipping norm and way they are a guess.
        kind="forecast" if isinstance(target.susceptibility, tuple) else curve.kind,
        for_whom=curve.for_whom,
        caveat=curve.claim.caveat,
        adjacency=curve.claim.adjacency,
        not_a_member=curve.claim.not_a_member,
        own_sampling=search.own.sampling,
        quality=qualities[repr((recipe, exposure))][1],
        own=None if own is None else FrontierPoint("the task's own recipe", *own, qualities[repr(own)][1]),
        frontier=tuple(points),
        tried=tuple(search.tried),
        trainings=len(search.tried) + len(seeds) * len(candidates),
        seconds=sum(one.outcome.seconds for one in search.tried),
        trained_on=len(records.train),
        split_seed=split_seed,
        seed=search.seed,
        leakage=f"the search trained on {_numbers.count(_outsiders(task, recipe))} records that will not be "
        f"members{fewer}, and so gives nothing away about members.",
    )


def _members_seed(place: Path | None) -> int:
    """A random seed, which nobody guesses; where there is a folder, the one that is kept there."""
    drawn = secrets.randbits(63)
    if place is None:
        return drawn
    path = place / _SPLIT_SEED
    known = _io.read_if_there(path)
    if known is None:
        _io.make_folder(place)
        _io.write(path, f"{drawn}\n")
        return drawn
    if not known.strip().isdigit():
        raise InvalidArgument(f"{path} holds no seed", remedy="pass `split_seed`, or delete the file")
    return check.seed(int(known))


def _outsiders(task: Task, recipe: Recipe) -> int:
    return len(task.pool) - recipe.dataset_size + (0 if task.background is None else len(task.background))


def _exposure(target: PrivacyTarget, quiet: Recipe, params: int) -> float:
    """Of a run without noise, which differential privacy has no promise for."""
    return math.inf if target.notion == "gdp" else target.exposure(quiet, params)


def _nan_last(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def _scaled(target: PrivacyTarget, factor: float) -> PrivacyTarget:
    """The same kind of target, stricter or looser: of a TPR, what it has above its FPR."""
    goal: dict[str, Any] = dict(target.goal)
    for name in ("target_mu", "target_epsilon"):
        if name in goal:
            goal[name] *= factor
    if "target_advantage" in goal:
        goal["target_advantage"] = min(1.0, factor * goal["target_advantage"])
    if "target_tpr" in goal:
        tpr, fpr = goal["target_tpr"].tpr, goal["target_tpr"].fpr
        goal["target_tpr"] = Rate(min(1.0, fpr + factor * (tpr - fpr)), fpr)
    return PrivacyTarget(**goal, **target.whose)


def _seconds(budget: float | str) -> float:
    if not isinstance(budget, str):
        return check.positive("budget", budget)
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", budget.lower())
    unit = None if found is None else _UNITS.get(found[2] or "s")
    if found is None or unit is None:
        raise InvalidArgument("is not a time", argument="budget", value=budget, remedy="write it as '10min' or '90s'")
    return check.positive("budget", float(found[1]) * unit)
