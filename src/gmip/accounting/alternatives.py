"""The ways to a privacy target: noise, larger batches, fewer steps, a smaller C, fewer parameters, more data."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from gmip._numbers import number
from gmip.accounting._epoch import coarse_epochs
from gmip.accounting.account import account, as_runs
from gmip.accounting.calibrate import calibrate, smallest_that_meets
from gmip.accounting.tradeoff import TradeOff
from gmip.errors import InvalidArgument, UnreachableTarget
from gmip.vocabulary import NoisySGD, Notion, PrivacyTarget

Change = Literal["noise", "noise-alone", "batch", "steps", "clip", "parameters", "data"]
#: Why a way does not reach the target: "no-clip-norm" (noise limits clipped gradients only), "too-slow" (not computed),
#: "batch" (the best size misses), "one-step" and "one-parameter" (even that misses), "data" (the most records that were
#: tried miss), "phases" (what ran without noise misses alone), "missed" (all that was tried misses).
ClosedWhy = Literal["no-clip-norm", "too-slow", "batch", "one-step", "one-parameter", "data", "phases", "missed"]
Schedule = tuple[NoisySGD, ...]
MOST_DATA: Final = 1_000  # times as many records: beyond that more data is no advice


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """One way to a target: what to run instead, which nothing but `change` tells from the run as it is.

    value : what the target measures (a TPR, a mu, ...), at most the target; of `curve`, the answer of `account`.
    notion : of that answer: "noise-alone" counts on noise alone, whatever was asked for.
    """

    change: Change
    runs: Schedule
    value: float
    curve: TradeOff
    notion: Notion


@dataclass(frozen=True)
class ClosedWay:
    """A way that does not reach the target.

    size : "batch": the best size; "data": how many times as many records were tried.
    value : what the target measures there.
    """

    change: Change
    why: ClosedWhy
    size: int | None = None
    value: float | None = None


@dataclass(frozen=True, kw_only=True)
class Ways:
    """All ways from a run to a target.

    target : what was asked for.
    now, curve : what the target measures of the run as it is.
    met : whether that is within the target already; the only way beyond is then "noise-alone", where it is not.
    """

    runs: Schedule
    target: PrivacyTarget
    now: float
    curve: TradeOff
    met: bool
    open: tuple[Alternative, ...]
    closed: tuple[ClosedWay, ...]


class _DeadEnd(Exception):
    """A way ends here."""

    def __init__(self, why: ClosedWhy, size: int | None = None, value: float | None = None) -> None:
        super().__init__(why)
        self.why, self.size, self.value = why, size, value


def alternatives(
    run: NoisySGD | Sequence[NoisySGD],
    target: PrivacyTarget,
    *,
    seconds: float | None = None,
) -> Ways:
    """Every way to reach a target from a run, one change at a time.

    Parameters
    ----------
    run : a run or a schedule, as in `account`.
    target : what to reach, and for whom.
    seconds : the time for all of it; ways that do not fit are closed, with that reason. None: no limit.

    Returns
    -------
    `Ways`. "noise": the least noise (of a schedule, one factor for all phases). "noise-alone": the least noise that
    keeps the target by differential privacy, so for any record and any attacker; where that is a bound and the answer
    for "noise" is not. "batch": the smallest larger batch, for as many steps, else for as many epochs; the noise on the
    mean stays. "steps": the most steps (of a schedule: in all phases in proportion). "clip": the largest clipping norm
    at which the noise is enough. "parameters": the most trainable parameters. "data": the fewest more records, for as
    many steps.

    Guarantees
    ----------
    Each open way was checked with `account`: its value is at most the target, as far as its curve's `kind` says: a
    forecast stays a forecast. Values are rounded to five digits on the safe side before that.
    """
    runs = tuple(as_runs(run, target.rows_per_person))
    search = _Search(runs, target, None if seconds is None else time.monotonic() + seconds)
    now = search.account(runs)
    value = now.exposure(target)
    met = value <= target.value
    ways: list[tuple[Change, Callable[[], Schedule | None]]] = [] if met else search.ways()
    found: list[Alternative] = []
    closed: list[ClosedWay] = []
    for change, find in ways:
        _take(found, closed, change, search, find)
    if target.notion == "gmip" and not any(one.change == "noise" and one.curve.kind == "bound" for one in found):
        proved = now.kind == "bound" and met
        if not proved and not any(one.change == "noise" for one in closed):
            alone: list[Alternative] = []
            by_noise = dataclasses.replace(search, target=target.by_noise_alone())
            _take(alone, [], "noise-alone", by_noise, search.noise_alone)
            found[1:1] = [one for one in alone if one.curve.kind == "bound"]
    return Ways(
        runs=runs,
        target=target,
        now=value,
        curve=now,
        met=met,
        open=tuple(found),
        closed=tuple(closed),
    )


def _take(
    found: list[Alternative],
    closed: list[ClosedWay],
    change: Change,
    search: _Search,
    find: Callable[[], Schedule | None],
) -> None:
    """Go one way; None is one that does not apply to the run."""
    try:
        runs = find()
        if runs is None:
            return
        curve = search.account(runs)
        value = curve.exposure(search.target)
        if value > search.target.value:
            raise _DeadEnd("missed")
    except _DeadEnd as end:
        closed.append(ClosedWay(change, end.why, end.size, end.value))
    except (UnreachableTarget, InvalidArgument) as error:
        closed.append(ClosedWay(change, _refused(error, search.runs)))
    else:
        found.append(Alternative(change=change, runs=runs, value=value, curve=curve, notion=search.target.notion))


def _refused(error: UnreachableTarget | InvalidArgument, runs: Schedule) -> ClosedWhy:
    """Why no noise is enough."""
    if error.argument == "clip_norm":
        return "no-clip-norm"
    return "phases" if len({run.noise_std > 0.0 for run in runs}) > 1 else "missed"


@dataclass(frozen=True)
class _Search:
    runs: Schedule
    target: PrivacyTarget
    deadline: float | None

    def account(self, runs: Schedule) -> TradeOff:
        return account(runs, **self.target.whose)

    def ways(self) -> list[tuple[Change, Callable[[], Schedule | None]]]:
        return [
            ("noise", self.noise),
            ("batch", self.batch),
            ("steps", self.steps),
            ("clip", self.clip),
            ("parameters", self.parameters),
            ("data", self.data),
        ]

    def measured(self, runs: Schedule) -> float:
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise _DeadEnd("too-slow")
        with coarse_epochs():  # of shuffled epochs: on the attacker's side, in a tenth of the time
            return self.account(runs).exposure(self.target)

    def meets(self, runs: Schedule) -> bool:
        return self.measured(runs) <= self.target.value

    @cached_property
    def _calibrated(self) -> Schedule:
        return tuple(calibrate(list(self.runs), self.target))

    def noise(self) -> Schedule:
        return tuple(run.replace(noise_std=_rounded(run.noise_std, "up")) for run in self._calibrated)

    def noise_alone(self) -> Schedule | None:
        try:
            least = calibrate(list(self.runs), self.target.by_noise_alone())
        except (InvalidArgument, UnreachableTarget):  # not clipped, or phases whose neighbours differ
            return None
        if all(new.noise_std <= old.noise_std for new, old in zip(least, self.runs, strict=True)):
            return None
        return tuple(run.replace(noise_std=_rounded(run.noise_std, "up")) for run in least)

    def clip(self) -> Schedule | None:
        """The noise stays as it is, and the clipping norm shrinks: noise counts in units of C/n."""
        if not any(run.noise_std > 0.0 for run in self.runs):
            return None
        least = self._calibrated
        factor = max(
            new.noise_std / old.noise_std for new, old in zip(least, self.runs, strict=True) if old.noise_std > 0.0
        )
        return tuple(
            run if run.clip_norm is None else run.replace(clip_norm=_rounded(run.clip_norm / factor, "down"))
            for run in self.runs
        )

    def batch(self) -> Schedule | None:
        if all(run.batch_size == run.dataset_size for run in self.runs):
            return None
        first = min(self.runs, key=lambda run: run.batch_size)

        def at(size: int, *, epochs: bool) -> Schedule:
            made = []
            for run in self.runs:
                most = min(run.max_batch_size or run.dataset_size, run.dataset_size)
                n = min(most, math.ceil(run.batch_size * size / first.batch_size))
                steps = max(1, math.ceil(run.num_steps * run.batch_size / n)) if epochs else run.num_steps
                made.append(run.replace(batch_size=n, num_steps=steps))
            return tuple(made)

        best: list[tuple[float, int]] = []
        for epochs in (False, True):
            size, nearest, least = smallest_that_meets(
                lambda n, epochs=epochs: self.measured(at(n, epochs=epochs)),  # type: ignore[misc]
                self.target.value,
                lowest=first.batch_size + 1,
                highest=first.dataset_size,
            )
            if size is not None:
                return at(size, epochs=epochs)
            best.append((least, nearest))
        least, nearest = min(best)
        raise _DeadEnd("batch", nearest, least)

    def steps(self) -> Schedule:
        total = sum(run.num_steps for run in self.runs)

        def first(steps: int) -> Schedule:
            """All phases in proportion: those of a record may be kinds of steps that take turns."""
            return tuple(run.replace(num_steps=-(-run.num_steps * steps // total)) for run in self.runs)

        if not self.meets(first(1)):
            raise _DeadEnd("one-step", value=self.measured(first(1)))
        return first(_last(lambda steps: self.meets(first(steps)), 1, total))

    def parameters(self) -> Schedule | None:
        if self.target.notion == "gdp" or self.target.attacker_knows == 1.0:
            return None
        if self.target.susceptibility is not None and not isinstance(self.target.susceptibility, str):
            return None  # what was measured, or assumed, is about this model
        most = max(run.num_params for run in self.runs)
        if most == 1:
            return None

        def at(params: int) -> Schedule:
            return tuple(
                run.replace(
                    num_params=min(run.num_params, params), rank=None if run.rank is None else min(run.rank, params)
                )
                for run in self.runs
            )

        if not self.meets(at(1)):
            raise _DeadEnd("one-parameter", value=self.measured(at(1)))
        return at(_last(lambda params: self.meets(at(params)), 1, most))

    def data(self) -> Schedule:
        size = max(run.dataset_size for run in self.runs)

        def at(records: int) -> Schedule:
            return tuple(
                run.replace(dataset_size=records, batch_size=records if run.sampling == "full" else run.batch_size)
                for run in self.runs
            )

        low, high = size, 2 * size
        while not self.meets(at(high)):
            low, high = high, 2 * high
            if high > MOST_DATA * size:
                raise _DeadEnd("data", low // size, self.measured(at(low)))
        return at(1 + _last(lambda records: not self.meets(at(records)), low, high))


def _last(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The last number below `high` for which something holds that holds for `low`, and then no more."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _rounded(value: float, rounding: Literal["up", "down"]) -> float:
    """Five digits, to be copied."""
    return float(number(value, rounding, 5))
