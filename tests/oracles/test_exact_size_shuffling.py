"""Epochs of batches of exactly n can leak more than the balls-in-bins curve allows (docs/theory/shuffled.md).

Every other record has the gradient -x. With the record's gradient zeroed out, the batch that holds it is x above the
others; with its gradient x, it is 2x above them.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp

from gmip import NoisySGD, account

BATCHES, GAMES = 20, 60_000


def _outputs(rng: np.random.Generator, shift: float) -> np.ndarray:
    """Batch sums plus noise, minus what the others give; by symmetry the record may be in the first batch."""
    sums = rng.standard_normal((GAMES, BATCHES))
    sums[:, 0] += shift
    return sums


def _loss(sums: np.ndarray, shift: float) -> np.ndarray:
    return np.asarray(logsumexp(shift * sums - 0.5 * shift * shift, axis=1)) - np.log(BATCHES)


def _tpr(null: np.ndarray, alternative: np.ndarray, fpr: float) -> float:
    return float(np.mean(alternative > np.quantile(null, 1.0 - fpr)))


def test_chosen_data_exceed_the_curve_of_balls_in_bins() -> None:
    rng = np.random.default_rng(5)
    run = NoisySGD(
        dataset_size=BATCHES * 10, batch_size=10, num_steps=BATCHES, num_params=5, clip_norm=1.0, sampling="shuffled"
    ).with_noise_multiplier(1.0)
    curve = account(run, notion="gdp")
    allowed = 1.0 - float(curve(0.01))

    zeroed, present = _outputs(rng, 1.0), _outputs(rng, 2.0)
    losses = [_loss(sums, 2.0) - _loss(sums, 1.0) for sums in (zeroed, present)]
    exact_size = _tpr(losses[0], losses[1], 0.01)
    assert allowed == pytest.approx(0.023, abs=0.001)
    assert exact_size > 0.055  # .068 in 400,000 games

    # The same attacker where every record picks its batch on its own, and the others are known to the attacker.
    nobody, somebody = _outputs(rng, 0.0), _outputs(rng, 1.0)
    assert _tpr(_loss(nobody, 1.0), _loss(somebody, 1.0), 0.01) < allowed + 4.0 * np.sqrt(0.023 / GAMES + 1e-6)
    # The bound that always holds: the order is known, one step of C/(n tau) per epoch.
    assert exact_size < 0.0923
    assert curve.kind == "forecast"
