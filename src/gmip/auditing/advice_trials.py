"""What advice costs: each way to the target is trained a few times, on records that are not members."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gmip._progress import Progress
from gmip.accounting.alternatives import Change
from gmip.auditing.attack_runs import AuditedRun
from gmip.auditing.schema import Advice, RunAudit, TriedAccuracy, UntriedWay
from gmip.auditing.sources.recorded import repeat_seed
from gmip.errors import InvalidArgument, TraceMismatch, UnsupportedModel
from gmip.store import Store
from gmip.tasks import Task
from gmip.training import recipe_of
from gmip.tuning import search_records, train_once
from gmip.tuning.trials import outsider_fingerprints
from gmip.vocabulary import NoisySGD, Recipe

_Option = Change | None  # None: the run as it is

_SEEDS: Final = 5
_PROBE: Final = 5  # steps that tell how long a training takes
_STREAM: Final = 1_000_003  # of seeds: no run of an audit has this number


def try_advice(
    audited: RunAudit, run: AuditedRun, *, folder: Path, seed: int, seconds: float | None, begin: Callable[[], Progress]
) -> RunAudit:
    """The audit with the measured accuracy of each way of its advice, the most accurate first.

    Parameters
    ----------
    folder : keeps what was measured, so that an interrupted audit goes on.
    seed : of all trainings; each round of them divides the records anew, in the same way for all options.
    seconds : the time for it, None: no limit. Each option is trained once, then again in rounds, at most 5 times, as
        long as a round is expected to fit; what does not fit once is left out, and the audit says so.
    begin : called if something has to be trained.

    Guarantees
    ----------
    No member is trained or measured on: the numbers add nothing to what the members give away.
    """
    advice = {one.way.change: one for one in audited.advice if one.way is not None}
    if not advice:
        return audited
    try:
        recipe = recipe_of(run.task, run.target)
        assert run.target.members is not None  # or there is no audit
        trials = _Trials(run.task, run.target.members, folder, seed)
        options, left_out = _options(recipe, advice, audited.declared, trials)
        found = _rounds(trials, options, left_out, seconds, begin)
    except (InvalidArgument, TraceMismatch, UnsupportedModel) as error:
        return audited.model_copy(
            update={"tried_left_out": (UntriedWay(change=None, why="refused", problem=str(error)),)}
        )
    tried = {name: _summary(values, trials.size(options[name])) for name, values in found.items() if values}
    measured = []
    for one in audited.advice:
        if one.way is not None and one.way.change in tried:
            one = one.model_copy(update={"way": one.way.model_copy(update={"accuracy": tried[one.way.change]})})
        measured.append(one)
    return audited.model_copy(
        update={"advice": ranked(measured), "tried": tried.get(None), "tried_left_out": tuple(left_out.values())}
    )


def ranked(advice: Sequence[Advice]) -> tuple[Advice, ...]:
    """The ways by their accuracy, those that were not measured last; other advice keeps its place around them."""
    ways = [one for one in advice if one.way is not None]
    best = iter(sorted(ways, key=lambda one: -one.way.accuracy.mean if one.way and one.way.accuracy else 1.0))
    return tuple(one if one.way is None else next(best) for one in advice)


def _summary(values: list[float], trained_on: int) -> TriedAccuracy:
    error = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
    return TriedAccuracy(mean=float(np.mean(values)), error=error, seeds=len(values), trained_on=trained_on)


class _Measured(NamedTuple):
    """NaN if the training diverged."""

    accuracy: float
    seconds: float


@dataclasses.dataclass(frozen=True)
class _Trials:
    """Trainings of a task on records that are not members, kept in a folder."""

    task: Task
    members: NDArray[np.int64]
    folder: Path
    seed: int

    def size(self, recipe: Recipe) -> int:
        """How many records a recipe is tried on."""
        return len(search_records(self.task, recipe.dataset_size, seed=0, members=self.members).train)

    def known(self, recipe: Recipe, turn: int) -> _Measured | None:
        """What was measured before, or None."""
        found = self._store.get(_key(recipe, turn))
        return None if found is None else _Measured(**found.fields)

    def measured(self, recipe: Recipe, turn: int) -> _Measured:
        """Train and measure."""
        found = self._train(recipe, turn)
        self._store.put(_key(recipe, turn), fields=found._asdict())
        return found

    def seconds_per_record(self, recipe: Recipe) -> float:
        """Measures a few steps of a recipe: an upper end, because it counts what is done once, too."""
        short = recipe.replace(num_steps=min(_PROBE, recipe.num_steps))
        return self._train(short, 0).seconds / _work(short)

    def _train(self, recipe: Recipe, turn: int) -> _Measured:
        own = repeat_seed(self.seed, _STREAM, turn)
        records = search_records(self.task, recipe.dataset_size, seed=own, members=self.members)
        begun = time.monotonic()
        accuracy = train_once(self.task, recipe, records, seed=own, metric="accuracy")
        return _Measured(accuracy, time.monotonic() - begun)

    @cached_property
    def _store(self) -> Store:
        data = outsider_fingerprints(self.task, self.members)
        return Store(self.folder, "trials", {"task": self.task.name, "data": data, "seed": self.seed})


def _key(recipe: Recipe, turn: int) -> dict[str, Any]:
    return {"recipe": dataclasses.asdict(recipe), "turn": turn}


def _work(recipe: Recipe) -> int:
    """Records that a training goes through."""
    return recipe.num_steps * recipe.batch_size


def _options(
    recipe: Recipe, advice: dict[Change, Advice], declared: Sequence[NoisySGD], trials: _Trials
) -> tuple[dict[_Option, Recipe], dict[_Option, UntriedWay]]:
    """Recipes to try, the run's own first; and why others are not."""
    options: dict[_Option, Recipe] = {None: recipe}
    left_out: dict[_Option, UntriedWay] = {}
    for change, one in advice.items():
        assert one.way is not None
        if change == "parameters":
            left_out[change] = UntriedWay(change=change, why="other-model")
        elif not (changes := one.way.changes(declared)):
            left_out[change] = UntriedWay(change=change, why="schedule")
        else:
            changed = recipe.replace(**changes)
            few = trials.size(changed)
            if change == "data" and few < changed.dataset_size:
                left_out[change] = UntriedWay(change=change, why="few-records", records=few)
            else:
                options[change] = changed
    return options, left_out


