"""Decoding keeps within what noise guarantees, and finds nothing where there is nothing. The larger sweep is
`benchmarks/decoding_map.py`, on real data `benchmarks/attacks.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gmip import NoisySGD, account
from gmip.attacks.arrays import ranks_among
from gmip.attacks.decode import PublishedSum, decode, from_rows
from gmip.stats.scores import auc, tpr_at_fpr
from tests.unit.attacks.decode.listed_games import C, N, play

SAMPLINGS: dict[str, tuple[int, int]] = {"full": (N, 1), "fixed": (10, 4), "poisson": (10, 4), "shuffled": (10, 5)}


@pytest.mark.parametrize("listed", [1.0, 0.5])
@pytest.mark.parametrize("multiplier", [0.5, 1.5])
@pytest.mark.parametrize("sampling", list(SAMPLINGS))
def test_noise_holds_what_it_claims(sampling: Any, multiplier: float, listed: float) -> None:
    """Never more than differential privacy allows, nor than is guaranteed against one who knows that share; and yet
    it is an attack."""
    (batch, steps), dims, runs = SAMPLINGS[sampling], 20, 20
    run = NoisySGD(
        dataset_size=N, batch_size=batch, num_steps=steps, num_params=dims, clip_norm=1.0, sampling=sampling
    ).with_noise_multiplier(multiplier)
    games = [
        play(
            seed,
            dims=dims,
            batch=batch,
            steps=steps,
            sampling=sampling,
            clip=1.0,
            noise=run.noise_std,
            listed=listed,
            background=0 if listed == 1.0 else 200,
            most_sweeps=6,
        )
        for seed in range(runs)
    ]
    members = np.concatenate([game.found.log_odds[game.inside] for game in games])
    others = np.concatenate([game.found.log_odds[~game.inside] for game in games])
    claims = [account(run, attacker_knows=listed), account(run, notion="gdp")]
    for fpr in (0.01, 0.1, 0.5):
        rate = float(tpr_at_fpr(members, others, fpr))
        for claim in claims:
            slope = (float(claim.tpr_at(1.2 * fpr)) - float(claim.tpr_at(0.8 * fpr))) / (0.4 * fpr)
            error = np.sqrt(0.25 / len(members) + slope**2 * fpr * (1.0 - fpr) / len(others))  # and of the threshold
            assert rate <= float(claim.tpr_at(fpr)) + 3.0 * error
    assert auc(members, others) > 0.5


@pytest.mark.parametrize("background", [0, 300])
@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("sampling", list(SAMPLINGS))
def test_strangers_are_not_found(sampling: str, noise: float, background: int) -> None:
    """Members are fresh records: AUC 1/2, and p-values, exp(-log-odds), at their level."""
    batch, steps = SAMPLINGS[sampling]
    games = [
        play(seed, dims=40, batch=batch, steps=steps, sampling=sampling, noise=noise, background=background, null=True)
        for seed in range(8)
    ]
    error = np.sqrt((2.0 / N) / 12.0 / len(games))
    assert abs(np.mean([game.auc for game in games]) - 0.5) < 4.0 * error
    odds = np.concatenate([game.found.log_odds for game in games])
    assert np.isfinite(odds).all()
    for level in (0.05, 0.01):
        # Candidates of one run have the same strangers to blame: count runs, not candidates.
        assert np.mean(odds >= -np.log(level)) <= level + 3.0 * np.sqrt(level / (C * len(games)) * 4.0)


@pytest.mark.parametrize("noise", [0.05, 0.25])
def test_non_members_beside_all_members_are_not_accused(noise: float) -> None:
    """Two shuffled epochs with noise, all members listed: neither ranks among decoys nor odds accuse the others. The
    odds of sweeps without damping did, in half of such runs."""
    ranks, odds, found = [], [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        sums: list[PublishedSum] = []
        epochs: list[list[int]] = []
        for _ in range(2):
            order, batch = rng.permutation(N), 10
            epochs.append(list(range(len(sums), len(sums) + N // batch)))
            for part in order.reshape(-1, batch):
                gradients, std = rng.normal(size=(2 * C, 60)), noise * batch
                total = gradients[part].sum(0) + std * rng.normal(size=60)
                sums.append(from_rows(gradients / std, total / std, share=batch / N, draw="fixed", noisy=True))
        outcome = decode(sums, dataset_size=N, epochs=epochs, decoys=C)
        p_values = ranks_among(outcome.log_odds, outcome.decoys)
        ranks.append(np.mean(p_values[N:] <= 0.05))
        odds.append(np.mean(outcome.log_odds[N:] >= -np.log(0.05)))
        found.append(np.mean(p_values[:N] <= 0.05))
    error = np.sqrt(0.05 * 0.95 * (1.0 / N + 1.0 / C) / len(ranks))
    assert np.mean(ranks) <= 0.05 + 2.0 * error and max(odds) <= 0.05
    assert np.mean(found) > 0.8


def test_ranks_among_decoys_hold_for_heavy_tails() -> None:
    """Five full batches of a model whose features have no variance: a list of strangers is accused at no more than the
    level, and of a list with the members all are found at p <= 1%."""
    p_values, found = [], []
    for seed in range(12):
        for null in (True, False):
            rng = np.random.default_rng(seed)
            features = rng.standard_t(2.0, size=(2 * C + N, 20)) * rng.standard_t(1.0, size=(2 * C + N, 1))
            slopes = rng.normal(size=(2 * C + N, 5))
            gradients = (slopes[:, :, None] * features[:, None]).reshape(len(features), -1)
            inside = np.arange(C) < (0 if null else N)
            total = gradients[2 * C :].sum(0) if null else gradients[:N].sum(0)
            unit = 2.0e-7 * N * np.sqrt(np.mean(gradients[:C] ** 2))
            step = from_rows(gradients[: 2 * C] / unit, total / unit, share=1.0, draw="full", noisy=False)
            outcome = decode([step], dataset_size=N, decoys=C)
            ranks = ranks_among(outcome.log_odds, outcome.decoys)
            p_values += [ranks[~inside]] if null else []
            found += [] if null else [float(np.mean(ranks[inside] <= 0.01))]
    p = np.concatenate(p_values)
    for level in (0.05, 0.01):
        assert np.mean(p <= level) <= level + 3.0 * np.sqrt(level / C / 12 * 2.0)
    assert np.mean(found) > 0.95
