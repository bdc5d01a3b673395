"""Where parallel work runs: options that `gmip audit`, `gmip shadows` and their like share."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from gmip._cli import parse
from gmip._cli.errors import BadRequest

__all__ = ["BackendOption", "SchedulerAddress", "Workers", "read_cluster"]

BACKENDS: Final = ("local", "dask", "ray")
WHERE: Final = "Where it runs"


def _option(name: str, metavar: str, help: str) -> Any:
    return typer.Option(name, metavar=metavar, show_default=False, help=help, rich_help_panel=WHERE)


Workers = Annotated[
    str | None,
    _option("--workers", "W", "Units of work at once, such as shadow models (default: all cores there are)."),
]
BackendOption = Annotated[
    str | None, _option("--backend", "|".join(BACKENDS), "Processes of this machine (default), or a cluster.")
]
SchedulerAddress = Annotated[
    str | None,
    _option(
        "--scheduler-address",
        "ADDRESS",
        "Of the cluster, such as tcp://10.0.0.1:8786; ray without it takes the one that runs here, or starts one.",
    ),
]


def read_cluster(workers: str | None, backend: str | None, scheduler_address: str | None) -> dict[str, Any]:
    """What was given, as keywords of `gmip.attacks.shadow.Shadows`."""
    where = None if backend is None else parse.one_of("--backend", backend, BACKENDS)
    if where == "dask" and scheduler_address is None:
        raise BadRequest("--backend dask needs --scheduler-address: add it, as in tcp://127.0.0.1:8786.")
    if where in (None, "local") and scheduler_address is not None:
        raise BadRequest("--scheduler-address plays no part in --backend local: add --backend dask, or leave it out.")
    given = {
        "workers": workers and parse.count("--workers", workers),
        "backend": where,
        "scheduler_address": scheduler_address,
    }
    return {name: value for name, value in given.items() if value is not None}
