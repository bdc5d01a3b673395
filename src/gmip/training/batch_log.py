"""Who was in each batch, as the loop says or its loader shows; and whether that is what was declared."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from gmip import _validate as check
from gmip.errors import InvalidArgument, warn
from gmip.stats.record_tests import contradiction
from gmip.tasks.task import Examples, Task
from gmip.trace import Header, check_indices, check_membership
from gmip.training.samplers import Sampler
from gmip.vocabulary import SAMPLINGS, Sampling

# -- what a data loader says about a run ------------------------------------------------------------------------------


_COMPARED = 5  # records that are looked at to tell whether a loader goes through the members in their order


class Drawing(NamedTuple):
    """How batches are drawn, and the nominal sizes; `sample_rate` where these do not say it exactly, `max_batch_size`
    where batches that were drawn larger are cut to it."""

    sampling: Sampling
    dataset_size: int
    batch_size: int
    sample_rate: float | None = None
    max_batch_size: int | None = None


def drawing_of(loader: Any) -> Drawing:
    """What a DataLoader of torch or Opacus, or a sampler of gmip, does; an InvalidArgument if no `sampling` is that."""
    sampler: Any = loader if isinstance(loader, Sampler) else _batch_sampler(loader)
    if isinstance(sampler, Sampler) and (own := vars(type(sampler)).get("sampling")) is not None:
        return Drawing(own, sampler.dataset_size, sampler.batch_size, max_batch_size=sampler.max_batch_size)
    rate = getattr(sampler, "sample_rate", None)
    if rate is not None:  # Opacus' samplers: each record on its own
        total = int(getattr(sampler, "total_size", None) or sampler.num_samples)
        return Drawing("poisson", total, max(1, int(total * float(rate) + 1.0e-9)), float(rate))
    if not isinstance(sampler, BatchSampler):
        raise _unknown(f"draws batches with {type(sampler).__name__}, which gmip does not know")
    inner, n = sampler.sampler, int(sampler.batch_size)
    if isinstance(inner, DistributedSampler):
        total, n = len(loader.dataset), n * inner.num_replicas
        if not inner.shuffle:
            raise _in_order()
        if total % inner.num_replicas and not inner.drop_last:
            raise InvalidArgument(
                f"repeats records to share {total} of them out evenly among {inner.num_replicas} ranks, so that some "
                "are in an epoch twice, which no accounting here covers",
                argument="loader",
                remedy="pass drop_last=True to DistributedSampler, or train on a multiple of the ranks",
            )
        return Drawing("shuffled", total, n) if n < total else Drawing("full", total, total)
    if not isinstance(inner, (RandomSampler, SubsetRandomSampler, SequentialSampler)):
        raise _unknown(f"orders records with {type(inner).__name__}, which gmip does not know")
    total = len(inner)
    if isinstance(inner, RandomSampler):
        if inner.replacement:
            raise InvalidArgument(
                "draws with replacement, so that a record can be in a batch twice, which no accounting here covers",
                argument="loader",
                remedy="use batch_sampler=gmip.training.FixedSize(...), or shuffle=True",
            )
        if total != len(inner.data_source):
            raise _unknown("takes a random part of the records in each epoch, which is none of the known ways")
    if n >= total:
        return Drawing("full", total, total)
    if isinstance(inner, SequentialSampler):
        raise _in_order()
    return Drawing("shuffled", total, n)


def rows_of(loader: Any, members: Ids | None, data: Task | Examples | tuple[Any, ...] | None) -> Ids | None:
    """The row of `data` of each position that a loader draws, shape (n,); None where that is not known.

    A Subset of the data says it itself. A data set of the members in their order is recognised by some of its records.
    """
    if isinstance(loader, Sampler):
        return None
    dataset, pool = loader.dataset, _pool(data)
    if isinstance(dataset, Subset) and pool is not None and len(dataset.dataset) == _row_count(data):  # type: ignore[arg-type]
        indices = np.asarray(dataset.indices, dtype=np.int64)
        if members is not None and (wrong := np.setdiff1d(members, indices)).size:
            raise InvalidArgument(
                f"names {wrong.size} records that the loader does not draw, such as {wrong[0]}",
                argument="members",
                remedy="pass the indices of the loader's Subset",
            )
        return indices
    if pool is None or members is None or len(dataset) != len(members):
        return None
    for position in np.unique(np.linspace(0, len(members) - 1, _COMPARED).astype(np.int64)):
        item = dataset[int(position)]
        if not _same(item, pool, int(members[position])):
            rows = _rows_like(item, pool)
            if rows.size and not np.isin(rows, members).any():
                raise InvalidArgument(
                    f"leaves out row {rows[0]} of `data`, which the loader draws",
                    argument="members",
                    remedy="pass the rows that the loader draws from",
                )
            return None
    return members


class Followed:
    """A batch sampler that is listened to while the loop runs: the ids of each batch, in their order.

    Stands in for the one of a DataLoader between `start` and `stop`; the loop draws the same batches.

    Parameters
    ----------
    rows : the id of each position that the sampler draws, shape (n,).
    """

    def __init__(self, loader: Any, rows: Ids) -> None:
        self._loader, self._rows = getattr(loader, "base_dataloader", loader), rows  # accelerate's loader holds another
        self._own: Any = self._loader.batch_sampler
        self._drawn: deque[Ids] = deque()
        self._lost = False

    def start(self) -> None:
        # DataLoader refuses to be given another one by name; everything else asks this one, which passes it on.
        object.__setattr__(self._loader, "batch_sampler", self)

    def stop(self) -> None:
        object.__setattr__(self._loader, "batch_sampler", self._own)

    def __iter__(self) -> Iterator[Any]:
        self._drawn.clear()  # batches that were drawn ahead in an epoch that the loop left
        self._lost = False
        for batch in self._own:
            self._drawn.append(np.asarray(batch, dtype=np.int64).reshape(-1))
            yield batch

    def __len__(self) -> int:
        return len(self._own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def take(self, size: int) -> Ids | None:
        """Who the next `size` examples are: as many batches as make them up.

        None where batches do not add up, and from there to the end of the epoch: which batch is which is lost.
        """
        if self._drawn and self._drawn[0].size == size and not self._lost:  # one batch, as most steps have
            return self._rows[self._drawn.popleft()]
        parts: list[Ids] = []
        while self._drawn and (sum(map(len, parts)) < size or not parts):
            parts.append(self._drawn.popleft())
        ids = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
        self._lost = self._lost or not parts or ids.size != size
        return None if self._lost else self._rows[ids]


def _batch_sampler(loader: Any) -> Any:
    if not isinstance(loader, DataLoader):
        raise InvalidArgument(
            f"must be a DataLoader of torch or a sampler of gmip, not {type(loader).__name__}", argument="loader"
        )
    if isinstance(loader.dataset, IterableDataset):
        raise _unknown("goes through an IterableDataset, whose order only its author knows")
    sampler: Any = loader.batch_sampler
    while hasattr(sampler, "batch_sampler"):  # accelerate's, which shares out another one's batches
        sampler = sampler.batch_sampler
    if sampler is None:
        raise _unknown("makes no batches of its own (batch_size=None)")
    return sampler


def _unknown(what: str) -> InvalidArgument:
    return InvalidArgument(
        what,
        argument="loader",
        remedy="say `sampling`, `dataset_size` and `batch_size` yourself, and leave `loader` out",
    )


def _in_order() -> InvalidArgument:
    return InvalidArgument(
        "goes through the records in the same order in every epoch, so the batches can be predicted",
        argument="loader",
        remedy="pass shuffle=True to it",
    )


def _pool(data: Task | Examples | tuple[Any, ...] | None) -> tuple[Any, ...] | Examples | None:
    if isinstance(data, Task):
        return data.pool
    return data


def _same(item: Any, pool: Any, row: int) -> bool:
    """Whether a record of a data set is that row of the data."""
    theirs = item if isinstance(item, (tuple, list)) else (item,)
    if isinstance(pool, Examples) and not isinstance(pool.inputs, Tensor):
        return False
    ours = (pool.inputs, pool.targets) if isinstance(pool, Examples) else pool
    if len(theirs) != len(ours) or row >= len(ours[0]):
        return False
    return all(
        torch.equal(_tensor(a).to(torch.float64), _tensor(b[row]).to(torch.float64))
        for a, b in zip(theirs, ours, strict=True)
    )


def _rows_like(item: Any, pool: Any) -> Ids:
    """The rows of the data that are this record of a data set."""
    ours = (pool.inputs, pool.targets) if isinstance(pool, Examples) else pool
    theirs = item if isinstance(item, (tuple, list)) else (item,)
    if len(theirs) != len(ours) or not all(isinstance(part, (Tensor, np.ndarray)) for part in ours):
        return np.zeros(0, dtype=np.int64)
    found = np.ones(len(ours[0]), dtype=np.bool_)
    for one, column in zip(theirs, ours, strict=True):
        wanted, rows = _tensor(one), _tensor(column)
        if rows.shape[1:] != wanted.shape:
            return np.zeros(0, dtype=np.int64)
        found &= (rows == wanted.to(rows.dtype)).reshape(len(rows), -1).all(1).numpy()
    return np.flatnonzero(found)


def _tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value))


# -- who was in each batch --------------------------------------------------------------------------------------------


Ids = NDArray[np.int64]
_ACCUSED: Final = 0.001  # chance that a sound loop is said to contradict its sampling
_OVERLAPS: Final = 100_000  # of batches, that a recorder counts; `gmip check` counts more
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
        self._known = None if self._members is None else np.zeros(int(self._members.max(initial=0)) + 2, dtype=np.bool_)
        if self._known is not None:
            self._known[self._members] = True
        self._sound = rows is not None and self._strangers(rows).size == 0  # whoever is drawn
        self._declared_ids: Ids | None = None
        self._warned = False

    def _expect_background(self, named: int, non_members: int) -> None:
        """Warn where every record will be a member or a candidate of an audit with its default settings."""
        if named == self._rows and non_members <= CANDIDATES:
            warn(
                f"All {named} rows of `data` are members or non-members. An audit that attacks all of them has no "
                "background left, which the attack glir needs: leave some rows out of `non_members`, or give the task "
                "a `background`."
            )

    def start(self) -> None:
        if self._followed is not None:
            self._followed.start()

    def stop(self) -> None:
        if self._followed is not None:
            self._followed.stop()

    def tell(self, ids: ArrayLike) -> int:
        """Who is in the coming step; returns how many they are."""
        self._declared_ids = self._checked(ids)
        return int(self._declared_ids.size)

    def take(self, size: int | None) -> Ids | None:
        """So many examples passed by: who they were, or None if nobody knows."""
        ids, self._declared_ids = self._declared_ids, None
        if ids is not None or self._followed is None or size is None:
            return ids
        ids = self._followed.take(size)
        if ids is not None:
            return ids if self._sound else self._checked(ids)
        if not self._warned:
            self._warned = True
            warn(
                "What the loader gave and what the model saw differ in number, so the members of this step are not "
                "recorded: call recorder.batch(ids=...)."
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
        """What speaks against the declared sampling, as a warning; None if nothing does."""
        header = self._header
        found = contradiction(
            sampling=header.sampling,
            dataset_size=header.dataset_size,
            batch_size=header.batch_size,
            sizes=np.array(self._sizes if self._whole else [], dtype=np.int64),
            batches=self._batches if len(self._batches) == len(self._sizes) else None,
            share=_ACCUSED,
            sample_rate=header.sample_rate,
            max_batch_size=header.max_batch_size,
            most_overlaps=_OVERLAPS,
        )
        if found is None:
            return None
        return (
            f"Batches were not drawn as declared: {found.fault.replace('-', ' ')} ({found.value:,.4g}, expected "
            f"{found.expected:,.4g}). "
            f"The run is accounted as sampling = {header.sampling!r}, which is not what the loop did: record what is "
            "true. `gmip check` says more."
        )

    def _checked(self, given: ArrayLike) -> Ids:
        ids = check_indices("ids", given.detach().cpu().numpy() if isinstance(given, Tensor) else given)
        self._check_range("ids", ids)
        if (strangers := self._strangers(ids)).size:
            raise InvalidArgument(
                f"has {int(strangers[0])}, which is not one of the `members`",
                argument="ids",
                remedy="pass rows of `data`, as `members` are",
            )
        return ids

    def _strangers(self, ids: Ids) -> Ids:
        """The ids that are not of members; none where members are not known."""
        if self._known is None:
            return ids[:0]
        return ids[~self._known.take(ids, mode="clip")]  # the last one is no member, and stands for all beyond it

    def _check_range(self, name: str, ids: Ids) -> None:
        if self._rows is not None and ids.size and int(ids.max()) >= self._rows:
            raise InvalidArgument(
                f"has {int(ids.max())}, but `data` has rows 0 to {self._rows - 1}",
                argument=name,
                remedy="pass rows of `data`",
            )


def declared(loader: Any, dataset_size: Any, batch_size: Any, sampling: Any, max_batch_size: Any) -> Drawing:
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
        _check_declared(name, value, known)
    final: dict[str, Any] = {name: known[name] if value is None else value for name, value in given.items()}
    if final["sampling"] == "full" and final["batch_size"] != final["dataset_size"]:
        raise InvalidArgument(
            f"must equal `dataset_size` = {final['dataset_size']} where `sampling` is 'full'",
            argument="batch_size",
            value=final["batch_size"],
        )
    same = final["batch_size"] == known.get("batch_size")
    most = known.get("max_batch_size")
    if loader is not None and max_batch_size not in (None, most):
        raise InvalidArgument(
            f"is not what the loader does, {most!r}",
            argument="max_batch_size",
            value=max_batch_size,
            remedy="leave it out",
        )
    if most is not None and not same:
        raise InvalidArgument(
            f"is not {known['batch_size']}, as the loader's, whose batches are cut to {most}: no accounting here "
            "covers several of them taken together",
            argument="batch_size",
            value=final["batch_size"],
            remedy="draw whole batches, or leave out `max_batch_size`",
        )
    return Drawing(
        **final, sample_rate=known.get("sample_rate") if same else None, max_batch_size=most or max_batch_size
    )


def _check_declared(name: str, value: Any, known: Mapping[str, Any]) -> None:
    """Raises where nobody says it, or the loader says something else."""
    if value is None and name not in known:
        how = "'fixed', 'poisson', 'full', 'balls-in-bins', or 'shuffled' for DataLoader(shuffle=True)"
        raise InvalidArgument(
            f"`{name}` is not given",
            remedy=f"pass it ({how}), or `loader`" if name == "sampling" else "pass it, or `loader`",
        )
    if value is not None and name in known and value != known[name]:
        # A wrapper of several processes, or an accumulating loop, makes larger batches than its loader.
        if name == "batch_size" and value % known[name] == 0:
            return
        raise InvalidArgument(
            f"is not what the loader does, {known[name]!r}", argument=name, value=value, remedy="leave it out"
        )


def _row_count(data: Task | Examples | tuple[Any, ...] | None) -> int | None:
    """How many rows ids refer to."""
    if data is None:
        return None
    if isinstance(data, Task):
        return len(data.pool)
    return len(data) if isinstance(data, Examples) else len(data[0]) if data else None
