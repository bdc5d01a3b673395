"""Experiments by name."""

from __future__ import annotations

from importlib import import_module
from typing import Final, cast

from gmip._validate import did_you_mean
from gmip.errors import InvalidArgument
from gmip.reproduce.base import Experiment

__all__ = ["experiment", "names"]

# In the order of the page; each is a module of gmip.reproduce.experiments, with _ for -.
_NAMES: Final = (
    "convergence",
    "audit",
    "audit-loglog",
    "utility",
    "tau-table",
    "assumptions",
    "ablations",
    "loss-attacks",
)


def names() -> tuple[str, ...]:
    """All experiments."""
    return _NAMES


def experiment(name: str) -> Experiment:
    """The module of an experiment."""
    if name not in _NAMES:
        raise InvalidArgument(
            f"{name!r} is not an experiment{did_you_mean(name, [*_NAMES, 'all'])}",
            remedy=f"pass one of {', '.join(_NAMES)}, or all",
        )
    return cast(Experiment, import_module(f"gmip.reproduce.experiments.{name.replace('-', '_')}"))
