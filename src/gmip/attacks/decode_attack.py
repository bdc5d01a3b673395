"""Decoding of a recorded run: gradients of the candidates at every step, then the array-level core."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from gmip import _validate as check
from gmip._numbers import byte_size
from gmip._progress import Progress, silent
from gmip.attacks.arrays import ranks_among
from gmip.attacks.attack import (
    AttackedRecords,
    RunTraits,
    StepAttack,
    check_step_numbers,
    chosen_steps,
    nominal_size,
    parties,
    with_decoys,
)
from gmip.attacks.decode import MISFIT, DecodeOutcome, Draw, PublishedSum, decode, from_products, from_rows
from gmip.attacks.gradients import PerExampleGradients, precision_for
from gmip.attacks.signals import run_model
from gmip.attacks.step_vectors import (
    Projection,
    StripRunner,
    StripWork,
    WholeJob,
    running_products,
    shared_pieces,
    strip_runner,
    unclipped,
    worth_sharing,
    write_rows,
)
from gmip.attacks.work import Counted, Speed, Work, WorkPlan, as_bytes, check_time
from gmip.errors import InvalidArgument, UnsupportedModel, warn
from gmip.stats import ScoreSet
from gmip.stats.flat import Flat
from gmip.store import NOWHERE, Store
from gmip.tasks import Examples, Task
from gmip.trace import Step, StepInfo, Trace
from gmip.vocabulary import RANDOM_SIZES

# -- from a recorded run to the sums that decoding solves -------------------------------------------------------------


Array = NDArray[np.float64]
_ROUNDING: Final = 2.0e-7  # of a typical entry, for each record of the sum: what float32 leaves at most
_FLOAT: Final = 8  # bytes
_SWEEPS: Final = 6  # to plan for; the first ones tell most
_EIGEN: Final = 7.0  # an eigen-decomposition by n^3 operations
_ROWS: Final = 10_000  # background records where gradients are kept as they are
_PRODUCTS: Final = 3_000  # and where inner products are
_SMALLER: Final = (4096, 2048, 1024, 512, 256, 64)
_ANY_SPEED: Final = Speed(0.0, math.inf)
_MOST_KEPT: Final = 2**28  # bytes of a sum that is worth a file
_ENOUGH: Final = 2.0  # numbers to keep of a gradient, by those that tell a batch from all others


class DecodePlan(NamedTuple):
    """How a run is decoded.

    Attributes
    ----------
    sums : which steps make a sum (several: stacked).
    epochs : numbers of the sums of which a member is in one (shuffled epochs); None: each is drawn anew.
    projection : to how many numbers each gradient is projected; None: it is not.
    cost : of its sums.
    cut_short : whether steps were left out to be in time.
    left_out : what was left out and why, as a sentence; "" if nothing was.
    """

    sums: list[list[Step]]
    epochs: list[list[int]] | None
    projection: int | None
    cost: Cost
    cut_short: bool = False
    left_out: str = ""

    @property
    def steps(self) -> int:
        """How many steps are used."""
        return sum(map(len, self.sums))

    def first(self, count: int, recorded: int, seconds: float) -> DecodePlan:
        """The plan with its first sums alone, as there was no time for more of the recorded steps."""
        epochs = None if self.epochs is None else [[t for t in epoch if t < count] for epoch in self.epochs]
        return self._replace(
            sums=self.sums[:count],
            epochs=None if epochs is None else [epoch for epoch in epochs if epoch],
            cut_short=True,
            left_out=f"decoding uses the first {count} of {recorded} recorded steps, which is what there is time "
            f"for in the {seconds:.0f} seconds of its `budget`.",
        )


class Cost(NamedTuple):
    """What sums of gradients of so many numbers cost, in the cheaper form and with the background that it uses.

    Attributes
    ----------
    sums, stacked : how many there are, and of how many steps each is.
    by_rows : whether gradients are kept as they are; else inner products.
    """

    candidates: int
    background: int
    size: int
    sums: int
    stacked: int
    by_rows: bool

    @classmethod
    def of(cls, candidates: int, background: int, size: int, *, sums: int, stacked: int) -> Cost:
        by_rows = stacked * size <= max(candidates, min(background, _ROWS))
        return cls(candidates, min(background, _ROWS if by_rows else _PRODUCTS), size, sums, stacked, by_rows)

    @property
    def _axes(self) -> float:
        """Operations that find the axes of the background."""
        c, m, dims = self.candidates, self.background, self.stacked * self.size
        if not self.by_rows:
            return self.sums * (_EIGEN * m**3 + 2.0 * c * m**2)
        return self.sums * (2.0 * m * dims**2 + _EIGEN * dims**3) if m else 0.0

    @property
    def _sweeps(self) -> float:
        """Operations of the sweeps."""
        c, dims = self.candidates, self.stacked * self.size
        by_candidates = 2.0 / 3.0 * c**3 + 2.0 * c**2 * (dims if self.by_rows else self.background)
        by_numbers = 2.0 * c * dims**2 + dims**3 / 3.0 if self.by_rows else math.inf
        return self.sums * _SWEEPS * min(by_candidates, by_numbers)

    @property
    def work(self) -> float:
        """Operations of the linear algebra, those of the inner products of all entries among them."""
        pairs = 0.0 if self.by_rows else 2.0 * (self.candidates + self.background) ** 2
        return self._axes + self._sweeps + self.sums * self.stacked * self.size * pairs

    @property
    def memory(self) -> int:
        """Bytes of the sums and of what solves them."""
        c, m, dims = self.candidates, self.background, self.stacked * self.size
        kept, working = c * (c + m), (c + m) ** 2 + c**2
        if self.by_rows:
            kept, working = c * dims, m * dims + 2 * c * dims + (2 * dims**2 if m else 0)
        return _FLOAT * (self.sums * kept + working)

    def seconds(self, speed: Speed) -> tuple[float, float, float]:
        """For gradients and their inner products, which workers can share; for axes, which they can share if there are
        several sums; for the sweeps."""
        records = self.candidates + self.background
        each = speed.rows(records) if self.by_rows else speed.products(records, self.size)
        return self.sums * self.stacked * each, self._axes / speed.rate, self._sweeps / speed.rate


def plan(
    trace: Trace,
    steps: list[Step],
    *,
    candidates: int,
    background: int,
    num_params: int,
    limit: int,
    most_work: float,
    speed: Speed = _ANY_SPEED,
    seconds: float = math.inf,
) -> DecodePlan:
    """The plan for the first steps, as many as fit into `limit` bytes, `most_work` operations and the `seconds` that
    there are at this speed; full batches are stacked.

    Without noise, mini-batch gradients with many more entries than tell a batch from all others are projected before
    steps are left out. One step is in the plan if memory allows, however long it takes; where it does not, it is
    projected as far as it takes.
    """
    full = _all_full(trace, steps)

    def cost(count: int, size: int) -> Cost:
        return Cost.of(candidates, background, size, sums=1 if full else count, stacked=count if full else 1)

    ways = _ways(trace, steps, full=full, candidates=candidates, num_params=num_params)
    smaller = [size for size in _SMALLER if size < num_params]
    within = limit, most_work, seconds, speed
    way, kept = _fitting(lambda count, way: cost(count, way or num_params), ways, smaller, len(steps), *within)
    size, least = way or num_params, way in smaller
    found = cost(kept, size)
    if found.memory > limit:
        raise InvalidArgument(
            f"{candidates} candidates need {byte_size(found.memory)}, more than `memory_limit` = {byte_size(limit)} "
            "allows",
            remedy="raise it, or pass fewer candidates and their `coverage`",
        )
    late, left_out = False, ""
    if kept < len(steps):
        lacking = _lacking(cost(len(steps), size), limit=limit, most_work=most_work)
        late = lacking is None
        why = lacking or f"there is time for in the {seconds:.0f} seconds of its `budget`"
        left_out = f"decoding uses the first {kept} of {len(steps)} recorded steps, which is what {why}."
    if least and not late:
        late = seconds < math.inf
        left_out = left_out or f"decoding has no room or time for gradients of {num_params} numbers."
        left_out += f" Gradients are projected to {way} numbers."
    used = steps[:kept]
    shuffled = trace.header.sampling == "shuffled" and not full
    sums = [used] if full else [[step] for step in used]
    return DecodePlan(sums, _epochs(trace, used) if shuffled else None, way, found, late, left_out)


def _fitting(
    cost: Callable[[int, int | None], Cost],
    ways: Sequence[int | None],
    smaller: Sequence[int],
    steps: int,
    limit: int,
    most_work: float,
    seconds: float,
    speed: Speed,
) -> tuple[int | None, int]:
    """The first way that fits, with how many steps; the last one tried, if none does. Where not even one step has room
    or time, it is projected as far as it takes, to the `smaller` sizes."""

    def fits(one: Cost) -> bool:
        return one.memory <= limit and one.work <= most_work and sum(one.seconds(speed)) <= seconds

    for way in (*ways, *smaller):
        kept = next((count for count in range(steps, 1, -1) if fits(cost(count, way))), 1)
        found, least = cost(kept, way), way in smaller
        # One step whose algebra takes longer than there is time for is projected, too.
        soon = kept > 1 or found.work / speed.rate <= seconds
        few = not least or found.work <= most_work or way == smaller[-1]
        if found.memory <= limit and soon and few and (kept == steps or way == ways[-1] or least):
            break
    return way, kept


def _all_full(trace: Trace, steps: list[Step]) -> bool:
    """Whether every step is a full batch."""
    sampled = trace.header.sampling != "full"
    return not sampled or all(nominal_size(trace, step) >= trace.header.dataset_size for step in steps)


def _lacking(whole: Cost, *, limit: int, most_work: float) -> str | None:
    """Why not all steps are decoded; None: for lack of time."""
    if whole.memory > limit:
        return f"`memory_limit` = {byte_size(limit)} has room for"
    if whole.work <= most_work:
        return None
    return f"`most_work` = {most_work:.3g} operations are enough for (all would take {whole.work:.3g})"


def _ways(trace: Trace, steps: list[Step], *, full: bool, candidates: int, num_params: int) -> list[int | None]:
    """To how many numbers gradients may be projected, the best way first; None: they are taken as they are."""
    if full or any(step.info.noise_std > 0.0 for step in steps):
        return [None]
    batch = max(nominal_size(trace, step) for step in steps)
    enough = 64 * math.ceil(_ENOUGH * 2.0 * batch * max(math.log(candidates / batch), 1.0) / 64)
    return [None, enough] if 4 * enough <= 3 * min(candidates, num_params) else [None]


def _epochs(trace: Trace, steps: Sequence[Step]) -> list[list[int]]:
    """Recorded steps by epoch: an epoch ends where its batches, or the next one, would exceed the data."""
    epoch_of, epoch, seen = [], 0, 0
    for info in trace.infos:
        if seen + info.batch_size > trace.header.dataset_size:
            epoch, seen = epoch + 1, 0
        epoch_of.append(epoch)
        seen += info.batch_size
    found: dict[int, list[int]] = {}
    for number, step in enumerate(steps):
        found.setdefault(epoch_of[step.info.index], []).append(number)
    return list(found.values())


class SumJob(NamedTuple):
    """Steps that make a sum, the chance that a member is in it, how batches are drawn, and whether there is noise."""

    steps: list[Step]
    share: float
    draw: Draw
    noisy: bool


@dataclass(frozen=True, eq=False)
class SumWork(StripWork):
    """What the sums of a run share: model, loss, candidates and background, and how they are computed."""

    projection: int | None
    by_rows: bool

    @property
    def precision(self) -> torch.dtype:
        """A sum less the records in it is nothing but rounding: products of gradients in single precision would not do,
        those of a large model's in double precision do."""
        return torch.float64

    @classmethod
    def of(cls, gradients: PerExampleGradients, who: AttackedRecords, chosen: DecodePlan) -> SumWork:
        return cls(gradients, (who.candidates, who.background), chosen.projection, chosen.cost.by_rows)

    def compute(self, job: Any) -> Any:
        return self.made(job) if isinstance(job, SumJob) else super().compute(job)

    def made(
        self,
        job: SumJob,
        done: Callable[[int], Any] = lambda _: None,
        parts: Store = NOWHERE,
        runner: StripRunner | None = None,
    ) -> PublishedSum:
        """The sum; other arguments are those of `published_sums`."""
        how: dict[str, Any] = {"share": job.share, "draw": job.draw, "noisy": job.noisy}
        if self.by_rows:
            return from_rows(*self._rows(job.steps, done), **how)
        products = self._products(job.steps, done, parts, runner)
        return from_products(products, len(self.sets[0]), dims=len(job.steps) * self.gradients.num_params, **how)

    def _rows(self, steps: Sequence[Step], done: Callable[[int], Any]) -> tuple[Array, Array, Array]:
        size = self.gradients.num_params
        way = None if self.projection is None else Projection(size, self.projection)
        width = self.projection or size
        records = [np.empty((len(part), len(steps) * width)) for part in self.sets]
        total = np.empty(len(steps) * width)
        for number, step in enumerate(steps):
            here = self.gradients.at(step.parameters)
            columns = slice(number * width, (number + 1) * width)
            for examples, rows in zip(self.sets, records, strict=True):
                write_rows(here, examples, torch.from_numpy(rows)[:, columns], way)
            mine = records[0][:, columns]
            unit = _unit(step.info, float(np.einsum("ij,ij->", mine, mine)) / mine.size)
            flat = torch.from_numpy(_total(step).array())
            total[columns] = (flat if way is None else way.scaled(flat)).numpy() / unit
            for rows in records:
                rows[:, columns] /= unit
            done(1)
        return records[0], total, records[1]

    def _products(
        self, steps: Sequence[Step], done: Callable[[int], Any], parts: Store, runner: StripRunner | None
    ) -> Array:
        count, told, products = len(self.sets[0]), 0, np.empty(0)

        def unit(number: int, found: Array) -> float:
            typical = float(np.trace(found[:count, :count])) / (count * self.gradients.num_params)
            return _unit(steps[number].info, typical)

        job = lambda i: WholeJob(steps[i], _factor(steps[i]))  # noqa: E731
        name = f"products-{len(self.sets[1])}"
        for ready, found in running_products(self, len(steps), job, runner, parts, name, unit):
            done(ready - told)
            told, products = ready, found
        return products


