"""Steps as GLiR sees them, small."""

from __future__ import annotations

from typing import Any

import numpy as np

from gmip.attacks.glir import Play, View

QUICK = Play(games=6, tuning_games=4, grid=((1.0e-12, 0.0), (1.0e-12, 1.0e-2)))


def covariance(width: int, *, seed: int = 0, smallest: float = 0.05) -> np.ndarray:
    turn = np.linalg.qr(np.random.default_rng(seed).standard_normal((width, width)))[0]
    return turn * np.geomspace(1.0, smallest, width) @ turn.T


def view(width: int = 6, **changes: Any) -> View:
    """A view of noise: shapes and sizes are what matters."""
    rng = np.random.default_rng(7)
    given = {
        "mean": 0.1 * rng.standard_normal(width) + 1.0,
        "candidates": rng.standard_normal((4, width)) + 1.0,
        "background": rng.standard_normal((60, width)) + 1.0,
        "batch_size": 20,
    }
    return View(**{**given, **changes})
