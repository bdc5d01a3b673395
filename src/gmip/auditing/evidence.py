"""What the run check goes by: recorded steps beside the members' own gradients, and how its answers are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gmip.auditing.check_schema import CheckOutcome

__all__ = [
    "LEAST",
    "LEVEL",
    "SAME",
    "SHARE",
    "SURE",
    "TITLES",
    "WIDER",
    "Compared",
    "Layer",
    "Recomputed",
    "passed",
    "unchecked",
]

Array = NDArray[np.float64]

WIDER: Final = 1.1  # times the declared clip norm: a fault that is planted to tell whether it would be seen
LEVEL: Final = 0.01  # chance that a sound run fails, all checks together
SHARE: Final = LEVEL / 10  # of one check: there are at most ten in which chance plays a part
SURE: Final = 5.0  # standard deviations at which a fault is seen nearly always at that level
LEAST: Final = 0.005  # relative error of scale or noise that is worth a word, however sure
SAME: Final = 1.0e-3  # relative difference up to which factors and norms are the same

TITLES: Final = {
    "sizes": "Declared sizes",
    "batches": "How batches were drawn",
    "continuity": "Training outside the record",
    "scale": "Scale of the gradient",
    "whole-clip": "Clipping of the whole gradient",
    "clipping": "Clipping of each record's gradient",
    "members": "Members, model and data",
    "noise-steps": "Noise of different steps",
    "noise-layers": "Noise in every layer",
    "noise-size": "Size of the noise",
    "noise-rows": "Noise in every row",
}


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Where a parameter lies in the flat vectors, and its shape."""

    name: str
    place: slice
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Compared:
    """Gradients of k members at a step, less their mean, in units of the noise: inner products among them (k, k), with
    the residual (`against`) and with `expected` (`toward`), (k,) each. `batch_size` : of the step."""

    ids: NDArray[np.int64]
    inner: Array
    against: Array
    toward: Array
    batch_size: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Recomputed:
    """One recorded step, and the members' gradients at its parameters.

    Attributes
    ----------
    published : the recorded mean gradient, a known whole-gradient clip undone, shape (d,).
    expected : sum of the batch's gradients, each clipped as declared, over `divisor`, shape (d,).
    unclipped : the same without clipping; `expected` itself where nothing is clipped.
    by_layer, wider : the same with each parameter of the model clipped to the norm on its own, and with a norm that is
        `WIDER` times as large; stretch : how much longer than the norm a record is in the former, at most.
    noise_std : declared; size, divisor : of the batch.
    contribution : mean norm of a record's part of the published gradient, times the records: sum of norms/divisor.
    largest : the largest norm of one record's part.
    tolerance : norm of the difference that rounding explains.
    compared : some members' gradients against the residual, where there is noise.
    """

    index: int
    published: Array
    expected: Array
    unclipped: Array
    by_layer: Array
    wider: Array
    noise_std: float
    size: int
    divisor: float
    contribution: float
    largest: float
    tolerance: float
    stretch: float = 1.0
    compared: Compared | None = None

    @property
    def residual(self) -> Array:
        return self.published - self.expected


def unchecked(check: str, why: str) -> CheckOutcome:
    """A check that could not be made."""
    return CheckOutcome(check=check, title=TITLES[check], status="unchecked", sentence=why)


def passed(
    check: str, sentence: str, value: float | None = None, expected: float | None = None, p: float | None = None
) -> CheckOutcome:
    """A check that found nothing wrong."""
    return CheckOutcome(
        check=check, title=TITLES[check], status="passed", sentence=sentence, value=value, expected=expected, p_value=p
    )
