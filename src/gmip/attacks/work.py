"""What long work is given: somebody to tell how far it is, a time to be done in, and a place to keep finished parts."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gmip import _validate as check
from gmip._io import make_folder, sha256, write
from gmip._progress import Progress, silent
from gmip.errors import InvalidArgument

__all__ = ["CUT_SHORT", "Budget", "Parts", "Work", "as_seconds"]

CUT_SHORT: Final = "cut_short"  # the fact by which an attack says that it left something out to be in time

_UNITS: Final = {"": 1.0, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_FORMAT: Final = "gmip-part-1"


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


class Parts:
    """Finished parts of a piece of work in a folder, by name, each written whole or not at all; never pickle.

    The folder's name has to hold all that the parts depend on. A part that is missing or damaged is None.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, name: str | int, /) -> dict[str, NDArray[Any]] | None:
        """The arrays that were put under this name."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self._path(name), framework="numpy") as file:
                about = file.metadata() or {}
                arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError):
            return None
        return arrays if about == {"format": _FORMAT, "sha256": _digest(arrays)} else None

    def put(self, name: str | int, arrays: Mapping[str, NDArray[Any]], /) -> None:
        """Keep arrays under a name, in place of what was there."""
        from safetensors.numpy import save

        make_folder(self.folder)
        whole = {key: np.ascontiguousarray(value) for key, value in arrays.items()}
        write(self._path(name), save(whole, metadata={"format": _FORMAT, "sha256": _digest(whole)}))

    def clear(self) -> None:
        """Forget all parts."""
        for path in self.folder.glob("part-*.safetensors"):
            path.unlink(missing_ok=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _path(self, name: str | int) -> Path:
        return self.folder / f"part-{name}.safetensors"


def _digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    return sha256(b"".join(name.encode() + arrays[name].tobytes() for name in sorted(arrays)))


@dataclass(frozen=True)
class Work:
    """Given to an attack: call it with (done, total) as a `Progress`.

    Attributes
    ----------
    budget : an attack that knows how leaves out what does not fit, least useful first, and says so by a warning.
    parts : where to keep what is finished; None: nowhere.
    """

    progress: Progress = field(default_factory=lambda: silent("work"))
    budget: Budget = field(default_factory=Budget)
    parts: Parts | None = None

    def __call__(self, done: int, total: int, /) -> None:
        self.progress(done, total)
