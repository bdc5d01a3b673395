"""Experiments in parallel, cell by cell: what is finished is on disk, and is not computed again."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from gmip.attacks.shadow.settings import Shadows
from gmip.errors import DataUnavailable, GmipError, GmipWarning
from gmip.reproduce import registry
from gmip.reproduce.base import Cell, Experiment, rows_of
from gmip.reproduce.data import load_task
from gmip.reproduce.output import Outcome, check_folder, publish, write_index
from gmip.reproduce.pools import Answer, Done, Failed, open_pool, pack
from gmip.reproduce.store import Store

__all__ = ["Outcome", "Plan", "prepare", "reproduce"]

Watch = Callable[[str], Callable[[int, int], None]]
_CHECK_SECONDS = 5.0


@dataclass(frozen=True)
class Plan:
    """What is to be computed: experiments with their cells, and of every task the fingerprints of its data, or the
    sentence that says how to get them."""

    quick: bool
    cells: Mapping[str, tuple[Cell, ...]]
    data: Mapping[str, Mapping[str, str]]
    missing: Mapping[str, str]


def prepare(names: Sequence[str], *, quick: bool = False) -> Plan:
    """Cells of experiments ("all" for all of them); loads the data that they need, which may take minutes once."""
    chosen = list(dict.fromkeys(name for given in names for name in (registry.names() if given == "all" else [given])))
    cells = {name: tuple(registry.experiment(name).cells(quick)) for name in chosen}
    data: dict[str, Mapping[str, str]] = {}
    missing: dict[str, str] = {}
    for task in sorted({cell.task for each in cells.values() for cell in each if cell.task is not None}):
        try:
            data[task] = load_task(task).fingerprints
        except DataUnavailable as error:
            missing[task] = " ".join(str(error).split())
    return Plan(quick, cells, data, missing)


def reproduce(
    plan: Plan | Sequence[str],
    out: str | PathLike[str],
    *,
    quick: bool = False,
    settings: Shadows | None = None,
    watch: Watch | None = None,
    command: str = "",
) -> list[Outcome]:
    """Compute what is missing of a plan (or of experiments by name) and write results into `out`.

    Parameters
    ----------
    quick : of experiments by name; a plan has its own.
    settings : workers, backend, address and retries, as for shadow models; None: all cores of this machine.
    watch : called with an experiment's name; gives what is called with (cells done, cells in all).
    command : what was typed, for the page.

    Guarantees
    ----------
    Rows are stored the moment a cell is ready, and a later call computes only what is missing: cells whose parameters,
    experiment's version and data are the same are not computed again. Who computes plays no part in the rows. An
    experiment's files appear when its last cell is ready, each whole or not at all. A full result is not replaced by a
    quick one. Cells whose data are missing are left out and named in the outcome; nothing stands in for them.
    """
    plan = plan if isinstance(plan, Plan) else prepare(plan, quick=quick)
    settings = settings or Shadows()
    folder = Path(out)
    check_folder(folder, plan.cells, quick=plan.quick)
    store = Store(folder)
    works = [_begin(name, plan, store, watch) for name in plan.cells]
    outcomes: dict[str, Outcome] = {}

    def finish(work: _Work) -> None:
        outcomes[work.experiment.NAME] = publish(
            work.experiment, folder, work.done(), work.skipped, quick=plan.quick, command=command
        )
        write_index(folder)

    for work in works:
        if not work.waiting:
            finish(work)
    _compute([_Job(work, i) for work in works for i in sorted(work.waiting)], plan, store, settings, finish)
    return [outcomes[name] for name in plan.cells]


@dataclass
class _Work:
    """An experiment under way."""

    experiment: Experiment
    cells: tuple[Cell, ...]
    answers: dict[int, Done]
    waiting: set[int]
    skipped: dict[str, str]  # task -> why
    progress: Callable[[int, int], None] = field(default=lambda done, total: None)

    def done(self) -> list[Done]:
        return [self.answers[i] for i in sorted(self.answers)]

    def tell(self) -> None:
        total = len(self.answers) + len(self.waiting)
        self.progress(len(self.answers), total)


class _Job(NamedTuple):
    work: _Work
    place: int

    @property
    def cell(self) -> Cell:
        return self.work.cells[self.place]


def _begin(name: str, plan: Plan, store: Store, watch: Watch | None) -> _Work:
    experiment, cells = registry.experiment(name), plan.cells[name]
    skipped = {cell.task: plan.missing[cell.task] for cell in cells if cell.task and cell.task in plan.missing}
    usable = [i for i, cell in enumerate(cells) if cell.task not in plan.missing]
    found = {i: store.read(experiment, cells[i], _data(plan, cells[i])) for i in usable}
    work = _Work(
        experiment,
        cells,
        {i: done for i, done in found.items() if done is not None},
        {i for i, done in found.items() if done is None},
        skipped,
    )
    if watch is not None:
        work.progress = watch(name)
    work.tell()
    return work


def _data(plan: Plan, cell: Cell) -> Mapping[str, str]:
    return {} if cell.task is None else plan.data[cell.task]


def _compute(
    jobs: Sequence[_Job], plan: Plan, store: Store, settings: Shadows, finish: Callable[[_Work], None]
) -> None:
    if not jobs:
        return
    waiting = list(reversed(range(len(jobs))))
    running: dict[Future[Any], int] = {}
    deaths: Counter[int] = Counter()
    with open_pool([pack(job.work.experiment.NAME, job.cell) for job in jobs], settings) as pool:
        while waiting or running:
            while waiting and len(running) < pool.slots:
                index = waiting.pop()
                if _found(jobs[index], plan, store, finish):
                    continue
                running[pool.submit(index, frozenset())] = index
            if not running:
                break
            finished = wait(running, timeout=_CHECK_SECONDS, return_when=FIRST_COMPLETED).done
            if not finished:
                pool.check()
            lost: list[int] = []
            failed: GmipError | None = None
            for future in finished:
                index = running.pop(future)
                try:
                    failed = _take(jobs[index], future.result(), plan, store, finish) or failed
                except pool.deaths:
                    lost.append(index)
            if failed is not None:  # now that the others are stored
                raise failed
            if lost:
                _count(lost, deaths, jobs, settings.retries)
                pool.mend()
                waiting.extend(sorted(lost, reverse=True))


def _found(job: _Job, plan: Plan, store: Store, finish: Callable[[_Work], None]) -> bool:
    """Whether another experiment has computed the same cell in the meantime; it is taken then."""
    if rows_of(job.work.experiment) == job.work.experiment.NAME:
        return False
    done = store.read(job.work.experiment, job.cell, _data(plan, job.cell))
    if done is None:
        return False
    _count_in(job, done, finish)
    return True


def _take(job: _Job, answer: Answer, plan: Plan, store: Store, finish: Callable[[_Work], None]) -> GmipError | None:
    """Store an answer; the error of a cell that cannot be computed."""
    work, name = job.work, job.work.experiment.NAME
    if isinstance(answer, Done):
        store.write(work.experiment, job.cell, _data(plan, job.cell), answer)
        _count_in(job, answer, finish)
        return None
    if issubclass(answer.kind, DataUnavailable):  # a worker elsewhere, without the data
        work.skipped[job.cell.task or name] = answer.text
        _count_in(job, None, finish)
        return None
    return _failure(job, answer)


def _count_in(job: _Job, done: Done | None, finish: Callable[[_Work], None]) -> None:
    """A cell is done, or (None) left out."""
    work = job.work
    if done is not None:
        work.answers[job.place] = done
    work.waiting.discard(job.place)
    work.tell()
    if not work.waiting:
        finish(work)


def _failure(job: _Job, answer: Failed) -> GmipError:
    failed = answer.kind(f"A cell of {job.work.experiment.NAME} cannot be computed ({job.cell}): {answer.text}")
    failed.add_note(answer.details)
    return failed


def _count(lost: Sequence[int], deaths: Counter[int], jobs: Sequence[_Job], retries: int) -> None:
    deaths.update(lost)
    index = max(lost, key=lambda i: deaths[i])
    if deaths[index] > retries:
        raise GmipError(
            f"The worker of a cell of {jobs[index].work.experiment.NAME} died {deaths[index]} times "
            f"({jobs[index].cell}): give the workers more memory or use fewer, and run again; what is finished is kept."
        )
    warnings.warn(f"{len(lost)} cells are computed again, for their workers died.", GmipWarning, stacklevel=4)
