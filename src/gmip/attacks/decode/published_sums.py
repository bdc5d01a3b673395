"""From a recorded run to the sums that decoding solves: the candidates' gradients in coordinates of their span."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gmip.attacks.attack import Parties
from gmip.attacks.decode.decoding import Draw, PublishedSum, coordinates
from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.memory import readable
from gmip.attacks.step_vectors import gram
from gmip.errors import GmipWarning, InvalidArgument
from gmip.trace import Step, StepInfo, Trace

__all__ = ["Plan", "plan", "published_sums"]

Array = NDArray[np.float64]
_ROUNDING: Final = {"float32": 2.0e-7, "float64": 1.0e-12}  # of a typical entry, for each record of the sum
_FLOAT: Final = 8  # bytes
_WORKING: Final = 3  # matrices of a step's size beside what is kept: inner products, a factor, a product
_ENOUGH: Final = 1.5  # background records for each direction, to estimate a covariance from


class Plan(NamedTuple):
    """Which steps make a sum (several: stacked), and the sums of which a member is in one (shuffled epochs)."""

    sums: list[list[Step]]
    epochs: list[list[int]] | None

    @property
    def steps(self) -> int:
        """How many steps are used."""
        return sum(map(len, self.sums))


def plan(trace: Trace, steps: list[Step], candidates: int, num_params: int, limit: int) -> Plan:
    """Full batches stacked; else as many steps as fit into `limit` bytes, the first ones."""
    if trace.header.sampling == "full" or all(_size(trace, s.info) >= trace.header.dataset_size for s in steps):
        _room(candidates, min(candidates, len(steps) * num_params), 1, limit)
        return Plan([steps], None)
    rank = min(candidates, num_params)
    fitting = _room(candidates, rank, len(steps), limit)
    if fitting < len(steps):
        warnings.warn(
            f"decoding uses the first {fitting} of {len(steps)} recorded steps, which is what `memory_limit` = "
            f"{readable(limit)} has room for.",
            GmipWarning,
            stacklevel=2,
        )
    steps = steps[:fitting]
    return Plan([[step] for step in steps], _epochs(trace, steps) if trace.header.sampling == "shuffled" else None)


def _room(candidates: int, rank: int, steps: int, limit: int) -> int:
    """How many steps fit."""
    one = _FLOAT * rank * (candidates + rank)  # gradients, and the covariance of who is not listed
    fitting = (limit - _WORKING * _FLOAT * candidates * rank) // max(1, one)
    if fitting < 1:
        needed = one + _WORKING * _FLOAT * candidates * rank
        raise InvalidArgument(
            f"{candidates} candidates need {readable(needed)}, more than `memory_limit` = {readable(limit)} allows",
            remedy="raise it, or pass fewer candidates and their `coverage`",
        )
    return int(min(steps, fitting))


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


def published_sums(
    gradients: PerExampleGradients, trace: Trace, who: Parties, sums: Sequence[Sequence[Step]], done: Callable[[], Any]
) -> Iterator[PublishedSum]:
    """One for each element of `sums`; `done` is called after each step."""
    header = trace.header
    for steps in sums:
        share = min(1.0, _size(trace, steps[0].info) / header.dataset_size)
        draw: Draw = "fixed"
        if header.sampling == "poisson" and share < 1.0:
            draw = "poisson"
        elif header.sampling == "full" or share == 1.0:
            share, draw = 1.0, "full"
        # What is not listed is not the same in every direction: with enough background directions outside the
        # candidates' span tell of it, too.
        dims = len(steps) * gradients.num_params
        small = dims <= len(who.candidates) or _ENOUGH * dims <= len(who.background)
        made = (_by_rows if small else _by_gram)(gradients, header.dtype, who, steps, done)
        yield _sum(*made, share, draw)


def _sum(candidates: Array, total: Array, background: Array, share: float, draw: Draw) -> PublishedSum:
    count, dims = background.shape
    told = count >= _ENOUGH * dims
    centred = background - background.mean(0) if told else background
    return PublishedSum(
        candidates=candidates,
        total=total,
        share=share,
        draw=draw,
        rest_mean=background.mean(0) if told else None,
        # As in a sample of this size others differ from it (see `_own_covariance`).
        rest_cov=centred.T @ centred / (count - dims - 1) if told and count - dims > 1 else None,
    )


def _by_rows(
    gradients: PerExampleGradients, dtype: str, who: Parties, steps: Sequence[Step], done: Callable[[], Any]
) -> tuple[Array, Array, Array]:
    parts: tuple[list[Array], list[Array], list[Array]] = ([], [], [])
    for step in steps:
        here = gradients.at(step.parameters)
        rows = here.rows(who.candidates).double().cpu().numpy()
        unit = _unit(step.info, float(np.einsum("ij,ij->", rows, rows)) / rows.size, dtype)
        parts[0].append(rows / unit)
        parts[1].append(_total(step) / unit)
        others = here.rows(who.background).double().cpu().numpy() if len(who.background) else rows[:0]
        parts[2].append(others / unit)
        done()
    return np.hstack(parts[0]), np.concatenate(parts[1]), np.hstack(parts[2])


def _by_gram(
    gradients: PerExampleGradients, dtype: str, who: Parties, steps: Sequence[Step], done: Callable[[], Any]
) -> tuple[Array, Array, Array]:
    count = len(who.candidates)
    sets = [who.candidates, who.background] if len(who.background) else [who.candidates]
    products: Array | None = None
    for step in steps:
        found = gram(gradients.at(step.parameters), sets, _total(step))
        unit = _unit(step.info, float(np.trace(found[:count, :count])) / (count * gradients.num_params), dtype)
        found /= unit**2
        products = found if products is None else np.add(products, found, out=products)
        done()
    assert products is not None
    points, others = coordinates(products[:count, :count], products[:count, count:])
    return points, others[-1], others[:-1]


def _total(step: Step) -> Array:
    total = np.asarray(step.gradient, dtype=np.float64) * step.info.divisor
    if not np.isfinite(total).all():
        raise InvalidArgument(
            "The gradient of a step is not finite", remedy="leave out the steps at which training diverged"
        )
    return total


def _unit(info: StepInfo, mean_square: float, dtype: str) -> float:
    """The standard deviation of noise on an entry of the sum, and of the rounding that a trace cannot undo."""
    rounding = _ROUNDING[dtype] * info.batch_size * np.sqrt(mean_square)
    return float(np.hypot(info.noise_std * info.divisor, rounding)) or 1.0


def _size(trace: Trace, info: StepInfo) -> int:
    return trace.header.batch_size if trace.header.sampling == "poisson" else info.batch_size
