"""What travels to a worker, and what it does there: one job at a time, on one thread.

Every worker, and the calling process when there is only one, runs these functions, so that results do not depend on who
computed them.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import sysconfig
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from gmip._io import sha256
from gmip.errors import GmipError, GmipWarning, InvalidArgument

# Training seeds torch's global generator: two models in one process (a Dask worker with threads) would share it.
_ONE_AT_A_TIME: Final = threading.RLock()
_packed: dict[str, bytes] = {}
_opened: dict[str, Any] = {}  # the latest work, so that a process opens it once
_PARENT_SECONDS: Final = 1.0
Job = TypeVar("Job", contravariant=True)
Result = TypeVar("Result", covariant=True)


class SharedWork(Protocol[Job, Result]):
    """What is the same for all jobs, data included: it travels once to each worker, and jobs are small."""

    @property
    def name(self) -> str:
        """Its name in the sentence that says that it cannot travel, as in "Task 'mine'"."""

    def title(self, job: Job) -> str:
        """The name of a job in sentences, as in "shadow model 3"."""

    def compute(self, job: Job) -> Result:
        """Equal jobs must give equal results. Warnings of gmip are not passed on."""


# -- what travels: the work, pickled once, with the user's own code where workers could not import it ---------------


class PickledWork(NamedTuple):
    """A pickled `SharedWork`, and a name for it."""

    digest: str
    content: bytes


@cache
def versions() -> dict[str, str]:
    """The versions of what decides results: workers must have the same."""
    found = {}
    for package in ("gmip", "torch"):
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def pack(work: SharedWork[Any, Any]) -> PickledWork:
    """The work in a form that other processes can open, if they have gmip."""
    import cloudpickle

    try:
        with _by_value():
            content: bytes = cloudpickle.dumps(work)
    except Exception as error:  # pickling runs code of whatever the user's objects hold
        raise InvalidArgument(
            f"{work.name} cannot be sent to other processes ({type(error).__name__}: {error})",
            remedy="let it hold no open files, locks or the like (a task: its model and loss), or use `backend` = "
            "'local' and `workers` = 1",
        ) from error
    return PickledWork(sha256(content), content)


@contextmanager
def _by_value() -> Iterator[None]:
    """Code of modules that a fresh process would not find is sent along: a task's file (file.py:make_task) and the
    files beside it, which `gmip.tasks.load` imports from a folder that is on sys.path only for that moment."""
    import cloudpickle

    known = cloudpickle.list_registry_pickle_by_value()
    names = [name for name in list(sys.modules) if "." not in name and name not in known and not _found_again(name)]
    for name in names:
        cloudpickle.register_pickle_by_value(sys.modules[name])
    try:
        yield
    finally:
        for name in names:
            cloudpickle.unregister_pickle_by_value(sys.modules[name])


def _found_again(name: str) -> bool:
    """Whether a fresh process would import the same module; modules that are installed count as such."""
    module = sys.modules[name]
    file = getattr(module, "__file__", None)
    if name in sys.stdlib_module_names or name == "__main__" or file is None or getattr(module, "__name__", "") != name:
        return True  # always there, or taken care of by cloudpickle
    path = Path(file).resolve()
    if any(path.is_relative_to(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")):
        return True
    for finder in sys.meta_path:
        spec = finder.find_spec(name, None) if hasattr(finder, "find_spec") else None
        if spec is not None:
            return spec.origin is None or Path(spec.origin).resolve() == path
    return False


# -- what a worker does ---------------------------------------------------------------------------------------------


class Failure(NamedTuple):
    """Why a job could not be computed, in a form that any process can read."""

    kind: type[GmipError]
    text: str
    transient: bool
    details: str  # the traceback


def attempt(work: SharedWork[Any, Any], job: Any) -> Any:
    """The result of a job, or a `Failure`."""
    try:
        with one_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore", GmipWarning)
            return work.compute(job)
    except Exception as error:
        return _failure(error)


def begin(parcel: PickledWork) -> None:
    """Called once in every local worker: takes the parcel, and ends the process when its parent is gone."""
    _packed[parcel.digest] = parcel.content
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()


def attempt_packed(digest: str, sender: Mapping[str, str], content: bytes | None, job: Any) -> Any:
    """`attempt` in a worker, of a parcel. content : None if `begin` has brought it."""
    if sender != versions():
        ours, theirs = (" and ".join(f"{name} {of}" for name, of in given.items()) for given in (versions(), sender))
        return Failure(InvalidArgument, f"a worker has {ours}, not {theirs}; install the same there.", False, "")
    with _ONE_AT_A_TIME:
        if digest not in _opened:
            try:
                work = pickle.loads(_packed.pop(digest) if content is None else content)
            except Exception as error:
                return _failure(error)
            _opened.clear()
            _opened[digest] = work
        return attempt(_opened[digest], job)


def _failure(error: Exception) -> Failure:
    kind = next((c for c in type(error).__mro__ if c.__module__ == "gmip.errors"), None)
    # The names of arguments keep their backticks, for whoever spells them in the end.
    said = error.sentence(lambda name: f"`{name}`") if isinstance(error, GmipError) else str(error)
    text = " ".join(said.split()) or "no message"
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


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums have one order, so results have one value: torch and BLAS on one thread, and nobody else in this process."""
    try:
        from threadpoolctl import threadpool_limits
    except ModuleNotFoundError:  # the base install: nothing but NumPy computes
        limits: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    else:
        limits = threadpool_limits(1)
    with _ONE_AT_A_TIME, limits, _torch_on_one_thread():
        yield


@contextmanager
def _torch_on_one_thread() -> Iterator[None]:
    """Nobody here needs torch, but the work may. What is not loaded yet takes its threads from the environment."""
    torch = sys.modules.get("torch")
    if torch is None:
        before = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        os.environ |= dict.fromkeys(before, "1")
    else:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if torch is not None:
            torch.set_num_threads(threads)
        else:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
