"""GLiR with self-play, step by step: games choose a setting on the first steps, and every step is scored with it.

Where the candidates are not part of the fit, games are played with a model of the rest of the background, and the
scores come from a model of all of it, in which every background record is scored as if it had been left out. Where they
are part of it, unlabelled, one model of background and candidates serves both.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gmip._random import PlayStream
from gmip.attacks.glir import selfplay
from gmip.attacks.glir.metrics import Evidence, Metric, Rows, Setting, StepFit
from gmip.attacks.glir.published_step import GramView, StepView, View
from gmip.attacks.glir.selfplay import Games, Play, Prediction, StepScale, game_aucs
from gmip.attacks.glir.step_fits import fit_step
from gmip.errors import InvalidArgument
from gmip.stats.covariance import Shrinkage
from gmip.store import NOWHERE, Store

__all__ = ["PlayedRun", "Time", "Total"]

Array = NDArray[np.float64]
_DECIDED = 0.002  # of pseudo-members and of others, who may be on the wrong side
_BETWEEN = 0.01  # of the run's records, who may be on neither
_RANKED = 2000  # background records that p-values are ranks among, at most


class Time(Protocol):
    """How many seconds are left."""

    def left(self) -> float: ...


class StepFound(NamedTuple):
    """What a step says, before it is put together with others; "inside" is the log-likelihood ratio (or the paper's
    score) of being in the batch, "absent" of being a member who is not.

    `how` is (sample rate, whether shuffled, epoch, cutoff, ridge, rank).
    """

    how: Array
    inside: Array  # of the candidates (c,)
    null: Array  # of background records (b,), NaN for one that is like no candidate
    games: Array  # (g, h)
    absent: Array  # of the run and of the games (1 + g,)
    llr: Array  # of the candidates (c,)
    susceptibility: Array  # (c,), NaN where unknown
    spectrum: Array


class Total:
    """Sums over steps of what each says about some records.

    "mixture": log(1 - p + p exp(inside)) for each step; of a shuffled epoch log(sum_t p_t exp(inside_t) + rest), as a
    record is in exactly one of its batches, and `rest` is the share of the batches that were not seen. Other methods:
    the plain sum.
    """

    def __init__(self, *, mixture: bool) -> None:
        self.mixture = mixture
        self._closed: Any = 0.0
        self._open: Any = None
        self._left, self._epoch = 1.0, -1.0

    def add(self, inside: Array, absent: Array | float, how: Array) -> None:
        rate, shuffled, epoch = how[:3]
        if not self.mixture or rate == 1.0:
            self._closed = self._closed + inside
        elif not shuffled:
            self._closed = self._closed + np.logaddexp(np.log1p(-rate) + absent, np.log(rate) + inside)
        else:
            if epoch != self._epoch:
                self._closed, self._open = self.value(), None
                self._left, self._epoch = 1.0, epoch
            part = np.log(rate) + inside
            self._open = part if self._open is None else np.logaddexp(self._open, part)
            self._left -= rate

    def value(self) -> Any:
        if self._open is None:
            return self._closed
        seen = self._open
        if self._left > 1.0e-9:
            seen = np.logaddexp(np.log(self._left), seen)
        return self._closed + seen


class Played(NamedTuple):
    """The scores of a run, and what the games say about them."""

    scores: Array
    llr: Array
    null: Array
    prediction: Prediction
    susceptibility: Array | None
    ranks: tuple[int, ...]
    spectra: tuple[Array, ...]
    setting: Setting
    left_out: int  # steps for which there was no time, or which were not needed
    decided: bool  # whether nothing was left to find


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

    def __post_init__(self) -> None:
        m, c = self.background, self.candidates
        share, seed = self.play.share, self.seed
        asked = np.arange(m, m + c)
        if self.listed:
            field_rows = selfplay.mixed_field(m, c, self.dataset_size, share=share, seed=seed)
            self._estimation = np.arange(m + c)
            order = PlayStream.SPLIT.rng(seed).permutation(m)
            ranked = np.sort(order[:_RANKED])
            self._scored = np.union1d(ranked, np.union1d(field_rows, asked))
            places = np.searchsorted(self._scored, field_rows)
        else:
            self._estimation, field_rows = selfplay.split(m, self.dataset_size, share=share, seed=seed)
            order = PlayStream.SPLIT.rng(seed).permutation(m)
            ranked = np.sort(order[: max(_RANKED, field_rows.size)])
            self._field = field_rows
            self._scored = np.concatenate([ranked, asked])
            places = np.arange(field_rows.size)
        self._ranked = np.searchsorted(self._scored, ranked)
        self._asked = np.searchsorted(self._scored, asked)
        self.games = Games(places, self.dataset_size, self.play, seed)

    def run(self, steps: Iterable[Callable[[], StepView]], kept: Store = NOWHERE, time: Time | None = None) -> Played:
        """Score the steps; what is kept of an earlier attempt is not computed again.

        steps : how to get each view. Of a sequence, steps that are spread over the run choose the setting, as gradients
            change while it trains; of another iterable, the first ones do.
        time : the most telling steps come first, and those that do not fit are left out.

        Of a sequence, further steps are left out once they could tell nothing (`Play.stop_when_decided`).
        """
        found: dict[int, StepFound] = {}
        if not isinstance(steps, Sequence):
            todo = enumerate(steps)
            first = [self._played(make(), number) for number, make in itertools.islice(todo, self.play.tuning_steps)]
            if not first:
                raise InvalidArgument("is empty", argument="views", remedy="pass one for each step")
            best = self._settle(first, found, NOWHERE)
            number = len(first) - 1
            for number, make in todo:
                self._take(found, number, make, best, NOWHERE)
            return self._put_together(found, number + 1)
        for number in range(len(steps)):
            saved = kept.get(number)
            if saved is not None:
                found[number] = StepFound(**saved.arrays)
        tuning = np.linspace(0, len(steps) - 1, min(self.play.tuning_steps, len(steps))).round().astype(int).tolist()
        if found:
            how = found[next(number for number in (*tuning, *found) if number in found)].how
            best = self.grid.index((float(how[3]), float(how[4])))
            for number in tuning:  # the order of the others, and when to stop, rest on all of these
                if number not in found:
                    self._take(found, number, steps[number], best, kept)
        else:
            best = self._settle([self._played(steps[number](), number) for number in tuning], found, kept)
        longest, decided = 0.0, False
        for number in self._by_weight(len(steps), found, tuning):
            start = math.inf if time is None else time.left()
            decided = self._decided(found)
            if decided or start < longest:
                break
            self._take(found, number, steps[number], best, kept)
            longest = 0.0 if time is None else max(longest, start - time.left())
        return self._put_together(found, len(steps), decided=decided)

    def _take(
        self, found: dict[int, StepFound], number: int, make: Callable[[], StepView], best: int, kept: Store
    ) -> None:
        """Score a step by the chosen setting. Where the background is too small for that at this step, another one that
        it is enough for is chosen by the games of the step; where there is none, the step is left out."""
        view = make()
        step = self._played(view, number, best)
        if best not in step.games:
            step = self._played(view, number)
            tuning = slice(self.games.tuning)
            areas = {i: game_aucs(step.games[i][0][tuning], self.games.inside[tuning]).mean() for i in step.games}
            if not areas:
                return
            best = max(areas, key=lambda i: float(areas[i]))
        self._keep(found, number, self._finish(step, best), kept)

    def _decided(self, found: Mapping[int, StepFound]) -> bool:
        """Whether more steps could tell nothing more about anybody."""
        if not self.play.stop_when_decided or self.method == "paper":
            return False
        scores, null, games, _ = self._totals(found)
        lowest = np.quantile(games[self.games.inside], _DECIDED)
        highest = np.quantile(games[~self.games.inside], 1.0 - _DECIDED)
        seen = np.concatenate([scores, null[~np.isnan(null)]])
        # In a run that is not what its games assume, records lie between the two.
        between = np.mean((seen > highest) & (seen < lowest))
        return bool(lowest > highest and between <= _BETWEEN)

    def _by_weight(self, count: int, found: Mapping[int, StepFound], tuning: list[int]) -> list[int]:
        """The steps that are left, the most telling first: by what the games found at those that chose the setting."""
        known = [number for number in tuning if number in found]
        areas = [float(game_aucs(found[number].games, self.games.inside).mean()) for number in known]
        weight = np.interp(np.arange(count), known, areas) if known else np.zeros(count)
        rest = [number for number in range(count) if number not in found]
        return sorted(rest, key=lambda number: (-weight[number], number))

    def _keep(self, found: dict[int, StepFound], number: int, one: StepFound, kept: Store) -> None:
        found[number] = one
        kept.put(number, one._asdict())

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

    def _settle(self, waiting: list[_Waiting], found: dict[int, StepFound], kept: Store) -> int:
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
        for step in waiting:
            self._keep(found, step.number, self._finish(step, best), kept)
        return best

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
            how=self._how(view, setting, fit.directions(setting)),
            inside=self._inside(scale, asked)[0],
            null=null,
            games=games,
            absent=np.concatenate([scale.absent(asked), absent]),
            llr=scale.llr(asked)[0],
            susceptibility=np.full(self.candidates, np.nan) if known is None else known,
            spectrum=fit.spectrum,
        )

    def _totals(self, by_number: Mapping[int, StepFound]) -> tuple[Array, Array, Array, Array]:
        """Of all steps: of the candidates, of background records, of the games, and the candidates' log-likelihood
        ratios."""
        mixture = self.method == "mixture"
        scores, null, games, llr = (Total(mixture=mixture) for _ in range(4))
        for _, step in sorted(by_number.items()):
            scores.add(step.inside, step.absent[0], step.how)
            null.add(step.null, step.absent[0], step.how)
            games.add(step.games, step.absent[1:, None], step.how)
            llr.add(step.llr, step.absent[0], step.how)
        return scores.value(), null.value(), games.value(), llr.value()

    def _put_together(self, by_number: Mapping[int, StepFound], count: int, *, decided: bool = False) -> Played:
        found = [by_number[number] for number in sorted(by_number)]
        scores, null, games, llr = self._totals(by_number)
        rest = slice(self.games.tuning, None)
        k = np.mean([step.susceptibility for step in found], axis=0)
        return Played(
            scores=scores,
            llr=llr,
            null=null[~np.isnan(null)],
            prediction=Prediction.of(games[rest], self.games.inside[rest]),
            susceptibility=None if np.isnan(k).any() else k,
            ranks=tuple(int(step.how[5]) for step in found),
            spectra=tuple(step.spectrum for step in found),
            setting=(float(found[0].how[3]), float(found[0].how[4])),
            left_out=count - len(found),
            decided=decided,
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

    def _inside(self, scale: StepScale, found: Evidence) -> Array:
        return -scale.log_p_value(found) if self.method == "paper" else scale.llr(found)

    def _how(self, view: StepView, setting: Setting, rank: int) -> Array:
        return np.array([view.sample_rate, view.sampling == "shuffled", view.epoch, *setting, rank], dtype=np.float64)
