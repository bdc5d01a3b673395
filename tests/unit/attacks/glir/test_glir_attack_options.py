"""Options of GLiR: bad ones are refused before any work, doubts change what is tested."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gmip.attacks import GLiR
from gmip.attacks.glir import Play
from gmip.attacks.glir.glir_attack import DoubtClipping, DoubtNoise
from gmip.errors import GmipWarning, InvalidArgument
from gmip.tasks import load
from gmip.trace import Trace
from gmip.training import train


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "best"}, "method"),
        ({"play": True}, "play = True must be"),
        ({"cutoff": -1.0}, "cutoff"),
        ({"ridge": "much"}, "ridge"),
        ({"shrinkage": "strong"}, "shrinkage"),
        ({"steps": "all"}, "steps = .* must be a list"),
        ({"steps": [1.5]}, "steps = .* must be a list"),
        ({"steps": 3}, "steps = .* must be a list"),
        ({"projection": 0}, "projection"),
        ({"doubt": "all"}, "doubt"),
        ({"memory_limit": "lots"}, "memory_limit"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_options(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        GLiR(**options)


def test_doubts(tmp_path: Path) -> None:
    task = load("digits")
    small = task.recipe.replace(
        dataset_size=40, batch_size=40, sampling="full", num_steps=2, clip_norm=0.1, noise_std=0.002
    )
    task = dataclasses.replace(task, recipe=small)
    train(task, seed=5, out=tmp_path / "a")
    trace = Trace.open(tmp_path / "a")
    plain, noise, clipping = (kind(play=None).run(task, trace) for kind in (GLiR, DoubtNoise, DoubtClipping))
    assert [found.attack for found in (plain, noise, clipping)] == ["glir", "glir-no-noise", "glir-no-clip"]
    np.testing.assert_array_equal(GLiR(play=None, doubt="noise").run(task, trace).scores, noise.scores)
    for other in (noise, clipping):
        assert not np.allclose(plain.scores, other.scores)
    # Without noise to doubt, the doubt changes nothing.
    train(task, small.replace(noise_std=0.0), seed=5, out=tmp_path / "b")
    silent = Trace.open(tmp_path / "b")
    np.testing.assert_array_equal(
        GLiR(play=None).run(task, silent).scores, GLiR(play=None, doubt="noise").run(task, silent).scores
    )


def test_noise_does_not_blind_the_attack_that_assumes_none(tmp_path: Path) -> None:
    """The length of a noisy mean once said "not in the batch" of everybody, and every score was the same."""
    task = load("digits")
    small = task.recipe.replace(dataset_size=40, batch_size=20, num_steps=3, clip_norm=0.1, noise_std=0.1)
    task = dataclasses.replace(task, recipe=small)
    train(task, seed=5, out=tmp_path / "a")
    trace, few = Trace.open(tmp_path / "a"), Play(games=2, tuning_games=2)
    found = DoubtNoise(play=few).run(task, trace)
    # Whom the noise speaks against in all three steps, one in eight, has the lowest score.
    assert np.unique(found.scores).size > 0.75 * len(found)
    # The paper's test is about that length alone: it cannot score such a run, and says so.
    with pytest.warns(GmipWarning, match="'glir-no-noise' gives all 80 candidates the same score"):
        assert np.ptp(DoubtNoise(method="paper", play=few).run(task, trace).scores) == 0.0