def published_sums(
    gradients: PerExampleGradients,
    trace: Trace,
    who: AttackedRecords,
    chosen: DecodePlan,
    done: Callable[[int], Any],
    parts: Store = NOWHERE,
    runner: StripRunner | None = None,
) -> Iterator[PublishedSum]:
    """One for each sum of the plan; `done` is called with how many steps came to be ready, after each.

    parts : where finished sums are kept, if they are not too large, and what is ready of one that takes many steps.
    runner : of `strip_runner` for the `SumWork` of the same; workers share out the sums, or the pieces of a single one.
    """
    header, work = trace.header, SumWork.of(gradients, who, chosen)
    names = [
        f"sum-{number}-{len(steps)}-{chosen.projection or 0}-{len(who.background)}"
        for number, steps in enumerate(chosen.sums)
    ]

    def job(number: int) -> SumJob:
        steps = chosen.sums[number]
        draw: Draw = "fixed"
        share = min(1.0, nominal_size(trace, steps[0]) / header.dataset_size)
        if header.sampling in RANDOM_SIZES and share < 1.0:
            draw = "poisson"
        elif header.sampling == "full" or share == 1.0:
            share, draw = 1.0, "full"
        return SumJob(steps, share, draw, any(step.info.noise_std > 0.0 for step in steps))

    apart: Iterator[PublishedSum] | None = None
    for number, (name, steps) in enumerate(zip(names, chosen.sums, strict=True)):
        kept = parts.get(name)
        if kept is not None:
            done(len(steps))
            yield PublishedSum.of_arrays(kept.arrays)
            continue
        if runner is None or len(names) == 1:
            made = work.made(job(number), done, parts, runner)
        else:
            if apart is None:
                rest = [later for later in range(number, len(names)) if parts.get(names[later]) is None]
                apart = runner.in_order(len(rest), lambda i, rest=rest: job(rest[i]))  # type: ignore[misc]
            made = next(apart)
            done(len(steps))
        if sum(array.nbytes for array in made.arrays().values()) <= _MOST_KEPT:
            parts.put(name, made.arrays())
        yield made


