"""Who is in which shadow model: a function of the seed and the model's number, never of how many models there are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gmip._random import ShadowStream
from gmip.errors import InvalidArgument

__all__ = ["Membership"]

_MOST_POPULATION: Final = 1_000


@dataclass(frozen=True, kw_only=True)
class Membership:
    """Membership of shadow models of `dataset_size` records, drawn from candidates and background.

    Models 2j and 2j + 1 are complementary: a random half of the candidates is in the first and the other half is in the
    second. Where half of the candidates is more than `dataset_size`, models come in larger groups, as many as there is
    room for, such that no candidate is in two models of a group. The rest of a model's records are background.

    Up to 1,000 background records, at most half of those that can be spared, are in no model: the population.
    """

    num_candidates: int
    num_background: int
    dataset_size: int
    seed: int

    def __post_init__(self) -> None:
        if self.num_background < self._most_fill:
            raise InvalidArgument(
                f"A shadow model needs {self.dataset_size} records, as the run has: half of the {self.num_candidates} "
                f"candidates are {self.num_candidates // 2}, and `background` has only {self.num_background} of the "
                f"missing {self._most_fill}",
                remedy="pass more `background` or more `candidates`",
            )

    @cached_property
    def population(self) -> NDArray[np.int64]:
        """Background records that are in no model, sorted, shape (z,)."""
        return self._background[0]

    @cached_property
    def filling(self) -> NDArray[np.int64]:
        """Background records that may be in a model, sorted; none where candidates fill the models."""
        return self._background[1]

    def inside(self, index: int) -> NDArray[np.bool_]:
        """Which candidates are in the model, shape (c,)."""
        c, N = self.num_candidates, self.dataset_size
        mask = np.zeros(c, dtype=np.bool_)
        if c - c // 2 <= N:
            pair, second = divmod(index, 2)
            mask[ShadowStream.MEMBERS.rng(self.seed, pair).permutation(c)[: c // 2]] = True
            return ~mask if second else mask
        group, place = divmod(index, c // N)
        mask[ShadowStream.MEMBERS.rng(self.seed, group).permutation(c)[place * N : (place + 1) * N]] = True
        return mask

    def fill(self, index: int) -> NDArray[np.int64]:
        """Rows of `filling` that are in the model, sorted."""
        missing = self.dataset_size - int(self.inside(index).sum())
        return np.sort(ShadowStream.FILL.rng(self.seed, index).choice(len(self.filling), missing, replace=False))

    def training_seed(self, index: int) -> int:
        """Of initial weights, batches and noise."""
        return ShadowStream.TRAINING.torch_seed(self.seed, index)

    def signal_seed(self, index: int) -> int:
        """Of torch's generator while a signal is computed."""
        return ShadowStream.SIGNAL.torch_seed(self.seed, index)

    @property
    def _most_fill(self) -> int:
        return max(0, self.dataset_size - self.num_candidates // 2)

    @cached_property
    def _background(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        order = ShadowStream.POPULATION.rng(self.seed, 0).permutation(self.num_background)
        size = min(_MOST_POPULATION, (self.num_background - self._most_fill) // 2)
        rest = order[size:] if self._most_fill else order[:0]
        return np.sort(order[:size]), np.sort(rest)
