"""Canaries that are records: mislabelled ones, which a model can only learn by heart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from gmip import _validate as check
from gmip._random import CanaryStream, Stream
from gmip.attacks.gradients import evaluating
from gmip.auditing.schema import AuditResult
from gmip.canaries.coins import Coins
from gmip.errors import InvalidArgument
from gmip.stats import ScoreSet
from gmip.tasks import Examples, Split, Task, cross_entropy
from gmip.tasks.inputs import answer, placed, rows_of
from gmip.training.models import has_classes

__all__ = ["RecordCanaries"]

_AT_A_TIME: Final = 1024  # records


class RecordCanaries(Coins):
    """Records of yours with a wrong label each, about half of which are to be trained on.

        canaries = RecordCanaries(spare_records)
        train_on = canaries.training_set(my_records)
        ...  # train on train_on, with any loop
        canaries.audit(model, claim=(8.0, 1e-5))

    Parameters
    ----------
    records : with classes as targets; not otherwise in the training data.
    num_classes : how many classes there are; None: as many as the records have.
    seed : of coins and labels; None: a random one.

    Attributes
    ----------
    records : the canaries, all of them, with their wrong labels.

    Guarantees
    ----------
    Coins and labels are independent of everything else, so a run that keeps a bound under adding one record keeps it
    for the canaries' scores. A model that learned none of them by heart tells nothing: the bound is then 0, which is no
    evidence for the bound.
    """

    def __init__(self, records: Examples, *, num_classes: int | None = None, seed: int | None = None) -> None:
        super().__init__(len(records), seed)
        if not has_classes(records.targets):
            raise InvalidArgument("need classes as targets, to be given wrong ones", argument="records")
        known = int(records.targets.max()) + 1
        self.num_classes = known if num_classes is None else check.count("num_classes", num_classes)
        if self.num_classes < max(2, known):
            raise InvalidArgument(
                f"is below the {max(2, known)} classes that are needed", argument="num_classes", value=num_classes
            )
        other = CanaryStream.LABELS.rng(self.seed).integers(1, self.num_classes, self.count)
        wrong = (records.targets + torch.from_numpy(other).to(records.targets)) % self.num_classes
        self.records = Examples(records.inputs, wrong)

    def __repr__(self) -> str:
        return f"<RecordCanaries: {self.count}, {int(self.inside.sum())} in>"

    def training_set(self, members: Examples) -> Examples:
        """The members, and then the canaries that are in."""
        return members.joined(self.records[np.flatnonzero(self.inside)])

    def planted(self, task: Task) -> Task:
        """The task with the canaries at the end of its pool, for `gmip.train`: in every run of it the canaries that are
        in are members, and those that are not are the non-members.

        `dataset_size` of its recipe counts the canaries that are in. Attack their rows, `canaries.ids(task)`: other
        members differ from them in more than membership.
        """
        inside = int(self.inside.sum())
        recipe = task.recipe.replace(dataset_size=task.recipe.dataset_size + inside)
        parts = {field.name: getattr(task, field.name) for field in fields(Task)}
        parts |= {"name": f"{task.name} with canaries", "pool": task.pool.joined(self.records), "recipe": recipe}
        parts |= {"groups": {}, "record_names": None}  # they are about the records of the task
        return _PlantedTask(**parts, canaries=self.inside)

    def ids(self, task: Task) -> NDArray[np.int64]:
        """Rows of the canaries in the pool of a planted task."""
        if not isinstance(task, _PlantedTask) or len(task.canaries) != self.count:
            raise InvalidArgument("is not planted with these canaries", argument="task", remedy="pass planted(task)")
        return np.arange(len(task.pool) - self.count, len(task.pool))

    def scores(self, model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy) -> NDArray[np.float64]:
        """Minus the loss of each canary under the trained model, shape (count,): those that are in have been fitted."""
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        found = []
        with torch.no_grad(), evaluating(model):
            for first in range(0, self.count, _AT_A_TIME):
                rows = slice(first, first + _AT_A_TIME)
                outputs = answer(model, placed(rows_of(self.records.inputs, rows), device))
                found.append(loss(outputs, self.records.targets[rows].to(device)).double().cpu().numpy())
        limit = np.finfo(np.float64).max  # a score is finite, a loss need not be
        return np.clip(-np.concatenate(found).astype(np.float64), -limit, limit)

    def audit(
        self,
        scores: ArrayLike | ScoreSet | nn.Module,
        *,
        loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy,
        claim: Any = None,
        delta: float = 1.0e-5,
        confidence: float = 0.95,
        fprs: Sequence[float] = (0.01, 0.1),
        title: str | None = None,
    ) -> AuditResult:
        """Whether the run keeps its guarantee against these canaries: (epsilon, delta), a mu or a `TradeOff`.

        Parameters
        ----------
        scores : of shape (count,), higher = in; or an attack's ScoreSet about the rows `ids(planted task)`; or the
            trained model itself, for minus its loss.
        loss : of the model, one number for each record.
        """
        if isinstance(scores, nn.Module):
            scores = self.scores(scores, loss)
        elif isinstance(scores, ScoreSet):
            scores = self._of(scores)
        return self._audited(scores, claim=claim, delta=delta, confidence=confidence, fprs=fprs, title=title)

    def _of(self, found: ScoreSet) -> NDArray[np.float64]:
        order = np.argsort(found.ids)
        ids = found.ids[order]
        if len(ids) != self.count or not np.array_equal(ids, ids[0] + np.arange(self.count)):
            raise InvalidArgument(
                f"are of {len(ids)} records and not of the {self.count} canaries",
                argument="scores",
                remedy="run the attack on the candidates `ids(task)`",
            )
        return found.scores[order]


@dataclass(frozen=True, kw_only=True, eq=False)
class _PlantedTask(Task):
    """A task whose last records are canaries; `canaries` tells which of them are in."""

    canaries: NDArray[np.bool_]

    def split(self, dataset_size: int, seed: int) -> Split:
        rows = np.arange(len(self.pool))
        own, planted = rows[: -len(self.canaries)], rows[-len(self.canaries) :]
        members = dataset_size - int(self.canaries.sum())
        if not 0 < members <= len(own):
            raise InvalidArgument(
                f"counts {int(self.canaries.sum())} canaries, and the pool has {len(own)} other records",
                argument="dataset_size",
                value=dataset_size,
                remedy="pass the canaries that are in and at least one other record",
            )
        order = Stream.MEMBERS.rng(seed).permutation(own)
        return Split(
            np.sort(np.concatenate([order[:members], planted[self.canaries]])),
            planted[~self.canaries],
            np.sort(order[members:]),
        )
