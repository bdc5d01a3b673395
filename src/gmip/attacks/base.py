"""The one interface of all attacks: from a task and its recorded run to a score for every candidate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gmip.errors import InvalidArgument
from gmip.stats import ScoreSet
from gmip.tasks.task import Examples, Task
from gmip.trace import Trace

__all__ = ["NEEDS", "Attack", "Need", "Parties", "Progress", "parties"]

Progress = Callable[[int, int], None]

Need = Literal["query", "gradients", "recourse", "loss", "population", "labels", "shadows", "code"]
NEEDS: Final[dict[Need, str]] = {  # the rows of the paper's table of assumptions, in its order, and one more
    "query": "query access to the model",
    "gradients": "the gradients that training published",
    "recourse": "counterfactual explanations (recourse)",
    "loss": "the loss function",
    "population": "records of the same distribution",
    "labels": "true labels of the candidates",
    "shadows": "shadow models",
    "code": "the training code and the whole pool",
}


class Attack(ABC):
    """An attack. Who was in decides nothing: scores are a function of what an attacker sees."""

    name: ClassVar[str]  # as in `gmip audit --attacks`
    title: ClassVar[str]  # as in tables, with its source
    needs: ClassVar[frozenset[Need]]  # what the attacker must have
    analytical: ClassVar[bool] = False  # whether its error rates are known in closed form

    def run(
        self,
        task: Task,
        trace: Trace,
        candidates: ArrayLike | None = None,
        background: Examples | None = None,
        *,
        progress: Progress | None = None,
    ) -> ScoreSet:
        """A score for every candidate, higher = member.

        Parameters
        ----------
        task, trace : the run; data other than the run's are refused.
        candidates : ids, rows of the task's pool; None: the members and non-members that the trace names.
        background : records of the same distribution that are not in the run, for attacks that need a population; None:
            the rows of the pool that are neither members nor non-members nor candidates, and the task's own background.
        progress : called with (done, total).
        """
        if background is None and "population" not in self.needs:
            background = task.pool[[]]
        return self._score(task, trace, parties(task, trace, candidates, background), progress)

    @abstractmethod
    def _score(self, task: Task, trace: Trace, who: Parties, progress: Progress | None) -> ScoreSet:
        """The scores, in the order of `who.ids`."""


class Parties(NamedTuple):
    """Who an attack is about."""

    ids: NDArray[np.int64]
    candidates: Examples
    background: Examples


def parties(task: Task, trace: Trace, candidates: ArrayLike | None, background: Examples | None) -> Parties:
    """Candidates and background of `Attack.run`, after a check that the trace is of this task's data."""
    trace.check_data(task.fingerprints)
    ids = _candidates(task, trace, candidates)
    if background is None:
        background = _background(task, trace, ids)
    elif not isinstance(background, Examples):
        raise InvalidArgument(f"background must be gmip.tasks.Examples, not {type(background).__name__}.")
    return Parties(ids, task.pool[ids], background)


def _candidates(task: Task, trace: Trace, candidates: ArrayLike | None) -> NDArray[np.int64]:
    if candidates is None:
        named = [part for part in (trace.members, trace.non_members) if part is not None]
        if not named:
            raise InvalidArgument(
                f"{trace.path} names neither members nor non-members: pass candidates, rows of the task's pool."
            )
        return np.sort(np.concatenate(named))
    given = np.asarray(candidates)
    if given.ndim != 1 or given.size == 0 or given.dtype.kind not in "iu":
        raise InvalidArgument("candidates must be a non-empty list of whole numbers, rows of the task's pool.")
    ids = given.astype(np.int64)
    if ids.min() < 0 or ids.max() >= len(task.pool):
        bad = int(ids[(ids < 0) | (ids >= len(task.pool))][0])
        raise InvalidArgument(f"candidates has {bad}, but the pool has rows 0 to {len(task.pool) - 1}.")
    if np.unique(ids).size != ids.size:
        raise InvalidArgument("candidates names a record twice: pass each once.")
    return ids


def _background(task: Task, trace: Trace, ids: NDArray[np.int64]) -> Examples:
    if trace.members is None:
        raise InvalidArgument(
            f"{trace.path} does not name its members, so no part of the pool is known to be free of them: pass "
            "background."
        )
    taken = [part for part in (trace.members, trace.non_members, ids) if part is not None]
    unused = np.setdiff1d(np.arange(len(task.pool)), np.concatenate(taken))
    rest = task.pool[unused]
    return rest if task.background is None else rest.joined(task.background)
