"""What to do about a run, and what the accountant would say of another one: as result.json has it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from gmip.accounting.alternatives import Change, ClosedWay
from gmip.auditing.frozen import Count, Frozen, Share
from gmip.vocabulary import Kind, NoisySGD, Recipe

__all__ = ["Advice", "AdviceKind", "CommandFacts", "NotTried", "TrainingCommand", "TriedAccuracy", "Way", "WhatIf"]

#: What to do: "fix-record" (its check failed), "claim-refuted" (do not rely on it), "seed-guessed" (train with a secret
#: one), "find-less" and "say-claim" (how the model was trained is not known), "guaranteed-already" and "bound-already"
#: (the target is kept, whatever ran or if it ran as declared), "forecast-already", "to-guarantee" (the first way that
#: proves the target), "only-forecasts" (no way does), "way", "clip-first", "closed-ways", "tune", "more-candidates".
AdviceKind = Literal[
    "fix-record",
    "claim-refuted",
    "seed-guessed",
    "find-less",
    "say-claim",
    "guaranteed-already",
    "bound-already",
    "forecast-already",
    "to-guarantee",
    "only-forecasts",
    "way",
    "clip-first",
    "closed-ways",
    "tune",
    "more-candidates",
]


class TriedAccuracy(Frozen):
    """Accuracy of trainings that were made to measure it, on records that they did not train on: the mean over `seeds`
    of them, its standard error (0 for one), and on how many records, none a member, they were trained."""

    mean: Share
    error: Annotated[float, Field(ge=0.0)]
    seeds: Annotated[int, Field(ge=1)]
    trained_on: Count


class NotTried(Frozen):
    """A way whose accuracy was not measured.

    change : the way; None: the run as it is, or, where "refused", all of them.
    why : "other-model" (it needs one), "schedule" (the run is one), "few-records" (only `records` are not members),
        "too-slow" (one training takes about `seconds`), "diverged", or "refused" (`problem` says why).
    """

    change: Change | None
    why: Literal["other-model", "schedule", "few-records", "too-slow", "diverged", "refused"]
    records: Count | None = None
    seconds: Annotated[float, Field(ge=0.0)] | None = None
    problem: str | None = None


class Way(Frozen):
    """One way to the goal, found and checked by the accountant.

    Attributes
    ----------
    change : what changes; nothing else does. "noise-alone": by noise alone (differential privacy), for any record.
    runs : what to run instead, phase after phase.
    tpr : the share of the members found at the goal's FPR then: at most (kind "bound"), or about ("forecast").
    for_whom : the record and the attacker that this is about.
    accuracy : what the model is then good for; None: not measured.
    """

    change: Change
    runs: tuple[NoisySGD, ...]
    tpr: Share
    kind: Kind
    for_whom: str
    accuracy: TriedAccuracy | None = None

    def changes(self, before: Sequence[NoisySGD]) -> dict[str, Any]:
        """Fields of the run as it was -> their new values; empty for a schedule."""
        if len(before) != 1 or len(self.runs) != 1:
            return {}
        old, new = dataclasses.asdict(before[0]), dataclasses.asdict(self.runs[0])
        return {name: value for name, value in new.items() if value != old[name] and name != "rank"}


class Advice(Frozen):
    """Something to do.

    Attributes
    ----------
    way : of "way".
    tpr, for_whom : of "forecast-already": about what is found, and whom that is about.
    closed : of "closed-ways".
    candidates : of "more-candidates": how many are needed.
    """

    kind: AdviceKind
    way: Way | None = None
    tpr: Share | None = None
    for_whom: str | None = None
    closed: tuple[ClosedWay, ...] = ()
    candidates: Count | None = None


class TrainingCommand(Frozen):
    """The `gmip train` of a run; `task` as the command line names it, `fix` for --fix-model."""

    task: str
    recipe: Recipe
    fix: bool = False


class CommandFacts(Frozen):
    """What commands for the reader are made from.

    trained_by : None: the run was not trained by `gmip train`.
    """

    trained_by: TrainingCommand | None = None


class WhatIf(Frozen):
    """What the accountant says of other noise and other batches, everything else, the number of steps too, as it is.

    Attributes
    ----------
    noise_std : on the batch mean, rising; of a schedule that of its first phase, the others in proportion.
    batch_size : rising; of a schedule that of its first phase, which is not changed.
    tpr : at the goal's FPR; one row for each noise, one column for each batch size.
    own : row and column of the run itself.
    kind : "bound" if "at most" can be said of every number, else "forecast".
    for_whom : the record and the attacker that they are about.
    left_out : batch sizes that take too long to compute.
    """

    noise_std: tuple[Annotated[float, Field(ge=0.0)], ...]
    batch_size: tuple[Count, ...]
    tpr: tuple[tuple[Share, ...], ...]
    own: tuple[Count, Count]
    kind: Kind
    for_whom: str
    left_out: Count = 0

    @model_validator(mode="after")
    def _sizes(self) -> Self:
        if len(self.tpr) != len(self.noise_std) or any(len(row) != len(self.batch_size) for row in self.tpr):
            raise ValueError("needs a TPR for each noise and each batch size")
        if self.own[0] >= len(self.noise_std) or self.own[1] >= len(self.batch_size):
            raise ValueError("the run itself is outside the table")
        return self
