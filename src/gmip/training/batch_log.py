"""Who was in each batch, as told by the loop or read off its loader; and whether that is what was declared."""

from __future__ import annotations

import warnings
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from gmip import _validate as check
from gmip.errors import GmipWarning, InvalidArgument
from gmip.stats.inclusions import contradiction
from gmip.tasks.task import Examples, Task
from gmip.trace import Header, check_indices, check_membership
from gmip.training.loaders import Drawing, Followed, drawing_of, rows_of
from gmip.vocabulary import SAMPLINGS

__all__ = ["CANDIDATES", "BatchLog", "declared"]

Ids = NDArray[np.int64]
_ACCUSED: Final = 0.001  # chance that a sound loop is told that it contradicts its sampling
_MOST_IDS: Final = 5_000_000  # that are kept in memory to judge how batches are drawn; the first ones do

CANDIDATES: Final = 2000  # non-members that an audit attacks, unless told otherwise
_LARGEST_ID = 10**10  # a table of all rows up to it must fit into memory


class BatchLog:
    """The batches of a recorded run. `whole` : it sees all steps from the first one on.

    Members and ids are checked when they are given: rows of the data, members no more than `dataset_size`, ids among
    the members.
    """

    def __init__(
        self,
        header: Header,
        *,
        members: ArrayLike | None,
        non_members: ArrayLike | None,
        data: Task | Examples | tuple[Any, ...] | None,
        loader: Any,
        whole: bool,
    ) -> None:
        self._header, self._rows = header, _row_count(data)
        known = check_membership(members, non_members)
        for name, ids in known.items():
            self._check_range(name, ids)
        self._members = known.get("members")
        if self._members is not None and self._members.size > header.dataset_size:
            raise InvalidArgument(
                f"names {self._members.size} records, more than `dataset_size` = {header.dataset_size}",
                argument="members",
                remedy="list who is in the training set, and count all of them",
            )
        own = data.background if isinstance(data, Task) else None
        if whole and len(known) == 2 and self._rows is not None and not own:
            self._expect_background(sum(ids.size for ids in known.values()), known["non_members"].size)
        rows = None if loader is None else rows_of(loader, self._members, data)
        self._followed = None if rows is None else Followed(loader, rows)
        self._sizes: list[int] = []
        self._batches: list[Ids] = []
        self._whole, self._kept = whole, 0
        if self._members is not None and self._members.max(initial=0) > _LARGEST_ID:
            raise InvalidArgument(
                f"names row {int(self._members.max())}", argument="members", remedy="pass rows of the data, from 0"
            )
        self._known = None if self._members is None else np.zeros(int(self._members.max(initial=0)) + 1, dtype=np.bool_)
        if self._known is not None:
            self._known[self._members] = True
        self._told: Ids | None = None
        self._warned = False

    def _expect_background(self, named: int, non_members: int) -> None:
        """Warn where every record will be a member or a candidate of an audit with its default settings."""
        if named == self._rows and non_members <= CANDIDATES:
            warnings.warn(
                f"All {named} rows of `data` are members or non-members. An audit that attacks all of them has no "
                "background left, which the attack glir needs: leave some rows out of `non_members`, or give the task "
                "a `background`.",
                GmipWarning,
                stacklevel=5,  # the line that calls record()
            )

    def start(self) -> None:
        if self._followed is not None:
            self._followed.start()

    def stop(self) -> None:
        if self._followed is not None:
            self._followed.stop()

    def tell(self, ids: ArrayLike) -> int:
        """Who is in the coming step; returns how many they are."""
        self._told = self._checked(ids)
        return int(self._told.size)

    def take(self, size: int | None) -> Ids | None:
        """So many examples passed by: who they were, or None if nobody knows."""
        ids, self._told = self._told, None
        if ids is not None or self._followed is None or size is None:
            return ids
        ids = self._followed.take(size)
        if ids is not None:
            return self._checked(ids)
        if not self._warned:
            self._warned = True
            warnings.warn(
                "What the loader gave and what the model saw differ in number, so who was in this step is not "
                "recorded: tell recorder.batch(ids=...).",
                GmipWarning,
                stacklevel=6,  # the line that calls optimizer.step()
            )
        return None

    def add(self, size: int, ids: Ids | None) -> None:
        """A step was taken on so many examples."""
        self._kept += size
        if self._kept <= _MOST_IDS:
            self._sizes.append(size)
            if ids is not None:
                self._batches.append(ids)

    def contradiction(self) -> str | None:
        """In one sentence, what speaks against the declared sampling; None if nothing does."""
        header = self._header
        found = contradiction(
            sampling=header.sampling,
            dataset_size=header.dataset_size,
            batch_size=header.batch_size,
            sizes=np.array(self._sizes if self._whole else [], dtype=np.int64),
            batches=self._batches if len(self._batches) == len(self._sizes) else None,
            share=_ACCUSED,
            sample_rate=header.sample_rate,
        )
        if found is None:
            return None
        return (
            f"{found.sentence} The run is accounted as sampling = {header.sampling!r}, which is not what the loop did: "
            "record what is true."
        )

    def _checked(self, given: ArrayLike) -> Ids:
        ids = check_indices("ids", given.detach().cpu().numpy() if isinstance(given, Tensor) else given)
        self._check_range("ids", ids)
        if self._members is not None:
            assert self._known is not None
            known = ids < self._known.size
            known[known] = self._known[ids[known]]
            if not known.all():
                raise InvalidArgument(
                    f"has {int(ids[~known][0])}, which is not one of the `members`",
                    argument="ids",
                    remedy="pass rows of `data`, as `members` are",
                )
        return ids

    def _check_range(self, name: str, ids: Ids) -> None:
        if self._rows is not None and ids.size and int(ids.max()) >= self._rows:
            raise InvalidArgument(
                f"has {int(ids.max())}, but `data` has rows 0 to {self._rows - 1}",
                argument=name,
                remedy="pass rows of `data`",
            )


