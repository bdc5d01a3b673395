"""Everything gmip raises on purpose.

GmipError
├── InvalidArgument (also ValueError)   an argument is outside its domain: the message names it, its value, the remedy
└── UnreachableTarget (also ValueError) a calibration target that no setting of the run can meet: the message says why

The command line turns each of these into one sentence on standard error and exit code 2.
"""

from __future__ import annotations

__all__ = ["GmipError", "InvalidArgument", "UnreachableTarget"]


class GmipError(Exception):
    """Base class: catch this to catch all that gmip raises on purpose."""


class InvalidArgument(GmipError, ValueError):
    """An argument is outside its domain."""


class UnreachableTarget(GmipError, ValueError):
    """No setting of the run meets the calibration target."""
