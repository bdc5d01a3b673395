"""Shadow models: how they are trained, what is asked of each, the work of one, and what is kept of it: no weights."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gmip import _validate as check
from gmip.attacks.shadow.membership import Membership
from gmip.errors import DataUnavailable, InvalidArgument
from gmip.parallel import Workers
from gmip.store import Store
from gmip.tasks import Examples, Task, cache
from gmip.trace import ModelOptions
from gmip.training.loop import fit
from gmip.vocabulary import Recipe

__all__ = [
    "Job",
    "Outputs",
    "Parts",
    "ShadowModel",
    "ShadowSet",
    "ShadowTraining",
    "Shadows",
    "Signal",
    "store_signals",
    "stored",
]

_MOST: Final = 99_999


class Signal(Protocol):
    """What is computed with each trained shadow model, and all that is stored of it.

    It travels to the workers, so it must be small and picklable; equal keys must mean equal results.
    """

    @property
    def key(self) -> str:
        """A name with all that the result depends on (settings as a hash): letters, digits, dot, hyphen, underscore."""

    @property
    def population(self) -> bool:
        """Whether it is wanted for the population records too, else for the candidates only."""

    def __call__(self, task: Task, model: nn.Module, examples: Examples) -> NDArray[np.floating[Any]]:
        """Shape (len(examples), ...). The model is in eval mode; `task` has its model and loss, but no records."""


@dataclass(frozen=True, kw_only=True)
class Shadows(Workers):
    """How shadow models are trained. Only `count` and `seed` change results; the others say where and by whom.

    Parameters
    ----------
    count : number of models; a larger one later trains only those that are missing. Even: each candidate is in half.
    seed : of who is in which model, of weights, batches and noise.
    folder : parent of the shadow sets; None: `shadows` in the cache (GMIP_CACHE).
    workers, backend, scheduler_address, retries : as in `gmip.parallel.Workers`; a job is a model.
    """

    count: int = 64
    seed: int = 0
    folder: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "count", check.count("count", self.count))
        if self.count > _MOST:
            raise InvalidArgument(
                f"is more than {_MOST} shadow models", argument="count", value=self.count, remedy="pass fewer"
            )
        object.__setattr__(self, "seed", check.seed(self.seed))

    @property
    def parent(self) -> Path:
        """The folder that holds the shadow sets."""
        return cache.folder() / "shadows" if self.folder is None else Path(self.folder).expanduser()


class Parts(NamedTuple):
    """A signal of one model."""

    candidates: NDArray[Any]  # (c, ...)
    population: NDArray[Any] | None  # (z, ...)


Outputs = Mapping[str, Parts]
Job = tuple[int, frozenset[str]]


@dataclass(frozen=True, eq=False)
class ShadowTraining:
    """All that training any model of a set takes; a job is an index and the keys of the signals that are wanted.
    `filling` are the background records that the plan calls so."""

    task: Task
    recipe: Recipe
    options: ModelOptions
    plan: Membership
    candidates: Examples
    filling: Examples
    population: Examples
    signals: tuple[Signal, ...]

    @property
    def name(self) -> str:
        return f"Task {self.task.name!r}"

    def title(self, job: Job) -> str:
        return f"shadow model {job[0]}"

    def compute(self, job: Job) -> dict[str, Parts]:
        index, keys = job
        plan = self.plan
        records = self.candidates[np.flatnonzero(plan.inside(index))].joined(self.filling[plan.fill(index)])
        model = fit(self.task, self.recipe, records, seed=plan.training_seed(index), **asdict(self.options))
        found = {}
        for signal in self.signals:
            if signal.key in keys:
                with torch.random.fork_rng():  # a signal's result depends neither on other signals nor on the caller
                    torch.manual_seed(plan.signal_seed(index))
                    candidates = _computed(signal, self.task, model, self.candidates)
                    population = _computed(signal, self.task, model, self.population) if signal.population else None
                found[signal.key] = Parts(candidates, population)
        return found


def _computed(signal: Signal, task: Task, model: torch.nn.Module, examples: Examples) -> NDArray[Any]:
    values = np.ascontiguousarray(signal(task, model.eval(), examples))
    if values.dtype.kind != "f" or values.ndim == 0 or len(values) != len(examples):
        raise InvalidArgument(
            f"Signal {signal.key!r} gave {values.dtype} of shape {values.shape} for {len(examples)} records",
            remedy="return floats with one row for each record",
        )
    return values


# -- the store ---------------------------------------------------------------------------------------------------------


def store_signals(store: Store, index: int, outputs: Outputs) -> None:
    """Keep signals of a model. Each is an entry of its own, and so is its part for the population: whoever adds one to
    a model leaves the others alone."""
    for key, parts in outputs.items():
        for part, values in parts._asdict().items():
            if values is not None:
                store.put(_key(index, key, part), {"values": values})


def stored(store: Store, index: int, signal: Signal) -> Parts | None:
    """A signal of a model, or None where it has to be computed."""
    names = ("candidates", "population") if signal.population else ("candidates",)
    found = [store.get(_key(index, signal.key, name)) for name in names]
    arrays = [None if entry is None else entry.arrays["values"] for entry in found]
    if arrays[0] is None or arrays[-1] is None:
        return None
    return Parts(arrays[0], arrays[1] if signal.population else None)


def _key(index: int, signal: str, part: str) -> dict[str, Any]:
    return {"model": index, "signal": signal, "records": part}


@dataclass(frozen=True, eq=False)
class ShadowModel:
    """What is known of one shadow model: its number, the candidates it was trained on, shape (c,), and its signals."""

    index: int
    inside: NDArray[np.bool_]
    _signals: Mapping[str, Parts]

    def signal(self, key: str) -> Parts:
        """A signal for the candidates, (c, ...), and for the population, (z, ...) or None."""
        if key not in self._signals:
            raise InvalidArgument(f"Signal {key!r} is not in the shadow set", remedy="ask shadow_set for it")
        return self._signals[key]


class ShadowSet:
    """A trained shadow set. Iterating reads one model at a time, so that memory does not grow with their number.

    Attributes
    ----------
    path : its folder.
    candidates : ids, shape (c,).
    population : background records that no shadow model was trained on, z of them.
    """

    def __init__(
        self,
        store: Store,
        count: int,
        plan: Membership,
        candidates: NDArray[np.int64],
        population: Examples,
        signals: Iterable[Signal],
    ) -> None:
        assert store.folder is not None
        self.path, self.candidates, self.population = store.folder, candidates, population
        self._store, self._count, self._plan, self._signals = store, count, plan, tuple(signals)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[ShadowModel]:
        for index in range(self._count):
            signals = {}
            for signal in self._signals:
                found = stored(self._store, index, signal)
                if found is None:
                    raise DataUnavailable(
                        f"Shadow model {index} is not in {self.path}",
                        remedy="train the shadow set again, which adds what is missing",
                    )
                signals[signal.key] = found
            yield ShadowModel(index, self._plan.inside(index), signals)

    def __repr__(self) -> str:
        return f"ShadowSet({str(self.path)!r}, {self._count} models, {len(self.candidates)} candidates)"
