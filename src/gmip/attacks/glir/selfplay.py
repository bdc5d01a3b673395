"""Self-play: the attacker plays the membership game with background examples, whose membership is known.

A game draws a pseudo-data set as large as the real one from a part of the background (the field), its batches as the
run drew them, averages their gradients at each step and scores everybody in the field. No label of the real run is
used, and games are unlimited: cut-off and ridge are chosen here, the ROC of the real attack is predicted to low FPRs,
and scores are calibrated to log-odds (docs/theory/glir.md, "Self-play"). Where candidates are not part of the fit, the
field is not either; where they are, unlabelled, it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gmip import _validate as check
from gmip._random import PlayStream
from gmip.accounting import noncentral_chi2
from gmip.attacks.glir.step_fits import (
    GameDraw,
    GramView,
    Metric,
    Rows,
    Setting,
    StepEvidence,
    StepFit,
    StepView,
    View,
    fit_step,
)
from gmip.attacks.work import Budget
from gmip.errors import InvalidArgument
from gmip.stats.covariance import Shrinkage
from gmip.stats.scores import ExpectedRoc, auc, logistic_calibration, roc_curve
from gmip.store import NOWHERE, Store

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


@dataclass(frozen=True, kw_only=True, eq=False)
class GlirOutcome:
    """What GLiR found about c candidates.

    Attributes
    ----------
    method : how the scores were made.
    scores : array of shape (c,), higher = member: the log-likelihood ratio of "member" against "not a member", right up
        to the calibration below; for "paper" minus the log of the product of the steps' p-values.
    susceptibility : array of shape (c,), K of each candidate, the mean over the steps ("joint": of the stacked step);
        None when the background is too small to estimate it.
    rank : the number of directions kept in the first step.
    cutoff, ridge : what was used, chosen by self-play if it was not given.
    calibration : (a, b) such that a * score + b is the log-odds of membership at even prior odds; None if unknown.
    p_values : array of shape (c,), the rank of the score among those of background records, which are not members. They
        and non-member candidates are exchangeable given what was published, so P(p <= a | not a member) <= a whatever
        the distribution. None without self-play.
    null_scores : array, scores of these background records against the real run; empty without self-play.
    prediction : what self-play expects of this attack, or None.
    left_out : steps that were left out because there was no time for them, or nothing left to find.
    decided : whether it was the latter.
    told : as many directions of which all were known would tell as much about a record; NaN without self-play.
    """

    method: str
    scores: Array
    susceptibility: Array | None
    rank: int
    cutoff: float
    ridge: float
    calibration: tuple[float, float] | None
    p_values: Array | None = None
    null_scores: Array = field(default_factory=lambda: np.empty(0))
    prediction: ExpectedRoc | None = None
    left_out: int = 0
    decided: bool = False
    told: float = math.nan


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


def set_apart(count: int, dataset_size: int, share: float) -> int:
    """How many background records are played with or ranked among, where candidates are in no fit."""
    return min(count, max(_RANKED, min(_field_size(count, dataset_size, share), count // 2)))


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

    def draw(self, view: StepView, number: int) -> GameDraw:
        """What the games publish at a step of this number."""
        weights = self._batches(view, number) / view.batch_size
        return GameDraw(self.rows, weights, PlayStream.GAME_NOISE.sequence(self._seed, number))

    def pairs(self, number: int, rows: Rows) -> GameDraw:
        """Some of these records, each alone."""
        rng = PlayStream.PAIRS.rng(self._seed, number)
        chosen = rng.permutation(rows.size)[:_PAIRS]
        weights = np.zeros((chosen.size, rows.size))
        weights[np.arange(chosen.size), chosen] = 1.0
        return GameDraw(rows, weights, PlayStream.PAIRS.sequence(self._seed, number, 1))

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
    told : as many directions of which all were known would tell as much about a record.
    """

    batch_size: float
    sample_rate: float
    temperature: float
    shift: float
    dof: float
    told: float

    @classmethod
    def measured(cls, metric: Metric, view: StepView, pairs: GameDraw, *, inside: bool, both: bool) -> StepScale:
        """Records in pairs: the spread of their products is what the weights really produce, whatever the distribution
        and however the model was regularised. `inside`, `both`: as in `Metric.pairs`."""
        if inside:  # records that alone span a direction have no such products
            known = ~metric.lone(pairs.rows)
            weights = pairs.weights[:, known]
            pairs = GameDraw(pairs.rows[known], weights[weights.any(axis=1)], pairs.seed)
            if not pairs.weights.size:
                return cls(float(view.batch_size), view.sample_rate, temperature=0.0, shift=0.0, dof=0.0, told=0.0)
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
            told=metric.share * length**2 / variance,
        )

    def llr(self, found: StepEvidence) -> Array:
        """Log-likelihood ratio "in the batch" against "not in it", shape (g, c)."""
        n = self.batch_size
        return np.asarray((self.temperature / n) * (found.cross - self.shift - (0.5 / n) * found.length))

    def absent(self, found: StepEvidence) -> Array:
        """Log-likelihood ratio "a member, but not in this batch" against "not a member": (g,), 0 unless Poisson."""
        p = self.sample_rate
        if not found.offset.any() or p == 1.0:
            return np.zeros(found.offset.shape)
        moved = p / ((1.0 - p) * self.batch_size)
        return np.asarray(-self.temperature * moved * (found.offset + 0.5 * moved * found.offset_length))

    def log_p_value(self, found: StepEvidence) -> Array:
        """The paper's test, as `StepTest.log_p_value`."""
        dof = max(self.temperature * self.dof, 1.0)
        centre = np.maximum(self.temperature * (found.length - 2.0 * self.shift), 0.0)
        seen = np.maximum(self.temperature * found.distance, 0.0)
        return noncentral_chi2.log_cdf(seen, dof, np.broadcast_to(centre, seen.shape))


