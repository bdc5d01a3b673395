"""Names of a package that are imported when they are first used (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def lazy(
    package: str, homes: Mapping[str, str], public: Iterable[str], subpackages: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package.

    Parameters
    ----------
    homes : name -> the module that it is imported from.
    public : what `dir` lists.
    subpackages : of the package that need no import of their own.
    """
    listed, within = sorted(public), frozenset(subpackages)

    def find(name: str) -> Any:
        if name not in homes and name not in within:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(homes[name]), name) if name in homes else import_module(f"{package}.{name}")
        except ModuleNotFoundError as error:
            from gmip._extras import missing

            raise missing(error, f"{package}.{name}") from None
        setattr(sys.modules[package], name, value)  # found there the next time
        return value

    return find, lambda: list(listed)
