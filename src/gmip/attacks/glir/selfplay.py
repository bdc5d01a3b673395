"""Self-play: the attacker plays the membership game with background examples, whose membership is known.

A game draws a pseudo-data set as large as the real one from a part of the background (the field), its batches as the
run drew them, averages their gradients at each step and scores everybody in the field. No label of the real run is
used, and games are unlimited: cut-off and ridge are chosen here, the ROC of the real attack is predicted to low FPRs,
and scores are calibrated to log-odds (docs/theory/glir.md, "Self-play"). Where candidates are not part of the fit, the
field is not either; where they are, unlabelled, it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gmip import _validate as check
from gmip._random import PlayStream
from gmip.accounting import noncentral_chi2
from gmip.attacks.glir.metrics import Drawn, Evidence, Metric, Rows
from gmip.attacks.glir.published_step import StepView
from gmip.errors import InvalidArgument
from gmip.stats.roc import RocCurve, auc, roc_curve, tpr_at_fpr
from gmip.stats.scores import ExpectedRoc, logistic_calibration

__all__ = [
    "DEFAULT_GRID",
    "Games",
    "Play",
    "Prediction",
    "StepScale",
    "background_needed",
    "game_aucs",
    "mixed_field",
    "split",
]

Array = NDArray[np.float64]

DEFAULT_GRID: tuple[tuple[float, float], ...] = (
    *((cutoff, 0.0) for cutoff in (1.0e-12, 1.0e-10, 1.0e-8, 1.0e-6, 1.0e-4)),
    *((1.0e-12, ridge) for ridge in (1.0e-6, 1.0e-5, 1.0e-4, 1.0e-3, 1.0e-2, 1.0e-1)),
)
_ENOUGH = 1000  # records of a field, or half as many again as the data set
_SPARE = 80  # pseudo-non-members that a game has at least
_NEEDED = 200  # and more of the background, before self-play is worth its estimates
_PAIRS = 200  # records that the temperature is measured on, each against the whole field


@dataclass(frozen=True, kw_only=True)
class Play:
    """How to play.

    Parameters
    ----------
    games : games that predict the ROC and calibrate the scores.
    tuning_games : games, others than those, in which the settings of `grid` compete by their mean AUC.
    grid : pairs (cutoff, ridge).
    share : of the background that is kept for play: more if a pseudo-data set and some non-members need it, and at most
        1,000 or half as many again as the data set, since the estimates have more use for the rest.
    tuning_steps : steps, spread over the run, on which the settings compete; the best of them is used for all.
    stop_when_decided : leave out further steps of a recorded run of mini-batches once there is hardly anything left to
        find: in the games 99.8% of the pseudo-members have higher scores than 99.8% of the pseudo-non-members, and at
        most 1% of the run's candidates and background records lie between the two.
    """

    games: int = 60
    tuning_games: int = 12
    grid: tuple[tuple[float, float], ...] = DEFAULT_GRID
    share: float = 0.15
    tuning_steps: int = 3
    stop_when_decided: bool = True

    def __post_init__(self) -> None:
        for name in ("games", "tuning_games", "tuning_steps"):
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


def background_needed(dataset_size: int, listed: int = 0) -> int:
    """How many background examples self-play needs: a game's worth, and at least as many for the estimates.

    listed : candidates that are part of the background; then all of it plays, and estimates too.
    """
    return max(dataset_size + _SPARE - listed, 0) if listed else 2 * (dataset_size + _NEEDED)


def split(count: int, dataset_size: int, *, share: float, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Positions of the background examples for estimation and for play, each in rising order."""
    if count < background_needed(dataset_size):
        raise InvalidArgument(
            f"has {count} examples, and self-play with {dataset_size} members needs {background_needed(dataset_size)}",
            argument="background",
            remedy="pass more, or `play` = None to do without",
        )
    size = min(_field_size(count, dataset_size, share), count // 2)
    order = PlayStream.SPLIT.rng(seed).permutation(count)
    return np.sort(order[size:]), np.sort(order[:size])


def _field_size(count: int, dataset_size: int, share: float) -> int:
    size = min(int(share * count), max(_ENOUGH, dataset_size + dataset_size // 2))
    return max(dataset_size + max(_SPARE, dataset_size // 4), size)


def mixed_field(background: int, candidates: int, dataset_size: int, *, share: float, seed: int) -> Rows:
    """Who plays where candidates are in the fit: positions among background and candidates, which are treated alike."""
    count = background + candidates
    if background < background_needed(dataset_size, candidates):
        raise InvalidArgument(
            f"has {background} examples, and self-play with {dataset_size} members and {candidates} candidates needs "
            f"{background_needed(dataset_size, candidates)}",
            argument="background",
            remedy="pass more, or `play` = None to do without",
        )
    size = _field_size(count, dataset_size, share)
    return np.sort(PlayStream.FIELD.rng(seed).permutation(count)[:size])


class Games:
    """Games that are played together, step by step.

    Attributes
    ----------
    rows : array of shape (h,), positions of the field's records among those that a fit scores.
    inside : array of shape (games, h), who of them is a pseudo-member.
    tuning : how many games, the first ones, are for choosing a setting; the others predict and calibrate.
    """

    def __init__(self, rows: Rows, dataset_size: int, play: Play, seed: int) -> None:
        parts = []
        for stream, count in ((PlayStream.TUNING_GAMES, play.tuning_games), (PlayStream.GAMES, play.games)):
            chosen = np.argpartition(stream.rng(seed).random((count, rows.size)), dataset_size - 1, axis=1)
            inside = np.zeros((count, rows.size), dtype=np.bool_)
            np.put_along_axis(inside, chosen[:, :dataset_size], True, axis=1)
            parts.append(inside)
        self.rows, self.inside, self.tuning, self._seed = rows, np.concatenate(parts), play.tuning_games, seed

    def draw(self, view: StepView, number: int) -> Drawn:
        """What the games publish at a step of this number."""
        weights = self._batches(view, number) / view.batch_size
        return Drawn(self.rows, weights, PlayStream.GAME_NOISE.sequence(self._seed, number))

    def pairs(self, number: int, rows: Rows) -> Drawn:
        """Some of these records, each alone."""
        rng = PlayStream.PAIRS.rng(self._seed, number)
        chosen = rng.permutation(rows.size)[:_PAIRS]
        weights = np.zeros((chosen.size, rows.size))
        weights[np.arange(chosen.size), chosen] = 1.0
        return Drawn(rows, weights, PlayStream.PAIRS.sequence(self._seed, number, 1))

    def _batches(self, view: StepView, number: int) -> Array:
        """1 for every record in a game's batch, 0 for the others, shape (games, h)."""
        games, n = self.inside.shape[0], view.batch_size
        drawn = np.zeros(self.inside.shape)
        members = np.nonzero(self.inside)[1].reshape(games, -1)
        if view.sampling == "poisson":
            rng = PlayStream.BATCHES.rng(self._seed, number)
            drawn[self.inside] = rng.random(members.size) < view.sample_rate
        elif n >= members.shape[1]:
            drawn[self.inside] = 1.0
        elif view.sampling == "shuffled":
            order = np.argsort(PlayStream.EPOCHS.rng(self._seed, view.epoch).random(members.shape), axis=1)
            batch = order[:, view.drawn : view.drawn + n]
            np.put_along_axis(drawn, np.take_along_axis(members, batch, axis=1), 1.0, axis=1)
        else:
            rng = PlayStream.BATCHES.rng(self._seed, number)
            first = np.argpartition(rng.random(members.shape), n - 1, axis=1)[:, :n]
            np.put_along_axis(drawn, np.take_along_axis(members, first, axis=1), 1.0, axis=1)
        return drawn


@dataclass(frozen=True)
class StepScale:
    """What turns evidence into log-likelihood ratios; measured on records that are not in the run.

    Attributes
    ----------
    temperature : factor of the candidate's part; not positive where the estimates are so poor that the test would take
        members for others.
    shift : mean of `cross` for a record that is not in the batch, from the error that it shares with the mean.
    dof : mean of y'Wy if it is not.
    """

    batch_size: float
    sample_rate: float
    temperature: float
    shift: float
    dof: float

    @classmethod
    def measured(cls, metric: Metric, view: StepView, pairs: Drawn, *, inside: bool, both: bool) -> StepScale:
        """Records in pairs: the spread of their products is what the weights really produce, whatever the distribution
        and however the model was regularised. `inside`, `both`: as in `Metric.pairs`."""
        if inside:  # records that alone span a direction have no such products
            known = ~metric.lone(pairs.rows)
            weights = pairs.weights[:, known]
            pairs = Drawn(pairs.rows[known], weights[weights.any(axis=1)], pairs.seed)
            if not pairs.weights.size:
                return cls(float(view.batch_size), view.sample_rate, temperature=0.0, shift=0.0, dof=0.0)
        products, noise = metric.pairs(pairs, inside=inside, both=both)
        others = products[pairs.weights == 0.0]
        drawn = float(others @ others) / max(others.size, 1)
        evidence = metric.real(pairs.rows, inside=inside)
        length = float(evidence.length.mean())
        if metric.anchor < 1.0:  # Poisson: the number of the others varies too
            towards = metric.offset[0][pairs.rows] + metric.offset[2]
            drawn += float(np.mean(towards**2)) / (1.0 - metric.anchor)
        variance = metric.share * drawn + float(np.mean(noise**2))
        # Where the published records are in the fit too, the errors of both means cancel.
        shift = length / (metric.samples + 1.0) if both or not inside else 0.0
        return cls(
            batch_size=float(view.batch_size),
            sample_rate=view.sample_rate,
            temperature=(length - metric.anchor**2 * shift) / variance,
            shift=metric.anchor * shift,
            dof=metric.share * length + metric.noise_std**2 * metric.total,
        )

    def llr(self, found: Evidence) -> Array:
        """Log-likelihood ratio "in the batch" against "not in it", shape (g, c)."""
        n = self.batch_size
        return np.asarray((self.temperature / n) * (found.cross - self.shift - (0.5 / n) * found.length))

    def absent(self, found: Evidence) -> Array:
        """Log-likelihood ratio "a member, but not in this batch" against "not a member": (g,), 0 unless Poisson."""
        p = self.sample_rate
        if not found.offset.any() or p == 1.0:
            return np.zeros(found.offset.shape)
        moved = p / ((1.0 - p) * self.batch_size)
        return np.asarray(-self.temperature * moved * (found.offset + 0.5 * moved * found.offset_length))

    def log_p_value(self, found: Evidence) -> Array:
        """The paper's test, as `StepTest.log_p_value`."""
        dof = max(self.temperature * self.dof, 1.0)
        centre = np.maximum(self.temperature * (found.length - 2.0 * self.shift), 0.0)
        seen = np.maximum(self.temperature * found.distance, 0.0)
        return noncentral_chi2.log_cdf(seen, dof, np.broadcast_to(centre, seen.shape))
