"""Which random numbers serve what: each purpose draws from its own stream of the one seed."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class _Streams(IntEnum):
    """What random numbers are for. The values are part of every result: never change one."""

    def sequence(self, seed: int, *index: int) -> np.random.SeedSequence:
        """The start of the stream; where it has parts (one for each step, say), of the part of that index."""
        return np.random.SeedSequence([seed, int(self), *index])

    def rng(self, seed: int, *index: int) -> np.random.Generator:
        """NumPy's generator at the start of the stream."""
        return np.random.default_rng(self.sequence(seed, *index))

    def torch_seed(self, seed: int, *index: int) -> int:
        """A seed for torch.manual_seed, which takes 63 bits."""
        return int(self.sequence(seed, *index).generate_state(1, np.uint64)[0] >> 1)


class Stream(_Streams):
    """The streams of a run, or of its audit, are numbered here."""

    MEMBERS = 0
    BATCHES = 1
    NOISE = 2
    WEIGHTS = 3
    DROPOUT = 4
    CANDIDATES = 5  # of an audit, among members and non-members
    EXPERIMENT_CANDIDATES = 7  # the same in the paper's experiments


class PlayStream(_Streams):
    """GLiR's seed has these streams: its self-play, and p-values by simulation."""

    SPLIT = 0  # of the background, into estimation and play
    TUNING_GAMES = 1
    GAMES = 2
    P_VALUES = 3
    OPTIMALITY = 4  # how far a released model is from an optimum
    FIELD = 5  # who of background and candidates plays, where both are in the fit
    BATCHES = 6  # of games; a part for each step
    EPOCHS = 7  # the order of a game's members; a part for each epoch
    GAME_NOISE = 8  # a part for each step
    PAIRS = 9  # records whose products the temperature of a test is measured on; a part for each step
    LISTED = 10  # which background records are used beside a list of candidates


class ShadowStream(_Streams):
    """The seed of shadow models has these streams; all but the first have a part for each model or group of models."""

    POPULATION = 0
    MEMBERS = 1
    FILL = 2
    TRAINING = 3
    SIGNAL = 4


class CanaryStream(_Streams):
    """The seed of canaries has these streams; BATCHES and SIGNS have a part for each step."""

    COINS = 0
    LABELS = 1
    DIRECTIONS = 2
    SIGNS = 3
    BATCHES = 4


class TuningStream(_Streams):
    """The seed of a search, or of one of its trials, has these streams."""

    RECORDS = 20  # of a trial, whose seed serves `Stream` too: who is trained on and who is measured on
    POINTS = 21  # of a search: where it begins; a part for each round
    TRIALS = 22  # of a search: seeds of its trials, by number
