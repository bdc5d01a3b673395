"""Streams of random numbers: their values are part of every result."""

from __future__ import annotations

import numpy as np
import pytest

from gmip._random import PlayStream, ShadowStream, Stream, TuningStream


@pytest.mark.parametrize(("stream", "number"), [("MEMBERS", 0), ("BATCHES", 1), ("NOISE", 2), ("WEIGHTS", 3)])
def test_a_stream_is_numpys_of_seed_number_and_index(stream: str, number: int) -> None:
    found = Stream[stream].rng(2**70, 6).integers(0, 2**60, 5)
    assert found.tolist() == np.random.default_rng([2**70, number, 6]).integers(0, 2**60, 5).tolist()


def test_values_never_change() -> None:
    assert {stream.name: stream.value for stream in Stream} == {
        "MEMBERS": 0,
        "BATCHES": 1,
        "NOISE": 2,
        "WEIGHTS": 3,
        "DROPOUT": 4,
        "CANDIDATES": 5,
        "EXPERIMENT_CANDIDATES": 7,
    }
    assert [stream.name for stream in sorted(PlayStream)] == [
        *("SPLIT", "TUNING_GAMES", "GAMES", "P_VALUES", "OPTIMALITY"),
        *("FIELD", "BATCHES", "EPOCHS", "GAME_NOISE", "PAIRS", "LISTED"),
    ]
    assert [stream.name for stream in sorted(ShadowStream)] == ["POPULATION", "MEMBERS", "FILL", "TRAINING", "SIGNAL"]
    assert {stream.name: stream.value for stream in TuningStream} == {"RECORDS": 20, "POINTS": 21, "TRIALS": 22}
    assert set(PlayStream) == set(range(11)) and set(ShadowStream) == set(range(5))
    assert (
        ShadowStream.TRAINING.torch_seed(7, 2) == np.random.SeedSequence([7, 3, 2]).generate_state(1, np.uint64)[0] // 2
    )
    assert Stream.WEIGHTS.torch_seed(7) == 2530781778362038830
