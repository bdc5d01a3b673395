"""Where jobs are computed: in this process, in local processes (joblib's loky), on a cluster."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Future
from contextlib import contextmanager
from typing import Any

from joblib.externals import loky

from gmip.parallel.clusters import DaskPool, RayPool
from gmip.parallel.parcel import Parcel, pack, versions
from gmip.parallel.pool import Pool
from gmip.parallel.settings import Workers
from gmip.parallel.worker import Work, attempt, attempt_packed, begin

__all__ = ["open_pool"]


@contextmanager
def open_pool(work: Work[Any, Any], settings: Workers, jobs: int) -> Iterator[Pool]:
    """Workers for that many jobs; they are stopped at the end, also after an error or Ctrl-C."""
    pool = _open(work, settings, jobs)
    try:
        with warnings.catch_warnings():
            # loky, of a process that has grown by 300 MB and is replaced between two jobs: nothing is lost.
            warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
            yield pool
    finally:
        pool.close()


def _open(work: Work[Any, Any], settings: Workers, jobs: int) -> Pool:
    if settings.backend == "dask":
        return DaskPool(pack(work), settings)
    if settings.backend == "ray":
        return RayPool(pack(work), settings)
    workers = min(jobs, settings.workers or loky.cpu_count())
    return _Here(work) if workers == 1 else _Local(pack(work), workers)


class _Here(Pool):
    """This process: no start-up, nothing is pickled."""

    slots = 1

    def __init__(self, work: Work[Any, Any]) -> None:
        self._work = work

    def submit(self, job: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(attempt(self._work, job))
        return future


class _Local(Pool):
    """Processes of this machine. If one dies, loky gives up all of them: they are started anew."""

    deaths = (BrokenExecutor,)
    slots = 0

    def __init__(self, parcel: Parcel, workers: int) -> None:
        self._parcel, self.slots = parcel, workers
        self._executor: Any = None

    def submit(self, job: Any) -> Future[Any]:
        # Ctrl-C at a terminal reaches the whole group of processes; workers inherit that they do not take it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return self._submit(job)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, kill_workers=True)
            self._executor = None

    def _submit(self, job: Any) -> Future[Any]:
        call = (attempt_packed, self._parcel.digest, versions(), None, job)
        future: Future[Any]
        if self._executor is not None:
            try:
                future = self._executor.submit(*call)
            except BrokenExecutor:
                self.close()
            else:
                return future
        self._executor = loky.ProcessPoolExecutor(self.slots, initializer=begin, initargs=(self._parcel,))
        future = self._executor.submit(*call)
        return future
