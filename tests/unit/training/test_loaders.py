"""What a loader says about a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
)
from torch.utils.data.distributed import DistributedSampler

from gmip.errors import InvalidArgument
from gmip.tasks import Examples
from gmip.training import FixedSize, FullBatch, Poisson, Shuffled
from gmip.training.batch_log import Drawing, Followed, declared, drawing_of, rows_of

DATA = TensorDataset(torch.arange(20.0)[:, None], torch.arange(20))
SIZES: dict[str, Any] = {"dataset_size": 20, "batch_size": 8, "num_steps": 5, "seed": 3}


@pytest.mark.parametrize(
    ("loader", "drawing"),
    [
        (DataLoader(DATA, batch_size=8, shuffle=True), ("shuffled", 20, 8)),
        (DataLoader(DATA, batch_size=20, shuffle=True), ("full", 20, 20)),
        (DataLoader(DATA, batch_size=30), ("full", 20, 20)),
        (DataLoader(DATA, batch_size=4, sampler=SubsetRandomSampler(range(10))), ("shuffled", 10, 4)),
        (DataLoader(DATA, batch_sampler=BatchSampler(RandomSampler(DATA), 8, True)), ("shuffled", 20, 8)),
        (DataLoader(DATA, batch_sampler=FixedSize(**SIZES)), ("fixed", 20, 8)),
        (DataLoader(DATA, batch_sampler=Poisson(**SIZES)), ("poisson", 20, 8)),
        (Shuffled(**SIZES), ("shuffled", 20, 8)),
        (FullBatch(dataset_size=20, num_steps=2), ("full", 20, 20)),
    ],
    ids=["shuffle", "one batch", "all in order", "subset", "batch sampler", "fixed", "poisson", "own", "own full"],
)
def test_drawing(loader: Any, drawing: tuple[str, int, int]) -> None:
    assert drawing_of(loader) == Drawing(*drawing)


@pytest.mark.filterwarnings("ignore:Secure RNG turned off:UserWarning")
def test_drawing_of_opacus() -> None:
    from opacus.data_loader import DPDataLoader

    loader = DPDataLoader.from_data_loader(DataLoader(DATA, batch_size=5))
    assert drawing_of(loader) == Drawing("poisson", 20, 5, 0.25)


def shared(ranks: int, *, size: int = 2, **options: Any) -> DataLoader[Any]:
    return DataLoader(DATA, batch_size=size, sampler=DistributedSampler(DATA, num_replicas=ranks, rank=0, **options))


def test_drawing_of_several_ranks() -> None:
    """Sizes of all ranks together."""
    assert drawing_of(shared(4)) == Drawing("shuffled", 20, 8)
    assert drawing_of(shared(3, drop_last=True)) == Drawing("shuffled", 20, 6)
    assert drawing_of(shared(4, size=5)) == Drawing("full", 20, 20)


class EvenOnly(FixedSize):
    """Draws otherwise than the sampler that it is made from."""

    def _batch(self, step: int) -> Any:
        return super()._batch(step) // 2 * 2


class Stream(IterableDataset[int]):
    def __iter__(self):
        return iter(())


@pytest.mark.parametrize(
    ("loader", "words"),
    [
        (DataLoader(DATA, batch_size=8), "the same order in every epoch"),
        (DataLoader(DATA, batch_size=8, sampler=RandomSampler(DATA, replacement=True)), "with replacement"),
        (DataLoader(DATA, batch_size=2, sampler=RandomSampler(DATA, num_samples=10)), "a random part"),
        (DataLoader(DATA, batch_size=None, sampler=SequentialSampler(DATA)), "no batches of its own"),
        (DataLoader(DATA, batch_size=8, sampler=list(range(20))), "orders records with list"),
        (DataLoader(Stream(), batch_size=8), "IterableDataset"),
        (shared(3), "repeats records to share 20 of them out evenly among 3 ranks.*drop_last=True"),
        (shared(4, shuffle=False), "the same order in every epoch"),
        (EvenOnly(dataset_size=20, batch_size=4, num_steps=5, seed=0), "draws batches with EvenOnly"),
        ([1, 2], "must be a DataLoader"),
    ],
    ids=["sequential", "replacement", "part", "none", "list", "stream", "padded", "ranks in order", "own", "no loader"],
)
def test_what_cannot_be_said_is_an_error(loader: Any, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        drawing_of(loader)


def test_rows_of_members_in_their_order() -> None:
    pool = Examples(torch.arange(40.0)[:, None], torch.arange(40))
    members = np.array([3, 30, 8, 11, 25, 2])
    ours = DataLoader(TensorDataset(pool.inputs[members], pool.targets[members]), batch_size=2)
    rows = rows_of(ours, members, pool)
    assert rows is not None and rows[[1, 4]].tolist() == [30, 25]
    assert rows_of(ours, np.sort(members), pool) is None  # in another order: not to be told
    assert rows_of(ours, members, None) is None
    subset = DataLoader(Subset(TensorDataset(pool.inputs, pool.targets), members.tolist()), batch_size=2)
    rows = rows_of(subset, None, pool)
    assert rows is not None and rows[[0, 2]].tolist() == [3, 8]


def test_followed_loader_gives_the_same_batches_and_says_who() -> None:
    loader = DataLoader(DATA, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(1))
    followed = Followed(loader, np.arange(100, 200))
    followed.start()
    for _ in range(2):
        for _, targets in loader:
            ids = followed.take(len(targets))
            assert ids is not None and ids.tolist() == (targets + 100).tolist()
    epoch = iter(loader)
    first, second = next(epoch)[1], next(epoch)[1]
    ids = followed.take(16)  # two batches in one step
    assert ids is not None and ids.tolist() == [*(first + 100).tolist(), *(second + 100).tolist()]
    assert next(epoch)[1].shape == (4,) and followed.take(3) is None
    next(iter(loader))
    assert followed.take(8) is not None  # a new epoch is known again
    followed.stop()
    assert isinstance(loader.batch_sampler, BatchSampler)


def test_a_largest_batch_must_be_the_loaders() -> None:
    with pytest.raises(InvalidArgument, match="max_batch_size = 12 is not what the loader does, None"):
        declared(Poisson(**SIZES), None, None, None, 12)
    assert declared(None, 20, 8, "poisson", 12).max_batch_size == 12