def _amount(shared: SumWork, chosen: DecodePlan) -> tuple[int, float]:
    """How many whole steps can be pieces, and operations in all."""
    operations = chosen.cost.work + 6.0 * shared.gradients.num_params * shared.total * chosen.steps
    return max(len(chosen.sums), chosen.steps), operations


def _factor(step: Step) -> float:
    """From what was recorded to the sum of the gradients, before a mean was clipped as a whole."""
    return step.info.divisor / (step.info.clip_factor or 1.0)


def _total(step: Step) -> Flat:
    """The sum of the gradients, before a mean was clipped as a whole."""
    total = Flat.of(step.gradient) * _factor(step)
    if not total.is_finite():
        raise InvalidArgument(
            "The gradient of a step is not finite", remedy="leave out the steps at which training diverged"
        )
    return total


def _unit(info: StepInfo, mean_square: float) -> float:
    """The standard deviation of noise on an entry of the sum, and of the rounding that a trace cannot undo."""
    noise = info.noise_std * info.divisor / (info.clip_factor or 1.0)
    return float(np.hypot(noise, _ROUNDING * info.batch_size * np.sqrt(mean_square))) or 1.0


# -- decoding of a recorded run ---------------------------------------------------------------------------------------


_MUCH_MORE: Final = 1.1  # times what an earlier attempt had
_NOTHING: Final = 0.01  # bits per candidate: less is not decoded


