"""The one interface of all attacks: from a task and its recorded run, or its model, to a score for every candidate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gmip._progress import Progress, silent
from gmip.attacks.attack_table import ATTACKS, Attacker, Need, seen
from gmip.attacks.work import Budget, Work, WorkPlan, as_seconds
from gmip.errors import InvalidArgument, UnsupportedModel
from gmip.parallel import Workers
from gmip.stats import ScoreSet
from gmip.store import NOWHERE, Store
from gmip.tasks import Examples, Task
from gmip.trace import ModelRecord, Step, Trace
from gmip.vocabulary import RANDOM_SIZES

FEWEST_DECOYS: Final = 20  # among which a rank says anything


class RunTraits(NamedTuple):
    """What is known of a run before it is attacked: by this an attack decides whether it runs unasked."""

    noisy: bool  # noise was added to gradients
    recorded: bool  # the run existed before the audit, which did not choose its seed
    seeded: bool  # the run is one of `gmip train` on the audited task, so members follow from its seed
    published: bool = True  # its gradients were published; else there is the trained model alone
    checkpoints: bool = False  # its weights at several moments are known
    rehearsable: bool = False  # what it published is not the mean of its records' gradients, and can be replayed


class Attack(ABC):
    """An attack. Scores are a function of what an attacker sees: who was in the run plays no part."""

    name: ClassVar[str]  # as in `gmip audit --attacks`
    title: ClassVar[str]  # as in tables, with its source; that of ATTACKS if the name is there
    needs: ClassVar[frozenset[Need]]  # what the attacker must have; those of ATTACKS if the name is there
    analytical: ClassVar[bool] = False  # whether its error rates are known in closed form
    patient: ClassVar[bool] = False  # whether it finds more the more time it has: it comes last and gets what is left

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if (known := ATTACKS.get(vars(cls).get("name", ""))) is not None:
            cls.title, cls.needs = vars(cls).get("title", known.title), vars(cls).get("needs", known.needs)

    @classmethod
    def sees(cls) -> Attacker:
        """What of the training or of the model its attacker must see, by its `needs`."""
        return seen(cls.needs)

    @classmethod
    def runs_by_default(cls, runs: Sequence[RunTraits]) -> bool:
        """Whether an audit of these runs uses the attack when nobody names attacks."""
        return False

    @property
    def holds_list(self) -> bool:
        """Whether the attacker uses a list that contains members: an audit then takes the guarantee for such a one."""
        return "list" in self.needs

    def run(
        self,
        task: Task,
        target: ModelRecord,
        candidates: ArrayLike | None = None,
        background: Examples | None = None,
        *,
        progress: Progress | None = None,
        budget: float | str | Budget | None = None,
        parts: Store = NOWHERE,
        workers: Workers | None = None,
    ) -> ScoreSet:
        """A score for every candidate, higher = member.

        Parameters
        ----------
        task : of the run; data other than the run's are refused.
        target : what is known of it: a `Trace`, or for attacks that need no step also a `gmip.trace.ReleasedModel`.
        candidates : ids, rows of the task's pool; None: the members and non-members that the target names.
        background : records of the same distribution that are not in the run, for attacks that need a population; None:
            the rows of the pool that are neither members nor candidates, and the task's own background.
        progress : called with (done, total).
        budget : seconds, or "5min", in which to be done. An attack whose cost grows with steps and records leaves out
            what does not fit, and warns; others take the time they take. None: no limit.
        parts : where finished parts are kept, and found by an attempt that goes on after an interruption.
        workers : who computes inner products of gradients (glir, decode) of many records; None: this process. Any
            number of them gives the same scores; those of one process differ by the order of floating-point sums.
        """
        if background is None and "population" not in self.needs:
            background = task.pool[[]]
        limit = budget if isinstance(budget, Budget) else Budget(as_seconds("budget", budget))
        work = Work(progress or silent(self.name), limit, parts, workers)
        found = self._score(task, target, parties(task, target, candidates, background), work)
        if candidates is None:
            return found
        columns = {name: getattr(found, name) for name in ("ids", "scores", "p_values", "susceptibility")}
        asked = np.searchsorted(found.ids, np.asarray(candidates))
        return replace(found, **{name: one[asked] for name, one in columns.items() if one is not None})

    def planned(
        self,
        task: Task,
        target: ModelRecord,
        candidates: ArrayLike | None = None,
        background: Examples | None = None,
        *,
        budget: float | str | None = None,
    ) -> WorkPlan | None:
        """What `run` with the same arguments would do, from a piece that is measured here; nothing else is done. None:
        this attack does not say."""
        if background is None and "population" not in self.needs:
            background = task.pool[[]]
        work = Work(silent(self.name), Budget(as_seconds("budget", budget)))
        return self._plan_of(task, target, parties(task, target, candidates, background), work)

    def _plan_of(self, task: Task, target: ModelRecord, who: AttackedRecords, work: Work) -> WorkPlan | None:
        return None

    @abstractmethod
    def _score(self, task: Task, target: ModelRecord, who: AttackedRecords, progress: Work) -> ScoreSet:
        """The scores, in the order of `who.ids`, which rise."""


class StepAttack(Attack):
    """An attack on what the steps of a training published: it needs a `Trace`."""

    rehearses: ClassVar[bool] = False  # whether it takes steps that are not means of the records' gradients

    def _score(self, task: Task, target: ModelRecord, who: AttackedRecords, progress: Work) -> ScoreSet:
        return self._score_steps(task, self._with_steps(target), who, progress)

    def _plan_of(self, task: Task, target: ModelRecord, who: AttackedRecords, work: Work) -> WorkPlan | None:
        return self._plan_steps(task, self._with_steps(target), who, work)

    def _with_steps(self, target: ModelRecord) -> Trace:
        """The target, which must have steps that this attack can take."""
        if not isinstance(target, Trace):
            raise self.lacking(target)
        if not self.rehearses and (target.header.local is not None or target.header.mixes is not None):
            why = "clients trained before they replied"
            if target.header.local is None:
                why = f"layer {target.header.mixes} mixes the records of a batch"
            raise UnsupportedModel(
                f"The steps of {target.path} are not means of the records' gradients ({why}), which attack "
                f"{self.name!r} takes them for",
                remedy="attack them by 'rehearsal-steps'",
            )
        return target

    def _plan_steps(self, task: Task, trace: Trace, who: AttackedRecords, work: Work) -> WorkPlan | None:
        return None

    def lacking(self, target: ModelRecord) -> InvalidArgument:
        """The error where there are no steps."""
        return InvalidArgument(
            f"has {self.name!r}, which needs the training steps, but {target.path} has only the model",
            argument="attacks",
            remedy="leave it out, or record the training (gmip.record)",
        )

    @abstractmethod
    def _score_steps(self, task: Task, trace: Trace, who: AttackedRecords, progress: Work) -> ScoreSet:
        """The scores, in the order of `who.ids`."""


def check_step_numbers(steps: object) -> None:
    """Raise unless `steps` is None or a list of whole numbers."""
    listed = isinstance(steps, (Sequence, np.ndarray)) and all(isinstance(s, (int, np.integer)) for s in steps)
    if steps is not None and not listed:
        raise InvalidArgument("must be a list of numbers of recorded steps", argument="steps", value=steps)


def chosen_steps(trace: Trace, steps: Sequence[int] | None) -> list[Step]:
    """The recorded steps of these numbers; None: all."""
    if len(trace) == 0:
        raise InvalidArgument(f"{trace.path} has no recorded step", remedy="record at least one")
    if steps is None:
        return list(trace)
    recorded = {int(index): i for i, index in enumerate(trace.recorded)}
    missing = [step for step in steps if step not in recorded]
    if missing or not len(steps):
        raise InvalidArgument(
            f"are not all recorded in {trace.path}",
            argument="steps",
            value=list(steps)[:5],
            remedy=f"choose among its {len(recorded)}, from {min(recorded)} to {max(recorded)}",
        )
    return [trace[recorded[step]] for step in steps]


def nominal_size(trace: Trace, step: Step) -> int:
    """The size of the step's batch; the expected one where records are drawn on their own."""
    return trace.header.batch_size if trace.header.sampling in RANDOM_SIZES else step.info.batch_size


