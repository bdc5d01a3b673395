"""What is asked of whoever computes jobs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import Future
from typing import Any

__all__ = ["Pool"]


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

    def mend(self) -> None:  # noqa: B027, most pools need not
        """Called after a worker died."""

    def check(self) -> None:  # noqa: B027, most pools need not
        """Called every few seconds while nothing happens; raises if nothing can."""

    def close(self) -> None:  # noqa: B027, most pools need not
        """Stop at once."""
