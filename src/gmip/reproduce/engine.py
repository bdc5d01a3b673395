"""Experiments in parallel, cell by cell: what is finished is on disk, and is not computed again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

from gmip.errors import DataUnavailable
from gmip.parallel import Workers, compute
from gmip.reproduce import registry
from gmip.reproduce.base import Cell, Experiment
from gmip.reproduce.cells import Computing, Done, Job, Missing
from gmip.reproduce.data import load_task
from gmip.reproduce.output import Outcome, check_folder, publish, write_index
from gmip.reproduce.store import Store

__all__ = ["Outcome", "Plan", "prepare", "reproduce"]

Watch = Callable[[str], Callable[[int, int], None]]


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
    settings: Workers | None = None,
    watch: Watch | None = None,
    command: str = "",
) -> list[Outcome]:
    """Compute what is missing of a plan (or of experiments by name) and write results into `out`.

    Parameters
    ----------
    quick : of experiments by name; a plan has its own.
    settings : who computes; None: all cores of this machine.
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
    folder = Path(out)
    check_folder(folder, plan.cells, quick=plan.quick)
    store = Store(folder)
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
            store.write(registry.experiment(job.experiment), job.cell, plan.data_of(job.cell), answer)
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
    progress: Callable[[int, int], None] = field(default=lambda done, total: None)

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


def _begin(name: str, plan: Plan, store: Store, watch: Watch | None) -> _UnderWay:
    experiment, cells = registry.experiment(name), plan.cells[name]
    skipped = {cell.task: plan.missing[cell.task] for cell in cells if cell.task and cell.task in plan.missing}
    usable = [i for i, cell in enumerate(cells) if cell.task not in plan.missing]
    found = {i: store.read(experiment, cells[i], plan.data_of(cells[i])) for i in usable}
    under_way = _UnderWay(
        experiment,
        cells,
        {i: done for i, done in found.items() if done is not None},
        {i for i, done in found.items() if done is None},
        skipped,
    )
    if watch is not None:
        under_way.progress = watch(name)
    under_way.tell()
    return under_way
