"""What long work is given: somebody to tell how far it is, a time to be done in, and a place to keep finished parts."""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass, field
from typing import Final

from gmip import _validate as check
from gmip._progress import Progress, silent
from gmip.errors import InvalidArgument
from gmip.store import NOWHERE, Store

__all__ = ["Budget", "Work", "as_seconds"]

_UNITS: Final = {"": 1.0, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def as_seconds(name: str, value: float | str | None) -> float:
    """Seconds from a number, a text such as "5min", "90s" or "2h", or None (or "none") for no limit."""
    if value is None or (isinstance(value, str) and value.strip().lower() == "none"):
        return math.inf
    if isinstance(value, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)\s*", value)
        unit = None if found is None else _UNITS.get(found[2].lower())
        if found is None or unit is None:
            raise InvalidArgument(
                "is not a length of time",
                argument=name,
                value=value,
                remedy="write it as '5min', '90s', '2h' or 'none'",
            )
        value = float(found[1]) * unit
    return check.positive(name, value)


class Budget:
    """Time for a piece of work, from when it was made; `math.inf` for no limit."""

    def __init__(self, seconds: float = math.inf) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def limited(self) -> bool:
        """Whether there is a limit at all."""
        return self.seconds < math.inf

    def left(self) -> float:
        """Seconds that are left; negative once it is used up."""
        return self._end - time.monotonic()


@dataclass(frozen=True)
class Work:
    """Given to an attack: call it with (done, total) as a `Progress`.

    Attributes
    ----------
    budget : an attack that knows how leaves out what does not fit, least useful first, and says so by a warning.
    parts : where to keep what is finished; by default nowhere.
    """

    progress: Progress = field(default_factory=lambda: silent("work"))
    budget: Budget = field(default_factory=Budget)
    parts: Store = NOWHERE

    def __call__(self, done: int, total: int, /) -> None:
        self.progress(done, total)
