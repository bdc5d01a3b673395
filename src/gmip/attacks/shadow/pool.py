"""What the engine asks of whoever trains shadow models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import Future

from gmip.attacks.shadow.worker import Answer

__all__ = ["Pool"]


class Pool(ABC):
    """Trains models, `slots` at a time."""

    deaths: tuple[type[BaseException], ...] = ()  # what a future raises if the worker is to blame

    @property
    @abstractmethod
    def slots(self) -> int:
        """How many models may be under way."""

    @abstractmethod
    def submit(self, index: int, keys: frozenset[str]) -> Future[Answer]:
        """Have a model trained and these signals computed."""

    def mend(self) -> None:  # noqa: B027, most pools need not
        """Called after a worker died."""

    def check(self) -> None:  # noqa: B027, most pools need not
        """Called every few seconds while nothing happens; raises if nothing can."""

    def close(self) -> None:  # noqa: B027, most pools need not
        """Stop at once."""
