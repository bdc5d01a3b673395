"""On which records a search trains and measures: by default on nobody who will be a member."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from gmip import _validate as check
from gmip._random import TuningStream
from gmip.errors import InvalidArgument
from gmip.tasks.task import Examples, Task
from gmip.vocabulary import Recipe

__all__ = ["ON", "On", "SearchRecords", "outsider_fingerprints", "search_records"]

On = Literal["outsiders", "members"]
ON: Final[tuple[On, ...]] = ("outsiders", "members")
_LEAST: Final = 40  # outsiders: fewer say nothing about a recipe
_VALIDATION: Final = 0.25  # share of the outsiders that are measured on, at least
_MOST_VALIDATION: Final = 5_000


@dataclass(frozen=True, eq=False)
class SearchRecords:
    """Records to train on, and others to measure the metric on."""

    train: Examples
    validation: Examples
    on: On

    def __repr__(self) -> str:
        return f"<SearchRecords: {len(self.train)} {self.on} to train on, {len(self.validation)} to measure on>"

    def recipe(self, recipe: Recipe) -> Recipe:
        """The recipe for these records, which may be fewer than the members: noise on the MEAN and steps stay."""
        size = len(self.train)
        if size == recipe.dataset_size:
            return recipe
        return recipe.replace(dataset_size=size, batch_size=min(recipe.batch_size, size))


def outsider_fingerprints(task: Task, members: NDArray[np.int64]) -> dict[str, str]:
    """Fingerprints of the data that a search may look at: no member's record has any influence on them."""
    others = task.pool[np.setdiff1d(np.arange(len(task.pool)), members)]
    return {name: print_ for name, print_ in task.fingerprints.items() if name != "pool"} | {
        "others": others.fingerprint
    }


def search_records(
    task: Task,
    dataset_size: int,
    *,
    seed: int,
    split_seed: int = 0,
    on: On = "outsiders",
    members: NDArray[np.int64] | None = None,
) -> SearchRecords:
    """Who is trained on in a search.

    Parameters
    ----------
    dataset_size : members of the run to come.
    seed : of the trial: outsiders are divided anew for each, so that all of them are measured on in some.
    split_seed : of `task.split`: who will be a member.
    on : "outsiders": all records of the pool that will not be members, and the task's background. The trials train
        on as many as there will be members, or fewer where there are not as many; at least a quarter is measured on.
        "members": the members themselves, measured on the outsiders.
    members : rows of the pool, where it is known who they are, whatever `split_seed` says.

    Raises
    ------
    InvalidArgument : there are almost no outsiders.
    """
    check.one_of("on", on, ON)
    if members is None:
        split = task.split(dataset_size, split_seed)
        inside, outside = split.members, np.concatenate([split.non_members, split.unused])
    else:
        inside, outside = members, np.setdiff1d(np.arange(len(task.pool)), members)
    others = task.pool[outside]
    if task.background is not None:
        others = others.joined(task.background)
    if len(others) < _LEAST:
        raise InvalidArgument(
            f"Task {task.name} has {len(others)} records that will not be members at `dataset_size` = {dataset_size}, "
            f"and a search needs {_LEAST} to train and measure on",
            remedy="lower `dataset_size`, or give the task a `background` of records that no run trains on",
        )
    order = TuningStream.RECORDS.rng(check.seed(seed)).permutation(len(others))
    if on == "members":
        return SearchRecords(task.pool[inside], others[order[:_MOST_VALIDATION]], on)
    trained = min(dataset_size, len(others) - int(np.ceil(_VALIDATION * len(others))))
    measured = order[trained : trained + _MOST_VALIDATION]
    return SearchRecords(others[order[:trained]], others[measured], on)
