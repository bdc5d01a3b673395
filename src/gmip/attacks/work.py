"""What an attack may use: time, memory, a place to keep finished parts, and somebody who hears how far it is."""

from __future__ import annotations

import math
import os
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

from gmip import _validate as check
from gmip._progress import Progress, silent
from gmip.errors import InvalidArgument, UnsupportedModel
from gmip.parallel import Workers
from gmip.store import NOWHERE, Store

if TYPE_CHECKING:
    from gmip.attacks.gradients import PerExampleGradients
    from gmip.tasks import Examples
    from gmip.trace import Step

_TELL_EVERY: Final = 5.0  # seconds
_OVERDRAWN: Final = 3.0  # times its share of a budget: what an attack may take, for others may need less than theirs
_SPARE: Final = 1.2  # times a budget: it is kept within a fifth
_ANYWAY: Final = 5.0  # seconds that everybody has
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
    """Time for a piece of work, from when it was made; `math.inf` for no limit.

    seconds : what to plan for. most : what the work may take, where that is more: the share of others, who may need
        less. None: a fifth more.
    """

    def __init__(self, seconds: float = math.inf, most: float | None = None) -> None:
        self.seconds, now = seconds, time.monotonic()
        self._end, self._latest = now + seconds, now + (_SPARE * seconds if most is None else most)

    @property
    def limited(self) -> bool:
        """Whether there is a limit at all."""
        return self.seconds < math.inf

    def left(self) -> float:
        """Seconds that are left; negative once it is used up."""
        return self._end - time.monotonic()

    def most(self) -> float:
        """Seconds in which something that cannot be less must end, if it is begun now."""
        return max(min(_OVERDRAWN * self.left(), self._latest - time.monotonic()), _ANYWAY)


def check_time(attack: str, needed: float, budget: Budget) -> None:
    """Refuses to begin what cannot end in time."""
    if needed > budget.most():
        raise UnsupportedModel(
            f"Attack {attack!r} needs about {needed:.0f} seconds for the least that tells something, and has "
            f"{max(budget.left(), 0.0):.0f} of the budget",
            remedy="raise `budget`",
        )


@dataclass(frozen=True)
class Work:
    """Given to an attack: call it with (done, total) as a `Progress`.

    Attributes
    ----------
    budget : an attack that knows how leaves out what does not fit, least useful first, and says so by a warning.
    parts : where to keep what is finished; by default nowhere.
    workers : who computes what can be shared; None: this process. No result depends on how many they are.
    """

    progress: Progress = field(default_factory=lambda: silent("work"))
    budget: Budget = field(default_factory=Budget)
    parts: Store = NOWHERE
    workers: Workers | None = None

    def __call__(self, done: int, total: int, /) -> None:
        self.progress(done, total)


