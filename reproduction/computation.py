"""Experiments computed in parallel, cell by cell: finished cells are on disk and are not computed again."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from gmip._io import make_folder, write
from gmip._progress import Progress, Watch, silent
from gmip.errors import DataUnavailable, GmipWarning, InvalidArgument
from gmip.parallel import Workers, compute
from gmip.store import Store
from reproduction.experiment import Cell, CellResult, Experiment, Outcome, Row, Study
from reproduction.paper import load_task
from reproduction.results import check_folder, publish, read_csv, to_csv, write_index

__all__ = ["reproduce"]


def reproduce(
    study: Study,
    names: Sequence[str],
    out: str | PathLike[str],
    *,
    quick: bool = False,
    workers: Workers | None = None,
    watch: Watch = silent,
    command: str = "",
) -> list[Outcome]:
    """Compute what is missing of these experiments (none named: all) and write their results into `out`.

    Parameters
    ----------
    workers : None: all cores of this machine.
    watch : receives, for each experiment, the number of finished cells and of all.
    command : what was typed, for the page.

    Guarantees
    ----------
    Rows are stored the moment a cell is ready, and a later call computes only what is missing: cells whose parameters,
    data, experiment's version and probe are the same are not computed again. The rows do not depend on the workers. An
    experiment's files appear when its last cell is ready, each whole or not at all. A full result is not replaced by a
    quick one. Cells whose data are missing are skipped with a warning and named in the outcome; no other data are used.
    """
    chosen = study.select(names)
    folder = Path(out)
    check_folder(folder, chosen, quick=quick)
    cells = {experiment.name: experiment.cells(quick) for experiment in chosen}
    data, missing = _load({cell.task for each in cells.values() for cell in each} - {None})
    probes = {name: read_csv(to_csv(one.probe())) for name, one in {one.source: one for one in chosen}.items()}
    stores = _stores(folder / "work", chosen, probes)
    results: dict[_CellKey, CellResult] = {}
    jobs: dict[_Job, _CellKey] = {}
    waiting: set[_CellKey] = set()
    under_way: list[_UnderWay] = []
    for experiment in chosen:
        one = _UnderWay(experiment, [], {}, watch(experiment.name))
        for cell in cells[experiment.name]:
            if cell.task in missing:
                one.skipped[cell.task] = missing[cell.task]
                continue
            key = _key(experiment, cell, data.get(cell.task, {}))
            one.keys.append(key)
            if key in results or key in waiting:
                continue  # of another experiment that shows the same rows
            if (found := stores[key.store].get(key.facts)) is not None:
                results[key] = CellResult(**found.fields)
            else:
                jobs[_Job(experiment.name, experiment.run, cell)] = key
                waiting.add(key)
        under_way.append(one)
    outcomes: dict[str, Outcome] = {}

    def advance(one: _UnderWay) -> None:
        done = [results[key] for key in one.keys if key in results]
        left = sum(key in waiting for key in one.keys)
        one.progress(len(done), len(done) + left)
        if not left:
            probe = probes[one.experiment.source]
            outcomes[one.experiment.name] = publish(
                one.experiment, folder, done, one.skipped, probe, quick=quick, command=command
            )
            write_index(study, folder)

    def take(job: _Job, answer: CellResult | _MissingData) -> None:
        key = jobs[job]
        waiting.discard(key)
        if isinstance(answer, CellResult):
            stores[key.store].put(key.facts, fields=answer._asdict())
            results[key] = answer
        for one in under_way:
            if key in one.keys:
                if isinstance(answer, _MissingData):
                    one.skipped[job.cell.task or one.experiment.name] = answer.reason
                advance(one)

    for one in under_way:
        advance(one)
    if jobs:
        compute(_CellWork(), list(jobs), workers or Workers(), take)
    return [outcomes[experiment.name] for experiment in chosen]


class _CellKey(NamedTuple):
    """The name of a store, and as JSON what decides the rows there: the cell and its data."""

    store: str
    facts: str


def _key(experiment: Experiment, cell: Cell, data: Mapping[str, str]) -> _CellKey:
    facts = {"kind": type(cell).__name__, "cell": dataclasses.asdict(cell), "data": dict(data)}
    return _CellKey(experiment.source, json.dumps(facts, sort_keys=True, allow_nan=False))


def _stores(folder: Path, experiments: Sequence[Experiment], probes: Mapping[str, Sequence[Row]]) -> dict[str, Store]:
    """A store of finished cells for each experiment; two figures of the same rows share one. Its facts are the
    constants and what the code gives in the probe, in few digits: a result has no cells of older code."""
    make_folder(folder, shared=True)
    write(folder / ".gitignore", "*\n")  # results are worth committing, the work behind them is not
    constants = {one.source: json.dumps(dict(one.constants), sort_keys=True) for one in experiments}
    facts = {n: {"probe": to_csv(rows, digits=3), "constants": constants[n]} for n, rows in probes.items()}
    return {
        one.source: Store(folder, one.source, facts[one.source], version=str(one.version), shared=True)
        for one in experiments
    }


def _load(tasks: set[str]) -> tuple[dict[str | None, Mapping[str, str]], dict[str, str]]:
    """The fingerprints of the data of tasks, and how to get what is missing; it may take minutes once."""
    data: dict[str | None, Mapping[str, str]] = {}
    missing: dict[str, str] = {}
    for task in sorted(tasks):
        try:
            data[task] = load_task(task).fingerprints
        except DataUnavailable as error:
            # The folder of whoever computes results means nothing to who reads them.
            folder = os.environ.get("GMIP_DATA", "").rstrip("/")
            missing[task] = _one_line(error).replace(folder, "$GMIP_DATA") if folder else _one_line(error)
            warnings.warn(f"{task} is skipped: {missing[task]}", GmipWarning, stacklevel=3)
    return data, missing


@dataclass(frozen=True)
class _UnderWay:
    """An experiment, the keys of its cells, and why some of its tasks are skipped."""

    experiment: Experiment
    keys: list[_CellKey]
    skipped: dict[str, str]
    progress: Progress


class _Job(NamedTuple):
    """A cell and how it is computed."""

    experiment: str
    run: Callable[[Any], list[Row]]
    cell: Cell


class _MissingData(NamedTuple):
    """The answer of a worker, perhaps on another machine, that does not have the data of a cell."""

    reason: str


class _CellWork:
    """The work: only cells travel, and a worker loads the data itself."""

    name = "An experiment"

    def title(self, job: _Job) -> str:
        return f"a cell of {job.experiment} ({job.cell})"

    def compute(self, job: _Job) -> CellResult | _MissingData:
        start = time.process_time()
        try:
            rows = job.run(job.cell)
        except DataUnavailable as error:
            return _MissingData(_one_line(error))
        _check_plain(job.experiment, rows)
        return CellResult(rows, time.process_time() - start, _machine())


def _check_plain(experiment: str, rows: list[Row]) -> None:
    try:
        json.dumps(rows, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(
            f"A row of {experiment} is not plain ({error})", remedy="let run return strings, finite numbers and None"
        ) from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


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
