"""How much memory there is to work with."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from gmip import _validate as check
from gmip._numbers import byte_size as readable

__all__ = ["as_bytes", "available_bytes", "default_limit", "readable", "rows_that_fit"]

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
    """Bytes that an attack may use unless told: half of what is available."""
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
