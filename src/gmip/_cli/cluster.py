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
    _option("--workers", "W", "Processes at once, such as shadow models in training (default: one for each core)."),
]
BackendOption = Annotated[
    str | None, _option("--backend", "|".join(BACKENDS), "local: this machine (default). dask, ray: a cluster.")
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
    """What was given, as keywords of `gmip.attacks.shadow.Shadows`."""
    where = None if backend is None else parse.one_of("--backend", backend, BACKENDS)
    if where == "dask" and scheduler_address is None:
        raise BadRequest("--backend dask needs --scheduler-address", remedy="add it, as in tcp://127.0.0.1:8786")
    if where in (None, "local") and scheduler_address is not None:
        raise BadRequest(
            "--scheduler-address does not apply to --backend local", remedy="add --backend dask or ray, or leave it out"
        )
    given = {
        "workers": workers and parse.count("--workers", workers),
        "backend": where,
        "scheduler_address": scheduler_address,
    }
    return {name: value for name, value in given.items() if value is not None}
