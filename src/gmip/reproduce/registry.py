"""Experiments by name."""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import Final, cast

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
        near = difflib.get_close_matches(str(name).lower(), [*_NAMES, "all"], n=1, cutoff=0.5)
        raise InvalidArgument(
            f"{name!r} is not an experiment{f', did you mean {near[0]!r}' if near else ''}: pass one of "
            f"{', '.join(_NAMES)}, or all."
        )
    return cast(Experiment, import_module(f"gmip.reproduce.experiments.{name.replace('-', '_')}"))