class Counted:
    """The progress of some steps, which moves by records where a step lasts for many seconds.

    steps : how many there are. each : records of one. rest : what comes after them, in steps.
    """

    def __init__(self, work: Progress, steps: int, each: int, *, rest: int = 0) -> None:
        self._work, self._steps, self._each, self._rest = work, steps, max(1, each), rest
        self._done, self._within, self._told = 0, 0, time.monotonic()

    def records(self, count: int) -> None:
        """So many more records of the step are ready; what is computed twice does not count."""
        self._within = min(self._within + count, self._each - 1)
        if time.monotonic() - self._told >= _TELL_EVERY and self._done < self._steps:
            self._told = time.monotonic()
            self._work(self._done * self._each + self._within, (self._steps + self._rest) * self._each)

    def ready(self, count: int = 1) -> None:
        """So many more steps are ready."""
        self._done, self._within, self._told = self._done + count, 0, time.monotonic()
        self._work(self._done, self._steps + self._rest)

    def after(self, part: int, parts: int) -> None:
        """So much is done of what comes after the steps."""
        self._work(self._steps + self._rest * part // parts, self._steps + self._rest)


@dataclass(frozen=True, kw_only=True)
class WorkPlan:
    """What an attack is going to do, before it does it; seconds rest on a piece that was measured, and are estimates.

    Attributes
    ----------
    piece, pieces : what workers share out, and how many there are (0: nothing).
    records, steps : whose gradients are computed, and at how many steps.
    each, alone : seconds of a piece, and of what the asking process does by itself.
    memory, memory_here : bytes of a worker and of the asking process, beside the program.
    once, moved : bytes that go to each worker once, and that a piece moves there and back.
    left_out : what there is no time or memory for, in words; "" if there is for all.
    """

    piece: str
    pieces: int
    records: int
    steps: int
    each: float
    alone: float
    memory: int
    memory_here: int
    once: int
    moved: int
    left_out: str = ""

    def seconds(self, workers: int) -> float:
        """The time that so many workers take, or with 1 the asking process."""
        return self.alone + self.each * math.ceil(self.pieces / workers)

    def bytes_moved(self, workers: int) -> int:
        """What travels in all, if so many workers share the pieces out; with 1 the asking process does them."""
        return workers * self.once + self.pieces * self.moved if self.pieces and workers > 1 else 0


# -- how much memory there is to work with ----------------------------------------------------------------------------


_SHARE: Final = 0.5  # of what is free: the rest is for the caller, and for what others do at the same time
_UNKNOWN: Final = 2**31  # what to assume on a system that does not tell
_MEMINFO: Final = Path("/proc/meminfo")
_CGROUP: Final = Path("/sys/fs/cgroup")


def available_bytes() -> int:
    """Memory that can be taken without swapping, within the limit of a container (cgroup v2) if there is one."""
    free = _from_meminfo()
    if free is None:
        free = _from_sysconf()
    container = _from_cgroup()
    return min((n for n in (free, container) if n is not None), default=_UNKNOWN)


def default_limit() -> int:
    """Bytes that an attack may use unless a limit is given: half of what is available."""
    return int(_SHARE * available_bytes())


def as_bytes(name: str, value: float | str | None) -> int:
    """A number of bytes from a number, a string such as "3 GiB" or "500 MB", or None for `default_limit`."""
    return default_limit() if value is None else check.byte_count(name, value)


def rows_that_fit(bytes_per_row: int, limit: int, *, at_most: int) -> int:
    """How many rows fit into `limit` bytes: at least 1, for work cannot be cut further."""
    return max(1, min(at_most, limit // max(1, bytes_per_row)))


def _from_meminfo() -> int | None:
    try:
        text = _MEMINFO.read_text()
    except OSError:
        return None
    found = re.search(r"^MemAvailable:\s*(\d+) kB", text, re.MULTILINE)
    return None if found is None else 1024 * int(found[1])


def _from_sysconf() -> int | None:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # no sysconf at all (Windows), or no such name (macOS)
        return None


def _from_cgroup() -> int | None:
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
        stat = (_CGROUP / "memory.stat").read_text()
    except OSError:
        return None
    if limit == "max":
        return None
    # Cached files count as used but are given back when memory runs short.
    found = re.search(r"^inactive_file (\d+)$", stat, re.MULTILINE)
    return max(0, int(limit) - used + (0 if found is None else int(found[1])))


# -- how fast this machine is at what attacks do ----------------------------------------------------------------------


_PROBED: Final = 32  # records whose gradients tell what the others cost
_WRITTEN: Final = 2**24  # entries that are written down to see how fast that goes


class Speed(NamedTuple):
    """Seconds for the gradient of a record, for all its entries written down and read again (`row`) and for the inner
    product of two (`pair`; None: as long as that of their entries), and operations of linear algebra a second."""

    record: float
    rate: float
    row: float = 0.0
    pair: float | None = None

    @classmethod
    def measured(cls, gradients: PerExampleGradients, step: Step, examples: Examples) -> Self:
        few = examples[: min(_PROBED, len(examples))]
        here, size = gradients.at(step.parameters), gradients.num_params
        next(here.pieces(few))  # what is done once, and loads what is loaded late
        start = time.perf_counter()
        rows, pieces = next(here.pieces(few))
        count = rows.stop - rows.start
        record = (time.perf_counter() - start) / count
        start = time.perf_counter()
        for piece in pieces:
            piece.products(piece)
        pair = (time.perf_counter() - start) / count**2
        some = few[: max(1, min(count, _WRITTEN // size))]
        start = time.perf_counter()
        sum(1 for _ in here.pieces(some))  # few records at a time take longer than many
        made = time.perf_counter()
        float(sum(chunk.square_().sum() for chunk in here.chunks(some)))
        row = max((time.perf_counter() - made) - (made - start), 0.0) / len(some)
        square = np.ones((512, 512))
        start = time.perf_counter()
        for _ in range(4):
            square = square @ square * (1.0 / 512.0)
        rate = 8.0 * 512.0**3 / (time.perf_counter() - start)
        # Many records share what multiplying out takes, which is most of the time with a few.
        return cls(record, rate, row, min(pair, 2.0 * size / rate))

    def rows(self, records: float) -> float:
        """Seconds for gradients of so many records that are written down."""
        return (self.record + self.row) * records

    def products(self, records: float, size: int) -> float:
        """Seconds for all inner products of so many records' gradients of this size."""
        pair = size / self.rate if self.pair is None else self.pair
        return self.record * records + pair * records**2
