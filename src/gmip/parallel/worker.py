"""What a worker does: one job at a time, on one thread.

Every worker, and the calling process when there is only one, runs these functions, so that results do not depend on who
computed them.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import torch
from threadpoolctl import threadpool_limits

from gmip.errors import GmipError, GmipWarning, InvalidArgument
from gmip.parallel.parcel import Parcel, versions

__all__ = ["Failure", "Work", "attempt", "attempt_packed", "begin", "one_thread"]

# Training seeds torch's global generator: two models in one process (a Dask worker with threads) would share it.
_ONE_AT_A_TIME: Final = threading.RLock()
_packed: dict[str, bytes] = {}
_opened: dict[str, Any] = {}  # the latest work, so that a process opens it once
_PARENT_SECONDS: Final = 1.0
Job = TypeVar("Job", contravariant=True)
Result = TypeVar("Result", covariant=True)


class Work(Protocol[Job, Result]):
    """What is the same for all jobs, data included: it travels once to each worker, and jobs are small."""

    @property
    def name(self) -> str:
        """For the sentence that says that it cannot travel, as in "Task 'mine'"."""

    def title(self, job: Job) -> str:
        """For sentences about a job, as in "shadow model 3"."""

    def compute(self, job: Job) -> Result:
        """Equal jobs must give equal results. Warnings of gmip are not passed on."""


class Failure(NamedTuple):
    """Why a job could not be computed, in a form that any process can read."""

    kind: type[GmipError]
    text: str
    transient: bool
    details: str  # the traceback


def attempt(work: Work[Any, Any], job: Any) -> Any:
    """The result of a job, or a `Failure`."""
    try:
        with one_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore", GmipWarning)
            return work.compute(job)
    except Exception as error:
        return _failure(error)


def begin(parcel: Parcel) -> None:
    """Called once in every local worker: takes the parcel, and ends the process when its parent is gone."""
    _packed[parcel.digest] = parcel.content
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()


def attempt_packed(digest: str, sender: Mapping[str, str], content: bytes | None, job: Any) -> Any:
    """`attempt` in a worker, of a parcel. content : None if `begin` has brought it."""
    if sender != versions():
        ours, theirs = (" and ".join(f"{name} {of}" for name, of in given.items()) for given in (versions(), sender))
        return Failure(InvalidArgument, f"a worker has {ours}, not {theirs}: install the same there.", False, "")
    with _ONE_AT_A_TIME:
        if digest not in _opened:
            try:
                work = pickle.loads(_packed.pop(digest) if content is None else content)
            except Exception as error:
                return _failure(error)
            _opened.clear()
            _opened[digest] = work
        return attempt(_opened[digest], job)


def _failure(error: Exception) -> Failure:
    kind = next((c for c in type(error).__mro__ if c.__module__ == "gmip.errors"), None)
    text = " ".join(str(error).split()) or "no message"
    details = traceback.format_exc()
    if kind is not None:
        return Failure(kind, text, False, details)
    # Repeating may help where memory was short (torch raises RuntimeError), a disk or a network failed.
    short = isinstance(error, RuntimeError) and "memory" in text.lower()
    passing = short or isinstance(error, (MemoryError, OSError))
    return Failure(GmipError, f"{type(error).__name__}: {text}", passing, details)


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_SECONDS)
    os._exit(1)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Sums have one order, so results have one value: torch and BLAS on one thread, and nobody else in this process."""
    with _ONE_AT_A_TIME, threadpool_limits(1):
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
