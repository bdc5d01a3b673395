"""Experiments computed in parallel, cell by cell: finished cells are on disk and are not computed again."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from gmip._progress import Progress, Watch, silent
from gmip.errors import DataUnavailable
from gmip.parallel import Workers, compute
from gmip.reproduce import experiments
from gmip.reproduce.cell_store import CellStore, Done
from gmip.reproduce.experiments import Cell, Experiment
from gmip.reproduce.paper_settings import load_task
from gmip.reproduce.result_files import Outcome, check_folder, publish, write_index

__all__ = ["Computing", "Job", "Missing", "Plan", "prepare", "reproduce"]


@dataclass(frozen=True)
class Plan:
    """What is to be computed: experiments with their cells, and of every task the fingerprints of its data, or the
    sentence that says how to get them."""

    quick: bool
    cells: Mapping[str, tuple[Cell, ...]]
    data: Mapping[str, Mapping[str, str]]
    missing: Mapping[str, str]

    def data_of(self, cell: Cell) -> Mapping[str, str]:
        """Fingerprints of the data that a cell needs."""
        return {} if cell.task is None else self.data[cell.task]


def prepare(names: Sequence[str], *, quick: bool = False) -> Plan:
    """Cells of experiments ("all" for all of them); loads the data that they need, which may take minutes once."""
    every = experiments.names()
    chosen = dict.fromkeys(name for given in names for name in (every if given == "all" else [given]))
    cells = {name: tuple(experiments.experiment(name).cells(quick)) for name in chosen}
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
    settings: Workers | None = None,
    watch: Watch = silent,
    command: str = "",
) -> list[Outcome]:
    """Compute what is missing of a plan (or of experiments by name) and write results into `out`.

    Parameters
    ----------
    quick : of experiments by name; a plan has its own.
    settings : who computes; None: all cores of this machine.
    watch : told the cells done and the cells in all, by experiment.
    command : what was typed, for the page.

    Guarantees
    ----------
    Rows are stored the moment a cell is ready, and a later call computes only what is missing: cells whose parameters,
    experiment's version and data are the same are not computed again. Who computes plays no part in the rows. An
    experiment's files appear when its last cell is ready, each whole or not at all. A full result is not replaced by a
    quick one. Cells whose data are missing are left out and named in the outcome; nothing stands in for them.
    """
    plan = plan if isinstance(plan, Plan) else prepare(plan, quick=quick)
    folder = Path(out)
    check_folder(folder, plan.cells, quick=plan.quick)
    store = CellStore(folder)
    outcomes: dict[str, Outcome] = {}

    def finish(under_way: _UnderWay) -> None:
        outcomes[under_way.experiment.NAME] = publish(
            under_way.experiment, folder, under_way.done(), under_way.skipped, quick=plan.quick, command=command
        )
        write_index(folder)

    all_under_way = [_begin(name, plan, store, watch) for name in plan.cells]
    for one in all_under_way:
        if not one.waiting:
            finish(one)
    # Experiments that show the same rows wait for the same cell.
    waiting: dict[Path, list[tuple[_UnderWay, int]]] = {}
    for one in all_under_way:
        for place in sorted(one.waiting):
            cell = one.cells[place]
            waiting.setdefault(store.file(one.experiment, cell, plan.data_of(cell)), []).append((one, place))
    jobs = {Job(who[0][0].experiment.NAME, who[0][0].cells[who[0][1]]): who for who in waiting.values()}

    def take(job: Job, answer: Done | Missing) -> None:
        if isinstance(answer, Done):
            store.write(experiments.experiment(job.experiment), job.cell, plan.data_of(job.cell), answer)
        for one, place in jobs[job]:
            one.take(place, answer)
            if not one.waiting:
                finish(one)

    if jobs:
        compute(Computing(), list(jobs), settings or Workers(), take)
    return [outcomes[name] for name in plan.cells]


@dataclass
class _UnderWay:
    """An experiment, with what there is of it."""

    experiment: Experiment
    cells: tuple[Cell, ...]
    answers: dict[int, Done]
    waiting: set[int]
    skipped: dict[str, str]  # task -> why
    progress: Progress

    def done(self) -> list[Done]:
        return [self.answers[i] for i in sorted(self.answers)]

    def take(self, place: int, answer: Done | Missing) -> None:
        if isinstance(answer, Done):
            self.answers[place] = answer
        else:
            self.skipped[self.cells[place].task or self.experiment.NAME] = answer.reason
        self.waiting.discard(place)
        self.tell()

    def tell(self) -> None:
        self.progress(len(self.answers), len(self.answers) + len(self.waiting))


def _begin(name: str, plan: Plan, store: CellStore, watch: Watch) -> _UnderWay:
    experiment, cells = experiments.experiment(name), plan.cells[name]
    skipped = {cell.task: plan.missing[cell.task] for cell in cells if cell.task and cell.task in plan.missing}
    usable = [i for i, cell in enumerate(cells) if cell.task not in plan.missing]
    found = {i: store.read(experiment, cells[i], plan.data_of(cells[i])) for i in usable}
    under_way = _UnderWay(
        experiment,
        cells,
        {i: done for i, done in found.items() if done is not None},
        {i for i, done in found.items() if done is None},
        skipped,
        watch(name),
    )
    under_way.tell()
    return under_way


class Job(NamedTuple):
    """A cell, and the name of its experiment."""

    experiment: str
    cell: Cell


class Missing(NamedTuple):
    """Why there are none: data that the worker, who may be elsewhere, does not have."""

    reason: str


class Computing:
    """The work: nothing travels but cells, for a worker loads its data itself."""

    name = "An experiment"

    def title(self, job: Job) -> str:
        return f"a cell of {job.experiment} ({job.cell})"

    def compute(self, job: Job) -> Done | Missing:
        start = time.perf_counter()
        try:
            rows = experiments.experiment(job.experiment).run(job.cell)
        except DataUnavailable as error:
            return Missing(" ".join(str(error).split()))
        return Done(rows, time.perf_counter() - start, _machine())


@lru_cache
def _machine() -> str:
    """This machine in a few words."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{named[0] if named else model}, {os.cpu_count()} cores, {platform.system()}"
