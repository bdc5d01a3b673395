"""From a recorded run to the views that GLiR scores, within the time that there is."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gmip.attacks.attack import Parties
from gmip.attacks.glir.published_step import GramView, StepView, View, stack
from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.speed import Speed
from gmip.attacks.step_vectors import Route, collect, inner_products, route_for
from gmip.attacks.work import Work
from gmip.errors import InvalidArgument
from gmip.trace import Step, Trace

__all__ = ["Cost", "Plan", "StepSource", "cut_to_fit"]

_EIGEN: Final = 25.0  # operations of an eigen-decomposition for each entry of a cube, at the speed of a product
_SCORED: Final = 3000  # records of field and ranks, at most
_RIDGES: Final = 6  # settings that compete where there are more dimensions than records
_KEEP_AFTER: Final = 5.0  # seconds of work worth a file
_PROJECTIONS: Final = (8192, 4096, 2048)


class Plan(NamedTuple):
    """What of the background is used, and how far gradients are projected."""

    background: int
    projection: int | None


@dataclass(frozen=True)
class Cost:
    """What an attack on a run costs: seconds for the gradient of a record, and operations a second."""

    record: float
    rate: float
    params: int
    candidates: int
    listed: bool

    @classmethod
    def measured(cls, gradients: PerExampleGradients, step: Step, who: Parties, *, listed: bool) -> Cost:
        speed = Speed.measured(gradients, step, who.candidates)
        return cls(speed.record, speed.rate, gradients.num_params, len(who.candidates), listed)

    def view(self, plan: Plan) -> float:
        """Seconds for the gradients of one step and their inner products."""
        records = plan.background + self.candidates
        width = self.params if plan.projection is None else plan.projection
        products = records**2 * width if width > records else 0
        return self.record * records + products / self.rate

    def algebra(self, plan: Plan, steps: int = 1) -> tuple[float, float]:
        """Seconds for the fits of a view of so many steps, and for every further setting that competes."""
        width = steps * (self.params if plan.projection is None else plan.projection)
        fitted = plan.background + (self.candidates if self.listed else 0)
        scored = _SCORED + self.candidates
        if width >= fitted:
            one = fitted**3 * (2.0 / 3.0) + 2.0 * fitted**2 * (0 if self.listed else scored)
        else:
            one = fitted * width**2 + _EIGEN * width**3 + 2.0 * width**2 * scored
        fits = 1.0 if self.listed else 2.0
        return fits * one / self.rate, (one if width >= fitted else 0.0) / self.rate

    def least(self, plan: Plan, tuning: int) -> float:
        """Seconds without which there is no answer: the steps that choose the setting."""
        fit, more = self.algebra(plan)
        return tuning * (self.view(plan) + fit + (_RIDGES - 1) * more)


def cut_to_fit(cost: Cost, plan: Plan, *, seconds: float, tuning: int, floor: int) -> Plan:
    """The plan with less background (not below `floor`), then with a projection, until its least part fits."""
    while cost.least(plan, tuning) > seconds and plan.background > floor:
        plan = plan._replace(background=max(floor, int(0.8 * plan.background)))
    for dims in _PROJECTIONS:
        if cost.least(plan, tuning) <= seconds:
            break
        if (plan.projection is None and dims < cost.params) or (plan.projection is not None and dims < plan.projection):
            plan = plan._replace(projection=dims)
    return plan


@dataclass(eq=False)
class StepSource:
    """The views of a run.

    believed_noise : whether the recorded noise is believed. joint : full-batch steps as one. compressed : points in
    place of inner products. left_out : steps of a joint view for which there was no time, once it is made.
    """

    gradients: PerExampleGradients
    trace: Trace
    who: Parties
    steps: list[Step]
    plan: Plan
    cost: Cost | None
    work: Work
    seed: int
    believed_noise: bool
    joint: bool
    compressed: bool
    left_out: int = 0

    def __post_init__(self) -> None:
        sizes = len(self.who.background), len(self.who.candidates)
        count = len(self.steps) if self.joint else 1
        self.route: Route = route_for(self.gradients, *sizes, count, projection=self.plan.projection)
        self.epochs = _epochs(self.trace)
        self._made = 0

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
        took = max(time.monotonic() - start, 1.0e-9)
        left = self.work.budget.left()
        count = len(makes) if not self.work.budget.limited else min(len(makes), 1 + int(max(left, 0.0) / (2.0 * took)))
        places = np.unique(np.linspace(0, len(makes) - 1, count).round().astype(int))[1:]
        views += [makes[place]() for place in places]
        if not self.joint:
            self.left_out = len(makes) - len(views)
        return views

    def _one(self, step: Step) -> StepView:
        view = self._gram_view([step], self._products([step], None)) if self._by_products else self._vectors([step])
        self._made += 1
        self.work(self._made, len(self.steps))
        return view

    def _joined(self) -> StepView:
        """All steps that there is time for, the first ones first."""
        steps, budget, longest = self.steps, self.work.budget, 0.0
        _agree(self.trace, steps)
        start, total = self._saved() if self._by_products else (0, None)
        parts: list[View] = []
        saved = time.monotonic()
        done = start
        for done, step in enumerate(steps[start:], start + 1):
            before = time.monotonic()
            if self._by_products:
                total = self._products([step], total)
                if time.monotonic() - saved > _KEEP_AFTER:
                    self.work.parts.put("products", {"total": total}, {"done": done})
                    saved = time.monotonic()
            elif self.route == "gram":
                return self._vectors(steps)
            else:
                parts.append(self._vectors([step]).reduced())
            self.work(done, len(steps))
            longest = max(longest, time.monotonic() - before)
            if budget.limited and self.cost is not None and done < len(steps):
                fit, more = self.cost.algebra(self.plan, done + 1)
                if budget.left() < longest + fit + (_RIDGES - 1) * more:
                    break
        self.left_out = len(steps) - done
        if not self._by_products:
            return stack(parts)
        assert total is not None
        return self._gram_view(steps[:done], total)

    def _saved(self) -> tuple[int, NDArray[np.float64] | None]:
        """Inner products of an earlier attempt, and of how many steps."""
        kept = self.work.parts.get("products")
        size = len(self.who.background) + len(self.who.candidates) + 1
        if kept is None or kept.arrays["total"].shape != (size, size) or not 0 < kept.fields["done"] <= len(self.steps):
            return 0, None
        return kept.fields["done"], kept.arrays["total"]

    @property
    def _by_products(self) -> bool:
        return self.route == "gram" and not self.compressed

    def _products(self, steps: list[Step], start: NDArray[np.float64] | None) -> NDArray[np.float64]:
        scaled = [_Scaled(step, self._scale(step)) for step in steps]
        return inner_products(self.gradients, scaled, self.who.background, self.who.candidates, start=start)

    def _gram_view(self, steps: list[Step], total: NDArray[np.float64]) -> GramView:
        return GramView(
            products=total,
            background_size=len(self.who.background),
            dimension=len(steps) * self.gradients.num_params,
            **self._how(steps[0]),
        )

    def _vectors(self, steps: list[Step]) -> View:
        found = collect(
            self.gradients,
            [_Scaled(step, self._scale(step)) for step in steps],
            self.who.background,
            self.who.candidates,
            projection=self.plan.projection,
            seed=self.seed,
            route=self.route,
        )
        how = self._how(steps[0]) | {"extra_dims": found.extra_dims}
        return View(mean=found.mean, candidates=found.candidates, background=found.background, **how)

    def _batch_size(self, step: Step) -> int:
        header = self.trace.header
        return header.batch_size if header.sampling == "poisson" else step.info.batch_size

    def _scale(self, step: Step) -> float:
        """From what was recorded to the mean of the batch: where a loop divided by another number than the batch's own,
        or scaled the mean down as a whole and the factor is known."""
        return step.info.divisor / self._batch_size(step) / (step.info.clip_factor or 1.0)

    def _how(self, step: Step) -> dict[str, Any]:
        """What `StepView` asks."""
        header, info, n = self.trace.header, step.info, self._batch_size(step)
        how: dict[str, Any] = {
            "batch_size": n,
            "noise_std": self._scale(step) * info.noise_std if self.believed_noise else 0.0,
            "sample_rate": n / header.dataset_size,
            "sampling": "poisson" if header.sampling == "poisson" else "full" if n == header.dataset_size else "fixed",
            "length_counts": self.believed_noise or info.noise_std == 0.0,
        }
        if self.epochs is not None and how["sampling"] == "fixed":
            epoch, place = divmod(info.index, self.epochs)
            how |= {"sampling": "shuffled", "epoch": epoch, "drawn": place * header.batch_size}
        return how


class _Scaled:
    """A step whose mean gradient is multiplied by a factor."""

    def __init__(self, step: Step, factor: float) -> None:
        self.parameters = step.parameters
        self.gradient = step.gradient if factor == 1.0 else factor * np.asarray(step.gradient, dtype=np.float64)


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
