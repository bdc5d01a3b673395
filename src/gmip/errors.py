"""Everything gmip raises on purpose.

GmipError
├── InvalidArgument (also ValueError)   an argument is outside its domain: the message names it, its value, the remedy
├── UnreachableTarget (also ValueError) a calibration target that no setting of the run can meet: the message says why
├── UnsupportedModel (also ValueError)  a model or optimizer whose examples cannot be told apart: names layer and fix
├── DataUnavailable (also OSError)      a data set that is not here and could not be fetched: says how to get it
├── TraceError (also OSError)           a trace that cannot be read or written: names the file
└── TraceMismatch (also ValueError)     a trace that is sound but belongs to other data, another task or another recipe

GmipWarning (a UserWarning)             the work goes on, with something that the user should know

The command line turns each error into one sentence on standard error and exit code 2.
"""

from __future__ import annotations

__all__ = [
    "DataUnavailable",
    "GmipError",
    "GmipWarning",
    "InvalidArgument",
    "TraceError",
    "TraceMismatch",
    "UnreachableTarget",
    "UnsupportedModel",
]


class GmipError(Exception):
    """Base class: catch this to catch all that gmip raises on purpose."""


class InvalidArgument(GmipError, ValueError):
    """An argument is outside its domain."""


class UnreachableTarget(GmipError, ValueError):
    """No setting of the run meets the calibration target."""


class UnsupportedModel(GmipError, ValueError):
    """The model mixes examples, or the optimizer hides what is published."""


class DataUnavailable(GmipError, OSError):
    """A data set is not on this machine and could not be fetched."""


class TraceError(GmipError, OSError):
    """A trace on disk is damaged, of another version, or in the way."""


class TraceMismatch(GmipError, ValueError):
    """A trace belongs to other data, another task or another recipe."""


class GmipWarning(UserWarning):
    """The work goes on, with something that the user should know."""
