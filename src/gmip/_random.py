"""Which random numbers serve what: each purpose draws from its own stream of the one seed."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

__all__ = ["Stream"]


class Stream(IntEnum):
    """What random numbers of a run, or of its audit, are for. The values are part of every result: never change one."""

    MEMBERS = 0
    BATCHES = 1
    NOISE = 2
    WEIGHTS = 3
    DROPOUT = 4
    CANDIDATES = 5  # of an audit, among members and non-members
    EXPERIMENT_CANDIDATES = 7  # the same in the paper's experiments

    def sequence(self, seed: int, *index: int) -> np.random.SeedSequence:
        """The start of the stream; where it has parts (one for each step, say), of the part of that index."""
        return np.random.SeedSequence([seed, int(self), *index])

    def rng(self, seed: int, *index: int) -> np.random.Generator:
        """NumPy's generator at the start of the stream."""
        return np.random.default_rng(self.sequence(seed, *index))

    def torch_seed(self, seed: int) -> int:
        """For torch.manual_seed, which takes 63 bits."""
        return int(self.sequence(seed).generate_state(1, np.uint64)[0] >> 1)