def declared(loader: Any, dataset_size: Any, batch_size: Any, sampling: Any) -> Drawing:
    """What was said, completed by what the loader says; an error where something is missing or they differ."""
    given = {
        "dataset_size": None if dataset_size is None else check.count("dataset_size", dataset_size),
        "batch_size": None if batch_size is None else check.count("batch_size", batch_size),
        "sampling": None if sampling is None else check.one_of("sampling", sampling, SAMPLINGS),
    }
    known: dict[str, Any] = {} if loader is None else drawing_of(loader)._asdict()
    if given["sampling"] is None and not known and dataset_size is not None and dataset_size == batch_size:
        given["sampling"] = "full"  # however they are drawn: all are in
    for name, value in given.items():
        if value is None and name not in known:
            how = "'fixed', 'poisson', 'full', or 'shuffled' for DataLoader(shuffle=True)"
            raise InvalidArgument(
                f"`{name}` is not given",
                remedy=f"pass it ({how}), or `loader`" if name == "sampling" else "pass it, or `loader`",
            )
        if value is not None and name in known and value != known[name]:
            # A wrapper of several processes, or an accumulating loop, makes larger batches than its loader.
            if name == "batch_size" and value % known[name] == 0:
                continue
            raise InvalidArgument(
                f"is not what the loader does, {known[name]!r}", argument=name, value=value, remedy="leave it out"
            )
    final: dict[str, Any] = {name: known[name] if value is None else value for name, value in given.items()}
    same = final["batch_size"] == known.get("batch_size")
    return Drawing(**final, sample_rate=known.get("sample_rate") if same else None)


def _row_count(data: Task | Examples | tuple[Any, ...] | None) -> int | None:
    """How many rows ids refer to."""
    if data is None:
        return None
    if isinstance(data, Task):
        return len(data.pool)
    return len(data) if isinstance(data, Examples) else len(data[0]) if data else None
