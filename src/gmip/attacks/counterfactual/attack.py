"""Attacks by counterfactual distance: members lie farther from where the model changes its mind."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, get_args

import numpy as np
from numpy.typing import NDArray
from torch import nn

from gmip import _validate as check
from gmip._io import sha256
from gmip.attacks.base import Attack, Need, Parties, Progress
from gmip.attacks.counterfactual.search import Counterfactuals, counterfactuals
from gmip.attacks.lira import Moments, Variance, standardised
from gmip.attacks.shadow import Shadows, Signal, shadow_set
from gmip.attacks.target import target_model
from gmip.errors import GmipWarning, InvalidArgument
from gmip.stats import ScoreSet
from gmip.tasks.task import Examples, Task
from gmip.trace import Trace
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
            raise InvalidArgument(f"space = {space!r} must be the name of a submodule, or None for the input.")
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
            examples.inputs,
            space=self.space,
            rivals=self.rivals,
            restarts=self.restarts,
            max_steps=self.max_steps,
            progress=progress,
        )


@dataclass(frozen=True, kw_only=True)
class CFD(Attack):
    """Score = distance from the candidate to its nearest counterfactual (Pawelczyk, Lakkaraju and Neel 2023).

    Neither labels nor losses are used: classes are the model's own predictions. A record deep inside its class looks
    like a member, trained on or not; CFD-LRT mends that with shadow models.

    Parameters
    ----------
    space : name of a submodule in whose output to measure distances; None: the input.
    rivals, restarts, max_steps : of the search, see `gmip.attacks.counterfactual.counterfactuals`.
    device : where the model is evaluated.

    A candidate without a counterfactual within reach has the reach as its score, the largest of all.
    """

    space: str | None = None
    rivals: int = 9
    restarts: int = 4
    max_steps: int = 40
    device: str = "cpu"

    name: ClassVar[str] = "cfd"
    title: ClassVar[str] = "CFD (Pawelczyk et al. 2023)"
    needs: ClassVar[frozenset[Need]] = frozenset({"recourse"})

    def __post_init__(self) -> None:
        self._distance()

    def _score(self, task: Task, trace: Trace, who: Parties, progress: Progress | None) -> ScoreSet:
        _check_classes(task)
        model = target_model(task, trace, device=self.device)
        order = np.argsort(who.ids)  # chunks, and so the last bits, do not depend on the order of candidates
        found = self._distance().search(model, who.candidates[order], progress)
        _check_convergence(float(found.converged.mean()), "over candidates")
        return ScoreSet(
            ids=who.ids, scores=found.distances[order.argsort()], attack=self.name, info=_facts(found, self)
        )

    def _distance(self) -> Distance:
        return Distance(self.space, self.rivals, self.restarts, self.max_steps)


@dataclass(frozen=True, kw_only=True)
class CFDLRT(Attack):
    """Is the target's distance larger than under models trained without the candidate (Pawelczyk et al. 2023)?

    Distances over trainings are taken as log-normal, with mean and spread from shadow models without the candidate. The
    score is how many spreads the log of the target's distance lies above that mean, the p-value its one-sided tail.

    Parameters
    ----------
    shadows : how many shadow models, and where they are trained.
    variance : of log-distances: "pooled", "per-example" or "auto", a weighted mean of the two, see `LiRA`.
    space, rivals, restarts, max_steps, device : as in `CFD`.

    Guarantees
    ----------
    p-values rest on distances being log-normal over trainings and on shadow models being trained as the target was: an
    approximation. Distances below a millionth of the target's median count as that; a model without a counterfactual
    within reach counts with the reach.
    """

    shadows: Shadows = field(default_factory=Shadows)
    variance: Variance = "auto"
    space: str | None = None
    rivals: int = 9
    restarts: int = 4
    max_steps: int = 40
    device: str = "cpu"

    name: ClassVar[str] = "cfd-lrt"
    title: ClassVar[str] = "CFD LRT (Pawelczyk et al. 2023)"
    needs: ClassVar[frozenset[Need]] = frozenset({"recourse", "population", "shadows"})

    def __post_init__(self) -> None:
        check.one_of("variance", self.variance, get_args(Variance))
        self._distance()

    def signals(self) -> tuple[Signal, ...]:
        """What it asks of each shadow model."""
        return (self._distance(),)

    def _score(self, task: Task, trace: Trace, who: Parties, progress: Progress | None) -> ScoreSet:
        _check_classes(task)
        signal, ids = self._distance(), np.sort(who.ids)
        # The target first: what is wrong with it is told before anything is trained.
        found = signal.search(target_model(task, trace, device=self.device), task.pool[ids])
        _check_convergence(float(found.converged.mean()), "over candidates")
        models = shadow_set(task, trace, ids, who.background, (signal,), self.shadows, progress=progress)
        least = _LEAST * float(np.median(found.distances))
        outside, converged = Moments((len(ids), 1)), 0.0
        for model in models:
            values = model.signal(signal.key)[0]
            outside.add(np.log(np.maximum(values[:, :1], least)), ~model.inside)
            converged += float(values[:, 1].mean()) / len(models)
        self._check_counts(ids, outside.count)
        _check_convergence(converged, "over candidates and shadow models")
        logs = np.log(np.maximum(found.distances[:, None], least))
        scores, p_values = standardised(logs, outside, self.variance)
        back = np.searchsorted(ids, who.ids)
        return ScoreSet(
            ids=who.ids,
            scores=scores[back],
            attack=self.name,
            p_values=p_values[back],
            info={
                **_facts(found, self),
                "variance": self.variance,
                "shadows": len(models),
                "shadows_converged": converged,
                "folder": str(models.path),
            },
        )

    def _distance(self) -> Distance:
        return Distance(self.space, self.rivals, self.restarts, self.max_steps)

    def _check_counts(self, ids: NDArray[np.int64], outside: Array) -> None:
        needed = 2 if self.variance == "per-example" else 1
        if outside.min() < needed or outside.max() < 2:
            raise InvalidArgument(
                f"{int(outside.min())} of the {self.shadows.count} shadow models are without candidate "
                f"{ids[outside.argmin()]}, too few for a mean and a spread of distances: raise count of shadows."
            )


def _facts(found: Counterfactuals, attack: CFD | CFDLRT) -> dict[str, Any]:
    """What is worth knowing about the searches on the target."""
    return {
        "space": attack.space,
        "converged": float(found.converged.mean()),
        "found": float((found.distances < found.reach).mean()),
        "iterations": float(found.iterations.mean()),
        "reach": found.reach,
    }


def _check_classes(task: Task) -> None:
    targets = task.pool.targets
    if not has_classes(targets) and not bool(((targets == 0) | (targets == 1)).all()):
        raise InvalidArgument(
            f"Task {task.name!r} has targets that are not classes, and a counterfactual is a change of class: use "
            "another attack, such as loss."
        )


def _check_convergence(share: float, where: str) -> None:
    if share < _ENOUGH:
        warnings.warn(
            f"Only {share:.1%} of the searches for counterfactuals converged, {where}: the other distances are upper "
            "bounds, or the reach where nothing was found; raise max_steps, or measure in another space.",
            GmipWarning,
            stacklevel=3,
        )
