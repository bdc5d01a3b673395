"""Attacks by counterfactual distance: members lie farther from where the model changes its mind."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar, Final, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr
from torch import nn

from gmip import _validate as check
from gmip._io import sha256
from gmip._progress import Progress
from gmip.attacks.arrays import Moments, Variance, standardised
from gmip.attacks.attack import Attack, AttackedRecords, Need
from gmip.attacks.attack_table import ATTACKS
from gmip.attacks.counterfactual.search import Counterfactuals, counterfactuals
from gmip.attacks.shadow import Signal
from gmip.attacks.shadow_attack import ShadowAttack
from gmip.attacks.signals import released_model
from gmip.attacks.work import Work
from gmip.errors import GmipWarning, InvalidArgument
from gmip.stats import ScoreSet
from gmip.stats.scores import Fact
from gmip.tasks import Examples, Task
from gmip.tasks.inputs import one_table
from gmip.trace import ModelRecord
from gmip.training.models import has_classes

__all__ = ["CFD", "CFDLRT", "Distance"]

Array = NDArray[np.float64]
_ENOUGH: Final = 0.95  # of searches that should converge
_LEAST: Final = 1.0e-6  # of the median distance: closer than that, the log of a distance is that of rounding


@dataclass(frozen=True)
class Distance:
    """The signal of CFD: counterfactual distance of each record and whether the search converged, shape (n, 2).

    Parameters as in `counterfactuals`.
    """

    space: str | None = None
    rivals: int = 9
    restarts: int = 4
    max_steps: int = 40

    def __post_init__(self) -> None:
        space: object = self.space
        if space is not None and not isinstance(space, str):
            raise InvalidArgument(
                "must be the name of a submodule, or None for the input", argument="space", value=space
            )
        check.count("rivals", self.rivals)
        check.count("max_steps", self.max_steps)
        if self.restarts != 0:
            check.count("restarts", self.restarts)

    @property
    def key(self) -> str:
        """Changes with the settings."""
        settings = f"{self.space}\n{self.rivals}\n{self.restarts}\n{self.max_steps}"
        return f"distance-{sha256(settings)[:16]}"

    @property
    def population(self) -> bool:
        """False: only candidates are looked at."""
        return False

    def __call__(self, task: Task, model: nn.Module, examples: Examples) -> Array:
        found = self.search(model, examples)
        return np.column_stack([found.distances, found.converged])

    def search(self, model: nn.Module, examples: Examples, progress: Progress | None = None) -> Counterfactuals:
        """The counterfactuals of the records."""
        return counterfactuals(
            model,
            one_table(examples.inputs, "a counterfactual is a change of one"),
            space=self.space,
            rivals=self.rivals,
            restarts=self.restarts,
            max_steps=self.max_steps,
            progress=progress,
        )


@dataclass(frozen=True, kw_only=True)
class _DistanceAttack(Attack):
    """Attacks by counterfactual distance; the fields are those of `CFD`."""

    space: str | None = None
    rivals: int = 9
    restarts: int = 4
    max_steps: int = 40
    device: str = "cpu"

    def __post_init__(self) -> None:
        self._distance()

    def _distance(self) -> Distance:
        return Distance(self.space, self.rivals, self.restarts, self.max_steps)

    def _search(
        self, task: Task, target: ModelRecord, candidates: Examples, progress: Progress | None
    ) -> Counterfactuals:
        """The counterfactuals of the candidates under the released model."""
        targets = task.pool.targets
        if not has_classes(targets) and not bool(((targets == 0) | (targets == 1)).all()):
            raise InvalidArgument(
                f"Task {task.name!r} has targets that are not classes, and a counterfactual is a change of class",
                remedy="use another attack, such as loss",
            )
        found = self._distance().search(released_model(task, target, device=self.device), candidates, progress)
        _check_convergence(float(found.converged.mean()), "over candidates")
        return found

    def _facts(self, found: Counterfactuals) -> dict[str, Fact]:
        """What is worth knowing about the searches on the released model."""
        facts: dict[str, Fact] = {} if self.space is None else {"space": self.space}
        return facts | {
            "converged": float(found.converged.mean()),
            "found": float((found.distances < found.reach).mean()),
            "iterations": float(found.iterations.mean()),
            "reach": found.reach,
        }


@dataclass(frozen=True, kw_only=True)
class CFD(_DistanceAttack):
    """Score = distance from the candidate to its nearest counterfactual (Pawelczyk, Lakkaraju and Neel 2023).

    Neither labels nor losses are used: classes are the model's own predictions. A record deep inside its class looks
    like a member, trained on or not; CFD-LRT corrects that by shadow models.

    Parameters
    ----------
    space : name of a submodule in whose output to measure distances; None: the input.
    rivals, restarts, max_steps : of the search, see `gmip.attacks.counterfactual.counterfactuals`.
    device : where the model is evaluated.

    A candidate without a counterfactual within reach has the reach as its score, the largest of all.
    """

    name: ClassVar[str] = "cfd"
    title: ClassVar[str] = ATTACKS["cfd"].title
    needs: ClassVar[frozenset[Need]] = ATTACKS["cfd"].needs

    def _score(self, task: Task, target: ModelRecord, who: AttackedRecords, progress: Progress) -> ScoreSet:
        order = np.argsort(who.ids)  # chunks, and so the last bits, do not depend on the order of candidates
        found = self._search(task, target, who.candidates[order], progress)
        return ScoreSet(
            ids=who.ids, scores=found.distances[order.argsort()], attack=self.name, facts=self._facts(found)
        )


@dataclass(frozen=True, kw_only=True)
class CFDLRT(_DistanceAttack, ShadowAttack):
    """Is the distance larger than under models trained without the candidate (Pawelczyk et al. 2023)?

    Distances over trainings are taken as log-normal, with mean and spread from shadow models without the candidate. The
    score is how many spreads the log of the distance lies above that mean, the p-value its one-sided tail.

    Parameters
    ----------
    shadows : how many shadow models, and where they are trained.
    variance : of log-distances: "pooled", "per-example" or "auto", a weighted mean of the two, see `LiRA`.
    space, rivals, restarts, max_steps, device : as in `CFD`.

    Guarantees
    ----------
    p-values rest on distances being log-normal over trainings and on shadow models being trained as the released model
    was: an approximation. Distances below a millionth of the median under the released model count as that; a model
    without a counterfactual within reach counts with the reach.
    """

    variance: Variance = "auto"

    name: ClassVar[str] = "cfd-lrt"
    title: ClassVar[str] = ATTACKS["cfd-lrt"].title
    needs: ClassVar[frozenset[Need]] = ATTACKS["cfd-lrt"].needs

    def __post_init__(self) -> None:
        super().__post_init__()
        check.one_of("variance", self.variance, get_args(Variance))

    def signals(self) -> tuple[Signal, ...]:
        """What it asks of each shadow model."""
        return (self._distance(),)

    def _score(self, task: Task, target: ModelRecord, who: AttackedRecords, progress: Work) -> ScoreSet:
        signal, ids = self._distance(), np.sort(who.ids)
        # The released model first: what is wrong with it is said before anything is trained.
        found = self._search(task, target, task.pool[ids], None)
        models = self._models(task, target, ids, who.background, signal, progress)
        least = _LEAST * float(np.median(found.distances))
        outside, converged = Moments((len(ids), 1)), 0.0
        for model in models:
            values = model.signal(signal.key)[0]
            outside.add(np.log(np.maximum(values[:, :1], least)), ~model.inside)
            converged += float(values[:, 1].mean()) / len(models)
        needed = 2 if self.variance == "per-example" else 1
        self._check_counts(ids, outside.count, inside=False, needed=needed, spread=True)
        _check_convergence(converged, "over candidates and shadow models")
        logs = np.log(np.maximum(found.distances[:, None], least))
        scores = standardised(logs, outside, self.variance)
        p_values = np.asarray(stdtr(outside.spread(self.variance)[1][:, 0], -scores))  # Student's t
        back = np.searchsorted(ids, who.ids)
        return ScoreSet(
            ids=who.ids,
            scores=scores[back],
            attack=self.name,
            p_values=p_values[back],
            facts=self._facts(found)
            | {"variance": self.variance, "shadows_converged": converged}
            | self._shadow_facts(models),
            cut_short=self._cut_short(models),
        )


def _check_convergence(share: float, where: str) -> None:
    if share < _ENOUGH:
        warnings.warn(
            f"Only {share:.1%} of the searches for counterfactuals converged, {where}: the other distances are upper "
            "bounds, or the reach where nothing was found; raise max_steps, or measure in another space.",
            GmipWarning,
            stacklevel=3,
        )
