"""How shadow models are trained, and what is kept of them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import nn

from gmip import _validate as check
from gmip.errors import InvalidArgument
from gmip.parallel import Workers
from gmip.tasks import cache
from gmip.tasks.task import Examples, Task

__all__ = ["Shadows", "Signal"]

_MOST: Final = 99_999


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
class Shadows(Workers):
    """How shadow models are trained. Only `count` and `seed` change results; the others say where and by whom.

    Parameters
    ----------
    count : number of models; a larger one later trains only those that are missing. Even: each candidate is in half.
    seed : of who is in which model, of weights, batches and noise.
    folder : parent of the shadow sets; None: `shadows` in the cache (GMIP_CACHE).
    workers, backend, scheduler_address, retries : as in `gmip.parallel.Workers`; a job is a model.
    """

    count: int = 64
    seed: int = 0
    folder: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "count", check.count("count", self.count))
        if self.count > _MOST:
            raise InvalidArgument(f"count = {self.count} is more than {_MOST} shadow models: pass fewer.")
        object.__setattr__(self, "seed", check.seed(self.seed))

    @property
    def parent(self) -> Path:
        """The folder that holds the shadow sets."""
        return cache.folder() / "shadows" if self.folder is None else Path(self.folder).expanduser()
