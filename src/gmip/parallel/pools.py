"""Where jobs are computed, and by how many: this process, local processes (joblib's loky), a cluster.

A new kind of cluster is a subclass of `Pool` in a module of its own, and a line in `POOLS`.
"""

from __future__ import annotations

import math
import signal
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

from gmip import _validate as check
from gmip._extras import MissingExtra, needs
from gmip.errors import GmipError, InvalidArgument, warn
from gmip.parallel.worker import Failure, PickledWork, SharedWork, attempt, attempt_packed, begin, pack, versions


class _Kind(NamedTuple):
    """A backend: module and class of its pool, which is made from a parcel and the settings, and whether it has an
    address (None: it has not)."""

    module: str
    pool: str
    address: Literal["needed", "possible"] | None = None


POOLS: Final = {
    "dask": _Kind("gmip.parallel.clusters", "DaskPool", "needed"),
    "ray": _Kind("gmip.parallel.clusters", "RayPool", "possible"),
}
BACKENDS: Final = ("local", *POOLS)


@dataclass(frozen=True, kw_only=True)
class Workers:
    """Who computes. None of it changes results.

    Parameters
    ----------
    workers : jobs at once; None: all cores of this machine, or of the cluster.
    backend : one of `BACKENDS`: "local" processes, or an existing cluster of "dask" or "ray".
    scheduler_address : of the cluster. Dask needs it; for Ray None takes the cluster that runs here, or starts one.
    retries : how often a job is computed again whose worker died, ran out of memory or had trouble with files.
    """

    workers: int | None = None
    backend: str = "local"
    scheduler_address: str | None = None
    retries: int = 3

    def __post_init__(self) -> None:
        check.fields(
            self, workers=check.count, backend=BACKENDS, retries=lambda name, given: given and check.count(name, given)
        )
        address = POOLS[self.backend].address if self.backend in POOLS else None
        if address == "needed" and not self.scheduler_address:
            raise InvalidArgument(
                "needs `scheduler_address`",
                argument="backend",
                value=self.backend,
                remedy="set it, such as tcp://127.0.0.1:8786",
            )
        if address is None and self.scheduler_address is not None:
            clusters = [repr(name) for name, kind in POOLS.items() if kind.address is not None]
            raise InvalidArgument(
                f"is not used by `backend` = {self.backend!r}",
                argument="scheduler_address",
                value=self.scheduler_address,
                remedy=f"set `backend` to {check.listed(clusters, 'or')}, or leave it out",
            )


class Pool(ABC):
    """Computes jobs, `slots` at a time."""

    deaths: tuple[type[BaseException], ...] = ()  # what a future raises if the worker is to blame

    @property
    @abstractmethod
    def slots(self) -> int:
        """How many jobs may be under way."""

    @abstractmethod
    def submit(self, job: Any) -> Future[Any]:
        """Have a job computed: a future of its result, or of a `Failure`."""

    def recover(self) -> None:  # noqa: B027, most pools need not
        """Called after a worker died."""

    def check(self) -> None:  # noqa: B027, most pools need not
        """Called every few seconds while nothing happens; raises if nothing can."""

    def close(self) -> None:  # noqa: B027, most pools need not
        """Stop at once."""


@contextmanager
def open_pool(work: SharedWork[Any, Any], settings: Workers, jobs: int) -> Iterator[Pool]:
    """Workers for that many jobs; they are stopped at the end, also after an error or Ctrl-C."""
    pool = _open(work, settings, jobs)
    try:
        with warnings.catch_warnings():
            # loky, of a process that has grown by 300 MB and is replaced between two jobs: nothing is lost.
            warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
            yield pool
    finally:
        pool.close()


def _open(work: SharedWork[Any, Any], settings: Workers, jobs: int) -> Pool:
    if settings.backend in POOLS:
        kind = POOLS[settings.backend]
        made: Pool = getattr(import_module(kind.module), kind.pool)(pack(work), settings)
        return made
    if jobs == 1 or settings.workers == 1 or not (settings.workers or _can_start()):
        return _Here(work)
    needs("more than one worker", *_PROCESSES)
    from joblib.externals import loky

    workers = min(jobs, settings.workers or loky.cpu_count())
    return _Here(work) if workers == 1 else _Local(pack(work), workers)


_PROCESSES: Final = ("joblib", "cloudpickle")


def _can_start() -> bool:
    """Whether other processes can be started: the base install has this process alone."""
    try:
        needs("other processes", *_PROCESSES)
    except MissingExtra:
        return False
    return True


