"""How fast this machine is at what attacks do, from a few records and a small product of matrices."""

from __future__ import annotations

import time
from typing import Final, NamedTuple, Self

import numpy as np

from gmip.attacks.gradients import PerExampleGradients
from gmip.tasks import Examples
from gmip.trace import Step

__all__ = ["Speed"]

_PROBED: Final = 32  # records whose gradients tell what the others cost


class Speed(NamedTuple):
    """Seconds for the gradient of a record, and operations of linear algebra a second."""

    record: float
    rate: float

    @classmethod
    def measured(cls, gradients: PerExampleGradients, step: Step, examples: Examples) -> Self:
        few = examples[: min(_PROBED, len(examples))]
        here = gradients.at(step.parameters)
        sum(1 for _ in here.pieces(few))  # what is done once, and loads what is loaded late
        start = time.perf_counter()
        sum(1 for _ in here.pieces(few))
        record = (time.perf_counter() - start) / len(few)
        square = np.ones((512, 512))
        start = time.perf_counter()
        for _ in range(4):
            square = square @ square * (1.0 / 512.0)
        return cls(record, 8.0 * 512.0**3 / (time.perf_counter() - start))

    def seconds(self, *, records: float, work: float) -> float:
        """For so many gradients and so many operations."""
        return self.record * records + work / self.rate
