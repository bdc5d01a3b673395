"""What is computed of an experiment: the rows of one cell, in whichever process."""

from __future__ import annotations

import os
import platform
import time
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from gmip.errors import DataUnavailable
from gmip.reproduce import registry
from gmip.reproduce.base import Cell, Row

__all__ = ["Computing", "Done", "Job", "Missing"]


class Job(NamedTuple):
    """A cell, and the name of its experiment."""

    experiment: str
    cell: Cell


class Done(NamedTuple):
    """Rows of a cell, how long they took and on which machine."""

    rows: list[Row]
    seconds: float
    machine: str


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
            rows = registry.experiment(job.experiment).run(job.cell)
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
