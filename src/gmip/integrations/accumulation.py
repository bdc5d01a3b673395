"""Gradient accumulation as frameworks do it: of what the gradient of a step is the mean, and how many times."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gmip.errors import warn
from gmip.training import Recorder
from gmip.training.batch_log import drawing_of

_SAME: Final = 1.0e-3  # relative difference of weights that counts as none


class Accumulation:
    """The batches whose losses make up the coming step.

    A framework adds up their losses, each with a weight of its own. Where all examples weigh the same the gradient is a
    multiple of their mean, which the recorder is told; where they do not, that is said, once.
    """

    def __init__(self) -> None:
        self._batches: list[tuple[int, float]] = []
        self._ids: list[NDArray[np.int64] | None] = []
        self._warned = False

    def add(self, size: int, weight: float, ids: NDArray[np.int64] | None = None) -> None:
        """A batch of so many examples, each of whose losses counts with this weight in the loss that is minimised; who
        they are, if that is known."""
        self._batches.append((size, weight))
        self._ids.append(ids)

    def tell(self, recorder: Recorder, *, divided_by: float = 1.0) -> None:
        """What the coming step will be, as far as its batches have been added; their losses are divided by a number."""
        if not self._batches:
            return
        weights = [weight for _, weight in self._batches]
        times = sum(n * weight for n, weight in self._batches) / divided_by
        known = [ids for ids in self._ids if ids is not None]
        ids = np.concatenate(known) if len(known) == len(self._ids) else None
        recorder.batch(sum(n for n, _ in self._batches), ids=ids, times=times)
        if max(weights) > (1.0 + _SAME) * min(weights) and not self._warned:
            self._warned = True
            sizes = ", ".join(str(n) for n, _ in self._batches)
            warn(
                f"A step accumulates batches of {sizes} examples with unequal weights, so its gradient is not a "
                f"mean over examples, and GLiR finds a little less. Drop the incomplete last batch of an "
                "epoch (drop_last) to avoid it."
            )

    def __len__(self) -> int:
        return len(self._batches)

    def clear(self) -> None:
        """The step was taken."""
        self._batches.clear()
        self._ids.clear()


def loader_facts(loader: Any, accumulated: int, taken: int, *, follow: bool) -> dict[str, Any]:
    """What `record` is told of a loader of whose batches so many make up a step, after so many steps.

    `follow` : it may listen to the loader to know who is in each batch.
    """
    drawing = drawing_of(loader)
    size = min(drawing.batch_size * accumulated, drawing.dataset_size)
    sampling = "full" if size == drawing.dataset_size else drawing.sampling
    if follow and not taken and sampling == drawing.sampling:
        return {"loader": loader, "batch_size": size}
    # Frameworks go on by skipping batches, in ways that do not show who is in the others.
    known = {"dataset_size": drawing.dataset_size, "batch_size": size, "sampling": sampling}
    return {**known, "resume_at": taken} if taken else known
