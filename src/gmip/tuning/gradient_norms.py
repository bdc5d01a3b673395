"""How long gradients are, of records that are no members: what a clipping norm is chosen by, and judged by."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from gmip import _numbers
from gmip import _validate as check
from gmip.attacks.gradients import PerExampleGradients
from gmip.errors import GmipWarning, InvalidArgument
from gmip.tasks.task import Examples, Task
from gmip.training.loop import initial_model
from gmip.tuning.search_records import search_records
from gmip.vocabulary import Recipe

__all__ = ["AutoClip", "auto_clip", "consider_clipping", "gradient_norms"]

_MOST_RECORDS: Final = 1_000
_LOOSE: Final = 3.0  # times the median: beyond it, if also nothing is clipped, noise is wasted


@dataclass(frozen=True)
class AutoClip:
    """A clipping norm and where it is from: a quantile of the norms of so many gradients before training."""

    clip_norm: float
    quantile: float
    records: int

    @property
    def words(self) -> str:
        """What traces and people are shown."""
        return (
            f"the {_numbers.percent(self.quantile, 'nearest')} quantile of the gradient norms of {self.records} "
            "records that are no members, before training"
        )


def gradient_norms(task: Task, dataset_size: int, *, split_seed: int = 0, fix: bool = False) -> NDArray[np.float64]:
    """Norms of the gradients of up to 1,000 outsiders at initial weights, shape (n,): see `search_records`.

    fix : replace layers that mix examples, as in `gmip.train`.

    Raises
    ------
    InvalidArgument : there are almost no records that will not be members.
    """
    records = search_records(task, dataset_size, seed=0, split_seed=split_seed)
    return _norms(task, records.train[: min(len(records.train), _MOST_RECORDS)], fix)


def _norms(task: Task, examples: Examples, fix: bool) -> NDArray[np.float64]:
    gradients = PerExampleGradients(initial_model(task, 0, fix=fix), task.loss)
    found = [
        torch.stack([piece.squared_norms() for piece in pieces]).sum(0).sqrt()
        for _, pieces in gradients.pieces(examples)
    ]
    norms: NDArray[np.float64] = torch.cat(found).cpu().numpy()
    return norms


def auto_clip(
    task: Task, dataset_size: int, *, split_seed: int = 0, quantile: float = 0.5, fix: bool = False
) -> AutoClip:
    """A clipping norm from records that are no members, so that it gives nothing away about those.

    Guarantees
    ----------
    No member of `task.split(dataset_size, split_seed)` has any influence on it.
    """
    share = check.probability("quantile", quantile, open_low=True)
    norms = gradient_norms(task, dataset_size, split_seed=split_seed, fix=fix)
    return AutoClip(float(f"{np.quantile(norms, share):.3g}"), share, norms.size)


def consider_clipping(task: Task, recipe: Recipe, *, fix: bool = False) -> None:
    """A GmipWarning if a recipe with noise clips almost no gradient: noise grows with C, and bias does not fall.

    Judged by records of the task's background, or else of its test: never by members.
    """
    if recipe.clip_norm is None or recipe.noise_std == 0.0:
        return
    others = task.test if task.background is None else task.background
    try:
        norms = _norms(task, others[: min(len(others), _MOST_RECORDS)], fix)
    except InvalidArgument:  # layers that do not run on one example alone: no reason not to train
        return
    times = recipe.clip_norm / float(np.median(norms))
    if times > _LOOSE and float(np.mean(norms > recipe.clip_norm)) < 0.01:
        warnings.warn(
            f"The clipping norm C = {recipe.clip_norm:g} is {_numbers.setting(float(f'{times:.2g}'))} times the median "
            "norm of a gradient, so that almost nothing is clipped, and noise grows with C: a smaller C needs less.",
            GmipWarning,
            stacklevel=2,
        )
