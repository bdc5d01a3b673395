"""All jobs of a work, as many at once as there are workers: each result is handed over the moment it is ready."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from typing import Any, Final, Generic, NamedTuple, TypeVar

from gmip.errors import GmipError, GmipWarning
from gmip.parallel.pools import Pool, Workers, open_pool
from gmip.parallel.worker import Failure, Work

__all__ = ["JobRunner", "compute", "job_runner"]

_CHECK_SECONDS: Final = 5.0
Job = TypeVar("Job")
Result = TypeVar("Result")


def compute(
    work: Work[Job, Result],
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
def job_runner(work: Work[Job, Result], settings: Workers, most: int) -> Iterator[JobRunner[Job, Result]]:
    """Workers that stay for several rounds of at most so many jobs; they are stopped at the end."""
    with open_pool(work, settings, most) as pool:
        yield JobRunner(work, settings, pool)


class JobRunner(Generic[Job, Result]):
    """Runs jobs on the workers of a pool."""

    def __init__(self, work: Work[Job, Result], settings: Workers, pool: Pool) -> None:
        self._work, self._settings, self._pool = work, settings, pool

    @property
    def size(self) -> int:
        """How many jobs are under way at once."""
        return self._pool.slots

    def compute(
        self, jobs: Sequence[Job], take: Callable[[Job, Result], None], *, more: Callable[[], bool] = lambda: True
    ) -> None:
        """One round of jobs; keywords and guarantees are those of `compute`."""
        work, pool, retries = self._work, self._pool, self._settings.retries
        waiting = list(reversed(range(len(jobs))))
        running: dict[Future[Any], int] = {}
        attempts: Counter[int] = Counter()
        while waiting or running:
            while waiting and len(running) < pool.slots:
                if not more():
                    waiting.clear()
                    break
                index = waiting.pop()
                running[pool.submit(jobs[index])] = index
            finished = wait(running, timeout=_CHECK_SECONDS, return_when=FIRST_COMPLETED).done
            if not finished:
                pool.check()
            lost: dict[int, _Lost] = {}
            failed: GmipError | None = None
            for future in finished:
                index = running.pop(future)
                answer = _answer(future, pool, work.title(jobs[index]))
                if isinstance(answer, GmipError):
                    failed = answer
                elif isinstance(answer, _Lost):
                    lost[index] = answer
                else:
                    take(jobs[index], answer)
            if failed is not None:  # now that the others are taken
                raise failed
            if lost:
                _count(lost, attempts, {index: work.title(jobs[index]) for index in lost}, retries)
                if any(one.death for one in lost.values()):
                    pool.recover()
                waiting.extend(sorted(lost, reverse=True))


class _Lost(NamedTuple):
    """Why a job has to be computed again, and whether its worker died."""

    reason: str
    death: bool


def _answer(future: Future[Any], pool: Pool, title: str) -> Any:
    """The result, or a GmipError, or _Lost."""
    try:
        answer = future.result()
    except pool.deaths as error:
        return _Lost(f"its worker died ({type(error).__name__})", True)
    except Exception as error:
        failed = GmipError(
            f"A worker could not begin {title} ({_error_words(error)})", remedy="install the same gmip there as here"
        )
        failed.__cause__ = error
        return failed
    if not isinstance(answer, Failure):
        return answer
    if answer.transient:
        return _Lost(answer.text, False)
    failed = answer.kind(f"{_capital(title)} cannot be computed", remedy=answer.text)
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
    warnings.warn(f"Computed again: {reasons}.", GmipWarning, stacklevel=5)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _error_words(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
