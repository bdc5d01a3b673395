"""GLiR on a recorded run: gradients of candidates and background at every recorded step, then the array-level core."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final, Literal, NamedTuple, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from gmip import _validate as check
from gmip._progress import Progress
from gmip._random import PlayStream
from gmip.attacks.arrays import ranks_among
from gmip.attacks.attack import (
    FEWEST_DECOYS,
    AttackedRecords,
    RunTraits,
    StepAttack,
    check_step_numbers,
    chosen_steps,
    nominal_size,
)
from gmip.attacks.glir.scoring import Background, glir_scores, grid_of, scores_without_play
from gmip.attacks.glir.selfplay import GlirOutcome, Play, PlayedRun, StepFound, background_needed, set_apart
from gmip.attacks.glir.step_fits import GramView, Setting, StepView, View, stack
from gmip.attacks.gradients import PerExampleGradients, precision_for
from gmip.attacks.signals import run_model
from gmip.attacks.step_vectors import (
    StepVectors,
    StripRunner,
    StripWork,
    WholeJob,
    collect,
    has_room,
    held_by_rows,
    running_products,
    shared_pieces,
    sketched,
    strip_runner,
    unclipped,
    worth_sharing,
)
from gmip.attacks.work import Counted, Speed, Work, WorkPlan, as_bytes, check_time
from gmip.errors import InvalidArgument, warn
from gmip.stats import ScoreSet
from gmip.stats.covariance import Shrinkage
from gmip.stats.flat import Flat
from gmip.stats.scores import Fact
from gmip.store import NOWHERE
from gmip.tasks import Task
from gmip.trace import Step, Trace
from gmip.vocabulary import RANDOM_SIZES

# -- from a recorded run to the views that glir scores ----------------------------------------------------------------


_EIGEN: Final = 25.0  # operations of an eigen-decomposition for each entry of a cube, at the speed of a product
_SCORED: Final = 3000  # records of field and ranks, at most
_RIDGES: Final = 6  # settings that compete where there are more dimensions than records
_PROJECTIONS: Final = (8192, 4096, 2048, 1024, 512, 256)
_FEWEST: Final = 400  # background records that are left in any case
_DECOYS: Final = 200  # background records to rank candidates among where nothing is played, or a quarter of them
_SKETCHED: Final = (2048, 1024, 512, 256, 128, 64, 32)  # directions of a sketch
_WIDEST: Final = 16_384  # dimensions that a sketch looks at
_MARKED: Final = 3  # vectors that are held while the directions are found, for each of them
_SPREADS: Final = 1000.0  # products of games, and of records in pairs, with what a sketch leaves out
_LEFT_OUT: Final = 0.2  # what a direction that a sketch leaves out tells, of one that it does not; measured: .2 to .6
_SINGLE: Final = 4  # bytes
_DOUBLE: Final = 8
_PLANNED: Final = 0.8  # of the time: games and ranks take some, too


class GlirPlan(NamedTuple):
    """What of the background is used, how far gradients are projected, and in how many directions their covariance is
    estimated where it is sketched (None: in all)."""

    background: int
    projection: int | None
    rank: int | None = None


@dataclass(frozen=True)
class Cost:
    """What an attack on a run costs in seconds."""

    speed: Speed
    params: int
    candidates: int
    listed: bool

    def view(self, plan: GlirPlan) -> float:
        """For the gradients of one step and their inner products."""
        records, width = plan.background + self.candidates, plan.projection or self.params
        if plan.rank is None and plan.projection is None and self.params > records:
            return self.speed.products(records, self.params)
        found = 0 if plan.rank in (None, width) else 2 * plan.rank * (records + 8 * _MARKED * plan.rank) * width
        return self.speed.rows(records) + found / self.speed.rate

    def _fitted(self, plan: GlirPlan) -> int:
        return plan.background + (self.candidates if self.listed else 0)

    def algebra(self, plan: GlirPlan, steps: int = 1) -> tuple[float, float]:
        """For the fits of a view of so many steps, and for every further setting that competes."""
        fitted, scored, width = self._fitted(plan), _SCORED + self.candidates, plan.projection or self.params
        used = steps * (plan.rank or width)
        if used >= fitted:
            one = fitted**3 * (2.0 / 3.0) + 2.0 * fitted**2 * (0 if self.listed else scored)
        else:
            one = fitted * used**2 + _EIGEN * used**3 + 2.0 * used**2 * scored
        if plan.rank is not None:
            one += _SPREADS * scored * steps * width
        fits = 1.0 if self.listed else 2.0
        return fits * one / self.speed.rate, (one if used >= fitted else 0.0) / self.speed.rate

    def least(self, plan: GlirPlan, tuning: int) -> float:
        """For the steps that choose the setting, without which there is no answer."""
        fit, more = self.algebra(plan)
        return tuning * (self.view(plan) + fit + (_RIDGES - 1) * more)

    def steps_in(self, plan: GlirPlan, seconds: float, tuning: int, steps: int) -> float:
        """For how many of the steps there is time; 0 if there is none for the least."""
        left = seconds - self.least(plan, tuning)
        return 0.0 if left < 0.0 else min(float(steps), tuning + left / (self.view(plan) + self.algebra(plan)[0]))

    def best(self, plans: Sequence[GlirPlan], seconds: float, tuning: int, steps: int) -> GlirPlan:
        """The plan that tells most in the time; the cheapest one, if not even its least part fits.

        What a step tells is taken as k m / (m + k), for k dimensions and a covariance that is estimated from m records:
        each direction counts, and as many records as directions halve what is known of them.
        """

        def worth(plan: GlirPlan) -> tuple[float, float]:
            fitted, width = self._fitted(plan), float(plan.projection or self.params)
            if plan.rank is not None:
                width = plan.rank + _LEFT_OUT * (width - plan.rank)
            told = self.steps_in(plan, seconds, tuning, steps) * width * fitted / (fitted + width)
            return told, -self.least(plan, tuning)

        return max(plans, key=worth)


def cut_to_fit(cost: Cost, plan: GlirPlan, *, seconds: float, tuning: int, floor: int, steps: int) -> GlirPlan:
    """The plan, or the best one with less background (not below `floor`), or projected."""
    if cost.steps_in(plan, seconds, tuning, steps) >= steps:
        return plan
    sizes = [plan.background]
    while sizes[-1] > floor:
        sizes.append(max(floor, int(0.8 * sizes[-1])))
    widths = [plan.projection, *(dims for dims in _PROJECTIONS if dims < (plan.projection or cost.params))]
    return cost.best([GlirPlan(size, width) for size in sizes for width in widths], seconds, tuning, steps)


def sketches(
    plan: GlirPlan, params: int, candidates: int, *, noisy: bool, size: int, share: float, steps: int, room: int
) -> list[GlirPlan]:
    """The plans that hold no background but what is scored and fit into so many bytes, the best one first.

    Under noise few directions tell most: those are found, and what they leave out counts as alike. Without it every
    direction tells the same, and random ones cost nothing: gradients are projected (docs/evidence/cost.md).

    noisy : whether the run has noise. size : of the data set. share : of the background that plays. steps : that are
        stacked.
    """
    apart = set_apart(plan.background, size, share)
    scored, found = steps * (apart + candidates), []
    # A quarter is for what the directions leave out of those that are scored, as much for what a fit copies of it.
    widest = min(params, _WIDEST, room // (4 * _SINGLE * scored))
    for rank in _SKETCHED:
        held = 2 * scored * rank + 6 * (steps * rank) ** 2 + (_MARKED * steps * rank * widest if noisy else 0)
        width = widest if noisy else rank
        enough = 4 * steps * rank <= plan.background - apart
        if enough and (2 if noisy else 1) * rank <= widest and rank < params and _DOUBLE * held <= room // 2:
            found.append(GlirPlan(plan.background, width if width < params else None, rank))
    return found


class StepJob(NamedTuple):
    """One step of a run, how it was taken (as `StepView` asks), and where games are played, its number and the setting
    to score it by."""

    whole: WholeJob
    how: dict[str, Any]
    number: int = 0
    best: int = 0

    @property
    def parameters(self) -> NDArray[Any]:
        """The parameters before it."""
        return self.whole.step.parameters

    @property
    def gradient(self) -> NDArray[Any] | Flat:
        """The published mean."""
        return self.whole.vector


@dataclass(frozen=True, eq=False)
class StepWork(StripWork):
    """What the steps of a run share: model, loss, background and candidates, and the games, if any are played."""

    projection: int | None
    seed: int
    by_rows: bool
    run: PlayedRun | None
    single: bool = False
    rank: int | None = None

    @property
    def precision(self) -> torch.dtype:
        """That of the products."""
        return torch.float32 if self.single else torch.float64

    @property
    def by_products(self) -> bool:
        """Whether views are made of inner products, which workers can compute."""
        return not self.by_rows and self.rank is None and self.run is not None

    def compute(self, job: Any) -> Any:
        if not isinstance(job, StepJob):
            return super().compute(job)
        assert self.run is not None
        return self.run.scored(self.view([job]), job.number, job.best)

    def view(self, steps: Sequence[StepJob], runner: StripRunner | None = None) -> StepView:
        """The view of a step, or of several stacked ones."""
        if self.by_products and len(steps) == 1:
            return self.by_sum(self.products(steps[0].whole, runner), steps[0].how, 1)
        background, candidates = self.sets
        if self.rank is not None:
            assert self.run is not None
            found, sketch = sketched(
                self.gradients,
                steps,
                background,
                candidates,
                rank=self.rank,
                apart=self.run.apart,
                projection=self.projection,
                seed=self.seed,
            )
            how = steps[0].how
            return View(mean=found.mean, candidates=found.candidates, background=found.background, sketch=sketch, **how)
        found = collect(
            self.gradients,
            steps,
            background,
            candidates,
            projection=self.projection,
            seed=self.seed,
            by_rows=self.by_rows,
        )
        how = steps[0].how | {"extra_dims": found.extra_dims}
        return View(mean=found.mean, candidates=found.candidates, background=found.background, **how)

    def by_sum(self, total: NDArray[np.float64], how: dict[str, Any], count: int) -> GramView:
        """The view of so many stacked steps, from the sum of their inner products."""
        dimension = count * self.gradients.num_params
        return GramView(products=total, background_size=len(self.sets[0]), dimension=dimension, **how)


@dataclass(eq=False)
class StepSource:
    """The views of a run.

    believed_noise : whether the recorded noise is believed. grid : settings that compete. told : background records
        before the plan. left_out : steps of a joint view for which there was no time, once it is made.
    """

    pieces: StepWork
    trace: Trace
    steps: list[Step]
    plan: GlirPlan
    cost: Cost | None
    work: Work
    believed_noise: bool
    method: str
    grid: list[Setting]
    told: int
    runner: StripRunner | None = None
    left_out: int = 0

    def __post_init__(self) -> None:
        self.epochs = _epochs(self.trace)
        self._counted = Counted(self.work, len(self.steps), self.pieces.total)
        self._here = dataclasses.replace(self.pieces, gradients=self.pieces.gradients.heard(self._counted.records))

    @property
    def joint(self) -> bool:
        """Whether full-batch steps are taken as one."""
        return self.method == "joint"

    def each(self) -> list[Callable[[], StepView]]:
        """How to get each view."""
        if self.joint:
            return [self._joined]
        return [partial(self._one, step) for step in self.steps]

    def in_time(self) -> list[StepView]:
        """The views, at least one; of many steps, evenly spread ones that there is time for once the first is made."""
        makes = self.each()
        start = time.monotonic()
        views = [makes[0]()]
        count, budget = len(makes), self.work.budget
        if budget.limited:
            # Fits come when all views are there: one for the scores, one for the ranks.
            fit = max(time.monotonic() - start, 1.0e-9) if self.cost is None else self.cost.algebra(self.plan)[0]
            took = max(time.monotonic() - start, 1.0e-9) + fit
            count = min(count, 1 + int(max(_PLANNED * budget.left() - fit, 0.0) / took))
        places = np.unique(np.linspace(0, len(makes) - 1, count).round().astype(int))[1:]
        views += [makes[place]() for place in places]
        if not self.joint:
            self.left_out = len(makes) - len(views)
        return views

    @property
    def apart(self) -> bool:
        """Whether a worker can say all that there is to a step: those of mini-batches, once the setting is chosen."""
        run = self.pieces.run
        return run is not None and not self.joint and len(self.steps) > run.play.tuning_steps

    @contextmanager
    def on_workers(self, listed: bool) -> Iterator[None]:
        """Meanwhile workers compute what can be shared, if anybody asked for them."""
        workers = self.work.workers if self.apart or self.pieces.by_products else None
        with strip_runner(self.pieces, workers, *self._amount(listed)) as self.runner:
            yield

    def _amount(self, listed: bool) -> tuple[int, float]:
        """How many whole steps can be pieces, and operations in all."""
        params, (_, candidates) = self.pieces.gradients.num_params, map(len, self.pieces.sets)
        cost = Cost(Speed(6.0 * params, 1.0), params, candidates, listed)
        operations = len(self.steps) * (cost.view(self.plan) + cost.algebra(self.plan)[0])
        return len(self.steps) if self.apart or self.joint else 1, operations

    def forecast(self, cost: Cost, left_out: Callable[[int], str]) -> WorkPlan:
        """What is going to be done, at a cost that was measured; `left_out` words it for so many steps that are used.

        The steps that choose a setting count as work of the asking process, though their products may be shared.
        """
        run, plan, steps = self.pieces.run, self.plan, len(self.steps)
        tuning = 1 if self.joint or run is None else min(run.play.tuning_steps, steps)
        used, view, (fit, more) = steps, cost.view(plan), cost.algebra(plan, steps if self.joint else 1)
        if self.work.budget.limited and not self.joint:
            used = max(tuning, int(cost.steps_in(plan, _PLANNED * self.work.budget.left(), tuning, steps)))
        tuned = fit + (_RIDGES - 1) * more
        algebra = tuned if self.joint else tuning * tuned + (used - tuning) * fit
        shareable = self.apart or self.pieces.by_products
        piece, pieces, each, alone = "step", 0, 0.0, used * view + algebra
        if shareable and worth_sharing(self.pieces, *self._amount(cost.listed)):
            if self.apart:
                pieces, each, alone = used - tuning, view + fit, tuning * (view + tuned)
            else:
                piece, pieces = shared_pieces(self.pieces, used if self.joint else 1)
                pieces *= 1 if self.joint else used
                each, alone = used * view / pieces, algebra
        matrix, fits = self._matrices(cost.listed)
        if self.apart:
            back = 8 * (4 * cost.candidates + (0 if run is None else run.spoken)) + (
                0 if self.pieces.by_products else fits // 4
            )
        else:
            back = matrix // (2 * pieces // used) if piece == "strip" else matrix
        return self.pieces.forecast(
            self.steps[0],
            self.pieces.by_products,
            back=back,
            busy=matrix + fits if self.apart else back,
            here=3 * matrix + fits if self.joint else tuning * (matrix + fits),
            piece=piece,
            pieces=pieces,
            steps=used,
            each=each,
            alone=alone,
            left_out=left_out(used),
        )

    def _matrices(self, listed: bool) -> tuple[int, int]:
        """Bytes of a view, and of what its fit makes of it."""
        background, candidates = map(len, self.pieces.sets)
        fitted, scored = background + (candidates if listed else 0), min(background, _SCORED) + candidates
        if self.pieces.by_products:
            return 8 * (self.pieces.total + 1) ** 2, 8 * (3 * fitted**2 + 2 * fitted * scored)
        width = self.pieces.gradients.num_params if self.plan.projection is None else self.plan.projection
        stacked = len(self.steps) if self.joint else 1
        if self.plan.rank is not None and self.pieces.run is not None:
            held, rank = len(self.pieces.run.apart) + candidates, stacked * self.plan.rank
            return held * (8 * rank + _SINGLE * stacked * width), 8 * (4 * rank**2 + scored * rank)
        width *= stacked
        return 8 * self.pieces.total * width, 8 * (4 * min(width, fitted) ** 2 + scored * width)

    def elsewhere(self, numbers: Sequence[int], best: int) -> Iterator[StepFound | None]:
        """What these steps say by a setting, from workers."""
        assert self.runner is not None
        for found in self.runner.in_order(len(numbers), lambda i: self._job(self.steps[numbers[i]], numbers[i], best)):
            self._counted.ready()
            yield found

    def _job(self, step: Step, number: int = 0, best: int = 0) -> StepJob:
        return StepJob(WholeJob(step, self._scale(step)), self._how(step), number, best)

    def _one(self, step: Step) -> StepView:
        view = self._here.view([self._job(step)], self.runner)
        self._counted.ready()
        return view

    def _joined(self) -> StepView:
        """All steps that there is time for, the first ones first."""
        steps, budget, here, parts = self.steps, self.work.budget, self._here, list[View]()
        _agree(self.trace, steps)
        if not here.by_products and not here.by_rows:
            return here.view([self._job(step) for step in steps])

        def rows() -> Iterator[tuple[int, NDArray[np.float64]]]:
            for number, step in enumerate(steps, 1):
                parts.append(cast(View, here.view([self._job(step)])).reduced())
                yield number, np.empty(0)

        each = rows()
        if here.by_products:
            job = lambda i: self._job(steps[i]).whole  # noqa: E731
            each = running_products(here, len(steps), job, self.runner, self.work.parts, "products")
        told, longest, before, total = 0, 0.0, time.monotonic(), np.empty(0)
        for done, found in each:
            self._counted.ready(done - told)
            told, now, total = done, time.monotonic(), found
            longest, before = max(longest, now - before), now
            if budget.limited and self.cost is not None and done < len(steps):
                fit, more = self.cost.algebra(self.plan, done + 1)
                if budget.left() < longest + fit + (_RIDGES - 1) * more:
                    break
        self.left_out = len(steps) - told
        return self._here.by_sum(total, self._how(steps[0]), told) if here.by_products else stack(parts)

    def _scale(self, step: Step) -> float:
        """From what was recorded to the mean of the batch: where a loop divided by another number than the batch's own,
        or scaled the mean down as a whole and the factor is known."""
        return step.info.divisor / nominal_size(self.trace, step) / (step.info.clip_factor or 1.0)

    def _how(self, step: Step) -> dict[str, Any]:
        """What `StepView` asks."""
        header, info, n = self.trace.header, step.info, nominal_size(self.trace, step)
        alone = header.sampling in RANDOM_SIZES
        how: dict[str, Any] = {
            "batch_size": n,
            "noise_std": self._scale(step) * info.noise_std if self.believed_noise else 0.0,
            "sample_rate": n / header.dataset_size,
            "sampling": "poisson" if alone else "full" if n == header.dataset_size else "fixed",
            "length_counts": self.believed_noise or info.noise_std == 0.0,
        }
        if self.epochs is not None and how["sampling"] == "fixed":
            epoch, place = divmod(info.index, self.epochs)
            how |= {"sampling": "shuffled", "epoch": epoch, "drawn": place * header.batch_size}
        return how


def _agree(trace: Trace, steps: Sequence[Step]) -> None:
    kinds = {(s.info.batch_size, s.info.noise_std / (s.info.clip_factor or 1.0)) for s in steps}
    if len(kinds) > 1:
        raise InvalidArgument(
            f"{trace.path} has steps of different batch sizes or noise, which cannot be joined",
            remedy="choose `steps` that agree, or `method` = 'likelihood-ratio'",
        )


def _epochs(trace: Trace) -> int | None:
    """Batches in an epoch of a shuffled run; None where its batches are not those of shuffled epochs."""
    n, size = trace.header.batch_size, trace.header.dataset_size
    rest = size % n
    sizes = {info.batch_size for info in trace.infos}
    if trace.header.sampling != "shuffled" or not sizes <= ({n, rest} if rest else {n}):
        return None
    dropped = rest > 0 and rest not in sizes and len(trace.infos) > size // n
    return size // n + (rest > 0 and not dropped)


# -- glir on a recorded run -------------------------------------------------------------------------------------------


Method = Literal["auto", "paper", "likelihood-ratio", "mixture", "joint"]
Doubt = Literal["noise", "clipping"]
_LARGE: Final = 3.0e10  # products of gradient entries: from here on in single precision
_LISTED: Final = 600  # background records beside a list, or half as many as it has
_COARSE: Final = 1.0e-4  # and with ridges of at least this
_METHODS: Final = ("auto", "paper", "likelihood-ratio", "mixture", "joint")


@dataclass(frozen=True, kw_only=True)
class GLiR(StepAttack):
    """The gradient likelihood-ratio attack (docs/theory/glir.md): nothing is trained, one recorded run is enough.

    Parameters
    ----------
    method : "auto" takes what the trace calls for: full batches: "joint", one likelihood ratio for all steps
        ("likelihood-ratio" for a single one); mini-batches: "mixture". "paper" is the paper's Algorithm 1, errata
        applied, for comparison.
    play : self-play on the background: chooses cutoff and ridge, predicts the ROC, makes p-values and posteriors valid;
        None: no self-play.
    cutoff, ridge, shrinkage : of the covariance, see `gmip.stats.GaussianModel.fit`; cutoff and ridge None: by
        self-play.
    background : "alone" estimates from the background alone. "with-candidates" adds the candidates, unlabelled: an
        attacker who holds a list that contains members, and judged as such by an audit. It needs self-play.
    steps : numbers of the recorded steps to use; None: all.
    projection : project gradients to this many dimensions, for models too large otherwise; costs power.
    doubt : what the trace says and the attack does not believe: "noise" tests as if there were none, "clipping" as if
        gradients were averaged as they are. On a sound run both are weaker than the plain attack; on a run whose noise
        or clipping is broken they find what it does not look for.
    memory_limit : bytes or "3 GiB"; None: half of what is free.
    device : where gradients are computed.
    seed : of self-play and projection; the same seed gives the same scores.

    Guarantees
    ----------
    Scores need no label of the run. With self-play a p-value p has P(p <= a | not a member) <= a, whatever the
    distribution of gradients, for candidates drawn as the background was: exactly with candidates in the background,
    up to one record in as many as there are without (docs/theory/glir.md, "The whole background"). Without self-play
    p-values are ranks among a quarter of the background, which a second fit does not see; below 80 records there are
    none.
    """

    method: Method = "auto"
    play: Play | None = field(default_factory=Play)
    cutoff: float | None = None
    ridge: float | None = None
    shrinkage: Shrinkage | None = None
    background: Background = "alone"
    steps: Sequence[int] | None = None
    projection: int | None = None
    doubt: Doubt | None = None
    memory_limit: float | str | None = None
    device: str = "cpu"
    seed: int = 0

    name: ClassVar[str] = "glir"
    analytical: ClassVar[bool] = True
    patient: ClassVar[bool] = True

    @classmethod
    def runs_by_default(cls, runs: Sequence[RunTraits]) -> bool:
        """Always."""
        return True

    def __post_init__(self) -> None:
        check.one_of("method", self.method, _METHODS)
        if self.play is not None and not isinstance(self.play, Play):
            raise InvalidArgument("must be a gmip.attacks.glir.Play or None", argument="play", value=self.play)
        for name in ("cutoff", "ridge"):
            if getattr(self, name) is not None:
                check.non_negative(name, getattr(self, name))
        if self.shrinkage is not None:
            check.one_of("shrinkage", self.shrinkage, get_args(Shrinkage))
        check.one_of("background", self.background, get_args(Background))
        if self.background == "with-candidates" and self.play is None:
            raise InvalidArgument(
                "needs self-play", argument="background", value=self.background, remedy="leave out `play` = None"
            )
        check_step_numbers(self.steps)
        if self.projection is not None:
            check.count("projection", self.projection)
        if self.doubt is not None:
            check.one_of("doubt", self.doubt, get_args(Doubt))
        if self.memory_limit is not None:
            as_bytes("memory_limit", self.memory_limit)
        check.seed(self.seed)

    def _score_steps(self, task: Task, trace: Trace, who: AttackedRecords, progress: Work) -> ScoreSet:
        source = self._source(task, trace, who, progress)
        steps = source.steps
        with source.on_workers(self.holds_list):
            found = self._found(source)
        used = len(steps) - max(found.left_out, source.left_out)
        cuts = self._cuts(source, len(steps) if found.decided else used)
        if source.plan.rank is not None:
            self._say_sketched(source, found)
        who = who._replace(background=source.pieces.sets[0])
        if cuts and progress.budget.limited:
            warn(
                f"attack {self.name!r} had {progress.budget.seconds:.0f} seconds and left out {cuts}. "
                "Raise --budget for more."
            )
        elif cuts:
            warn(
                f"attack {self.name!r} left out {cuts}: {len(who.background)} background records are too few for them."
            )
        if found.decided:
            progress(len(steps), len(steps))
        return self._scored(found, who, used, bool(cuts), source.plan.rank)

    def _plan_steps(self, task: Task, trace: Trace, who: AttackedRecords, work: Work) -> WorkPlan | None:
        source = self._source(task, trace, who, work)
        cost = source.cost or self._cost(source.pieces.gradients, source.steps[0], who)
        return source.forecast(cost, lambda used: self._cuts(source, used))

    def _source(self, task: Task, trace: Trace, who: AttackedRecords, progress: Work) -> StepSource:
        """The views to be scored, by how much of the run there is time for; nothing is computed yet but a probe."""
        steps = chosen_steps(trace, self.steps)
        method = self._method(trace, len(steps))
        play = self._play(trace.header.dataset_size, who)
        grid = grid_of(play, self.cutoff, self.ridge)
        who = self._listed(who, trace, len(steps) if method == "joint" else 1)
        model = run_model(task, trace, device=self.device)
        header = dataclasses.replace(trace.header, clip_norm=None) if self.doubt == "clipping" else trace.header
        # Rounding is like noise of 1e-5 of the mean variance: nothing beside a ridge of 1e-4 or more.
        vectors = len(who.background) + len(who.candidates) + 1
        single = header.num_params > vectors and vectors**2 * header.num_params > _LARGE
        single = single and play is not None and self.ridge is None and self.projection is None
        make = partial(PerExampleGradients.for_trace, model, task.loss, header, memory_limit=self.memory_limit)
        gradients = make(dtype=torch.float32 if single else precision_for(header.num_params))
        steps = unclipped(trace, steps, gradients, who.background)
        plan, cost = self._planned(gradients, who, trace, play, steps, method == "joint", progress)
        stacked = len(steps) if method == "joint" else 1
        if plan.rank is not None and self.ridge is None and not single:
            single, gradients = True, make(dtype=torch.float32)
        if single:
            grid = [setting for setting in grid if setting[1] == 0.0 or setting[1] >= _COARSE]
        told, who = len(who.background), who._replace(background=who.background[: plan.background])
        run = self._played_run(trace, who, play, method, grid)
        sets = who.background, who.candidates
        rows = False
        if plan.rank is None:
            rows = held_by_rows(gradients, len(sets[0]), len(sets[1]), stacked, projection=plan.projection)
        pieces = StepWork(gradients, sets, plan.projection, self.seed, rows, run, single, plan.rank)
        believed = self.doubt != "noise"
        return StepSource(pieces, trace, steps, plan, cost, progress, believed, method, grid, told)

    def _cost(self, gradients: PerExampleGradients, step: Step, who: AttackedRecords) -> Cost:
        speed = Speed.measured(gradients, step, who.candidates)
        return Cost(speed, gradients.num_params, len(who.candidates), self.holds_list)

    def _planned(
        self,
        gradients: PerExampleGradients,
        who: AttackedRecords,
        trace: Trace,
        play: Play | None,
        steps: list[Step],
        joint: bool,
        work: Work,
    ) -> tuple[GlirPlan, Cost | None]:
        """What there is time and room for, and what it costs if time is limited: the run as it is; with less background
        or a projection, to be in time; or a sketch where there is no room, or noise, of which a projection tells less.

        An attempt that goes on keeps its plan, as what it has depends on it.
        """
        whole, size = GlirPlan(len(who.background), self.projection), trace.header.dataset_size
        if not whole.background:
            return whole, None
        cost = self._cost(gradients, steps[0], who) if work.budget.limited else None
        kept = work.parts.get("plan")
        if kept is not None:
            return GlirPlan(**kept.fields), cost
        plan, left = whole, work.budget.left()
        tuning = 1 if joint or play is None else min(play.tuning_steps, len(steps))
        how = _PLANNED * left, tuning, 1 if joint else len(steps)
        if cost is not None:
            floor = whole.background  # without self-play all of it is needed to tell more directions than noise
            if play is not None:
                floor = max(background_needed(size, len(who.candidates) if self.holds_list else 0), _FEWEST)
            floor = min(floor, whole.background)
            plan = cut_to_fit(cost, plan, seconds=how[0], tuning=tuning, floor=floor, steps=how[2])
            check_time(self.name, cost.least(plan, tuning), work.budget)
        ways = self._sketches(plan, whole, gradients, who, trace, play, steps, len(steps) if joint else 1)
        if ways:
            plan = ways[0] if cost is None else cost.best(ways, *how)
        if cost is not None or plan != whole:
            work.parts.put("plan", fields=plan._asdict())
        return plan, cost

    def _sketches(
        self,
        plan: GlirPlan,
        whole: GlirPlan,
        gradients: PerExampleGradients,
        who: AttackedRecords,
        trace: Trace,
        play: Play | None,
        steps: Sequence[Step],
        stacked: int,
    ) -> list[GlirPlan]:
        """The sketches that may take the place of a plan, the best one first; none if it need not be replaced."""
        if play is None or self.holds_list or self.projection is not None:
            return []
        room = has_room(gradients, plan.background + len(who.candidates), stacked, plan.projection)
        noisy = self.doubt != "noise" and any(step.info.noise_std > 0.0 for step in steps)
        if room and not (noisy and plan.projection is not None):
            return []
        size, share = trace.header.dataset_size, play.share
        how: dict[str, Any] = {"size": size, "share": share, "steps": stacked, "room": gradients.memory_limit}
        return sketches(whole, gradients.num_params, len(who.candidates), noisy=noisy, **how)

    def _say_sketched(self, source: StepSource, found: GlirOutcome) -> None:
        """What a sketch costs: by the games, and by what is known of directions that all are estimated from so many
        records."""
        plan, params = source.plan, source.pieces.gradients.num_params
        every = params * (len(source.steps) if source.joint else 1)
        all_told = every * plan.background / (every + plan.background)
        assert found.prediction is not None
        area = found.prediction.auc
        noisy = any(step.info.noise_std > 0.0 for step in source.steps)
        most = float(ndtr(math.sqrt(max(all_told / found.told, 1.0)) * ndtri(area)))
        how = f"projects gradients to {plan.rank} dimensions"
        if plan.rank != plan.projection:
            how = f"takes {plan.rank} of {plan.projection or params} directions one by one and all others as alike"
        warn(
            f"attack {self.name!r} has no room or time for {source.pieces.total} records as they are, so it {how}. "
            f"Self-play expects an AUC of {area:.3f}"
            + ("." if noisy else f"; with all {params} parameters it would be at most about {most:.3f}.")
            + " Raise `memory_limit` or the budget for more."
        )

    def _played_run(
        self, trace: Trace, who: AttackedRecords, play: Play | None, method: str, grid: list[Setting]
    ) -> PlayedRun | None:
        if play is None:
            return None
        return PlayedRun(
            background=len(who.background),
            candidates=len(who.candidates),
            dataset_size=trace.header.dataset_size,
            method=method,
            play=play,
            grid=grid,
            shrinkage=self.shrinkage,
            seed=self.seed,
            listed=self.holds_list,
            batches=_epochs(trace) or math.inf,
        )

    def _found(self, source: StepSource) -> GlirOutcome:
        """The scores, by self-play or without."""
        run, method, grid = source.pieces.run, source.method, source.grid
        if run is None:
            views = cast(list[View], source.in_time())
            found = scores_without_play(views, method, grid, self.shrinkage)
            # The model is too sure of itself where it is estimated from few records, so p-values are not its own.
            return dataclasses.replace(found, p_values=self._held_out(views, method, grid))
        kept = NOWHERE if source.joint else source.work.parts
        elsewhere = source.elsewhere if source.apart and source.runner is not None else None
        return run.run(source.each(), kept, source.work.budget, elsewhere)

    def _held_out(self, views: list[View], method: str, grid: list[Setting]) -> NDArray[np.float64] | None:
        """Ranks of the candidates among background records, by a fit on the other background; None: it is too small."""
        count, asked = views[0].num_background, views[0].num_candidates
        few = min(_DECOYS, count // 4)
        if few < FEWEST_DECOYS:
            return None
        order = PlayStream.SPLIT.rng(self.seed).permutation(count)
        held = []
        for view in views:
            assert view.background is not None
            rows = np.concatenate([view.candidates, view.background[order[:few]]])
            held.append(dataclasses.replace(view, candidates=rows, background=view.background[order[few:]]))
        scores = scores_without_play(held, method, grid, self.shrinkage).scores
        return ranks_among(scores[:asked], scores[asked:])

    def _listed(self, who: AttackedRecords, trace: Trace, stacked: int) -> AttackedRecords:
        """With a list as long as the data set and more dimensions than records, the fit tells the records of the list
        apart, and every further background record is one more that may stand for a member (docs/glir.md)."""
        enough = max(_LISTED, len(who.candidates) // 2)
        header = trace.header
        few = len(who.background) <= enough or len(who.candidates) < header.dataset_size
        if not self.holds_list or few or stacked * header.num_params < enough + len(who.candidates):
            return who
        chosen = PlayStream.LISTED.rng(self.seed).permutation(len(who.background))[:enough]
        return who._replace(background=who.background[np.sort(chosen)])

    def _cuts(self, source: StepSource, used: int) -> str:
        plan, background, steps = source.plan, source.told, len(source.steps)
        cuts = [f"{steps - used} of {steps} steps"] if used < steps else []
        if plan.background < background:
            cuts.append(f"{background - plan.background} of {background} background records")
        if plan.projection != self.projection:
            cuts.append(f"all but {plan.projection} dimensions of gradients, at random")
        return ", ".join(cuts)

    @property
    def holds_list(self) -> bool:
        """An attacker with candidates in the background holds a list."""
        return self.background == "with-candidates"

    def _scored(
        self, outcome: GlirOutcome, who: AttackedRecords, steps: int, cut: bool, sketched: int | None = None
    ) -> ScoreSet:
        """A doubting attack measures and plays another run than the recorded one, so it makes no statement on that."""
        if len(who.ids) > 1 and np.ptp(outcome.scores) == 0.0:
            warn(
                f"Attack {self.name!r} gives all {len(who.ids)} candidates the same score, so it says nothing about "
                "this run: what was published is far from what the attack assumes. Use `method` = 'likelihood-ratio'."
            )
        believed = self.doubt is None
        known = believed and outcome.susceptibility is not None
        facts: dict[str, Fact] = {
            "method": outcome.method + (", candidates in the background" if self.holds_list else ""),
            "rank": outcome.rank,
            "cutoff": outcome.cutoff,
            "ridge": outcome.ridge,
            "background": len(who.background),
            "steps": steps,
        }
        if sketched is not None:
            facts |= {"sketched": sketched, "told": outcome.told}
        if outcome.decided:
            facts["not_needed"] = outcome.left_out
        return ScoreSet(
            ids=who.ids,
            scores=outcome.scores,
            attack=self.name,
            p_values=outcome.p_values,
            susceptibility=outcome.susceptibility,
            susceptibility_of=("run" if outcome.method == "joint" else "step") if known else None,
            calibration=outcome.calibration,
            prediction=outcome.prediction if believed else None,
            cut_short=cut,
            facts=facts,
        )

    def _method(self, trace: Trace, num_steps: int) -> str:
        if self.method != "auto":
            return self.method
        if trace.header.sampling != "full" and trace.header.batch_size < trace.header.dataset_size:
            return "mixture"
        return "joint" if num_steps > 1 else "likelihood-ratio"

    def _play(self, dataset_size: int, who: AttackedRecords) -> Play | None:
        listed = len(who.candidates) if self.background == "with-candidates" else 0
        needed = background_needed(dataset_size, listed)
        if self.play is None:
            return None
        if listed or len(who.background) >= needed:
            # Games of a run that is not believed decide nothing about it.
            return self.play if self.doubt is None else dataclasses.replace(self.play, stop_when_decided=False)
        warn(
            f"background has {len(who.background)} examples and self-play with {dataset_size} members needs "
            f"{needed}, so the attack runs without self-play and its estimates are not tuned. Pass more background."
        )
        return None


@dataclass(frozen=True, kw_only=True)
class DoubtNoise(GLiR):
    """GLiR that assumes that no noise was added (`doubt = "noise"`)."""

    doubt: Doubt | None = "noise"

    name: ClassVar[str] = "glir-no-noise"

    @classmethod
    def runs_by_default(cls, runs: Sequence[RunTraits]) -> bool:
        """Runs where noise is recorded."""
        return any(run.noisy for run in runs)


@dataclass(frozen=True, kw_only=True)
class DoubtClipping(DoubtNoise):
    """GLiR that assumes that gradients were not clipped (`doubt = "clipping"`), on which the noise relies."""

    doubt: Doubt | None = "clipping"

    name: ClassVar[str] = "glir-no-clip"


# -- glir on differences of steps -------------------------------------------------------------------------------------


_MOST_STEPS: Final = 9
_DIMENSIONS: Final = 2048


@dataclass(frozen=True, kw_only=True)
class Differences(StepAttack):
    """GLiR on the differences of successive published gradients, as if they held no noise.

    Noise that is drawn once and reused, or drawn again from the same seed, is the same in two steps: their difference
    is free of it, and likelihood ratios that expect independent noise look past that. Full batches: the difference of
    two means is the mean of the differences of the same members, all pairs taken together. Mini-batches: the gradient
    before stands for the noise, at the price of the batch that is in it. On a sound run the noise is twice as large in
    a difference and the attack is weaker than GLiR.

    Parameters
    ----------
    steps : numbers of the recorded steps to use; None: the first ones, at most 9.
    memory_limit, device : of the computation.
    seed : of the projection of gradients of more than 2048 parameters.

    Guarantees
    ----------
    Scores need no label of the run. There are no p-values.
    """

    steps: Sequence[int] | None = None
    memory_limit: float | str | None = None
    device: str = "cpu"
    seed: int = 0

    name: ClassVar[str] = "differences"

    def __post_init__(self) -> None:
        check_step_numbers(self.steps)
        check.seed(self.seed)

    @classmethod
    def runs_by_default(cls, runs: Sequence[RunTraits]) -> bool:
        """Runs where a run that was not trained here has noise."""
        return any(run.noisy and run.recorded and run.published for run in runs)

    def _score_steps(self, task: Task, trace: Trace, who: AttackedRecords, progress: Work) -> ScoreSet:
        steps = chosen_steps(trace, self.steps)
        steps = steps if self.steps is not None else steps[:_MOST_STEPS]
        if len(steps) < 2:
            warn(f"{trace.path} gives one step, and attack 'differences' compares two: it says nothing about this run.")
            return ScoreSet(ids=who.ids, scores=np.zeros(len(who.ids)), attack=self.name)
        model = run_model(task, trace, device=self.device)
        gradients = PerExampleGradients.for_trace(model, task.loss, trace.header, memory_limit=self.memory_limit)
        steps = unclipped(trace, steps, gradients, who.background)
        plan = GlirPlan(len(who.background), _DIMENSIONS if gradients.num_params > _DIMENSIONS else None)
        recorded, told = len(steps), len(who.background)
        if progress.budget.limited and told:
            speed, seconds = Speed.measured(gradients, steps[0], who.candidates), _PLANNED * progress.budget.left()
            cost = Cost(speed, gradients.num_params, len(who.candidates), listed=False)
            plan = cut_to_fit(cost, plan, seconds=seconds, tuning=2, floor=min(_FEWEST, told), steps=recorded)
            per_step = cost.view(plan) + cost.algebra(plan)[0]
            steps = steps[: max(2, min(recorded, int(seconds / per_step)))]
            who = who._replace(background=who.background[: plan.background])
        full = trace.header.sampling == "full" or trace.header.batch_size == trace.header.dataset_size
        method = "mixture" if not full else "joint" if len(steps) > 2 else "likelihood-ratio"
        views = list(self._views(gradients, trace, who, steps, full, plan.projection, progress))
        found = glir_scores(views, method=method, play=None, seed=self.seed)
        facts: dict[str, Fact] = {"method": method, "background": len(who.background), "steps": len(steps)}
        cut = len(steps) < recorded or len(who.background) < told or (plan.projection or _DIMENSIONS) < _DIMENSIONS
        if cut:
            warn(
                f"attack {self.name!r} had {progress.budget.seconds:.0f} seconds and uses {len(steps)} of {recorded} "
                f"steps, {len(who.background)} of {told} background records and "
                f"{plan.projection or gradients.num_params} dimensions of gradients. Raise --budget for more."
            )
        return ScoreSet(ids=who.ids, scores=found.scores, attack=self.name, facts=facts, cut_short=cut)

    def _views(
        self,
        gradients: PerExampleGradients,
        trace: Trace,
        who: AttackedRecords,
        steps: list[Step],
        full: bool,
        projection: int | None,
        progress: Progress,
    ) -> Iterator[View]:
        before: StepVectors | None = None
        for done, step in enumerate(steps):
            found = self._collected(gradients, who, step, projection)
            if before is not None:
                yield _difference(trace, step, before, found, full=full)
            before = found
            progress(done + 1, len(steps))

    def _collected(
        self, gradients: PerExampleGradients, who: AttackedRecords, step: Step, projection: int | None
    ) -> StepVectors:
        """Gradients are collected in the same coordinates at every step."""
        return collect(
            gradients,
            [step],
            who.background,
            who.candidates,
            projection=projection,
            seed=self.seed,
            by_rows=True,
        )


def _difference(trace: Trace, step: Step, before: StepVectors, after: StepVectors, *, full: bool) -> View:
    header, info = trace.header, step.info
    n = nominal_size(trace, step)
    scale = info.divisor / n
    how: dict[str, Any] = {"batch_size": n, "noise_std": 0.0, "length_counts": False}
    if full:
        return View(
            mean=scale * (after.mean - before.mean),
            candidates=after.candidates - before.candidates,
            background=after.background - before.background,
            **how,
        )
    return View(
        mean=scale * (after.mean - before.mean) + np.mean(before.background, axis=0),
        candidates=after.candidates,
        background=after.background,
        sample_rate=n / header.dataset_size,
        sampling="poisson" if header.sampling in RANDOM_SIZES else "fixed",
        **how,
    )
