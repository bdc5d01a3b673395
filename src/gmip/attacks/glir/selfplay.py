"""Self-play: the attacker plays the membership game with background examples, whose membership is known.

The background is split in two. One part estimates the model. From the other a game draws a pseudo-data set as large as
the real one, its batches as the run drew them, averages their gradients at each step and scores everybody in that part.
No label of the real run is used, and games are unlimited: cut-off and ridge are chosen here, the ROC of the real
attack is predicted to low FPRs, and scores are calibrated to log-odds (docs/theory/glir.md, "Self-play").
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gmip import _validate as check
from gmip._random import PlayStream
from gmip.attacks.glir.likelihood import StepTest
from gmip.attacks.glir.published_step import View
from gmip.errors import InvalidArgument
from gmip.stats.roc import RocCurve, auc, roc_curve, tpr_at_fpr
from gmip.stats.scores import ExpectedRoc, logistic_calibration

__all__ = [
    "DEFAULT_GRID",
    "Games",
    "Ground",
    "Play",
    "Prediction",
    "background_needed",
    "game_aucs",
    "measured",
    "split",
    "step_scores",
]

Array = NDArray[np.float64]

DEFAULT_GRID: tuple[tuple[float, float], ...] = (
    *((cutoff, 0.0) for cutoff in (1.0e-12, 1.0e-10, 1.0e-8, 1.0e-6, 1.0e-4)),
    *((1.0e-12, ridge) for ridge in (1.0e-6, 1.0e-5, 1.0e-4, 1.0e-3, 1.0e-2, 1.0e-1)),
)
_ENOUGH = 2000  # play examples: p-values down to 1/2001
_SPARE = 200  # pseudo-non-members that a game has at least
_PAIRS = 1000  # held-out examples at most that the temperature is measured on, in pairs


@dataclass(frozen=True, kw_only=True)
class Play:
    """How to play.

    Parameters
    ----------
    games : games that predict the ROC and calibrate the scores.
    tuning_games : games, others than those, in which the settings of `grid` compete by their mean AUC.
    grid : pairs (cutoff, ridge).
    share : of the background that is kept for play: more if a pseudo-data set and some non-members need it, and at most
        2,000 or twice the data set, since the estimates have more use for the rest.
    """

    games: int = 60
    tuning_games: int = 12
    grid: tuple[tuple[float, float], ...] = DEFAULT_GRID
    share: float = 0.25

    def __post_init__(self) -> None:
        for name in ("games", "tuning_games"):
            check.count(name, getattr(self, name))
        check.probability("share", self.share, open_low=True, open_high=True)
        if not self.grid:
            raise InvalidArgument("is empty", argument="grid", remedy="pass at least one pair (cutoff, ridge)")


@dataclass(frozen=True, eq=False)
class Prediction:
    """Scores of self-played games, pooled.

    Attributes
    ----------
    members, non_members : arrays, scores of all games' pseudo-members and pseudo-non-members.
    auc : mean over the games of the AUC within a game; auc_error : its standard error (games share the play part).
    """

    members: Array
    non_members: Array
    auc: float
    auc_error: float

    @classmethod
    def of(cls, scores: Array, inside: NDArray[np.bool_]) -> Prediction:
        """From scores and memberships of shape (games, P)."""
        areas = game_aucs(scores, inside)
        error = float(areas.std(ddof=1) / np.sqrt(areas.size)) if areas.size > 1 else float("nan")
        return cls(scores[inside], scores[~inside], float(areas.mean()), error)

    @cached_property
    def roc(self) -> RocCurve:
        """The predicted ROC."""
        return roc_curve(self.members, self.non_members)

    def tpr_at(self, fpr: ArrayLike) -> float | Array:
        """The predicted TPR, shaped like `fpr`."""
        return tpr_at_fpr(self.members, self.non_members, fpr)

    def expected(self) -> ExpectedRoc:
        """The predicted ROC, without the scores behind it."""
        return ExpectedRoc(fpr=self.roc.fpr, tpr=self.roc.tpr, auc=self.auc)

    @cached_property
    def calibration(self) -> tuple[float, float]:
        """(a, b): a * score + b is the log-odds of membership at even prior odds."""
        return logistic_calibration(self.members, self.non_members)


def game_aucs(scores: Array, inside: NDArray[np.bool_]) -> Array:
    """AUC within each game, shape (games,), from scores and memberships of shape (games, P)."""
    return np.array([auc(row[mask], row[~mask]) for row, mask in zip(scores, inside, strict=True)])


def background_needed(dataset_size: int) -> int:
    """How many background examples self-play needs: a game's worth, and at least as many for the estimates."""
    return 2 * (dataset_size + _SPARE)


