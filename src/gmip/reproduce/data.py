"""Tasks and recipes of the experiments; a task is loaded once in a process, for cells of one experiment share it."""

from __future__ import annotations

from functools import lru_cache

from gmip.accounting.mechanism import NoisySGD
from gmip.errors import DataUnavailable
from gmip.tasks import Recipe, Task, load

__all__ = ["load_task", "recipe_for"]


@lru_cache(maxsize=2)
def load_task(name: str) -> Task:
    """`gmip.tasks.load`, remembered."""
    return load(name)


def recipe_for(task: Task, run: NoisySGD, *, noise_std: float = 0.0) -> Recipe:
    """The task's recipe with the sizes of a run of the paper; a smaller pool is no stand-in."""
    if len(task.pool) <= run.dataset_size:
        raise DataUnavailable(
            f"{task.name} has {len(task.pool)} records to train on here, and the run of the paper takes "
            f"{run.dataset_size}: get the whole of the published file."
        )
    return task.recipe.replace(
        dataset_size=run.dataset_size,
        batch_size=run.batch_size,
        num_steps=run.num_steps,
        clip_norm=run.clip_norm,
        noise_std=noise_std,
    )