class AttackedRecords(NamedTuple):
    """Who an attack is about: candidates in the rising order of their ids, so that no last bit of a score depends on
    the order in which they are asked about."""

    ids: NDArray[np.int64]
    candidates: Examples
    background: Examples


def with_decoys(who: AttackedRecords, count: int, seed: int = 0) -> AttackedRecords:
    """So many background records stand at the end of the candidates now, and no longer in the background: they were not
    in for certain, so that a candidate's rank among their scores is a p-value. With too few to tell anything: nobody.
    """
    if count < min(FEWEST_DECOYS, len(who.ids)):
        return who
    order = np.random.default_rng(seed).permutation(len(who.background))
    decoys, rest = np.sort(order[:count]), np.sort(order[count:])
    return who._replace(candidates=who.candidates.joined(who.background[decoys]), background=who.background[rest])


def parties(
    task: Task, target: ModelRecord, candidates: ArrayLike | None, background: Examples | None
) -> AttackedRecords:
    """Candidates and background of `Attack.run`, after a check that the run is of this task's data."""
    target.check_data(task.fingerprints)
    ids = _candidates(task, target, candidates)
    if background is None:
        background = _background(task, target, ids)
    elif not isinstance(background, Examples):
        raise InvalidArgument(f"must be gmip.tasks.Examples, not {type(background).__name__}", argument="background")
    return AttackedRecords(ids, task.pool[ids], background)


def _candidates(task: Task, target: ModelRecord, candidates: ArrayLike | None) -> NDArray[np.int64]:
    if candidates is None:
        named = [part for part in (target.members, target.non_members) if part is not None]
        if not named:
            raise InvalidArgument(
                f"{target.path} names neither members nor non-members",
                remedy="pass `candidates`, rows of the task's pool",
            )
        return np.sort(np.concatenate(named))
    given = np.asarray(candidates)
    if given.ndim != 1 or given.size == 0 or given.dtype.kind not in "iu":
        raise InvalidArgument(
            "must be a non-empty list of whole numbers, rows of the task's pool", argument="candidates"
        )
    ids = given.astype(np.int64)
    if ids.min() < 0 or ids.max() >= len(task.pool):
        bad = int(ids[(ids < 0) | (ids >= len(task.pool))][0])
        raise InvalidArgument(f"has {bad}, but the pool has rows 0 to {len(task.pool) - 1}", argument="candidates")
    if np.unique(ids).size != ids.size:
        raise InvalidArgument("names a record twice", argument="candidates", remedy="pass each once")
    return np.sort(ids)


def _background(task: Task, target: ModelRecord, ids: NDArray[np.int64]) -> Examples:
    if target.members is None:
        raise InvalidArgument(
            f"{target.path} does not name its members, so no part of the pool is known to be free of them",
            remedy="pass `background`",
        )
    unused = np.setdiff1d(np.arange(len(task.pool)), np.concatenate([target.members, ids]))
    rest = task.pool[unused]
    return rest if task.background is None else rest.joined(task.background)