# -- glir with self-play ----------------------------------------------------------------------------------------------


_DECIDED = 0.002  # of pseudo-members and of others, who may be on the wrong side
_BETWEEN = 0.01  # of the run's records, who may be on neither
_RANKED = 2000  # background records that p-values are ranks among, at most


class StepFound(NamedTuple):
    """What a step says, before it is put together with others; "inside" is the log-likelihood ratio (or the paper's
    score) of being in the batch, "absent" of being a member who is not.

    `how` is (sample rate, whether shuffled, epoch, cutoff, ridge, rank, `StepScale.told`).
    """

    how: Array
    inside: Array  # of the candidates (c,)
    null: Array  # of background records (b,), NaN for one that is like no candidate
    games: Array  # (g, h)
    absent: Array  # of the run and of the games (1 + g,)
    susceptibility: Array  # (c,), NaN where unknown


Elsewhere = Callable[[Sequence[int], int], Iterator[StepFound | None]]  # numbers of steps, and the setting


class Total:
    """Sums over steps of what each says about some records.

    "mixture": log(1 - p + p exp(inside)) for each step; of a shuffled epoch log(sum_t p_t exp(inside_t) + rest), as a
    record is in exactly one of its batches, and `rest` is the share of the batches that were not seen. Other methods:
    the plain sum.

    batches : of an epoch, after which nothing of it is held but its part of the sum; steps come in any order.
    """

    def __init__(self, *, mixture: bool, batches: float = math.inf) -> None:
        self.mixture, self.batches = mixture, batches
        self._closed: Any = 0.0
        self._open: dict[float, tuple[Any, float, int]] = {}  # epoch -> log sum, share not seen, batches seen

    def add(self, inside: Array, absent: Array | float, how: Array) -> None:
        rate, shuffled, epoch = (float(one) for one in how[:3])
        if not self.mixture or rate == 1.0:
            self._closed = self._closed + inside
        elif not shuffled:
            self._closed = self._closed + np.logaddexp(np.log1p(-rate) + absent, np.log(rate) + inside)
        else:
            part, (seen, left, count) = np.log(rate) + inside, self._open.get(epoch, (None, 1.0, 0))
            self._open[epoch] = part if seen is None else np.logaddexp(seen, part), left - rate, count + 1
            if count + 1 >= self.batches:
                self._closed = self._closed + self._epoch(*self._open.pop(epoch))

    def value(self) -> Any:
        total = self._closed
        for part in self._open.values():
            total = total + self._epoch(*part)
        return total

    @staticmethod
    def _epoch(seen: Any, left: float, count: int) -> Any:
        return np.logaddexp(np.log(left), seen) if left > 1.0e-9 else seen


