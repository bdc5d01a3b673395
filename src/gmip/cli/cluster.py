"""Where parallel work runs: options that `gmip audit`, `gmip shadows` and their like share."""

from __future__ import annotations

import contextlib
from typing import Annotated, Any, Final

import typer

from gmip.cli import parse

__all__ = ["BackendOption", "SchedulerAddress", "Workers", "read_cluster"]

WHERE: Final = "Where it runs"


def _option(name: str, metavar: str, help: str) -> Any:
    return typer.Option(name, metavar=metavar, show_default=False, help=help, rich_help_panel=WHERE)


Workers = Annotated[
    str | None,
    _option("--workers", "W", "Processes at once, such as shadow models in training (default: one for each core)."),
]
BackendOption = Annotated[
    str | None, _option("--backend", "BACKEND", "local: this machine (default). dask, ray: a cluster.")
]
SchedulerAddress = Annotated[
    str | None,
    _option(
        "--scheduler-address",
        "ADDRESS",
        "Address of the cluster, such as tcp://10.0.0.1:8786. Without it, ray uses the cluster on this machine, or "
        "starts one.",
    ),
]


def read_cluster(workers: str | None, backend: str | None, scheduler_address: str | None) -> dict[str, Any]:
    """What was given, as keywords of `gmip.parallel.Workers`, which says what does not go together."""
    given: dict[str, Any] = {
        "workers": workers and parse.count("--workers", workers),
        "backend": backend,
        "scheduler_address": scheduler_address,
    }
    found = {name: value for name, value in given.items() if value is not None}
    with contextlib.suppress(ModuleNotFoundError):  # the command itself says what is not installed
        from gmip.parallel import Workers as Settings

        Settings(**found)
    return found
