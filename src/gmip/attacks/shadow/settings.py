"""How shadow models are trained, and what is kept of them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray
from torch import nn

from gmip.accounting import _validate as check
from gmip.errors import InvalidArgument
from gmip.tasks import cache
from gmip.tasks.base import Examples, Task
from gmip.training.samplers import check_seed

__all__ = ["BACKENDS", "Backend", "Shadows", "Signal"]

Backend = Literal["local", "dask", "ray"]
_MOST: Final = 99_999
BACKENDS: tuple[Backend, ...] = get_args(Backend)


class Signal(Protocol):
    """What is computed with each trained shadow model, and all that is stored of it.

    It travels to the workers, so it must be small and picklable; equal keys must mean equal results.
    """

    @property
    def key(self) -> str:
        """A name with all that the result depends on (settings as a hash): letters, digits, dot, hyphen, underscore."""

    @property
    def population(self) -> bool:
        """Whether it is wanted for the population records too, else for the candidates only."""

    def __call__(self, task: Task, model: nn.Module, examples: Examples) -> NDArray[np.floating[Any]]:
        """Shape (len(examples), ...). The model is in eval mode; `task` has its model and loss, but no records."""


@dataclass(frozen=True, kw_only=True)
class Shadows:
    """How shadow models are trained. Only `count` and `seed` change results; the others say where and by whom.

    Parameters
    ----------
    count : number of models; a larger one later trains only those that are missing. Even: each candidate is in half.
    seed : of who is in which model, of weights, batches and noise.
    folder : parent of the shadow sets; None: `shadows` in the cache (GMIP_CACHE).
    workers : models trained at once; None: all cores of this machine, or of the cluster.
    backend : "local" processes, or an existing cluster of "dask" or "ray".
    scheduler_address : of the cluster. Dask needs it; for Ray None takes the cluster that runs here, or starts one.
    retries : how often a model is trained again whose worker died, ran out of memory or had trouble with files.
    """

    count: int = 64
    seed: int = 0
    folder: str | os.PathLike[str] | None = None
    workers: int | None = None
    backend: Backend = "local"
    scheduler_address: str | None = None
    retries: int = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", check.count("count", self.count))
        if self.count > _MOST:
            raise InvalidArgument(f"count = {self.count} is more than {_MOST} shadow models: pass fewer.")
        object.__setattr__(self, "seed", check_seed(self.seed))
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

    @property
    def parent(self) -> Path:
        """The folder that holds the shadow sets."""
        return cache.folder() / "shadows" if self.folder is None else Path(self.folder).expanduser()
