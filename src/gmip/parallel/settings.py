"""Where jobs are computed, and by how many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from gmip import _validate as check
from gmip.errors import InvalidArgument

__all__ = ["BACKENDS", "Backend", "Workers"]

Backend = Literal["local", "dask", "ray"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)


@dataclass(frozen=True, kw_only=True)
class Workers:
    """Who computes. None of it changes results.

    Parameters
    ----------
    workers : jobs at once; None: all cores of this machine, or of the cluster.
    backend : "local" processes, or an existing cluster of "dask" or "ray".
    scheduler_address : of the cluster. Dask needs it; for Ray None takes the cluster that runs here, or starts one.
    retries : how often a job is computed again whose worker died, ran out of memory or had trouble with files.
    """

    workers: int | None = None
    backend: Backend = "local"
    scheduler_address: str | None = None
    retries: int = 3

    def __post_init__(self) -> None:
        if self.workers is not None:
            object.__setattr__(self, "workers", check.count("workers", self.workers))
        check.one_of("backend", self.backend, BACKENDS)
        if self.retries != 0:
            object.__setattr__(self, "retries", check.count("retries", self.retries))
        if self.backend == "dask" and not self.scheduler_address:
            raise InvalidArgument("backend = 'dask' needs scheduler_address, such as tcp://127.0.0.1:8786: set it.")
        if self.backend == "local" and self.scheduler_address is not None:
            raise InvalidArgument(
                f"scheduler_address = {self.scheduler_address!r} plays no part in backend = 'local': set backend to "
                "'dask' or 'ray', or leave it out."
            )
