"""GLiR with candidates in the background: stronger, and its p-values hold, members among the candidates or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gmip.attacks.glir import Play, View, glir_scores
from gmip.errors import InvalidArgument
from gmip.stats.scores import auc

Array = NDArray[np.float64]
PLAY = Play(games=10, tuning_games=4, grid=((1.0e-12, 1.0e-4), (1.0e-12, 1.0e-2), (1.0e-12, 1.0e-1)))


def draw(rng: np.random.Generator, count: int, width: int) -> Array:
    """Heavy tails, unequal variances, a mean."""
    scales = np.geomspace(1.0, 0.1, width) * np.exp(0.3 * rng.standard_normal((count, 1)))
    return np.asarray(scales * rng.standard_normal((count, width)) + 0.3)


def played(
    seed: int, width: int, *, listed: bool, steps: int = 1, background: Any = "with-candidates"
) -> tuple[Any, int]:
    """50 members; they and as many others are the candidates, or 100 others."""
    rng, n = np.random.default_rng(seed), 50
    members, others, known = (draw(rng, count, width) for count in (n, 2 * n, 500))
    candidates = np.concatenate([members, others[:n]]) if listed else others
    views = []
    for step in range(steps):
        epoch, place = divmod(step, 2)
        order = np.random.default_rng([seed, epoch]).permutation(n)
        chosen = order[25 * place : 25 * (place + 1)] if steps > 1 else order
        how: dict[str, Any] = {"batch_size": n}
        if steps > 1:
            how = {"batch_size": 25, "sample_rate": 0.5, "sampling": "shuffled", "epoch": epoch, "drawn": 25 * place}
        views.append(View(mean=members[chosen].mean(axis=0), candidates=candidates, background=known, **how))
    method = "mixture" if steps > 1 else "likelihood-ratio"
    return glir_scores(views, method=method, background=background, play=PLAY, seed=seed), n if listed else 0


@pytest.mark.parametrize(("width", "steps"), [(30, 1), (700, 1), (30, 4)])
@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("background", ["alone", "with-candidates"])
def test_p_values_hold(width: int, steps: int, listed: bool, background: str) -> None:
    rates: dict[float, list[float]] = {0.02: [], 0.05: [], 0.2: []}
    areas = []
    for seed in range(16):
        found, members = played(seed, width, listed=listed, steps=steps, background=background)
        for level, shares in rates.items():
            shares.append(float(np.mean(found.p_values[members:] <= level)))
        areas.append(auc(found.scores[:50], found.scores[50:]))
    for level, shares in rates.items():
        error = max(np.std(shares, ddof=1) / 4.0, np.sqrt(level * (1.0 - level) / (16 * 50)))
        assert np.mean(shares) <= level + 3.0 * error
    if not listed:  # nobody is a member
        assert np.mean(areas) == pytest.approx(0.5, abs=3.0 * np.std(areas) / 4.0)


def test_members_among_the_records_of_the_fit_stand_out() -> None:
    """More dimensions than records: decoding, in effect; and the games predict it."""
    areas = {"alone": [], "with-candidates": []}  # type: dict[str, list[float]]
    predicted = []
    for seed in range(3):
        for background, found in areas.items():
            outcome, n = played(seed, 700, listed=True, background=background)
            found.append(auc(outcome.scores[:n], outcome.scores[n:]))
        predicted.append(outcome.prediction.auc)
    assert min(areas["with-candidates"]) > 0.99 > np.mean(areas["alone"])
    assert min(predicted) > 0.99


def test_shuffled_epochs_are_predicted() -> None:
    """Every member is in one batch of an epoch: games that draw anew for each step expect less than is found."""
    real, predicted = [], []
    for seed in range(6):
        outcome, n = played(seed, 60, listed=True, steps=8, background="alone")
        real.append(auc(outcome.scores[:n], outcome.scores[n:]))
        predicted.append(outcome.prediction.auc)
    assert np.mean(predicted) == pytest.approx(np.mean(real), abs=0.03 + 2.0 * np.std(real) / np.sqrt(6.0))


def test_it_needs_self_play() -> None:
    seen = View(mean=np.zeros(3), candidates=np.ones((2, 3)), background=np.eye(3), batch_size=5)
    with pytest.raises(InvalidArgument, match="background = 'with-candidates' needs self-play"):
        glir_scores([seen], background="with-candidates", play=None)
