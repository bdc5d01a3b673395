"""What a data loader says about a run: how batches are drawn, from how many records, and who is in each."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
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

from gmip.errors import InvalidArgument
from gmip.tasks.task import Examples, Task
from gmip.training.samplers import FixedSize, FullBatch, Poisson, Sampler, Shuffled
from gmip.vocabulary import Sampling

__all__ = ["Drawing", "Followed", "drawing_of", "rows_of"]

Ids = NDArray[np.int64]
_COMPARED = 5  # records that are looked at to tell whether a loader goes through the members in their order
_OURS: dict[type[Sampler], Sampling] = {
    FixedSize: "fixed",
    Poisson: "poisson",
    FullBatch: "full",
    Shuffled: "shuffled",
}


class Drawing(NamedTuple):
    """How batches are drawn, and the nominal sizes; `sample_rate` where these do not say it exactly."""

    sampling: Sampling
    dataset_size: int
    batch_size: int
    sample_rate: float | None = None


def drawing_of(loader: Any) -> Drawing:
    """What a DataLoader of torch or Opacus, or a sampler of gmip, does; an InvalidArgument if no `sampling` is that."""
    sampler = loader if isinstance(loader, Sampler) else _batch_sampler(loader)
    if isinstance(sampler, Sampler):
        return Drawing(_OURS[type(sampler)], sampler.dataset_size, sampler.batch_size)
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


def rows_of(
    loader: Any, members: Ids | None, data: Task | Examples | tuple[Any, ...] | None
) -> Callable[[Ids], Ids] | None:
    """From the positions that a loader draws to rows of `data`; None where that cannot be told.

    A Subset of the data says it itself. A data set of the members in their order is recognised by some of its records.
    """
    if isinstance(loader, Sampler):
        return None
    dataset, pool = loader.dataset, _pool(data)
    if isinstance(dataset, Subset) and pool is not None and len(dataset.dataset) == len(pool):  # type: ignore[arg-type]
        indices = np.asarray(dataset.indices, dtype=np.int64)
        return lambda positions: indices[positions]
    if pool is None or members is None or len(dataset) != len(members):
        return None
    for position in np.unique(np.linspace(0, len(members) - 1, _COMPARED).astype(np.int64)):
        if not _same(dataset[int(position)], pool, int(members[position])):
            return None
    return lambda positions: members[positions]


class Followed:
    """A batch sampler that is listened to while the loop runs: the ids of each batch, in their order.

    Stands in for the one of a DataLoader between `start` and `stop`; the loop draws the same batches.
    """

    def __init__(self, loader: Any, rows: Callable[[Ids], Ids]) -> None:
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
        parts: list[Ids] = []
        while self._drawn and (sum(map(len, parts)) < size or not parts):
            parts.append(self._drawn.popleft())
        ids = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
        self._lost = self._lost or not parts or ids.size != size
        return None if self._lost else self._rows(ids)


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
        "goes through the records in the same order in every epoch, so that everybody can know who is in which batch",
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


def _tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value))