def _rounds(
    trials: _Trials,
    options: dict[_Option, Recipe],
    left_out: dict[_Option, UntriedWay],
    seconds: float | None,
    begin: Callable[[], Progress],
) -> dict[_Option, list[float]]:
    """Accuracies of each option, one for each round; what is left out is added to `left_out`, with the reason."""
    limit = math.inf if seconds is None else seconds
    found: dict[_Option, list[float]] = {name: [] for name in options}
    took: dict[_Option, float] = {}
    spent = pace = 0.0
    progress: Progress | None = None
    own = options[None]
    for turn in range(_SEEDS):
        wanted = [name for name in options if name not in left_out]
        if turn and spent + sum(took[name] for name in wanted) > limit:
            break
        for done, name in enumerate(wanted):
            one = trials.known(options[name], turn)
            if one is None:
                progress = progress or begin()
                if not pace and math.isfinite(limit):
                    pace = took[None] / _work(own) if took else trials.seconds_per_record(own)
                expected = took.get(name, pace * _work(options[name]))
                if spent + expected > limit:
                    left_out[name] = UntriedWay(change=name, why="too-slow", seconds=expected)
                    continue
                one = trials.measured(options[name], turn)
                progress(turn * len(wanted) + done + 1, _SEEDS * len(wanted))
            if not math.isfinite(one.accuracy):
                left_out[name], found[name] = UntriedWay(change=name, why="diverged"), []
                continue
            found[name].append(one.accuracy)
            took[name] = one.seconds
            spent += one.seconds
            pace = took[None] / _work(own) if None in took else pace
    return found
