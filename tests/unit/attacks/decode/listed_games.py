"""Decoding games on Gaussian gradients, where the answer is known."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gmip.attacks.decode import DecodeOutcome, PublishedSum, decode, from_products, from_rows
from gmip.stats.scores import auc, tpr_at_fpr

__all__ = ["C", "Game", "N", "play", "sums_of"]

N, C = 50, 100


class Game(NamedTuple):
    found: DecodeOutcome
    inside: NDArray[np.bool_]
    batches: NDArray[np.bool_]

    @property
    def auc(self) -> float:
        return auc(self.found.log_odds[self.inside], self.found.log_odds[~self.inside])

    def tpr(self, fpr: float) -> float:
        return float(tpr_at_fpr(self.found.log_odds[self.inside], self.found.log_odds[~self.inside], fpr))


def published_run(
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
    sums, inside, batches, epochs = published_run(seed, **run)
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
    return published_run(seed, **run)[0]