@dataclass(frozen=True, kw_only=True)
class Decode(StepAttack):
    """Decoding: who of a list was in, all candidates at once (docs/theory/attackers.md). Nothing is trained.

    The published sum of gradients is a sum over those of the list who were in the batch, so the attack solves for all
    of them jointly. Full batches: the steps stacked. Mini-batches: one system for each step, joined by expectation
    propagation; shuffled: exactly one batch of an epoch each.

    Background records serve where some members are not listed: they tell how the unlisted vary, and the share of the
    members that is listed. Without them the candidates tell it, much less well. Some of them are put on the list as
    decoys, who were not in for certain.

    Parameters
    ----------
    coverage : q, the share of the members that the candidates contain; None: estimated.
    decoys : background records on the list (half of them, if there are more; no more than candidates): the rank of a
        candidate's score among theirs is its p-value. The others tell of unlisted members.
    steps : numbers of the recorded steps to use; None: all.
    most_sweeps : passes over all steps.
    most_work : floating-point operations of its linear algebra, about (2e12: a minute of one core or less). Where all
        steps would take more, gradients of runs without noise are projected, then late steps are left out, with a
        GmipWarning; the cost follows from the sizes alone, so the same run gets the same scores on every machine.
    memory_limit : bytes or "3 GiB"; None: half of what is free. Steps that do not fit are left out, likewise.
    device : where gradients are computed.

    Guarantees
    ----------
    Scores are log-odds of membership at even prior odds, without a label of the run, for independent memberships and
    Gaussian sums of what is not listed: approximate. p-values hold however wrong that is, if candidates that were not
    in are distributed as the background is: on average over runs, at most a share a of them has p <= a. There are none
    with fewer than 20 decoys, and neither p-values nor posteriors where decoding did not settle. Unlisted
    members of mini-batches count as drawn anew in each step. What the list does not explain makes the odds smaller in
    proportion, and is said in a GmipWarning. This attacker holds a list that contains the members: no guarantee for an
    attacker who knows nobody speaks about it.
    """

    coverage: float | None = None
    decoys: int = 200
    steps: Sequence[int] | None = None
    most_sweeps: int = 40
    most_work: float = 2.0e12
    memory_limit: float | str | None = None
    device: str = "cpu"

    name: ClassVar[str] = "decode"

    @classmethod
    def runs_by_default(cls, runs: Sequence[RunTraits]) -> bool:
        """Always: the candidates of an audit are a list that contains members."""
        return True

    def __post_init__(self) -> None:
        if self.coverage is not None:
            check.probability("coverage", self.coverage, open_low=True)
        if self.decoys != 0:
            check.count("decoys", self.decoys)
        check_step_numbers(self.steps)
        check.count("most_sweeps", self.most_sweeps)
        check.positive("most_work", self.most_work)
        if self.memory_limit is not None:
            as_bytes("memory_limit", self.memory_limit)

    def decoded(
        self,
        task: Task,
        trace: Trace,
        candidates: ArrayLike | None = None,
        background: Examples | None = None,
        *,
        progress: Progress | None = None,
    ) -> DecodeOutcome:
        """All that decoding finds, as in `run`: also who was in which batch, with the candidates in rising order."""
        who = parties(task, trace, candidates, task.pool[[]] if background is None else background)
        return self._decoded(task, trace, who, Work(progress or silent(self.name)))[0]

    def _score_steps(self, task: Task, trace: Trace, who: AttackedRecords, progress: Work) -> ScoreSet:
        found, chosen = self._decoded(task, trace, who, progress)
        if chosen.left_out:
            warn(chosen.left_out)
        if found.late:
            warn(
                f"attack {self.name!r} had {progress.budget.seconds:.0f} seconds and ended after {found.sweeps} of its "
                "sweeps, before its odds settled. Raise --budget for more."
            )
        self._say(found)
        return ScoreSet(
            ids=who.ids,
            scores=found.log_odds,
            attack=self.name,
            p_values=ranks_among(found.log_odds, found.decoys) if found.settled and len(found.decoys) else None,
            calibration=(1.0, 0.0) if found.settled else None,
            facts={
                "coverage": found.coverage,
                "coverage_estimated": self.coverage is None,
                "decoded": found.sure,
                "bits": max(0.0, found.gain),
                "misfit": found.misfit,
                "steps": chosen.steps,
                "sweeps": found.sweeps,
                "settled": found.settled,
                "decoys": len(found.decoys),
            }
            | ({} if chosen.projection is None else {"projected_to": chosen.projection}),
            cut_short=chosen.cut_short or found.late,
        )

    def _say(self, found: DecodeOutcome) -> None:
        if found.sure > 0.0 and not (found.settled or found.late):
            warn(
                f"decoding did not settle in {found.sweeps} sweeps: its scores have an order, and no p-values. "
                "Raise `most_sweeps`, or list fewer candidates whose records are nearly equal."
            )
        if found.misfit > MISFIT:
            warn(
                "the list does not explain the published gradients: what it leaves open is "
                f"{found.misfit:.3g} times what the noise and unlisted members should leave, so decoding is unreliable "
                "here. Check that the list contains the members, or pass `coverage` and background records."
            )
        elif found.gain < _NOTHING:
            warn(
                "the published gradients do not distinguish the listed candidates: decoding finds less than "
                f"{_NOTHING:g} bits per candidate."
            )

    def _decoded(self, task: Task, trace: Trace, who: AttackedRecords, work: Work) -> tuple[DecodeOutcome, DecodePlan]:
        first, *rest = self._attempts(task, trace, who)
        found, chosen = self._solved(first, work)
        for attempt in () if found.explained else rest:
            try:
                return self._solved(attempt, work)
            except UnsupportedModel as late:  # what was found without background counts, and is said to be cut
                why = f"{late.problem}; decoding did without background records, which tell of unlisted members."
                chosen = chosen._replace(cut_short=True, left_out=f"{chosen.left_out} {why}".strip())
        return found, chosen

    def _attempts(self, task: Task, trace: Trace, who: AttackedRecords) -> list[_Attempt]:
        """How to decode the run, first what is cheaper and does where the list explains the sums."""
        limit = as_bytes("memory_limit", self.memory_limit)
        model = run_model(task, trace, device=self.device)
        gradients = PerExampleGradients.for_trace(
            model, task.loss, trace.header, memory_limit=limit, dtype=precision_for(trace.header.num_params)
        )
        steps = unclipped(trace, chosen_steps(trace, self.steps), gradients, who.background)
        count = len(who.background)
        who = with_decoys(who, min(self.decoys, count if count <= self.decoys else count // 2, len(who.ids)))
        alone = _Attempt(trace, steps, gradients, who._replace(background=who.background[:0]), limit, 1.0)
        if self.coverage == 1.0:
            return [alone]
        # Without noise a list that contains all members explains the sums alone; then nobody asks how others vary.
        quiet = not any(step.info.noise_std > 0.0 for step in steps)
        every = self.coverage is None and quiet and len(who.ids) >= trace.header.dataset_size and len(who.background)
        whole = _Attempt(trace, steps, gradients, who, limit, self.coverage)
        return [alone._replace(time=0.5), whole] if every else [whole]

    def _plan_steps(self, task: Task, trace: Trace, who: AttackedRecords, work: Work) -> WorkPlan | None:
        attempt = self._attempts(task, trace, who)[0]  # of a second one nobody knows yet whether it is needed
        speed = Speed.measured(attempt.gradients, attempt.steps[0], who.candidates)
        chosen, who = self._chosen(attempt, *(self._time(attempt, work) if work.budget.limited else (speed, math.inf)))
        if work.budget.limited:
            check_time(self.name, sum(chosen.cost.seconds(speed)), work.budget)
        shared = SumWork.of(attempt.gradients, who, chosen)
        several, steps, records = len(chosen.sums) > 1, chosen.steps, shared.total
        made, axes, sweeps = chosen.cost.seconds(speed)
        piece, pieces, each, alone = "step", 0, 0.0, made + axes + sweeps
        width = records if not chosen.cost.by_rows else chosen.projection or shared.gradients.num_params
        matrix = _FLOAT * records * width
        if (several or not chosen.cost.by_rows) and worth_sharing(shared, *_amount(shared, chosen)):
            piece, pieces = ("step", len(chosen.sums)) if several else shared_pieces(shared, steps)
            each = (made + (axes if several else 0.0)) / pieces
            alone -= each * pieces
        back = matrix if piece == "step" else matrix * steps // (2 * pieces)
        return shared.forecast(
            attempt.steps[0],
            not chosen.cost.by_rows,
            back=back,
            busy=2 * back,
            here=max(chosen.cost.memory, 2 * back),
            piece=piece,
            pieces=pieces,
            steps=steps,
            each=each,
            alone=alone,
            left_out=chosen.left_out,
        )

    def _chosen(self, attempt: _Attempt, speed: Speed, seconds: float) -> tuple[DecodePlan, AttackedRecords]:
        """The plan, and whom it is about: with no more background than it uses."""
        who = attempt.who
        chosen = plan(
            attempt.trace,
            attempt.steps,
            candidates=len(who.candidates),
            background=len(who.background),
            num_params=attempt.gradients.num_params,
            limit=attempt.limit,
            most_work=self.most_work,
            speed=speed,
            seconds=seconds,
        )
        if len(who.background) > chosen.cost.background:
            few = np.random.default_rng(0).permutation(len(who.background))[: chosen.cost.background]
            who = who._replace(background=who.background[np.sort(few)])
        return chosen, who

    def _solved(self, attempt: _Attempt, work: Work) -> tuple[DecodeOutcome, DecodePlan]:
        trace, steps, gradients, *_ = attempt
        speed, seconds = self._time(attempt, work)
        chosen, who = self._chosen(attempt, speed, seconds)
        if work.budget.limited:
            check_time(self.name, sum(chosen.cost.seconds(speed)), work.budget)
        # Decoding counts as much as the gradients.
        records = len(who.candidates) + len(who.background)
        counted = Counted(work, chosen.steps, records, rest=chosen.steps)
        sums: list[PublishedSum] = []
        longest, before = 0.0, time.monotonic()
        heard = gradients.heard(counted.records)
        workers = None if chosen.cost.by_rows and len(chosen.sums) == 1 else work.workers
        shared = SumWork.of(gradients, who, chosen)
        with strip_runner(shared, workers, *_amount(shared, chosen)) as runner:
            for made in published_sums(heard, trace, who, chosen, counted.ready, work.parts, runner):
                sums.append(made)
                now = time.monotonic()
                longest, before = max(longest, now - before), now
                # Slower than it was on a piece: what is left over must do for the sum and two sweeps.
                ahead = 2.0 * longest + 2.0 * sum(one.work for one in sums) / speed.rate
                if work.budget.limited and len(sums) < len(chosen.sums) and work.budget.left() < ahead:
                    chosen = chosen.first(len(sums), len(steps), work.budget.seconds)
                    break
        found = decode(
            sums,
            dataset_size=trace.header.dataset_size,
            epochs=chosen.epochs,
            coverage=attempt.coverage,
            decoys=len(who.candidates) - len(who.ids),
            most_sweeps=self.most_sweeps,
            most_work=self.most_work,
            progress=counted.after,
            budget=work.budget,
            parts=work.parts,
        )
        return found, chosen

    def _time(self, attempt: _Attempt, work: Work) -> tuple[Speed, float]:
        """What `plan` asks about time: how fast work goes, and the seconds that there are. An attempt that goes on with
        about the same time keeps its plan."""
        if not work.budget.limited:
            return _ANY_SPEED, math.inf
        who = attempt.who
        seconds = max(attempt.time * work.budget.left(), 0.0)
        name = f"time-{len(who.background)}"
        kept = work.parts.get(name)
        if kept is not None:
            before = kept.fields["seconds"]
            if seconds < _MUCH_MORE * before:
                return Speed(*kept.fields["speed"]), before
        speed = Speed.measured(attempt.gradients, attempt.steps[0], who.candidates)
        work.parts.put(name, fields={"speed": speed, "seconds": seconds})
        return speed, seconds


class _Attempt(NamedTuple):
    """One way to decode a run: who is listed and who tells of the others, at which coverage, in what share of the
    time."""

    trace: Trace
    steps: list[Step]
    gradients: PerExampleGradients
    who: AttackedRecords
    limit: int
    coverage: float | None
    time: float = 1.0
