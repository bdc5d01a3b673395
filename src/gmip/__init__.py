"""gmip: membership-inference privacy for people who train models on sensitive data.

Say what will run (`NoisySGD`), then ask how exposed it is (`account`) or how much noise a target needs (`calibrate`).
Train a task to a target (`train`), or record your own training loop (`record`), and read what was recorded (`Trace`).
Ask whether it leaks who was in it (`audit`): a recorded run, released weights, checkpoints, predictions, scores of any
attack, or an estimator (`Recorded`, `Released`, `Checkpoints`, `Predictions`, `Scores`, `Estimator`), or a run to train
for that (`ToTrain`).

Every name is imported when it is first used: NumPy and SciPy by the accountant, torch only by what trains or attacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gmip._lazy import lazy

if TYPE_CHECKING:
    from gmip.accounting.account import account as account
    from gmip.accounting.calibrate import calibrate as calibrate
    from gmip.accounting.composition import compose as compose
    from gmip.accounting.families import EpsilonDelta as EpsilonDelta
    from gmip.accounting.families import Gaussian as Gaussian
    from gmip.accounting.families import PiecewiseLinear as PiecewiseLinear
    from gmip.accounting.tradeoff import TradeOff as TradeOff
    from gmip.auditing.audit import audit as audit
    from gmip.auditing.recompute import check_run as check_run
    from gmip.auditing.schema import AuditResult as AuditResult
    from gmip.auditing.sources.checkpoints import Checkpoints as Checkpoints
    from gmip.auditing.sources.deleted import Deleted as Deleted
    from gmip.auditing.sources.estimator import Estimator as Estimator
    from gmip.auditing.sources.recorded import Recorded as Recorded
    from gmip.auditing.sources.recorded import ToTrain as ToTrain
    from gmip.auditing.sources.released import Released as Released
    from gmip.auditing.sources.table_sources import Predictions as Predictions
    from gmip.auditing.sources.table_sources import Scores as Scores
    from gmip.errors import DataUnavailable as DataUnavailable
    from gmip.errors import Diverged as Diverged
    from gmip.errors import FileError as FileError
    from gmip.errors import GateFailed as GateFailed
    from gmip.errors import GmipError as GmipError
    from gmip.errors import GmipWarning as GmipWarning
    from gmip.errors import InvalidArgument as InvalidArgument
    from gmip.errors import TraceError as TraceError
    from gmip.errors import UnreachableTarget as UnreachableTarget
    from gmip.errors import UnsupportedModel as UnsupportedModel
    from gmip.report import write_report as write_report
    from gmip.tasks import Examples as Examples
    from gmip.tasks import Task as Task
    from gmip.trace import Trace as Trace
    from gmip.training import record as record
    from gmip.training import train as train
    from gmip.tuning import tune as tune
    from gmip.vocabulary import NoisySGD as NoisySGD
    from gmip.vocabulary import PrivacyTarget as PrivacyTarget
    from gmip.vocabulary import Rate as Rate
    from gmip.vocabulary import Recipe as Recipe

    __version__: str

# Module -> what is public of it here.
_PUBLIC = {
    "gmip.accounting.account": ("account",),
    "gmip.accounting.calibrate": ("calibrate",),
    "gmip.accounting.composition": ("compose",),
    "gmip.accounting.families": ("EpsilonDelta", "Gaussian", "PiecewiseLinear"),
    "gmip.accounting.tradeoff": ("TradeOff",),
    "gmip.auditing.audit": ("audit",),
    "gmip.auditing.recompute": ("check_run",),
    "gmip.auditing.schema": ("AuditResult",),
    "gmip.auditing.sources.deleted": ("Deleted",),
    "gmip.auditing.sources.estimator": ("Estimator",),
    "gmip.auditing.sources.recorded": ("Recorded", "ToTrain"),
    "gmip.auditing.sources.checkpoints": ("Checkpoints",),
    "gmip.auditing.sources.released": ("Released",),
    "gmip.auditing.sources.table_sources": ("Predictions", "Scores"),
    "gmip.errors": (
        *("DataUnavailable", "Diverged", "FileError", "GateFailed", "GmipError", "GmipWarning", "InvalidArgument"),
        *("TraceError", "UnreachableTarget", "UnsupportedModel"),
    ),
    "gmip.report": ("write_report",),
    "gmip.tasks": ("Examples", "Task"),
    "gmip.trace": ("Trace",),
    "gmip.training": ("record", "train"),
    "gmip.tuning": ("tune",),
    "gmip.vocabulary": ("NoisySGD", "PrivacyTarget", "Rate", "Recipe"),
}
_HOMES = {name: module for module, names in _PUBLIC.items() for name in names}
# Packages that `import gmip` is enough for, as in gmip.tasks.load("digits").
_PACKAGES = ("accounting", "attacks", "auditing", "errors", "report", "stats", "tasks", "trace", "training", "tuning")

__all__ = sorted(["__version__", *_HOMES])


_find, __dir__ = lazy(__name__, _HOMES, __all__, _PACKAGES)


def __getattr__(name: str) -> Any:
    if name != "__version__":
        return _find(name)
    globals()[name] = value = _version()
    return value


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("gmip")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0+source"
