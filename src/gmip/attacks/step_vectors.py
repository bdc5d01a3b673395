"""The vectors of a recorded step (or several) that an attack compares, found by the cheapest exact way.

They are rows (the gradients themselves, or a random projection of them) or an isometric copy made of their inner
products. Of more records than there is room for, a sketch streams.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeGuard

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from gmip import _validate as check
from gmip._numbers import byte_size
from gmip.attacks.attack import nominal_size
from gmip.attacks.ghost import Piece
from gmip.attacks.glir.step_fits import Sketch
from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.work import WorkPlan
from gmip.errors import InvalidArgument, warn
from gmip.parallel import JobRunner, Workers, job_runner
from gmip.stats.covariance import Scatter
from gmip.stats.flat import Flat
from gmip.store import Store
from gmip.tasks import Examples
from gmip.tasks.inputs import named
from gmip.trace import Step, Trace

_FLOAT: Final = 8  # bytes
_WORKING: Final = 4  # 1/4 of the limit is for what passes by
_LEAST: Final = 8  # and 1/8 for what is held, however large a matrix of inner products is
_NEGATIVE: Final = 1.0e-6  # negative eigenvalues beyond this share of the largest are no rounding errors
_AT_ONCE: Final = 2**29  # bytes: gradients of records are made for so many at a time, at most
_PASSING: Final = 4  # 1/4 of the room for gradients is for those that pass by those that are held
_MARKS: Final = 2  # records for each direction of a sketch
_FEWEST_MARKS: Final = 400
_POWERS: Final = 2  # of the covariance, in the range finder
_KEEP_AFTER: Final = 5.0  # seconds of work worth a file
_GRAM_COPIES: Final = 5  # the matrix, its eigenvectors, twice as much that LAPACK works in, and the result

_Block = tuple[slice, list[Piece]]

# Constants of SplitMix64 (Steele, Lea and Flood 2014), written out here because NumPy does not guarantee that its
# generators give the same numbers in the next version; of SeedSequence, which starts it, it does.
_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX: Final = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST_SHIFT: Final = np.uint64(31)


class Published(Protocol):
    """What is known of a step, such as `gmip.trace.Step`: the parameters and the mean gradient, each of shape (d,)."""

    @property
    def parameters(self) -> NDArray[np.floating]: ...

    @property
    def gradient(self) -> NDArray[np.floating] | Flat: ...


class StepVectors(NamedTuple):
    """Gradients of all examples, and the published mean, in D' coordinates. float64.

    Attributes
    ----------
    background, candidates, mean : shapes (m, D'), (c, D'), (D',).
    extra_dims : dimensions of the space of gradients in which none of these vectors has a component, and which have no
        coordinate: D' + extra_dims is the number of (stacked) parameters, or of dimensions projected to.
    """

    background: NDArray[np.float64]
    candidates: NDArray[np.float64]
    mean: NDArray[np.float64]
    extra_dims: int


def collect(
    gradients: PerExampleGradients,
    steps: Published | Sequence[Published],
    background: Examples,
    candidates: Examples,
    *,
    projection: int | None = None,
    seed: int = 0,
    by_rows: bool | None = None,
) -> StepVectors:
    """The vectors of a step, or, for several steps, those of all of them stacked into one.

    Parameters
    ----------
    gradients : of the model of the run; where in parameter space it stands does not matter.
    projection : project the gradients of each step to this many dimensions, at random, by `seed`, and scale them so
        that noise of some standard deviation on every entry is noise of the same on every coordinate.
    by_rows : as entries of the gradients, step after step; False: in the span of all vectors, by their inner products.
        None: as `held_by_rows` says.
    """
    several = list(steps) if isinstance(steps, Sequence) else [steps]
    sizes = len(background), len(candidates), len(several)
    if not held_by_rows(gradients, *sizes, projection=projection, asked=by_rows):
        total = inner_products(gradients, several, background, candidates)
        points, m = compress(total), len(background)
        return StepVectors(points[:m], points[m:-1], points[-1], len(several) * gradients.num_params - points.shape[1])
    project = None if projection is None else Projection(gradients.num_params, projection, seed=seed)
    width = projection or gradients.num_params
    parts = [torch.empty(len(group), len(several) * width, dtype=torch.float64) for group in (background, candidates)]
    mean = torch.empty(len(several) * width, dtype=torch.float64)
    for i, step in enumerate(several):
        here = gradients.at(step.parameters).within(gradients.memory_limit // _WORKING)
        columns = slice(i * width, (i + 1) * width)
        published = torch.from_numpy(_vector(step.gradient, gradients.num_params).array())
        mean[columns] = published if project is None else project.scaled(published)
        for group, part in zip((background, candidates), parts, strict=True):
            write_rows(here, group, part[:, columns], project)
    return StepVectors(parts[0].numpy(), parts[1].numpy(), mean.numpy(), 0)


def write_rows(gradients: PerExampleGradients, examples: Examples, out: Tensor, project: Projection | None) -> None:
    """Writes the gradients of the examples into the rows of `out`, projected if asked."""
    if project is None:
        gradients.rows(examples, out=out)
        return
    first = 0
    for chunk in gradients.chunks(examples):
        out[first : first + len(chunk)] = project.scaled(chunk).to(out)
        first += len(chunk)
        del chunk  # before the next one is made


def held_by_rows(
    gradients: PerExampleGradients,
    background: int,
    candidates: int,
    steps: int,
    *,
    projection: int | None = None,
    asked: bool | None = None,
) -> bool:
    """Whether so many vectors are best held as they are (or projected), and not by their inner products, of which there
    are fewer where there are more (stacked) parameters than vectors. Raises where there is no room."""
    counts = {"steps": steps, "background examples": background, "candidates": candidates}
    if absent := [what for what, count in counts.items() if not count]:
        raise InvalidArgument(
            f"There are no {' and no '.join(absent)}",
            remedy="pass at least one of each (background is what is neither member nor candidate: audit fewer "
            "`candidates`, or give the task a `background`)",
        )
    needed = _bytes_of(gradients, background + candidates, steps, projection)
    needed = needed if asked is None else {asked: needed[asked]}
    limit = gradients.memory_limit
    fitting = [form for form, size in needed.items() if size <= limit - limit // _WORKING]
    if not fitting:
        ways = "fewer dimensions in `projection`" if projection is not None else "`projection` = 2048, say"
        raise InvalidArgument(
            f"{background + candidates} examples with {steps * gradients.num_params} parameters need "
            f"{byte_size(min(needed.values()))}, more than `memory_limit` = {byte_size(limit)} allows",
            remedy=f"raise it, or pass fewer background examples, or {ways}",
        )
    return fitting[0]


def has_room(gradients: PerExampleGradients, records: int, steps: int, projection: int | None = None) -> bool:
    """Whether the vectors of so many records fit into memory as they are, or projected, or their inner products."""
    limit = gradients.memory_limit
    return min(_bytes_of(gradients, records, steps, projection).values()) <= limit - limit // _WORKING


def _bytes_of(gradients: PerExampleGradients, records: int, steps: int, projection: int | None) -> dict[bool, int]:
    """Bytes of so many records and a mean by rows, and not by rows, the better form first."""
    vectors, size = records + 1, steps * (projection or gradients.num_params)
    rows, products = _FLOAT * vectors * size, _GRAM_COPIES * _FLOAT * vectors**2
    if projection is not None:
        return {True: rows}
    return {False: products, True: rows} if size > vectors else {True: rows, False: products}


def sketched(
    gradients: PerExampleGradients,
    steps: Sequence[Published],
    background: Examples,
    candidates: Examples,
    *,
    rank: int,
    apart: NDArray[np.intp],
    projection: int | None = None,
    seed: int = 0,
) -> tuple[StepVectors, Sketch]:
    """Coordinates in `rank` directions of each step, stacked, and what else is held of so many records.

    The directions are nearly those in which some background records vary most, and their mean: a randomised range
    finder (Halko, Martinsson and Tropp 2011, algorithm 4.4). Records pass by; each is computed once, those that tell
    the directions twice.

    Parameters
    ----------
    rank : at least 2. With as many as parameters (or as `projection`) the directions are all there are.
    apart : array of shape (b,), positions of background records, in rising order, that tell nothing of the directions
        and are held, as are all candidates; the vectors of the background are theirs alone.
    projection : project gradients to this many dimensions first; None: not at all.
    """
    size = gradients.num_params
    width, others = projection or size, np.setdiff1d(np.arange(len(background)), apart)
    here = [gradients.at(step.parameters) for step in steps]
    rng = np.random.default_rng([seed, width, rank])
    marks = background[np.sort(rng.permutation(others)[: max(_MARKS * rank, _FEWEST_MARKS)])]
    project = None if projection is None else Projection(size, projection, seed=seed)
    ways = [_Directions(project, None) for _ in steps]
    if rank < width:
        ways = [way.found(one, marks, rank, rng) for way, one in zip(ways, here, strict=True)]
    widths = rank * len(steps), width * len(steps) if rank < width else 0
    passing = torch.ones(len(background), dtype=torch.bool)
    passing[torch.from_numpy(apart)] = False
    along, rest, sums, totals = _streamed(here, ways, background, passing, widths)
    asked, asked_rest, _, _ = _streamed(here, ways, candidates, torch.zeros(len(candidates)) > 0, widths)
    assert sums is not None
    ways = [way.double() for way in ways]
    centre = _divided(ways, [(total / len(others))[None] for total in totals])[1][0]
    published = [ways[0].moved(torch.from_numpy(_vector(step.gradient, size).array()))[None] for step in steps]
    mean, left = _divided(ways, published)
    rest -= centre.to(rest)
    asked_rest -= centre.to(rest)
    sketch = Sketch(
        size=len(background),
        rows=apart,
        others=sums,
        background=rest.numpy(),
        candidates=asked_rest.numpy(),
        mean=(left[0] - centre).numpy(),
        centre=centre.numpy(),
        dims=len(steps) * (width - rank),
    )
    return StepVectors(along.numpy(), asked.numpy(), mean[0].numpy(), 0), sketch


def _streamed(
    here: Sequence[PerExampleGradients],
    ways: Sequence[_Directions],
    group: Examples,
    passing: Tensor,
    widths: tuple[int, int],
) -> tuple[Tensor, Tensor, Scatter | None, list[Any]]:
    """Coordinates of the records that do not pass by, and what these leave out; of the others the scatter of their
    coordinates, and the sums of their (projected) gradients at each step."""
    along = torch.empty(int((~passing).sum()), widths[0], dtype=torch.float64)
    rest = torch.empty(len(along), widths[1])  # in single precision
    sums: Scatter | None = None
    totals: list[Any] = [0.0 for _ in here]
    first = filled = 0
    for chunks in zip(*(one.chunks(group) for one in here), strict=True):
        parts = [way.moved(chunk) for way, chunk in zip(ways, chunks, strict=True)]
        del chunks  # before the next ones are made
        by = passing[first : first + len(parts[0])]
        first += len(by)
        places = slice(filled, filled + int((~by).sum()))
        filled = places.stop
        along[places], left = _divided(ways, [part[~by] for part in parts])
        rest[places] = left.to(rest)
        if by.any():
            parts = [part[by] for part in parts]
            more = [_along(ways, parts).numpy()]
            sums = Scatter.of(more) if sums is None else sums.plus(more)
            totals = [total + part.sum(0, dtype=torch.float64) for total, part in zip(totals, parts, strict=True)]
    return along, rest, sums, totals


class _Directions(NamedTuple):
    """A random projection, and orthonormal directions after it, (w, rank); None: all there are."""

    project: Projection | None
    axes: Tensor | None

    def moved(self, rows: Tensor) -> Tensor:
        """Projected."""
        return rows if self.project is None else self.project.scaled(rows)

    def found(
        self, gradients: PerExampleGradients, marks: Examples, rank: int, rng: np.random.Generator
    ) -> _Directions:
        """The directions that these records tell."""
        rows = torch.cat([self.moved(chunk) for chunk in gradients.chunks(marks)])
        return self._replace(axes=_range(rows, rank, rng))

    def double(self) -> _Directions:
        """The same in double precision."""
        return self if self.axes is None else self._replace(axes=self.axes.double())

    def along(self, rows: Tensor) -> Tensor:
        """Coordinates of projected rows."""
        return rows if self.axes is None else rows @ self.axes


def _along(ways: Sequence[_Directions], parts: Sequence[Tensor]) -> Tensor:
    """The coordinates of all steps."""
    return torch.cat([way.along(part) for way, part in zip(ways, parts, strict=True)], 1).double()


def _divided(ways: Sequence[_Directions], parts: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The coordinates of all steps, and what they leave out."""
    left = [
        part[:, :0] if way.axes is None else part - way.along(part) @ way.axes.T
        for way, part in zip(ways, parts, strict=True)
    ]
    return _along(ways, parts), torch.cat(left, 1)


def _range(marks: Tensor, rank: int, rng: np.random.Generator) -> Tensor:
    """Orthonormal directions, (w, rank): the mean of the rows of `marks`, and those in which they vary most, nearly."""
    mean = marks.mean(0)
    marks -= mean
    found = marks.T @ torch.from_numpy(rng.standard_normal((len(marks), rank))).to(marks)
    for _ in range(_POWERS):
        found = marks.T @ (marks @ torch.linalg.qr(found)[0])
    axes: Tensor = torch.linalg.qr(torch.cat([mean[:, None], found[:, : rank - 1]], 1))[0]
    return axes


def inner_products(
    gradients: PerExampleGradients,
    steps: Sequence[Published],
    background: Examples,
    candidates: Examples,
) -> NDArray[np.float64]:
    """All inner products of background, candidates and published mean, in this order, summed over the steps.

    They are of double precision.
    """
    size = len(background) + len(candidates) + 1
    total = np.zeros((size, size))
    for step in steps:
        mean = _vector(step.gradient, gradients.num_params)
        total += gram(gradients.at(step.parameters), (background, candidates), [mean])
    return total


def products_of_steps(
    work: StripWork, count: int, job: Callable[[int], WholeJob], runner: StripRunner | None = None
) -> Iterator[NDArray[np.float64]]:
    """The matrix of each step in turn, as in `gram`: of the records of the work and of a vector.

    job : step number i. runner : of `strip_runner` for this work; None: this process. Workers share out steps where
    these are as many as the strips of one, else strips. That, too, follows from the numbers alone.
    """
    if runner is not None and count >= len(_strips_of(work.total)):
        yield from runner.in_order(count, job)
        return
    for number in range(count):
        yield work.products(job(number), runner)


def running_products(
    work: StripWork,
    count: int,
    job: Callable[[int], WholeJob],
    runner: StripRunner | None,
    parts: Store,
    name: str,
    unit: Callable[[int, NDArray[np.float64]], float] | None = None,
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """(how many steps, the sum of their matrices), step by step; each as in `products_of_steps`.

    parts, name : where the sum is kept now and then; what an earlier attempt has kept comes first. unit : of the
        vectors of step number i, by its matrix.
    """
    total, done, kept = np.empty(0), 0, parts.get(name)
    if kept is not None and len(kept.arrays["total"]) == work.total + 1 and 0 < kept.fields["done"] <= count:
        total, done = kept.arrays["total"], kept.fields["done"]
        yield done, total
    saved, first = time.monotonic(), done
    for found in products_of_steps(work, count - first, lambda i: job(first + i), runner):
        if unit is not None:
            found /= unit(done, found) ** 2
        total, done = np.add(total, found, out=total) if done else found, done + 1
        if done < count and time.monotonic() - saved > _KEEP_AFTER:
            parts.put(name, {"total": total}, {"done": done})
            saved = time.monotonic()
        yield done, total


def _vector(given: NDArray[Any] | Flat, d: int) -> Flat:
    shape = (len(given),) if isinstance(given, Flat) else np.shape(given)
    if shape != (d,):
        raise InvalidArgument(
            f"The gradient of a step has shape {shape}, not ({d},)", remedy="pass the steps of this model's run"
        )
    mean = Flat.of(given)
    if not mean.is_finite():
        raise InvalidArgument(
            "The gradient of a step is not finite", remedy="leave out the steps at which training diverged"
        )
    return mean


def gram(
    gradients: PerExampleGradients,
    examples: Examples | Sequence[Examples],
    vectors: ArrayLike | Sequence[Flat] | None = None,
    *,
    precision: torch.dtype = torch.float64,
    runner: StripRunner | None = None,
) -> NDArray[np.float64]:
    """All inner products among the gradients of the examples (set after set) and then `vectors`, shape (P, P).

    Parameters
    ----------
    gradients : at the parameters of one step. For several steps jointly, add their matrices.
    vectors : flat vectors of shape (d,) or (s, d), or s `Flat`s, such as published means; P = number of examples + s.
    precision : of the products.
    runner : of `strip_runner` for the same gradients, examples and precision; None: this process.

    Guarantees
    ----------
    A linear layer has only its inputs and the errors sent back to it held, never its gradients; other layers, and
    linear layers that see long sequences, have their gradients held. Sums are float64. Examples whose gradients do not
    fit into the memory limit of `gradients` are computed again for every block of others that does; the result is the
    same up to rounding.
    With a runner the strips follow from the number of examples alone: any number of workers gives the same bits.
    """
    limit = gradients.memory_limit
    sets = [examples] if isinstance(examples, Examples) else list(examples)
    total = sum(map(len, sets))
    flat = _vectors(vectors, gradients.num_params)
    result = torch.zeros(total + len(flat), total + len(flat), dtype=torch.float64)
    for i, j in itertools.combinations_with_replacement(range(len(flat)), 2):
        result[total + i, total + j] = flat[i] @ flat[j]
    if runner is not None:
        values = gradients.values
        jobs = [StripJob(values, flat, rows.start, rows.stop) for rows in _strips_of(total)]

        def take(job: StripJob, strip: NDArray[np.float64]) -> None:
            result[job.start : job.stop, job.start :] = torch.from_numpy(strip)

        runner.compute(jobs, take)
    else:
        room = max(limit - limit // _WORKING - 2 * result.nbytes, limit // _LEAST)
        _fill(result[:total], gradients.within(limit // _WORKING), sets, flat, 0, room=room, precision=precision)
    for vector in flat:
        vector.rest()
    _mirror(result)
    return result.numpy()


def compress(matrix: ArrayLike) -> NDArray[np.float64]:
    """X of shape (P, r) with X X' = matrix, for a matrix of inner products: coordinates in the span of the vectors.

    Guarantees
    ----------
    X is an isometric copy of the P vectors: whatever depends on inner products only gives the same on X. Directions
    whose share of the largest is within rounding error (P eps) of zero are dropped; r is the number of the others.
    """
    values = np.asarray(matrix, dtype=np.float64)
    if values.ndim != 2 or values.shape[0] != values.shape[1]:
        raise InvalidArgument(f"must be square, not of shape {values.shape}", argument="matrix")
    if not np.isfinite(values).all():
        raise InvalidArgument(
            "has entries that are not finite", argument="matrix", remedy="drop the vectors they belong to"
        )
    eigenvalues, axes = np.linalg.eigh(values)
    largest = max(float(eigenvalues[-1]), 0.0) if len(values) else 0.0
    if len(values) and eigenvalues[0] < -_NEGATIVE * largest:
        raise InvalidArgument(
            f"has eigenvalues from {eigenvalues[0]:.3g} to {largest:.3g}, so it holds no inner products",
            argument="matrix",
            remedy="pass the matrix that gram gives",
        )
    keep = eigenvalues > len(values) * np.finfo(np.float64).eps * largest
    scaled: NDArray[np.float64] = axes[:, keep] * np.sqrt(eigenvalues[keep])
    return scaled


def _fill(
    strip: Tensor,
    gradients: PerExampleGradients,
    sets: Sequence[Examples],
    flat: Sequence[Flat],
    start: int,
    *,
    room: int,
    precision: torch.dtype,
) -> None:
    """Fills the upper triangle of `strip`: a row for each example from number `start` on, a column for each example
    from there on and for each vector.

    Examples that fit into `room` are held; those after them pass by, a part at a time.
    """
    stop = start + len(strip)
    total = sum(map(len, sets))
    done = start
    while done < stop:
        held: list[_Block] = []
        used, full = 0, False
        blocks = _blocks(gradients, sets, (done, stop, total), precision)
        for place, pieces in _together(blocks, edges={stop, *itertools.accumulate(map(len, sets))}, room=room):
            columns = slice(place.start - start, place.stop - start)
            for rows, ours in held:
                strip[rows, columns] = _products(ours, pieces).to(strip)
            size = _size(pieces)
            full = full or place.start >= stop or (bool(held) and used + size > room)
            if not full:
                square = _products(pieces, pieces)
                strip[columns, columns] = ((square + square.T) / 2).to(strip)
                if len(flat):
                    vectors = torch.stack([piece.against(flat) for piece in pieces]).sum(0)
                    strip[columns, total - start :] = vectors.to(strip)
                held.append((columns, pieces))
                used, done = used + size, place.stop


def _blocks(
    gradients: PerExampleGradients, sets: Sequence[Examples], edges: Sequence[int], precision: torch.dtype
) -> Iterator[_Block]:
    """Pieces of the examples from the first of the `edges` to the last; none lies on both sides of an edge."""
    for low, high in itertools.pairwise(edges):
        first = 0
        for examples in sets:
            begin, end = (min(max(0, edge - first), len(examples)) for edge in (low, high))
            for rows, pieces in gradients.pieces(examples[begin:end]):
                place = slice(first + begin + rows.start, first + begin + rows.stop)
                yield place, [piece.to(precision) for piece in pieces]
            first += len(examples)


def _together(blocks: Iterable[_Block], *, edges: set[int], room: int) -> Iterator[_Block]:
    """The same with as many examples at a time as fit: first into three quarters of the room, then into one quarter.

    What is multiplied out for a product is so once for all of them. None begins before an edge and ends after it.
    """
    parts: list[_Block] = []
    used, most = 0, room - room // _PASSING
    for place, pieces in blocks:
        size = _size(pieces)
        if parts and (place.start in edges or used + size > most):
            yield _joined(parts)
            used, most = 0, room // _PASSING
        parts.append((place, pieces))
        used += size
    if parts:
        yield _joined(parts)


def _joined(parts: list[_Block]) -> _Block:
    """The pieces of all parts, layer by layer; the parts are given up on the way."""
    place = slice(parts[0][0].start, parts[-1][0].stop)
    lists = [pieces[::-1] for _, pieces in parts]
    parts.clear()
    if len(lists) == 1:
        return place, lists[0][::-1]
    pieces = []
    while lists[0]:
        first, *others = (one.pop() for one in lists)
        pieces.append(first.joined(others))
        del first, others
    return place, pieces


def _size(pieces: Iterable[Piece]) -> int:
    return sum(piece.nbytes for piece in pieces)


def _mirror(matrix: Tensor) -> None:
    """Copies the upper triangle to the lower one, in place."""
    for first in range(0, len(matrix), _STRIP_ROWS):
        rows = slice(first, first + _STRIP_ROWS)
        matrix[rows.stop :, rows] = matrix[rows, rows.stop :].T
        square = matrix[rows, rows]
        square.copy_(square.triu() + square.triu(1).T)


# -- strips on several workers ----------------------------------------------------------------------------------------


_STRIP_ROWS: Final = 256
_MOST_STRIPS: Final = 16
_WORTH: Final = 2.0e10  # operations: ten seconds, about


class StripJob(NamedTuple):
    """Rows of the matrix of one step: the parameters of the model, the vectors, the first row and the one after."""

    values: dict[str, Tensor]
    vectors: Sequence[Flat]
    start: int
    stop: int


class WholeJob(NamedTuple):
    """The whole matrix of one step, whose mean is taken so many times. A step of a trace on shared storage travels as
    the place where the worker reads it."""

    step: Published
    scale: float = 1.0

    @property
    def vector(self) -> Flat:
        """The mean so many times."""
        gradient = Flat.of(self.step.gradient)
        return gradient if self.scale == 1.0 else gradient * self.scale


@dataclass(frozen=True, eq=False)
class StripWork:
    """What the pieces of all steps of a run share: model, loss and records. A `gmip.parallel.SharedWork`."""

    gradients: PerExampleGradients
    sets: tuple[Examples, ...]

    name = "The audited model"

    @property
    def precision(self) -> torch.dtype:
        """That of the products."""
        return self.gradients.dtype

    @property
    def total(self) -> int:
        """How many records there are."""
        return sum(map(len, self.sets))

    def title(self, job: Any) -> str:
        if isinstance(job, StripJob):
            return f"the inner products of records {job.start} to {job.stop - 1}"
        return "what a step says"

    def compute(self, job: Any) -> Any:
        return self.strip(job) if isinstance(job, StripJob) else self.products(job)

    def products(self, job: WholeJob, runner: StripRunner | None = None) -> NDArray[np.float64]:
        """The matrix of a step."""
        here = self.gradients.at(job.step.parameters)
        return gram(here, self.sets, [_vector(job.vector, here.num_params)], precision=self.precision, runner=runner)

    def strip(self, job: StripJob) -> NDArray[np.float64]:
        """Some rows of it, from the diagonal on."""
        limit = self.gradients.memory_limit
        here = self.gradients.at(job.values).within(limit // _WORKING)
        width = self.total - job.start + len(job.vectors)
        strip = torch.zeros(job.stop - job.start, width, dtype=torch.float64)
        room = max(limit - limit // _WORKING, limit // _LEAST)
        _fill(strip, here, self.sets, job.vectors, job.start, room=room, precision=self.precision)
        return strip.numpy()

    def forecast(self, step: Step, by_products: bool, *, back: int, busy: int, here: int, **what: Any) -> WorkPlan:
        """What is going to be done.

        back, busy, here : bytes that a piece brings back, and that a worker and the asking process hold beside
            gradients. what : the rest of the plan.
        """
        plan, item = self.gradients.plan(max(self.sets, key=len)), self.gradients.dtype.itemsize
        limit, vectors = self.gradients.memory_limit, 2 * step.parameters.nbytes
        held = min(limit // _WORKING, _AT_ONCE, self.total * item * (plan.kept + plan.working))
        if by_products:
            held += min(limit - limit // _WORKING, self.total * item * plan.kept)
        data = sum(t.nbytes for one in self.sets for t in (*named(one.inputs).values(), one.targets))
        return WorkPlan(
            records=self.total,
            memory=held + busy if what["pieces"] else 0,
            memory_here=held + here,
            once=data + vectors // 2,
            moved=vectors + back,
            **what,
        )


StripRunner = JobRunner[Any, Any]


@contextmanager
def strip_runner(
    work: StripWork, workers: Workers | None, steps: int = 1, operations: float = math.inf
) -> Iterator[StripRunner | None]:
    """Workers for `gram`, in the precision of the gradients, and for whole steps: they get model and records once. None
    where nobody asked for workers, there is one piece alone, or all are done before workers would have started."""
    if workers is None or not worth_sharing(work, steps, operations):
        yield None
        return
    with job_runner(work, workers, max(len(_strips_of(work.total)), steps)) as runner:
        yield runner


def worth_sharing(work: StripWork, steps: int, operations: float) -> bool:
    """Whether there are several pieces, and they last longer than workers take to start."""
    return max(len(_strips_of(work.total)), steps) > 1 and operations >= _WORTH


def shared_pieces(work: StripWork, steps: int) -> tuple[str, int]:
    """What the pieces of so many steps are called whose matrices are added up, and how many there are."""
    strips = len(_strips_of(work.total))
    return ("step", steps) if steps >= strips else ("strip", steps * strips)


def _strips_of(total: int) -> list[slice]:
    """Strips of the upper triangle that cost about the same. They follow from the number of records alone, so that
    results do not depend on the number of workers."""
    count = max(1, min(_MOST_STRIPS, total // _STRIP_ROWS))
    edges = np.rint(total * (1.0 - np.sqrt(1.0 - np.arange(count + 1) / count))).astype(int).tolist()
    return [slice(low, high) for low, high in itertools.pairwise(edges) if high > low]


def _products(ours: list[Piece], theirs: list[Piece]) -> Tensor:
    total = ours[0].products(theirs[0])
    for a, b in zip(ours[1:], theirs[1:], strict=True):
        total += a.products(b)
    return total


def _vectors(vectors: ArrayLike | Sequence[Flat] | None, d: int) -> list[Flat]:
    given: Any = vectors if vectors is None or _are_flat(vectors) else np.atleast_2d(np.asarray(vectors))
    for one in () if given is None else given:
        if np.ndim(one) > 1 or len(one) != d:
            raise InvalidArgument(
                f"have shape {np.shape(given)}",
                argument="vectors",
                remedy=f"pass flat vectors of length {d}, shape (s, {d})",
            )
    flat = [Flat.of(one) for one in (() if given is None else given)]
    if not all(vector.is_finite() for vector in flat):
        raise InvalidArgument(
            "have entries that are not finite",
            argument="vectors",
            remedy="leave out the step at which training diverged",
        )
    return flat


def _are_flat(vectors: Any) -> TypeGuard[Sequence[Flat]]:
    return isinstance(vectors, list | tuple) and all(isinstance(one, Flat) for one in vectors)


class Projection:
    """A random projection R: R^size -> R^dims that costs no more than reading the vector: linear, the same on every
    machine for the same (size, dims, seed).

    The coordinates are cut into blocks of k. Each coordinate gets a random sign, each block is turned by a random
    number of places, and the blocks are added up: y = sum over blocks b of turn(s_b x_b, c_b). That is a CountSketch
    (Charikar, Chen and Farach-Colton 2002) whose buckets are equally full. For any x, y, over the random signs and
    turns:

        E <Rx, Ry> = <x, y>
        Var <Rx, Ry> = ( |x|^2 |y|^2 + <x, y>^2 - sum_b (|x_b|^2 |y_b|^2 + <x_b, y_b>^2) ) / k

    since two coordinates of different blocks fall together with probability 1/k, and two of one block never.

    Why this one: it takes D additions for a vector, where a dense projection takes D k and a Hadamard one D log D; it
    stores D signs; memory is read in order, which random permutations of the blocks would spoil; and its rows are
    orthogonal, so that independent noise stays independent noise, on which a likelihood ratio relies.

    Guarantees
    ----------
    Inner products are kept on average, with the variance given above: the error of <Rx, Ry> relative to |x||y| has a
    standard deviation of at most sqrt(2/dims). R R' is diagonal with the squares of `row_norms` on it: independent
    noise of standard deviation s on the entries of x is the same of standard deviation s row_norms on those of Rx.
    """

    def __init__(self, size: int, dims: int, *, seed: int = 0) -> None:
        self.size, self.dims = check.count("size", size), check.count("dims", dims)
        if self.dims >= self.size:
            raise InvalidArgument(
                f"to {self.dims} dimensions does not reduce {self.size}",
                argument="projection",
                remedy="lower it, or do without",
            )
        self.seed = check.seed(seed)
        starts = np.random.SeedSequence([self.seed, self.size, self.dims]).generate_state(2, np.uint64)
        signs = np.where(_random_bits(starts[0], self.size) >> np.uint64(63), 1, -1)
        self._signs = torch.from_numpy(signs.astype(np.int8))
        # The remainder prefers small turns by 1 in 2^64/dims: nothing that could be seen.
        turns = _random_bits(starts[1], -(-self.size // self.dims)) % np.uint64(self.dims)
        self._turns: list[int] = turns.tolist()

    @property
    def row_norms(self) -> NDArray[np.float64]:
        """Norm of each row of R, shape (dims,): the square root of how many coordinates fall into it."""
        full, rest = divmod(self.size, self.dims)
        counts = np.full(self.dims, full, dtype=np.float64)
        if rest:
            counts[(np.arange(rest) + self._turns[-1]) % self.dims] += 1.0
        return np.sqrt(counts)

    def scaled(self, vectors: Tensor) -> Tensor:
        """Rx by the norms of the rows of R: noise of some standard deviation stays noise of the same."""
        return self(vectors) * torch.from_numpy(1.0 / self.row_norms).to(vectors)

    def __call__(self, vectors: Tensor) -> Tensor:
        """Rx of one vector, shape (size,), or of each row, shape (n, size), in its precision and on its device."""
        if vectors.ndim not in (1, 2) or vectors.shape[-1] != self.size or not vectors.is_floating_point():
            raise InvalidArgument(
                f"of shape {tuple(vectors.shape)} and {vectors.dtype} cannot be projected",
                argument="vectors",
                remedy=f"pass floating-point ones of length {self.size}, shape (n, {self.size})",
            )
        rows = vectors if vectors.ndim == 2 else vectors[None]
        signs = self._signs.to(rows.device)
        result = rows.new_zeros(len(rows), self.dims)
        for block, turn in enumerate(self._turns):
            first = block * self.dims
            end = min(first + self.dims, self.size)
            middle = min(first + self.dims - turn, end)  # from here on, the block goes round to the front
            for place, part in ((turn, slice(first, middle)), (0, slice(middle, end))):
                width = part.stop - part.start
                if width:
                    result[:, place : place + width].addcmul_(rows[:, part], signs[part].to(rows.dtype))
        return result if vectors.ndim == 2 else result[0]


def _random_bits(start: np.uint64, n: int) -> NDArray[np.uint64]:
    """n numbers of 64 random bits: SplitMix64 from `start`."""
    with np.errstate(over="ignore"):
        values = start + _STEP * np.arange(1, n + 1, dtype=np.uint64)
        for shift, factor in _MIX:
            values = (values ^ (values >> shift)) * factor
        mixed: NDArray[np.uint64] = values ^ (values >> _LAST_SHIFT)
    return mixed


# -- a mean gradient that was clipped as a whole ----------------------------------------------------------------------


_SAME: Final = 1.0e-4  # relative: norms of gradients that were clipped to the same one
_NOISY: Final = 1.0e-5  # where noise was added, whose norms hardly differ if there are many parameters
_MOST: Final = 1000  # background records for an estimate
_PER_DIRECTION: Final = 5  # of them for each direction, so that variances are right to a fifth


def unclipped(trace: Trace, steps: Sequence[Step], gradients: PerExampleGradients, background: Examples) -> list[Step]:
    """The steps with the gradients that they had before they were clipped as a whole, where that happened."""
    norms = np.array([Flat.of(step.gradient).norm for step in steps])
    # Steps with unknown factors count if several are at the largest norm: by chance no two agree, nor three with
    # noise. A norm over some of the parameters shows nothing.
    noisy = any(step.info.noise_std > 0.0 for step in steps)
    open_ = np.array([step.info.clip_factor is None for step in steps])
    whole = trace.header.recorded_params == trace.header.num_params
    limit = float(norms[open_].max(initial=0.0))
    at_limit = open_ & (norms > (1.0 - (_NOISY if noisy else _SAME)) * limit) & whole & (limit > 0.0)
    if at_limit.sum() < (3 if noisy else 2):
        at_limit[:] = False
    found, factors = [], []
    for step, clipped in zip(steps, at_limit, strict=True):
        growth = 1.0 / (step.info.clip_factor or 1.0)
        if clipped and len(background) > 2 * _PER_DIRECTION:
            growth = _growth(trace, step, gradients, background)
            factors.append(1.0 / growth)
        if growth != 1.0:
            raised = np.asarray(step.gradient, dtype=np.float64) * growth
            step = Step(dataclasses.replace(step.info, clip_factor=1.0), step.parameters, raised)
        found.append(step)
    if factors:
        warn(
            f"{len(factors)} of {len(steps)} recorded gradients have the same norm {limit:.4g}: they were clipped as a "
            f"whole, by factors that are estimated here ({min(factors):.3g} to {max(factors):.3g})."
        )
    return found


def _growth(trace: Trace, step: Step, gradients: PerExampleGradients, background: Examples) -> float:
    info = step.info
    n = nominal_size(trace, step)
    some = background[np.random.default_rng(0).permutation(len(background))[:_MOST]]
    mean = np.asarray(step.gradient, dtype=np.float64) * (info.divisor / n)
    points = compress(gram(gradients.at(step.parameters), some, mean))
    return estimated_growth(points[-1], points[:-1], batch_size=n, noise_std=info.noise_std * info.divisor / n)


def estimated_growth(
    mean: NDArray[Any], background: NDArray[Any], *, batch_size: float, noise_std: float = 0.0
) -> float:
    """a = 1/s >= 1 from the clipped mean, shape (D,), and gradients of the same distribution, shape (k, D)."""
    k = len(background)
    centre = background.mean(axis=0)
    _, lengths, axes = np.linalg.svd(background - centre, full_matrices=False)
    variances = lengths**2 / (k - 1)
    q = min(max(1, k // _PER_DIRECTION), int(np.sum(variances > 1.0e-10 * variances[0])))
    v = variances[:q] * (1.0 / batch_size + 1.0 / k) + noise_std**2
    seen, expected = axes[:q] @ mean, axes[:q] @ centre
    a, b = float(np.sum(seen**2 / v)), float(np.sum(seen * expected / v))
    return max(1.0, (b + math.sqrt(b * b + 4.0 * a * q)) / (2.0 * a)) if a > 0.0 else 1.0
