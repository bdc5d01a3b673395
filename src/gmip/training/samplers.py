"""Which examples are in the batch of each step.

A sampler is a sequence: `sampler[t]` is the batch of step t, a function of (seed, t) alone, so that a run can go on
after an interruption without any state. It is also a `batch_sampler` for torch's DataLoader: each pass goes on where
the one before ended, so that no draw is used twice.
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from gmip import _validate as check
from gmip._random import Stream
from gmip.errors import InvalidArgument
from gmip.vocabulary import RANDOM_SIZES, Sampling

Ids = NDArray[np.int64]


class Sampler(Sequence[Ids]):
    """`num_steps` batches of ids in 0, ..., dataset_size - 1, deterministic by `seed`."""

    #: As `gmip.NoisySGD` calls it. Each kind says it itself: whoever changes how one draws must not inherit its name.
    sampling: ClassVar[Sampling | None] = None
    max_batch_size: int | None = None

    def __init__(self, *, dataset_size: int, batch_size: int, num_steps: int, seed: int) -> None:
        self.dataset_size = check.count("dataset_size", dataset_size)
        self.batch_size = check.count("batch_size", batch_size)
        self.num_steps = check.count("num_steps", num_steps)
        self.seed = check.seed(seed)
        self._passed = 0  # steps of earlier passes
        if self.batch_size > self.dataset_size:
            raise InvalidArgument(
                f"exceeds `dataset_size` = {dataset_size}", argument="batch_size", value=batch_size, remedy="lower it"
            )

    def __len__(self) -> int:
        return self.num_steps

    def __getitem__(self, step: Any) -> Any:
        step = operator.index(step)
        if not 0 <= step < self.num_steps:
            raise IndexError(f"step {step} of {self.num_steps}")
        return self._batch(step)

    def __iter__(self) -> Iterator[Any]:
        first, self._passed = self._passed, self._passed + self.num_steps
        return (self._batch(step) for step in range(first, first + self.num_steps))

    def divisor(self, batch: Ids) -> int:
        """What the sum of a batch's gradients is divided by: its size, or the declared one where sizes are random."""
        return self.batch_size if self.sampling in RANDOM_SIZES else len(batch)

    @abstractmethod
    def _batch(self, step: int) -> Ids: ...

    def _rng(self, index: int) -> np.random.Generator:
        return Stream.BATCHES.rng(self.seed, index)


class FixedSize(Sampler):
    """`batch_size` examples without replacement, anew for each step: every subset is equally likely (the paper's)."""

    sampling = "fixed"

    def _batch(self, step: int) -> Ids:
        return self._rng(step).choice(self.dataset_size, self.batch_size, replace=False, shuffle=False)


class Poisson(Sampler):
    """Each example on its own with probability batch_size/dataset_size; a batch may be empty (torch's default_collate
    fails on one: pass a DataLoader a collate_fn that does not).

    The divisor is the expected size, whatever the batch's own: dividing by the latter would publish it.

    max_batch_size : of a batch that was drawn larger, a random part is left out, which the accountant has to know.
    """

    sampling = "poisson"

    def __init__(
        self, *, dataset_size: int, batch_size: int, num_steps: int, seed: int, max_batch_size: int | None = None
    ) -> None:
        super().__init__(dataset_size=dataset_size, batch_size=batch_size, num_steps=num_steps, seed=seed)
        if max_batch_size is not None:
            check.largest_batch(check.count("max_batch_size", max_batch_size), self.batch_size, "poisson")
        self.max_batch_size = max_batch_size

    def _batch(self, step: int) -> Ids:
        rng = self._rng(step)
        # A binomial number of examples, then a uniform subset of that size: the same law as one coin per example.
        size = rng.binomial(self.dataset_size, self.batch_size / self.dataset_size)
        if self.max_batch_size is not None:
            size = min(size, self.max_batch_size)
        return rng.choice(self.dataset_size, size, replace=False, shuffle=False)


class FullBatch(Sampler):
    """Every example in every step."""

    sampling = "full"

    def __init__(self, *, dataset_size: int, num_steps: int, seed: int = 0, batch_size: int | None = None) -> None:
        size = dataset_size if batch_size is None else batch_size
        super().__init__(dataset_size=dataset_size, batch_size=size, num_steps=num_steps, seed=seed)
        if self.batch_size != self.dataset_size:
            raise InvalidArgument(
                f"must equal `dataset_size` = {dataset_size} where `sampling` is 'full'",
                argument="batch_size",
                value=batch_size,
                remedy="leave it out",
            )

    def _batch(self, step: int) -> Ids:
        return np.arange(self.dataset_size)


class _Epochs(Sampler):
    """Epochs of ceil(dataset_size/batch_size) batches."""

    def __init__(self, *, dataset_size: int, batch_size: int, num_steps: int, seed: int) -> None:
        super().__init__(dataset_size=dataset_size, batch_size=batch_size, num_steps=num_steps, seed=seed)
        self.steps_per_epoch = -(-self.dataset_size // self.batch_size)
        self._epoch = lru_cache(maxsize=1)(lambda epoch: self._drawn(self._rng(epoch)))

    def _batch(self, step: int) -> Ids:
        epoch, place = divmod(step, self.steps_per_epoch)
        return self._part(self._epoch(epoch), place)

    @abstractmethod
    def _drawn(self, rng: np.random.Generator) -> Ids:
        """Where all examples are in an epoch."""

    @abstractmethod
    def _part(self, epoch: Ids, place: int) -> Ids: ...


class Shuffled(_Epochs):
    """Epochs: each example once, in random order; the last batch of an epoch holds what is left and may be smaller."""

    sampling = "shuffled"

    def _drawn(self, rng: np.random.Generator) -> Ids:
        return rng.permutation(self.dataset_size)

    def _part(self, epoch: Ids, place: int) -> Ids:
        # A copy: whoever sorts a batch in place must not change the epoch's order.
        return epoch[place * self.batch_size : (place + 1) * self.batch_size].copy()


class BallsInBins(_Epochs):
    """Epochs: each example picks one of the ceil(dataset_size/batch_size) batches of an epoch on its own. A batch may
    be empty (torch's default_collate fails on one: pass a DataLoader a collate_fn that does not).

    The divisor is batch_size, whatever the batch's own: dividing by the latter would publish it.
    """

    sampling = "balls-in-bins"

    def _drawn(self, rng: np.random.Generator) -> Ids:
        return rng.integers(self.steps_per_epoch, size=self.dataset_size)

    def _part(self, epoch: Ids, place: int) -> Ids:
        return np.flatnonzero(epoch == place)


_KINDS: Final[dict[Any, Any]] = {kind.sampling: kind for kind in (FixedSize, Poisson, FullBatch, Shuffled, BallsInBins)}


def make_sampler(
    sampling: str, *, dataset_size: int, batch_size: int, num_steps: int, seed: int, max_batch_size: int | None = None
) -> Sampler:
    """The sampler of that name: see `gmip.NoisySGD`."""
    kind: type[Sampler] = _KINDS[check.one_of("sampling", sampling, tuple(_KINDS))]
    more: dict[str, Any] = {}
    if max_batch_size is not None:
        check.largest_batch(max_batch_size, batch_size, sampling)
        more = {"max_batch_size": max_batch_size}
    return kind(dataset_size=dataset_size, batch_size=batch_size, num_steps=num_steps, seed=seed, **more)
