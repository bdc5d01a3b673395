"""Tasks by name, and the user's own by file."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any, Final

from gmip import _validate as check
from gmip._io import sha256
from gmip._user_code import defined_at, ran, said_by, where
from gmip.errors import GmipError, InvalidArgument
from gmip.tasks import builtin
from gmip.tasks.task import Task, check_task

_BUILT_IN: Final = {
    "digits": builtin.digits,
    "breast-cancer": builtin.breast_cancer,
    "cifar10": builtin.cifar10,
    "adult": builtin.adult,
    "purchase": builtin.purchase,
    "location": builtin.location,
}


def names() -> tuple[str, ...]:
    """The built-in tasks."""
    return tuple(_BUILT_IN)


def load(spec: str) -> Task:
    """A built-in task by its name, or the user's own as `path/to/file.py:function`.

    The function is called without arguments and returns a Task. Its file is imported with the file's folder on
    sys.path, so that it may import its neighbours.

    Raises
    ------
    InvalidArgument : there is no such task, file or function, or it does not return a Task that can be used: see
        `gmip.tasks.task`. The sentence names the line in the user's file.
    DataUnavailable : the data are not on this machine and could not be fetched.
    """
    if spec in _BUILT_IN:
        return _BUILT_IN[spec]()
    path, colon, function = spec.rpartition(":")
    if colon and path and function.isidentifier():
        return _from_file(spec, Path(path).expanduser(), function)
    if spec.endswith(".py") or colon:
        raise _unusable(spec, "names no function", f"write {spec.rstrip(':')}:make_task")
    raise _unusable(
        spec,
        f"is not known{check.did_you_mean(spec, _BUILT_IN)}",
        f"pass one of {', '.join(_BUILT_IN)}, or path/to/file.py:function",
    )


def _unusable(spec: str, problem: str, remedy: str | None = None) -> InvalidArgument:
    return InvalidArgument(problem, argument="task", value=spec, remedy=remedy)


def _from_file(spec: str, path: Path, function: str) -> Task:
    if not path.is_file():
        raise _unusable(spec, "names a file that is not there", f"check the path {path}")
    path = path.resolve()
    ran(path)
    with _on_path(path.parent):
        module = _import(spec, path)
        make = getattr(module, function, None)
        if not callable(make):
            raise _unusable(spec, f"cannot be used, because {path.name} has no function {function}")
        _check_signature(spec, function, make)
        task = _call(spec, f"{function}()", make)
    if not isinstance(task, Task):
        raise _unusable(
            spec,
            f"cannot be used, because {function}() returned {type(task).__name__}{defined_at(make)}",
            "return a gmip.Task",
        )
    with _on_path(path.parent):
        check_task(task)
    return task


def _import(spec: str, path: Path) -> Any:
    # A name of its own, so that the user's file can neither hide nor be hidden by another module.
    name = f"gmip_task_{sha256(str(path))[:16]}"
    location = importlib.util.spec_from_file_location(name, path)
    loader = location.loader if location is not None else None
    if location is None or not isinstance(loader, SourceFileLoader):
        raise _unusable(spec, "is not a Python file", "give it a name that ends in .py")
    module = importlib.util.module_from_spec(location)
    sys.modules[name] = module
    try:
        # Compiled from its text: bytecode would be that of another version of the same second and size.
        _call(spec, f"importing {path.name}", lambda: exec(_code(loader, path), module.__dict__))
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _code(loader: SourceFileLoader, path: Path) -> CodeType:
    return loader.source_to_code(loader.get_data(str(path)), str(path))


def _call(spec: str, what: str, function: Callable[[], Any]) -> Any:
    """The result; an error of the user's code becomes one sentence with its line, gmip's own pass as they are."""
    try:
        return function()
    except InvalidArgument as error:
        place = where(error)
        if place is None:
            raise
        raise _unusable(spec, f"cannot be used: {str(error).rstrip('.')} ({place})") from error
    except GmipError:
        raise
    except (Exception, SystemExit) as error:
        raise _unusable(spec, f"cannot be used: {what} raised {said_by(error)}") from error


def _check_signature(spec: str, function: str, make: Callable[..., Any]) -> None:
    try:
        inspect.signature(make).bind()
    except (TypeError, ValueError) as error:
        raise _unusable(
            spec, f"needs {function} to be callable without arguments ({error})", "give them defaults"
        ) from error


@contextmanager
def _on_path(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        if str(folder) in sys.path:
            sys.path.remove(str(folder))
