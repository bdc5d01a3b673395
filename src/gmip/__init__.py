"""gmip: membership-inference privacy for people who train models on sensitive data.

Say what will run (`NoisySGD`), then ask how exposed it is (`account`) or how much noise a target needs (`calibrate`).
Importing gmip needs NumPy and SciPy only: torch, plotly and the command line are loaded by those who use them.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from gmip.accounting.account import account, mu_per_step
from gmip.accounting.calibrate import calibrate
from gmip.accounting.composition import compose
from gmip.accounting.families import EpsilonDelta, Gaussian, PiecewiseLinear
from gmip.accounting.mechanism import NoisySGD
from gmip.accounting.step import ChiSquared, GaussianPair, spectral_step
from gmip.accounting.stochastic import stochastic_composition
from gmip.accounting.tradeoff import TradeOff
from gmip.errors import GmipError, InvalidArgument, UnreachableTarget

__all__ = [
    "ChiSquared",
    "EpsilonDelta",
    "Gaussian",
    "GaussianPair",
    "GmipError",
    "InvalidArgument",
    "NoisySGD",
    "PiecewiseLinear",
    "TradeOff",
    "UnreachableTarget",
    "__version__",
    "account",
    "calibrate",
    "compose",
    "mu_per_step",
    "spectral_step",
    "stochastic_composition",
]

try:
    __version__ = version("gmip")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0+source"
