"""Decoding on Gaussian gradients, where the answer is known."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from gmip import NoisySGD, account
from gmip.attacks.decode import Decoded, PublishedSum, decode, from_products, from_rows
from gmip.errors import InvalidArgument
from gmip.stats.roc import auc, tpr_at_fpr

N, C = 50, 100


class Game(NamedTuple):
    found: Decoded
    inside: NDArray[np.bool_]
    batches: NDArray[np.bool_]

    @property
    def auc(self) -> float:
        return auc(self.found.log_odds[self.inside], self.found.log_odds[~self.inside])

    def tpr(self, fpr: float) -> float:
        return float(tpr_at_fpr(self.found.log_odds[self.inside], self.found.log_odds[~self.inside], fpr))


def _run(
    seed: int,
    *,
    dims: int,
    batch: int = N,
    steps: int = 1,
    sampling: str = "full",
    noise: float = 0.0,
    listed: float = 1.0,
    null: bool = False,
    background: int = 0,
    clip: float | None = None,
) -> tuple[list[PublishedSum], NDArray[np.bool_], list[NDArray[np.bool_]], list[list[int]]]:
    """Fresh gradients in every step, as if the parameters moved far; stacked for full batches."""
    rng = np.random.default_rng(seed)
    inside = np.zeros(C, dtype=bool)
    inside[rng.permutation(C)[: round(listed * N)]] = True
    who = np.concatenate([np.flatnonzero(inside), np.arange(C, C + N - inside.sum())])
    if null:
        who = np.arange(C, C + N)
    sums: list[PublishedSum] = []
    batches: list[NDArray[np.bool_]] = []
    epochs: list[list[int]] = []
    order = who
    for t in range(steps):
        all_gradients = rng.normal(size=(C + N + background, dims))
        if clip is not None:
            all_gradients *= np.minimum(1.0, clip / np.linalg.norm(all_gradients, axis=1))[:, None]
        if sampling == "shuffled":
            if t % (N // batch) == 0:
                order = rng.permutation(who)
                epochs.append([])
            epochs[-1].append(t)
            drawn = order[(t % (N // batch)) * batch :][:batch]
        elif sampling == "poisson":
            drawn = who[rng.random(N) < batch / N]
        else:
            drawn = rng.permutation(who)[:batch]
        std = max(noise * batch, 1e-5)
        total = all_gradients[drawn].sum(0) + noise * batch * rng.normal(size=dims)
        x, rest = all_gradients[:C] / std, all_gradients[C + N :] / std
        kind: Any = {
            "share": batch / N,
            "draw": {"full": "full", "poisson": "poisson"}.get(sampling, "fixed"),
            "noisy": noise > 0.0,
        }
        if dims > C + background:
            all_of_them = np.vstack([x, rest, total / std])
            sums.append(from_products(all_of_them @ all_of_them.T, C, dims=dims, **kind))
        else:
            sums.append(from_rows(x, total / std, rest if background else None, **kind))
        batches.append(np.isin(np.arange(C), drawn))
    return sums, inside, batches, epochs


def play(
    seed: int,
    *,
    coverage: float | None = None,
    most_sweeps: int = 15,
    most_work: float = np.inf,
    **run: Any,
) -> Game:
    sums, inside, batches, epochs = _run(seed, **run)
    found = decode(
        sums,
        dataset_size=N,
        epochs=epochs or None,
        coverage=coverage,
        most_sweeps=most_sweeps,
        most_work=most_work,
    )
    return Game(found, inside, np.array(batches))


def sums_of(seed: int, **run: Any) -> list[PublishedSum]:
    return _run(seed, **run)[0]


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


@pytest.mark.parametrize("listed", [1.0, 0.5])
@pytest.mark.parametrize("multiplier", [0.7, 2.0])
def test_noise_holds_what_it_promises(multiplier: float, listed: float) -> None:
    """Never more than differential privacy allows, nor than is promised to one who knows that share."""
    dims, runs = 20, 30
    run = NoisySGD(dataset_size=N, batch_size=N, num_steps=1, num_params=dims, clip_norm=1.0, sampling="full")
    run = run.with_noise_multiplier(multiplier)
    games = [
        play(seed, dims=dims, clip=1.0, noise=run.noise_std, listed=listed, coverage=listed) for seed in range(runs)
    ]
    members = np.concatenate([game.found.log_odds[game.inside] for game in games])
    others = np.concatenate([game.found.log_odds[~game.inside] for game in games])
    for fpr in (0.01, 0.1, 0.5):
        rate = float(tpr_at_fpr(members, others, fpr))
        error = np.sqrt(0.25 / len(members) + 4.0 * fpr * (1.0 - fpr) / len(others))  # of the TPR and the threshold
        assert rate <= account(run, notion="gdp").tpr_at(fpr) + 3.0 * error
        assert rate <= account(run, attacker_knows=listed).tpr_at(fpr) + 3.0 * error
    assert auc(members, others) > 0.5  # and yet it is an attack


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
