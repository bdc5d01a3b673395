"""A run that goes on from what an earlier attempt kept."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gmip.attacks.glir import Play, View
from gmip.attacks.glir.selfplay import GlirOutcome, PlayedRun, Total
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

    def go(kept: Store) -> GlirOutcome:
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


@pytest.mark.parametrize("listed", [False, True])
def test_a_step_that_the_setting_does_not_suit_takes_another(listed: bool, tmp_path: Path) -> None:
    """Gradients of few directions choose hardly any ridge; with that, a step of all directions has no degree of freedom
    left."""
    rng, dims, size = np.random.default_rng(0), 600, 20
    records = rng.normal(size=(520, dims)) * np.geomspace(1.0, 1.0e-3, dims)

    def view(t: int) -> View:
        rows = records @ np.random.default_rng([2, t]).normal(size=(dims, dims)) / dims**0.5
        if t != 1:
            rows = rng.normal(size=(520, 30)) * np.geomspace(1.0, 1.0e-3, 30) @ np.eye(30, dims)
        return View(
            mean=rows[:10].mean(0), candidates=rows[:40], background=rows[40:], batch_size=10, sample_rate=0.5,
            sampling="fixed",
        )  # fmt: skip

    grid = ((1e-12, 1e-12), (1e-12, 1e-1))
    run = PlayedRun(
        background=480,
        candidates=40,
        dataset_size=size,
        method="mixture",
        play=Play(games=6, tuning_games=3, grid=grid, tuning_steps=2, stop_when_decided=False),
        grid=list(grid),
        shrinkage=None,
        seed=0,
        listed=listed,
    )
    kept = Store(tmp_path, "steps")
    found = run.run([lambda t=t: view(t) for t in range(3)], kept)  # type: ignore[misc]
    assert (found.cutoff, found.ridge) == grid[0] and found.left_out == 0 and np.isfinite(found.scores).all()
    second = kept.get(1)
    assert second is not None and second.arrays["how"][4] == grid[1][1]


def test_epochs_in_any_order_give_the_sum_by_definition() -> None:
    """A record is in one of 4 batches of an epoch, or in the fifth of the data that is dropped."""
    rng, rate, epochs = np.random.default_rng(0), 0.2, 3
    says = rng.normal(size=(epochs, 4, 7))
    expected = np.sum(np.log(rate * np.exp(says).sum(axis=1) + (1.0 - 4 * rate)), axis=0)
    total = Total(mixture=True, batches=4)
    for place in rng.permutation(epochs * 4).tolist():
        total.add(says.reshape(-1, 7)[place], 0.0, np.array([rate, 1.0, place // 4]))
    np.testing.assert_allclose(total.value(), expected, rtol=1e-12)


@pytest.mark.parametrize("sampling", ["fixed", "shuffled"])
def test_memory_does_not_grow_with_the_steps(sampling: str) -> None:
    """Games of one step are 66 x 125 numbers, 66 kB; forty more steps leave next to nothing."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(560, 6))

    def peak(steps: int) -> int:
        def view(t: int) -> View:
            how = {"sampling": sampling, "epoch": t // 2, "drawn": 10 * (t % 2)}
            return View(
                mean=rows[t : t + 10].mean(0), candidates=rows[:60], background=rows[60:], batch_size=10,
                sample_rate=0.5, **how,
            )  # fmt: skip

        play = Play(games=60, tuning_games=6, grid=((1e-12, 1e-3),), tuning_steps=2, stop_when_decided=False)
        run = PlayedRun(
            background=500, candidates=60, dataset_size=MEMBERS, method="mixture", play=play, grid=list(play.grid),
            shrinkage=None, seed=0, listed=False, batches=2,
        )  # fmt: skip
        tracemalloc.start()
        run.run([lambda t=t: view(t) for t in range(steps)])  # type: ignore[misc]
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(10)
    assert peak(50) - peak(10) < 400_000
