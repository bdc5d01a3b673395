"""What to do about a run, and what would be promised if it were another: as result.json has it."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gmip.auditing.frozen import Count, Frozen, Share
from gmip.vocabulary import Kind

__all__ = ["Advice", "TriedAccuracy", "Way", "WhatIf"]


class TriedAccuracy(Frozen):
    """Accuracy of trainings that were made to measure it, on records that they did not train on: the mean over `seeds`
    of them, its standard error (0 for one), and in words what they were trained on."""

    mean: Share
    error: Annotated[float, Field(ge=0.0)]
    seeds: Annotated[int, Field(ge=1)]
    trained_on: str


class Way(Frozen):
    """One way to the goal, found and checked by the accountant.

    Attributes
    ----------
    change : what changes; nothing else does. "noise-alone": by noise alone (differential privacy), for any record.
    name, setting : what it is called, and what to set, in words.
    changes : fields of the run -> their new values; empty for a schedule.
    tpr : the share of the members found at the goal's FPR then: at most (kind "bound"), or about ("forecast").
    for_whom : the record and the attacker that this is about.
    accuracy : what the model is then good for; None: not measured.
    """

    change: Literal["noise", "noise-alone", "batch", "steps", "clip", "parameters", "data"]
    name: str
    setting: str
    changes: dict[str, float | int] = Field(default_factory=dict)
    tpr: Share
    kind: Kind
    for_whom: str
    accuracy: TriedAccuracy | None = None


class Advice(Frozen):
    """Something to do, with the command that does it, or shows it, where there is one."""

    text: str
    command: str | None = None
    way: Way | None = None  # None: advice of another kind


class WhatIf(Frozen):
    """What would be promised with other noise and other batches, everything else, the number of steps too, as it is.

    Attributes
    ----------
    noise_std : on the batch mean, rising; of a schedule that of its first phase, the others in proportion.
    batch_size : rising; of a schedule that of its first phase, which is not changed.
    tpr : at the goal's FPR; one row for each noise, one column for each batch size.
    own : row and column of the run itself.
    kind : "bound" if "at most" can be said of every number, else "forecast".
    for_whom : the record and the attacker that they are about.
    left_out : a sentence on what was not computed; None: nothing was left out.
    """

    noise_std: tuple[Annotated[float, Field(ge=0.0)], ...]
    batch_size: tuple[Count, ...]
    tpr: tuple[tuple[Share, ...], ...]
    own: tuple[Count, Count]
    kind: Kind
    for_whom: str
    left_out: str | None = None

    @model_validator(mode="after")
    def _sizes(self) -> Self:
        if len(self.tpr) != len(self.noise_std) or any(len(row) != len(self.batch_size) for row in self.tpr):
            raise ValueError("needs a TPR for each noise and each batch size")
        if self.own[0] >= len(self.noise_std) or self.own[1] >= len(self.batch_size):
            raise ValueError("the run itself is outside the table")
        return self