class _Sums:
    """The totals over the steps so far, of which few numbers each are kept: of the candidates, of background records
    and of the games."""

    def __init__(self, *, mixture: bool, batches: float) -> None:
        self.scores, self.null, self.games = (Total(mixture=mixture, batches=batches) for _ in range(3))
        self.how: dict[int, Array] = {}
        self._susceptibility: Any = 0.0

    def add(self, number: int, step: StepFound) -> None:
        self.how[number] = step.how
        self._susceptibility = self._susceptibility + step.susceptibility
        self.scores.add(step.inside, step.absent[0], step.how)
        self.null.add(step.null, step.absent[0], step.how)
        self.games.add(step.games, step.absent[1:, None], step.how)

    @property
    def susceptibility(self) -> Array | None:
        mean = self._susceptibility / len(self.how)
        return None if np.isnan(mean).any() else mean


@dataclass
class _Waiting:
    """A step whose setting is not chosen yet."""

    number: int
    view: StepView
    fit: StepFit | None  # of background and candidates
    part: StepFit | None = None  # of the background less the field, where it is of use again
    games: dict[int, tuple[Array, Array]] = field(default_factory=dict)  # setting -> inside (g, h), absent (g,)


@dataclass(kw_only=True, eq=False)
class PlayedRun:
    """One attack with self-play.

    listed : the candidates are part of the fit, unlabelled.
    batches : of a shuffled epoch; what is held of an epoch goes once so many are seen.

    Attributes
    ----------
    apart : array of shape (b,), positions of the background records that are played with or ranked among, in rising
        order.
    """

    background: int
    candidates: int
    dataset_size: int
    method: str
    play: Play
    grid: list[Setting]
    shrinkage: Shrinkage | None
    seed: int
    listed: bool
    batches: float = math.inf

    def __post_init__(self) -> None:
        m, c = self.background, self.candidates
        share, seed = self.play.share, self.seed
        asked = np.arange(m, m + c)
        if self.listed:
            field_rows = mixed_field(m, c, self.dataset_size, share=share, seed=seed)
            self._estimation = np.arange(m + c)
            order = PlayStream.SPLIT.rng(seed).permutation(m)
            ranked = np.sort(order[:_RANKED])
            self._scored = np.union1d(ranked, np.union1d(field_rows, asked))
            places = np.searchsorted(self._scored, field_rows)
        else:
            self._estimation, field_rows = split(m, self.dataset_size, share=share, seed=seed)
            order = PlayStream.SPLIT.rng(seed).permutation(m)
            ranked = np.sort(order[: max(_RANKED, field_rows.size)])
            self._field = field_rows
            self._scored = np.concatenate([ranked, asked])
            places = np.arange(field_rows.size)
        self.apart = ranked
        self._ranked = np.searchsorted(self._scored, ranked)
        self._asked = np.searchsorted(self._scored, asked)
        self.games = Games(places, self.dataset_size, self.play, seed)

    @property
    def spoken(self) -> int:
        """How many numbers a step says beside those of the candidates."""
        return int(self._ranked.size + self.games.inside.size + self.games.inside.shape[0])

    def run(
        self,
        steps: Sequence[Callable[[], StepView]],
        kept: Store = NOWHERE,
        time: Budget | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> GlirOutcome:
        """Score the steps by a setting that games choose; what is kept of an earlier attempt is not computed again.

        steps : how to get each view. Some that are spread over the run choose the setting, because gradients change
            while it trains.
        time : the most telling steps come first, and those that do not fit are left out.
        elsewhere : computes `scored` of steps in the order of their numbers, once the setting is chosen; None: this
            process does.

        Further steps are left out once they could tell nothing (`Play.stop_when_decided`).
        """
        if not steps:
            raise InvalidArgument("is empty", argument="views", remedy="pass one for each step")
        sums = _Sums(mixture=self.method == "mixture", batches=self.batches)
        tuning = np.linspace(0, len(steps) - 1, min(self.play.tuning_steps, len(steps))).round().astype(int).tolist()
        saved = {number: known for number in tuning if (known := _saved(kept, number)) is not None}
        if saved:
            how = next(iter(saved.values())).how
            best = self.grid.index((float(how[3]), float(how[4])))
        else:
            best, saved = self._settle([self._played(steps[number](), number) for number in tuning])
        areas: dict[int, float] = {}
        for number in tuning:  # the order of the others, and when to stop, rest on all of these
            one = saved.pop(number) if number in saved else self.scored(steps[number](), number, best)
            self._take(sums, number, one, kept)
            if one is not None:
                areas[number] = float(game_aucs(one.games, self.games.inside).mean())
        rest = []
        for number in _by_weight(len(steps), areas):
            one = _saved(kept, number)
            if one is None:
                rest.append(number)
            else:
                sums.add(number, one)
        here = (self.scored(steps[number](), number, best) for number in rest)
        decided = self._others(sums, rest, here if elsewhere is None else elsewhere(rest, best), kept, time)
        return self._put_together(sums, len(steps), decided=decided)

    def _others(
        self, sums: _Sums, rest: Sequence[int], found: Iterator[StepFound | None], kept: Store, time: Budget | None
    ) -> bool:
        """Takes the steps that are left, as they come and as long as there is time; whether more could tell nothing."""
        longest = 0.0
        for number in rest:
            start = math.inf if time is None else time.left()
            if self._decided(sums):
                return True
            if start < longest:
                return False
            self._take(sums, number, next(found), kept)
            longest = 0.0 if time is None else max(longest, start - time.left())
        return False

    def _take(self, sums: _Sums, number: int, one: StepFound | None, kept: Store) -> None:
        if one is not None:
            kept.put(number, one._asdict())
            sums.add(number, one)

    def scored(self, view: StepView, number: int, best: int) -> StepFound | None:
        """A step by the chosen setting. Where the background is too small for that at this step, another one that
        it is enough for is chosen by the games of the step; where there is none, the step is left out."""
        step = self._played(view, number, best)
        if best not in step.games:
            step = self._played(view, number)
            tuning = slice(self.games.tuning)
            areas = {i: game_aucs(step.games[i][0][tuning], self.games.inside[tuning]).mean() for i in step.games}
            if not areas:
                return None
            best = max(areas, key=lambda i: float(areas[i]))
        return self._finish(step, best)

    def _decided(self, sums: _Sums) -> bool:
        """Whether more steps could tell nothing more about anybody."""
        if not self.play.stop_when_decided or self.method == "paper" or not sums.how:
            return False
        scores, null, games = sums.scores.value(), sums.null.value(), sums.games.value()
        lowest = np.quantile(games[self.games.inside], _DECIDED)
        highest = np.quantile(games[~self.games.inside], 1.0 - _DECIDED)
        if not lowest > highest:
            return False
        seen = np.concatenate([scores, null[~np.isnan(null)]])
        # In a run that is not what its games assume, records lie between the two.
        return bool(np.mean((seen > highest) & (seen < lowest)) <= _BETWEEN)

    # -- games --

    def _played(self, view: StepView, number: int, setting: int | None = None) -> _Waiting:
        """The games of a step under one setting, or all."""
        settings = range(len(self.grid)) if setting is None else (setting,)
        drawn = self.games.draw(view, number)
        if self.listed:
            fit = self._fit(view, self._estimation, self._scored)
            waiting = _Waiting(number, view, fit)
        else:
            fit = self._fit(view, self._estimation, self._field)
            waiting = _Waiting(number, view, None, None if self._dual(view) else fit)
        seen: dict[Any, int] = {}  # settings that keep the same directions are the same
        for i in settings:
            same = (fit.directions(self.grid[i]), self.grid[i][1])
            if same in seen:
                waiting.games[i] = waiting.games[seen[same]]
                continue
            metric = self._metric(fit, self.grid[i])
            if metric is None:
                continue
            scale = self._scale(metric, view, number, self.games.rows, both=False)
            if not scale.temperature > 0.0:
                continue
            seen[same] = i
            evidence = metric.played(drawn, inside=self.listed)
            if self._deferred(waiting) and setting is None:
                evidence = evidence.of(slice(self.games.tuning))
            waiting.games[i] = self._inside(scale, evidence), scale.absent(evidence)
        return waiting

    def _deferred(self, waiting: _Waiting) -> bool:
        """Whether games that do not choose the setting wait until it is chosen: p-values are dear, and products are
        cheap where the fit is kept."""
        return self.method == "paper" and waiting.part is not None

    def _completed(self, step: _Waiting, best: int) -> tuple[Array, Array]:
        """All games under the chosen setting."""
        inside, absent = step.games[best]
        if inside.shape[0] == self.games.inside.shape[0]:
            return inside, absent
        assert step.part is not None
        metric = self._metric(step.part, self.grid[best])
        assert metric is not None
        scale = self._scale(metric, step.view, step.number, self.games.rows, both=False)
        rest = metric.played(self.games.draw(step.view, step.number), inside=False).of(slice(self.games.tuning, None))
        return np.concatenate([inside, self._inside(scale, rest)]), np.concatenate([absent, scale.absent(rest)])

    def _settle(self, waiting: list[_Waiting]) -> tuple[int, dict[int, StepFound]]:
        """Choose the setting by the tuning games, and finish the steps with it."""
        usable = [i for i in range(len(self.grid)) if all(i in step.games for step in waiting)]
        if not usable:
            raise InvalidArgument(
                f"leaves {self._estimation.size} examples for estimates, too few for every `cutoff` and `ridge` of the "
                "grid",
                argument="background",
                remedy="pass more examples or a larger `ridge`",
            )
        tuning = slice(self.games.tuning)
        areas = []
        for i in usable:
            total = Total(mixture=self.method == "mixture")
            for step in waiting:
                inside, absent = step.games[i]
                total.add(inside[tuning], absent[tuning, None], self._how(step.view, self.grid[i], 0))
            areas.append(float(game_aucs(total.value(), self.games.inside[tuning]).mean()))
        best = usable[int(np.argmax(areas))]
        found = {}
        for step in waiting:
            found[step.number] = self._finish(step, best)
        return best, found

    # -- the run itself --

    def _finish(self, step: _Waiting, best: int) -> StepFound:
        """The scores of a step whose games are played."""
        setting, view = self.grid[best], step.view
        games, absent = self._completed(step, best)
        fit = step.fit or self._fit(view, np.arange(self.background), self._scored, step.part)
        metric = self._metric(fit, setting)
        assert metric is not None  # more samples than in the games
        scale = self._scale(metric, view, step.number, self._ranked, both=not self.listed)
        asked = metric.real(self._asked, inside=self.listed)
        null = self._inside(scale, metric.real(self._ranked, inside=True))[0]
        if not self.listed:  # a candidate is judged without a direction that nobody else has, and they cannot be
            null = np.where(metric.lone(self._ranked), np.nan, null)
        known = fit.susceptibility(setting, self._asked, inside=self.listed)
        return StepFound(
            how=np.append(self._how(view, setting, fit.directions(setting)), scale.told),
            inside=self._inside(scale, asked)[0],
            null=null,
            games=games,
            absent=np.concatenate([scale.absent(asked), absent]),
            susceptibility=np.full(self.candidates, np.nan) if known is None else known,
        )

    def _put_together(self, sums: _Sums, count: int, *, decided: bool = False) -> GlirOutcome:
        scores, games, null = sums.scores.value(), sums.games.value()[self.games.tuning :], sums.null.value()
        inside, null = self.games.inside[self.games.tuning :], np.sort(null[~np.isnan(null)])
        at_least, first = null.size - np.searchsorted(null, scores, side="left"), sums.how[min(sums.how)]
        members, others = games[inside], games[~inside]
        roc = roc_curve(members, others)
        return GlirOutcome(
            method=self.method,
            scores=scores,
            susceptibility=sums.susceptibility,
            rank=int(first[5]),
            cutoff=float(first[3]),
            ridge=float(first[4]),
            calibration=logistic_calibration(members, others),
            p_values=np.asarray((1.0 + at_least) / (1.0 + null.size), dtype=np.float64),
            null_scores=null,
            prediction=ExpectedRoc(fpr=roc.fpr, tpr=roc.tpr, auc=float(game_aucs(games, inside).mean())),
            left_out=count - len(sums.how),
            decided=decided,
            told=float(np.mean([sums.how[number][6] for number in sorted(sums.how)])),
        )

    # -- parts --

    def _fit(self, view: StepView, fit: Rows, scored: Rows, part: StepFit | None = None) -> StepFit:
        return fit_step(view, fit, scored, shrinkage=self.shrinkage, dual=self._dual(view), part=part)

    def _dual(self, view: StepView) -> bool:
        """Whether inner products are the way: more dimensions than records to estimate from. Only a ridge, shrinkage or
        noise can make up for that; cut-offs alone are a matter for eigenvectors."""
        if isinstance(view, GramView):
            return True
        assert isinstance(view, View)
        if view.sketch is not None:
            return False
        lifted = self.shrinkage is not None or view.noise_std > 0.0 or any(ridge > 0.0 for _, ridge in self.grid)
        return lifted and view.mean.size >= self._estimation.size - 2

    def _metric(self, fit: StepFit, setting: Setting) -> Metric | None:
        metric = fit.metric(setting, in_batch=self.method != "paper")
        # Without degrees of freedom left, W has nothing to do with the inverse of the covariance. That is no harm where
        # the records that were published are in the fit: then it tells them apart.
        return None if metric is None or (not self.listed and metric.free <= 0.0) else metric

    def _scale(self, metric: Metric, view: StepView, number: int, rows: Rows, *, both: bool) -> StepScale:
        inside = self.listed or both
        return StepScale.measured(metric, view, self.games.pairs(number, rows), inside=inside, both=both)

    def _inside(self, scale: StepScale, found: StepEvidence) -> Array:
        return -scale.log_p_value(found) if self.method == "paper" else scale.llr(found)

    def _how(self, view: StepView, setting: Setting, rank: int) -> Array:
        return np.array([view.sample_rate, view.sampling == "shuffled", view.epoch, *setting, rank], dtype=np.float64)


def _saved(kept: Store, number: int) -> StepFound | None:
    """What is kept of a step of an earlier attempt."""
    entry = kept.get(number)
    return None if entry is None else StepFound(**entry.arrays)


def _by_weight(count: int, areas: Mapping[int, float]) -> list[int]:
    """The steps that are left, the most telling first: by what the games found at those that chose the setting."""
    weight = np.interp(np.arange(count), list(areas), list(areas.values())) if areas else np.zeros(count)
    rest = [number for number in range(count) if number not in areas]
    return sorted(rest, key=lambda number: (-weight[number], number))
