"""Work that another thread does, or this one when it has to be done."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Job"]

T = TypeVar("T")


class Job(Generic[T]):
    """A piece of work that is done once, in whichever thread comes first.

    What fails in the other thread is tried again by `result`: its error is raised there, to those who can handle it,
    and nothing is lost while they make room on the disk. So the work must be such that it can be begun again.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._result: list[T] = []

    def attempt(self) -> None:
        """`result` for another thread, without one and without errors."""
        with contextlib.suppress(Exception):  # `result` meets it again
            self.result()

    def result(self) -> T:
        """Waits for the work if it is under way, does it if not."""
        with self._lock:
            if not self._result:
                self._result.append(self._work())
            return self._result[0]