def split(count: int, dataset_size: int, *, share: float, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Positions of the background examples for estimation and for play, each in rising order."""
    if count < background_needed(dataset_size):
        raise InvalidArgument(
            f"has {count} examples, and self-play with {dataset_size} members needs {background_needed(dataset_size)}",
            argument="background",
            remedy="pass more, or `play` = None to do without",
        )
    size = min(int(share * count), max(_ENOUGH, 2 * dataset_size))
    size = max(dataset_size + max(_SPARE, dataset_size // 4), size)
    order = PlayStream.SPLIT.rng(seed).permutation(count)
    size = min(size, count // 2)
    return np.sort(order[size:]), np.sort(order[:size])


@dataclass(frozen=True, kw_only=True, eq=False)
class Ground:
    """One step as the games see it.

    Attributes
    ----------
    view : the real step, for its sizes, sampling and noise.
    places : array of shape (P, w), coordinates of the play part minus the background mean.
    centre : array of shape (w,), coordinates of the background mean.
    directions : array of shape (D, R) if the last D of the w coordinates are what is left outside these; else None.
    """

    view: View
    places: Array
    centre: Array
    directions: Array | None

    def publish(self, inside: NDArray[np.bool_], rng: np.random.Generator) -> Array:
        """Published means minus the background mean, (games, w), of batches drawn from the members (games, P)."""
        weight = self._batches(inside, rng) / self.view.batch_size
        means = weight @ self.places
        if self.view.sampling == "poisson":  # the number drawn is not the divisor
            means += np.outer(weight.sum(axis=1) - 1.0, self.centre)
        if self.view.noise_std > 0.0:
            means += self.view.noise_std * self._noise(means.shape[0], rng)
        return means

    def _batches(self, inside: NDArray[np.bool_], rng: np.random.Generator) -> Array:
        """1 for every example in a game's batch, 0 for the others, shape (games, P)."""
        games = inside.shape[0]
        drawn = np.zeros(inside.shape)
        members = np.nonzero(inside)[1].reshape(games, -1)
        if self.view.sampling == "poisson":
            drawn[inside] = rng.random(members.size) < self.view.sample_rate
        elif self.view.batch_size == members.shape[1]:
            drawn[inside] = 1.0
        else:
            n = self.view.batch_size
            first = np.argpartition(rng.random(members.shape), n - 1, axis=1)[:, :n]
            np.put_along_axis(drawn, np.take_along_axis(members, first, axis=1), 1.0, axis=1)
        return drawn

    def _noise(self, rows: int, rng: np.random.Generator) -> Array:
        if self.directions is None:
            return rng.standard_normal((rows, self.places.shape[1]))
        noise = rng.standard_normal((rows, self.directions.shape[0]))
        along = noise @ self.directions
        return np.concatenate([along, noise - along @ self.directions.T], axis=1)


class Games:
    """Games that are played together, step by step, under several settings at once.

    Attributes
    ----------
    inside : array of shape (games, P), who of the P play examples is a pseudo-member.
    scores : array of shape (settings, games, P), summed over the steps so far.
    """

    def __init__(self, count: int, dataset_size: int, games: int, num_settings: int, rng: np.random.Generator) -> None:
        chosen = np.argpartition(rng.random((games, count)), dataset_size - 1, axis=1)[:, :dataset_size]
        self.inside = np.zeros((games, count), dtype=np.bool_)
        np.put_along_axis(self.inside, chosen, True, axis=1)
        self.scores = np.zeros((num_settings, games, count))
        self._rng = rng

    def step(self, ground: Ground, tests: Mapping[int, StepTest], method: str) -> None:
        """Play a step; `tests` has one for each setting that is still in the game. All settings face the same games."""
        published = ground.publish(self.inside, self._rng)
        for setting, test in tests.items():
            self.scores[setting] += step_scores(test, published, ground.places, method)

    def mean_auc(self, setting: int) -> float:
        """Mean over the games of the AUC within a game."""
        return float(game_aucs(self.scores[setting], self.inside).mean())


def step_scores(test: StepTest, published: Array, coordinates: Array, method: str) -> Array:
    """One step's part of the score, higher = member, shape (g, c)."""
    if method == "paper":
        return -test.log_p_value(published, coordinates)
    return test.mixture(published, coordinates) if method == "mixture" else test.llr(published, coordinates)


def measured(test: StepTest, coordinates: Array) -> StepTest:
    """The test with its temperature measured on held-out examples, coordinates of shape (P, >= w).

    Each example as a candidate meets every other as a batch: the spread of their products is what the weights really
    produce, whatever the distribution and however the model was regularised.
    """
    every = -(-coordinates.shape[0] // _PAIRS)  # from all over the play part, which may come in some order
    places = coordinates[::every, : test.v1.size]
    shifts = test.shifts(places)
    weighted = shifts / test.v1
    products = weighted @ places.T
    np.fill_diagonal(products, 0.0)
    pairs = float(np.einsum("ij,ij->", products, products)) / max(places.shape[0] - 1, 1)
    if test.anchor < 1.0:  # Poisson: the number of the others varies too
        pairs += float(np.sum((weighted @ test.offset) ** 2)) / (1.0 - test.sample_rate)
    noise = test.noise_std**2 * float(np.einsum("ij,ij->", weighted, weighted))
    expected = float(np.einsum("ij,ij->", shifts, weighted)) - places.shape[0] * test.anchor**2 * test.trace
    variance = test.others * pairs + noise
    return dataclasses.replace(test, temperature=expected / variance)
