"""Who computes cells: this process, processes of this machine, or a cluster, as the shadow engine does.

Its Dask and Ray pools are used for what is hard (addresses, waiting for workers, clusters that go away); only what they
are given to do is other: a cell in place of a shadow model.
"""

from __future__ import annotations

import os
import pickle
import platform
import signal
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Future
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from joblib.externals import loky

from gmip.attacks.shadow.clusters import DaskPool, RayPool
from gmip.attacks.shadow.parcel import Parcel, versions
from gmip.attacks.shadow.pool import Pool
from gmip.attacks.shadow.settings import Shadows
from gmip.attacks.shadow.worker import begin, one_thread
from gmip.errors import GmipError, GmipWarning, InvalidArgument
from gmip.reproduce import registry
from gmip.reproduce.base import Cell, Row

__all__ = ["Answer", "Done", "Failed", "attempt", "open_pool", "pack"]

_NOTHING = Parcel("", b"")


class Done(NamedTuple):
    """Rows of a cell, how long they took and on which machine."""

    rows: list[Row]
    seconds: float
    machine: str


class Failed(NamedTuple):
    """Why there are none, in a form that any process can read."""

    kind: type[GmipError]
    text: str
    details: str  # the traceback


Answer = Done | Failed


def pack(name: str, cell: Cell) -> bytes:
    """A cell as it travels: a Dask scheduler that hands it on need not have gmip."""
    return pickle.dumps((name, cell))


def attempt(sender: Mapping[str, str], packed: bytes) -> Answer:
    """Compute one cell, on one thread."""
    if sender != versions():
        ours, theirs = (" and ".join(f"{name} {of}" for name, of in given.items()) for given in (versions(), sender))
        return Failed(InvalidArgument, f"a worker has {ours}, not {theirs}: install the same there.", "")
    try:
        name, cell = pickle.loads(packed)
        with one_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore", GmipWarning)  # cells are ours: what is to be said is in the words of claims
            start = time.perf_counter()
            rows = registry.experiment(name).run(cell)
            return Done(rows, time.perf_counter() - start, _machine())
    except Exception as error:
        kind = next((c for c in type(error).__mro__ if c.__module__ == "gmip.errors"), None)
        text = " ".join(str(error).split()) or "no message"
        details = traceback.format_exc()
        return Failed(kind, text, details) if kind else Failed(GmipError, f"{type(error).__name__}: {text}", details)


@contextmanager
def open_pool(cells: Sequence[bytes], settings: Shadows) -> Iterator[Pool]:
    """Workers for packed cells; `submit(index, ...)` gives a future of an `Answer`. They are stopped at the end."""
    pool = _open(cells, settings)
    try:
        yield pool
    finally:
        pool.close()


def _open(cells: Sequence[bytes], settings: Shadows) -> Pool:
    if settings.backend == "dask":
        return _Dask(cells, settings)
    if settings.backend == "ray":
        return _Ray(cells, settings)
    workers = min(len(cells), settings.workers or loky.cpu_count())
    return _Here(cells) if workers == 1 else _Local(cells, workers)


class _Here(Pool):
    slots = 1

    def __init__(self, cells: Sequence[bytes]) -> None:
        self._cells = cells

    def submit(self, index: int, keys: frozenset[str]) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(attempt(versions(), self._cells[index]))
        return future


class _Local(Pool):
    """Processes of this machine. If one dies, loky gives up all of them: they are started anew."""

    deaths = (BrokenExecutor,)
    slots = 0

    def __init__(self, cells: Sequence[bytes], workers: int) -> None:
        self._cells, self.slots = cells, workers
        self._executor: Any = None

    def submit(self, index: int, keys: frozenset[str]) -> Future[Any]:
        job = (attempt, versions(), self._cells[index])
        future: Future[Any]
        # Ctrl-C at a terminal reaches the whole group of processes; workers inherit that they do not take it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            if self._executor is not None:
                try:
                    future = self._executor.submit(*job)
                except BrokenExecutor:
                    self.close()
                else:
                    return future
            self._executor = loky.ProcessPoolExecutor(self.slots, initializer=begin, initargs=(_NOTHING,))
            future = self._executor.submit(*job)
            return future
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, kill_workers=True)
            self._executor = None


class _Dask(DaskPool):
    def __init__(self, cells: Sequence[bytes], settings: Shadows) -> None:
        super().__init__(_NOTHING, settings)
        self._cells, self._attempt = cells, _by_value()

    def submit(self, index: int, keys: frozenset[str]) -> Future[Any]:
        with self._talking():
            future: Future[Any] = self._executor.submit(self._attempt, versions(), self._cells[index])
            return future


class _Ray(RayPool):
    def __init__(self, cells: Sequence[bytes], settings: Shadows) -> None:
        super().__init__(_NOTHING, settings)
        self._cells = cells
        self._remote = self._ray.remote(num_cpus=1, max_retries=0)(attempt)

    def submit(self, index: int, keys: frozenset[str]) -> Future[Any]:
        future: Future[Any] = self._remote.remote(versions(), self._cells[index]).future()
        return future


def _by_value() -> Any:
    """`attempt` as a local function, which is pickled by value: see `gmip.attacks.shadow.clusters`."""

    def call(*job: Any) -> Any:
        from gmip.reproduce.pools import attempt

        return attempt(*job)

    return call


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
