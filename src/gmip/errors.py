"""Everything gmip raises on purpose.

GmipError
├── InvalidArgument (also ValueError)   an argument is outside its domain
│   └── Diverged                        training ended in a loss that is no number
├── UnreachableTarget (also ValueError) a calibration target that no setting of the run can meet: the message says why
├── UnsupportedModel (also ValueError)  a model or optimizer whose examples cannot be separated: names layer and fix
├── DataUnavailable (also OSError)      a data set that is not here and could not be fetched: says how to get it
├── FileError (also OSError)            a file that cannot be read or written: names it
│   └── TraceError                      a trace that is damaged, of another version, or in the way
├── GateFailed                          an audit found more than its target, beyond doubt
└── TraceMismatch (also ValueError)     a trace that is sound but belongs to other data, another task or another recipe

GmipWarning (a UserWarning)             the work goes on, with something that the user should know

An error is data first: which argument, its value, the problem, the remedy. `str(error)` is a sentence made of them, in
which arguments have their names in Python; the command line makes the same sentence with the names of its options.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from typing import Final

import numpy as np

__all__ = [
    "DataUnavailable",
    "Diverged",
    "FileError",
    "GateFailed",
    "GmipError",
    "GmipWarning",
    "InvalidArgument",
    "TraceError",
    "TraceMismatch",
    "UnreachableTarget",
    "UnsupportedModel",
]

_NAME: Final = re.compile(r"`([A-Za-z_][\w.]*)`")
_UNSET: Final = object()
_OURS: Final = ("gmip", "torch")  # whose frames a warning passes over: torch calls the hooks of a recorder
_MAX_VALUE: Final = 200  # characters of a value that a sentence shows


class GmipError(Exception):
    """Base class: catch this to catch all that gmip raises on purpose.

    Parameters
    ----------
    problem : what is wrong. Names of arguments stand in `backticks`, here and in `remedy`, so that each interface can
        spell them in its own way.
    argument : the argument at fault: the sentence begins with it and its value.
    value : what was passed for it; `shown` is how the sentence shows it, or None.
    remedy : what to do about it.
    """

    def __init__(
        self, problem: str, *, argument: str | None = None, value: object = _UNSET, remedy: str | None = None
    ) -> None:
        self.problem = problem
        self.argument = argument
        self.value = None if value is _UNSET else value
        self.remedy = remedy
        self.shown = None if value is _UNSET else _shown(value)
        super().__init__(self.sentence())

    def sentence(self, spell: Callable[[str], str] = str) -> str:
        """One sentence; `spell` turns the name of an argument into what it is called where the sentence is read."""
        text = self.problem if self.remedy is None else f"{self.problem.rstrip('.')}: {self.remedy}"
        text = _NAME.sub(lambda name: spell(name[1]), text if text.endswith(".") else f"{text}.")
        given = "" if self.shown is None else f" = {self.shown}"
        return text if self.argument is None else f"{spell(self.argument)}{given} {text}"


def _shown(value: object) -> str:
    text = str(value) if isinstance(value, (int, float, np.number)) else " ".join(repr(value).split())
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}..."


class InvalidArgument(GmipError, ValueError):
    """An argument is outside its domain."""


class Diverged(InvalidArgument):
    """Training ended in a loss that is no number."""


class UnreachableTarget(GmipError, ValueError):
    """No setting of the run meets the calibration target."""


class UnsupportedModel(GmipError, ValueError):
    """The model mixes examples, or the optimizer hides what is published."""


class DataUnavailable(GmipError, OSError):
    """A data set is not on this machine and could not be fetched."""


class GateFailed(GmipError):
    """An audit does not pass its gate."""


class FileError(GmipError, OSError):
    """A file or folder cannot be read or written."""


class TraceError(FileError):
    """A trace on disk is damaged, of another version, or in the way."""


class TraceMismatch(GmipError, ValueError):
    """A trace belongs to other data, another task or another recipe."""


class GmipWarning(UserWarning):
    """The work goes on, with something that the user should know."""


def warn(message: str) -> None:
    """Warn at the line that called gmip."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _OURS:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, GmipWarning, stacklevel=level)
