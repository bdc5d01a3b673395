"""gmip: membership-inference privacy for people who train models on sensitive data.

Say what will run (`NoisySGD`), then ask how exposed it is (`account`) or how much noise a target needs (`calibrate`).
Train a task to a target (`train`), or record your own training loop (`record`), and read what was recorded (`Trace`).
Ask whether a model leaks who was in it (`audit`).
Importing gmip needs NumPy and SciPy only: torch, plotly and the command line are loaded by those who use them.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from gmip.accounting.account import account, mu_per_step
from gmip.accounting.calibrate import calibrate
from gmip.accounting.composition import compose
from gmip.accounting.families import EpsilonDelta, Gaussian, PiecewiseLinear
from gmip.accounting.mechanism import NoisySGD
from gmip.accounting.step import ChiSquared, GaussianPair, spectral_step
from gmip.accounting.stochastic import stochastic_composition
from gmip.accounting.tradeoff import TradeOff
from gmip.errors import GmipError, InvalidArgument, UnreachableTarget

if TYPE_CHECKING:
    from gmip.pipeline import audit
    from gmip.trace import Trace
    from gmip.training import record, train

__all__ = [
    "ChiSquared",
    "EpsilonDelta",
    "Gaussian",
    "GaussianPair",
    "GmipError",
    "InvalidArgument",
    "NoisySGD",
    "PiecewiseLinear",
    "Trace",
    "TradeOff",
    "UnreachableTarget",
    "__version__",
    "account",
    "audit",
    "calibrate",
    "compose",
    "mu_per_step",
    "record",
    "spectral_step",
    "stochastic_composition",
    "train",
]

try:
    __version__ = version("gmip")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0+source"

# Found when first asked for, because they need the extras gmip[train] or gmip[audit].
_LAZY = {"Trace": "gmip.trace", "audit": "gmip.pipeline", "record": "gmip.training", "train": "gmip.training"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'gmip' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
