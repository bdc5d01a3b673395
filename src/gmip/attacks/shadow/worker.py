"""What a worker does: train one shadow model and compute signals with it.

Every worker, and the calling process when there is only one, runs these functions, on one thread and one model at a
time, so that results do not depend on who computed them.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from gmip.attacks.shadow.parcel import Parcel, versions
from gmip.attacks.shadow.plan import Plan
from gmip.attacks.shadow.settings import Signal
from gmip.errors import GmipError, GmipWarning, InvalidArgument
from gmip.tasks.base import Examples, Recipe, Task
from gmip.training.loop import fit

__all__ = ["Answer", "Failure", "Outputs", "Parts", "Work", "attempt", "attempt_packed", "begin", "one_thread"]

# Training seeds torch's global generator: two models in one process (a Dask worker with threads) would share it.
_ONE_AT_A_TIME: Final = threading.RLock()
_packed: dict[str, bytes] = {}
_opened: dict[str, Work] = {}  # the latest, so that a process opens it once
_PARENT_SECONDS: Final = 1.0


class Parts(NamedTuple):
    """A signal of one model."""

    candidates: NDArray[Any]  # (c, ...)
    population: NDArray[Any] | None  # (z, ...)


Outputs = Mapping[str, Parts]


@dataclass(frozen=True, eq=False)
class Work:
    """All that training any model of a set takes. `filling` are the background records that the plan calls so."""

    task: Task
    recipe: Recipe
    options: Mapping[str, Any]
    plan: Plan
    candidates: Examples
    filling: Examples
    population: Examples
    signals: tuple[Signal, ...]


class Failure(NamedTuple):
    """Why a model could not be trained, in a form that any process can read."""

    kind: type[GmipError]
    text: str
    transient: bool
    details: str  # the traceback


Answer = dict[str, Parts] | Failure


def attempt(work: Work, index: int, keys: frozenset[str]) -> Answer:
    """The signals of these keys for one model, or why there are none."""
    try:
        with one_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore", GmipWarning)  # of the recipe: said when the target was trained
            return _outputs(work, index, keys)
    except Exception as error:
        return _failure(error)


def begin(parcel: Parcel) -> None:
    """Called once in every local worker: takes the parcel, and ends the process when its parent is gone."""
    _packed[parcel.digest] = parcel.content
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()


def attempt_packed(
    digest: str, sender: Mapping[str, str], content: bytes | None, index: int, keys: frozenset[str]
) -> Answer:
    """`attempt` in a worker, of a parcel. content : None if `begin` has brought it."""
    if sender != versions():
        ours, theirs = (" and ".join(f"{name} {of}" for name, of in given.items()) for given in (versions(), sender))
        return Failure(InvalidArgument, f"a worker has {ours}, not {theirs}: install the same there.", False, "")
    with _ONE_AT_A_TIME:
        if digest not in _opened:
            try:
                work = pickle.loads(_packed.pop(digest) if content is None else content)
            except Exception as error:
                return _failure(error)
            _opened.clear()
            _opened[digest] = work
        return attempt(_opened[digest], index, keys)


def _failure(error: Exception) -> Failure:
    kind = next((c for c in type(error).__mro__ if c.__module__ == "gmip.errors"), None)
    text = " ".join(str(error).split()) or "no message"
    details = traceback.format_exc()
    if kind is not None:
        return Failure(kind, text, False, details)
    # Repeating may help where memory was short (torch raises RuntimeError), a disk or a network failed.
    short = isinstance(error, RuntimeError) and "memory" in text.lower()
    passing = short or isinstance(error, (MemoryError, OSError))
    return Failure(GmipError, f"{type(error).__name__}: {text}", passing, details)


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_SECONDS)
    os._exit(1)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Sums have one order, so results have one value: torch and BLAS on one thread, and nobody else in this process."""
    with _ONE_AT_A_TIME, threadpool_limits(1):
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def _outputs(work: Work, index: int, keys: frozenset[str]) -> dict[str, Parts]:
    plan = work.plan
    records = work.candidates[np.flatnonzero(plan.inside(index))].joined(work.filling[plan.fill(index)])
    model = fit(work.task, work.recipe, records, seed=plan.training_seed(index), **work.options)
    found = {}
    for signal in work.signals:
        if signal.key in keys:
            with torch.random.fork_rng():  # a signal's result depends neither on the other signals nor on the caller
                torch.manual_seed(plan.signal_seed(index))
                candidates = _computed(signal, work.task, model, work.candidates)
                population = _computed(signal, work.task, model, work.population) if signal.population else None
            found[signal.key] = Parts(candidates, population)
    return found


def _computed(signal: Signal, task: Task, model: torch.nn.Module, examples: Examples) -> NDArray[Any]:
    values = np.ascontiguousarray(signal(task, model.eval(), examples))
    if values.dtype.kind != "f" or values.ndim == 0 or len(values) != len(examples):
        raise InvalidArgument(
            f"Signal {signal.key!r} gave {values.dtype} of shape {values.shape} for {len(examples)} records: return "
            "floats with one row for each record."
        )
    return values