class _Here(Pool):
    """This process: no start-up, nothing is pickled."""

    slots = 1

    def __init__(self, work: SharedWork[Any, Any]) -> None:
        self._work = work

    def submit(self, job: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(attempt(self._work, job))
        return future


class _Local(Pool):
    """Processes of this machine. If one dies, loky gives up all of them: they are started anew."""

    deaths = (BrokenExecutor,)
    slots = 0

    def __init__(self, parcel: PickledWork, workers: int) -> None:
        self._parcel, self.slots = parcel, workers
        self._executor: Any = None

    def submit(self, job: Any) -> Future[Any]:
        if not hasattr(signal, "pthread_sigmask"):  # Windows
            return self._submit(job)
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
        from joblib.externals import loky

        self._executor = loky.ProcessPoolExecutor(self.slots, initializer=begin, initargs=(self._parcel,))
        future = self._executor.submit(*call)
        return future


# -- all jobs of a work -----------------------------------------------------------------------------------------------


_CHECK_SECONDS: Final = 5.0
_AHEAD: Final = 3  # jobs for each worker that may be ready before the one that is waited for
Job = TypeVar("Job")
Result = TypeVar("Result")


def compute(
    work: SharedWork[Job, Result],
    jobs: Sequence[Job],
    settings: Workers,
    take: Callable[[Job, Result], None],
    *,
    more: Callable[[], bool] = lambda: True,
) -> None:
    """Compute `work.compute(job)` for all jobs, begun in their order, and call `take(job, result)` for each.

    more : asked before a job is begun; once it is False, no other is.

    Guarantees
    ----------
    A job runs on one thread, alone in its process. One whose worker died, or had trouble that may pass, is computed
    again, up to `settings.retries` times, with a warning. Workers are stopped at the end, after an error or Ctrl-C too.

    Raises
    ------
    GmipError : a job could not be computed; errors of a kind of their own keep it, and the message names the job.
        Results that were ready with it have been taken.
    """
    with job_runner(work, settings, len(jobs)) as runner:
        runner.compute(jobs, take, more=more)


@contextmanager
def job_runner(work: SharedWork[Job, Result], settings: Workers, most: int) -> Iterator[JobRunner[Job, Result]]:
    """Workers that stay for several rounds of at most so many jobs; they are stopped at the end."""
    with open_pool(work, settings, most) as pool:
        yield JobRunner(work, settings, pool)


class JobRunner(Generic[Job, Result]):
    """Runs jobs on the workers of a pool."""

    def __init__(self, work: SharedWork[Job, Result], settings: Workers, pool: Pool) -> None:
        self._work, self._settings, self._pool = work, settings, pool

    @property
    def size(self) -> int:
        """How many jobs are under way at once."""
        return self._pool.slots

    def compute(
        self, jobs: Sequence[Job], take: Callable[[Job, Result], None], *, more: Callable[[], bool] = lambda: True
    ) -> None:
        """One round of jobs; keywords and guarantees are those of `compute`."""
        for index, result in self._results(len(jobs), jobs.__getitem__, more=more):
            take(jobs[index], result)

    def in_order(self, count: int, make: Callable[[int], Job]) -> Iterator[Result]:
        """The results of so many jobs in their order, whoever is ready first; guarantees are those of `compute`.

        A job is made when it is begun, and no more than a few are ahead of the one that is waited for. Whoever stops
        early leaves what is under way to itself.
        """
        ready: dict[int, Result] = {}
        wanted = 0
        for index, result in self._results(count, make, ahead=_AHEAD * self._pool.slots):
            ready[index] = result
            while wanted in ready:
                yield ready.pop(wanted)
                wanted += 1

    def _results(
        self,
        count: int,
        make: Callable[[int], Job],
        *,
        more: Callable[[], bool] = lambda: True,
        ahead: float = math.inf,
    ) -> Iterator[tuple[int, Result]]:
        """(number of a job, its result) as they come; none is begun so far ahead of the first one that is not ready."""
        work, pool, retries = self._work, self._pool, self._settings.retries
        waiting = list(reversed(range(count)))
        running: dict[Future[Any], int] = {}
        attempts: Counter[int] = Counter()
        while waiting or running:
            while waiting and len(running) < pool.slots and waiting[-1] < min(running.values(), default=count) + ahead:
                if not more():
                    waiting.clear()
                    break
                index = waiting.pop()
                running[pool.submit(make(index))] = index
            finished = wait(running, timeout=_CHECK_SECONDS, return_when=FIRST_COMPLETED).done
            if not finished:
                pool.check()
            lost: dict[int, _Lost] = {}
            failed: GmipError | None = None
            for future in finished:
                index = running.pop(future)
                answer = _answer(future, pool, lambda index=index: work.title(make(index)))  # type: ignore[misc]
                if isinstance(answer, GmipError):
                    failed = answer
                elif isinstance(answer, _Lost):
                    lost[index] = answer
                else:
                    yield index, answer
            if failed is not None:  # now that the others are taken
                raise failed
            if lost:
                _count(lost, attempts, {index: work.title(make(index)) for index in lost}, retries)
                if any(one.death for one in lost.values()):
                    pool.recover()
                waiting.extend(sorted(lost, reverse=True))


class _Lost(NamedTuple):
    """Why a job has to be computed again, and whether its worker died."""

    reason: str
    death: bool


def _answer(future: Future[Any], pool: Pool, title: Callable[[], str]) -> Any:
    """The result, or a GmipError, or _Lost."""
    try:
        answer = future.result()
    except pool.deaths as error:
        return _Lost(f"its worker died ({type(error).__name__})", True)
    except Exception as error:
        failed = GmipError(
            f"A worker could not begin {title()} ({_error_words(error)})", remedy="install the same gmip there as here"
        )
        failed.__cause__ = error
        return failed
    if not isinstance(answer, Failure):
        return answer
    if answer.transient:
        return _Lost(answer.text, False)
    failed = answer.kind(f"{_capital(title())} cannot be computed", remedy=answer.text)
    failed.add_note(answer.details)
    return failed


def _count(lost: Mapping[int, _Lost], attempts: Counter[int], titles: Mapping[int, str], retries: int) -> None:
    attempts.update(lost.keys())
    index, most = max(((index, attempts[index]) for index in lost), key=lambda item: item[1])
    if most > retries:
        fix = "give the workers more memory or use fewer" if lost[index].death else "fix this"
        raise GmipError(
            f"{_capital(titles[index])} could not be computed in {most} attempts (the last time: {lost[index].reason})",
            remedy=f"{fix}, and run again; finished work is kept",
        )
    reasons = "; ".join(f"{titles[index]}: {one.reason}" for index, one in sorted(lost.items()))
    warn(f"Computed again: {reasons}.")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _error_words(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
