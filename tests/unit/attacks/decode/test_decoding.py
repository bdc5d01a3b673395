"""Decoding on Gaussian gradients, where the answer is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from gmip.attacks.decode import decode, from_rows
from gmip.errors import InvalidArgument
from tests.unit.attacks.decode.listed_games import C, N, play, sums_of


def test_more_numbers_than_candidates_give_everybody_away() -> None:
    game = play(0, dims=150)
    assert game.auc == 1.0 and game.found.coverage == 1.0 and game.found.settled and game.found.sure == 1.0
    np.testing.assert_array_equal(game.found.log_odds > 0.0, game.inside)


def test_fewer_numbers_than_candidates_are_enough() -> None:
    """Who is in is a yes or no: 65 numbers tell 100 of them, and the linear estimate does not know that."""
    games = [play(seed, dims=65, coverage=1.0) for seed in range(6)]
    linear = [play(seed, dims=65, coverage=1.0, most_sweeps=1) for seed in range(6)]
    assert all(game.auc >= one.auc - 0.02 for game, one in zip(games, linear, strict=True))
    assert sum(game.auc == 1.0 for game in games) >= 4 and not any(game.auc == 1.0 for game in linear)


def test_where_nothing_can_be_decoded_odds_are_small_and_right() -> None:
    games = [play(seed, dims=5) for seed in range(40)]
    chance = np.concatenate([1.0 / (1.0 + np.exp(-game.found.log_odds)) for game in games])
    inside = np.concatenate([game.inside for game in games])
    assert 0.5 < np.mean([game.auc for game in games]) < 0.65
    assert all(game.found.gain < 0.15 for game in games)
    for low, high in ((0.2, 0.45), (0.45, 0.55), (0.55, 0.8)):  # calibrated
        part = (chance > low) & (chance < high)
        assert abs(inside[part].mean() - chance[part].mean()) < 4.0 * 0.5 / np.sqrt(part.sum())


MINI: dict[str, Any] = {"batch": 10, "steps": 10, "dims": 120}


@pytest.mark.parametrize("sampling", ["fixed", "poisson", "shuffled"])
def test_mini_batches_and_who_was_in_them(sampling: str) -> None:
    game = play(1, sampling=sampling, **MINI)
    drawn = game.batches.any(0)
    assert game.auc > (0.999 if sampling == "shuffled" else 0.9)
    assert game.found.log_odds[drawn].min() > game.found.log_odds[~drawn].max()  # others cannot be told apart
    assert game.found.batches.shape == game.batches.shape
    np.testing.assert_array_equal(game.found.batches > 0.5, game.batches)


def test_shuffled_epochs_tell_more_than_the_same_steps_drawn_anew() -> None:
    games = [play(seed, sampling="shuffled", noise=0.25, batch=10, steps=10, dims=60) for seed in range(3)]
    for seed, game in enumerate(games):
        assert all((game.batches[e : e + 5].sum(0) == game.inside).all() for e in (0, 5)), seed
    told = np.mean([game.auc for game in games])
    fresh = np.mean([play(seed, sampling="fixed", noise=0.25, batch=10, steps=10, dims=60).auc for seed in range(3)])
    assert told > fresh + 0.03


@pytest.mark.parametrize("sampling", ["full", "fixed", "poisson", "shuffled"])
@pytest.mark.parametrize("dims", [40, 150])
def test_null_runs(sampling: str, dims: int) -> None:
    """Members are strangers: whom the attack thinks to find does not depend on who is on one half of the list."""
    sizes = {"full": (N, 1), "shuffled": (10, 5)}.get(sampling, (10, 3))
    games = [
        play(seed, dims=dims, sampling=sampling, batch=sizes[0], steps=sizes[1], null=True, most_sweeps=6)
        for seed in range(6 if sampling == "full" else 3)
    ]
    error = np.sqrt((2.0 / N) / 12.0 / len(games))
    assert abs(np.mean([game.auc for game in games]) - 0.5) < 4.0 * error
    assert all(np.isfinite(game.found.log_odds).all() for game in games)


def test_a_list_without_the_members_is_noticed() -> None:
    told = play(3, dims=150, null=True, coverage=1.0)
    assert told.found.misfit > 2.0
    estimated = play(3, dims=60, null=True, background=400)
    assert estimated.found.coverage <= 0.3 and estimated.found.sure < 0.1


@pytest.mark.parametrize("sampling", ["full", "poisson"])
def test_half_of_the_members_are_listed(sampling: str) -> None:
    sizes = {"full": (N, 1)}.get(sampling, (10, 4))
    options: dict[str, Any] = {"dims": 60, "batch": sizes[0], "steps": sizes[1], "sampling": sampling}
    games = [play(seed, listed=0.5, background=400, **options) for seed in range(3)]
    assert 0.2 <= np.mean([game.found.coverage for game in games]) <= 0.75
    assert all(game.found.misfit < 2.0 for game in games)
    whole = np.mean([play(seed, **options).auc for seed in range(3)])
    assert 0.6 < np.mean([game.auc for game in games]) < whole + 0.1


def test_where_few_can_be_decoded_sweeps_end_once_odds_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    how: dict[str, Any] = {
        "sampling": "shuffled",
        "noise": 0.25,
        "batch": 10,
        "steps": 10,
        "dims": 60,
        "most_sweeps": 40,
    }
    ended = [play(seed, **how).found for seed in range(6)]
    monkeypatch.setattr("gmip.attacks.decode._IDLE", (0.0, 0.0))
    whole = [play(seed, **how).found for seed in range(6)]
    assert all(one.settled for one in ended)
    assert sum(one.sweeps for one in ended) < 0.8 * sum(one.sweeps for one in whole)
    for one, other in zip(ended, whole, strict=True):
        assert np.abs(expit(one.log_odds) - expit(other.log_odds)).max() < 0.06


def test_what_is_refused() -> None:
    kind: Any = {"share": 0.5, "draw": "fixed", "noisy": False}
    one = from_rows(np.eye(4), np.ones(4), **kind)
    with pytest.raises(InvalidArgument, match="at least one published sum"):
        decode([], dataset_size=4)
    with pytest.raises(InvalidArgument, match="must name every step once"):
        decode([one, one], dataset_size=4, epochs=[[0]])
    with pytest.raises(InvalidArgument, match="coverage"):
        decode([one], dataset_size=4, coverage=1.5)


def test_the_share_of_listed_members_is_estimated_without_bias() -> None:
    """By moments, from one step each; the error that it states is the one that it has."""
    for listed in (0.8, 0.5, 0.0):
        found = []
        for seed in range(30):
            game = sums_of(seed, dims=150, listed=listed or 1.0, null=listed == 0.0, background=400)
            chance, precision = game[0].listed(N)
            found.append((chance * C / N, C / N / np.sqrt(precision)))
        shares, errors = np.array(found).T
        assert abs(shares.mean() - listed) < 4.0 * errors.mean() / np.sqrt(len(shares))
        assert 0.6 < shares.std() / errors.mean() < 1.4


def test_all_members_listed_is_recognised() -> None:
    for sampling, batch, steps in (("full", N, 1), ("poisson", 10, 4), ("shuffled", 10, 5)):
        games = [
            play(seed, dims=60, sampling=sampling, batch=batch, steps=steps, background=400, most_sweeps=6)
            for seed in range(4)
        ]
        assert all(game.found.coverage == 1.0 for game in games)


def test_less_work_means_fewer_sweeps() -> None:
    one = play(0, dims=65, most_work=1.0)
    assert one.found.sweeps == 1 and one.auc > 0.7
    assert play(0, dims=65, coverage=1.0).found.sweeps > 1
