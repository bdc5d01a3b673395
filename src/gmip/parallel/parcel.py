"""The work as it travels to the workers: pickled once, with the user's own code where they could not import it."""

from __future__ import annotations

import hashlib
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import cloudpickle
import torch

import gmip
from gmip.errors import InvalidArgument

if TYPE_CHECKING:
    from gmip.parallel.worker import Work

__all__ = ["Parcel", "pack", "versions"]


class Parcel(NamedTuple):
    """A pickled `Work`, and a name for it."""

    digest: str
    content: bytes


def versions() -> dict[str, str]:
    """Of what decides results: workers must have the same."""
    return {"gmip": gmip.__version__, "torch": str(torch.__version__)}


def pack(work: Work[Any, Any]) -> Parcel:
    """The work in a form that other processes can open, if they have gmip."""
    try:
        with _by_value():
            content: bytes = cloudpickle.dumps(work)
    except Exception as error:  # pickling runs code of whatever the user's objects hold
        raise InvalidArgument(
            f"{work.name} cannot be sent to other processes ({type(error).__name__}: {error}): let it hold no open "
            "files, locks or the like (a task: its model and loss), or use backend = 'local' and workers = 1."
        ) from error
    return Parcel(hashlib.sha256(content).hexdigest(), content)


@contextmanager
def _by_value() -> Iterator[None]:
    """Code of modules that a fresh process would not find is sent along: a task's file (file.py:make_task) and the
    files beside it, which `gmip.tasks.load` imports from a folder that is on sys.path only for that moment."""
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
