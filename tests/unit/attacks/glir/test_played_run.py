"""A run that goes on from what an earlier attempt kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gmip.attacks.glir import Play, View
from gmip.attacks.glir.played_run import Played, PlayedRun
from gmip.store import Store

PLAY = Play(games=6, tuning_games=3, grid=((1e-12, 1e-3), (1e-12, 1e-1)))
MEMBERS, DIMS, STEPS = 20, 240, 30


def test_killed_between_tuning_steps_it_ends_with_the_same_scores(tmp_path: Path, monkeypatch: Any) -> None:
    rng = np.random.default_rng(0)
    members, others, background = (rng.normal(size=(count, DIMS)) for count in (MEMBERS, 40, 900))

    def view(t: int) -> View:
        fresh = np.random.default_rng([1, t])
        turn = fresh.normal(size=(DIMS, DIMS)) / DIMS**0.5
        drawn = fresh.permutation(MEMBERS)[:10]
        return View(
            mean=np.tanh(members @ turn)[drawn].mean(0),
            candidates=np.tanh(np.vstack([members, others]) @ turn),
            background=np.tanh(background @ turn),
            batch_size=10,
            sample_rate=0.5,
            sampling="fixed",
        )

    def go(kept: Store) -> Played:
        run = PlayedRun(
            background=900,
            candidates=60,
            dataset_size=MEMBERS,
            method="mixture",
            play=PLAY,
            grid=list(PLAY.grid),
            shrinkage=None,
            seed=0,
            listed=False,
        )
        return run.run([lambda t=t: view(t) for t in range(STEPS)], kept)  # type: ignore[misc]

    put: list[tuple[Any, ...]] = []
    with monkeypatch.context() as patch:
        patch.setattr(Store, "put", lambda store, *entry: put.append(entry))
        expected = go(Store(tmp_path, "whole"))
    assert expected.left_out and expected.decided
    for first in (1, 2):
        kept = Store(tmp_path, "parts", {"first": first})
        for entry in put[:first]:
            kept.put(*entry)
        again = go(kept)
        assert again.left_out == expected.left_out
        np.testing.assert_array_equal(again.scores, expected.scores)
