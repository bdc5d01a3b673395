"""What is kept between runs: downloaded files and what was computed from them, in the folder that GMIP_CACHE names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gmip import _io
from gmip.errors import DataUnavailable, FileError
from gmip.store import Store

__all__ = ["folder", "store", "write_bytes"]


def folder() -> Path:
    """GMIP_CACHE where it is set, else the operating system's folder for caches. Not created here."""
    if named := os.environ.get("GMIP_CACHE"):
        return Path(named).expanduser()
    import pooch

    return Path(pooch.os_cache("gmip"))


def store(kind: str, facts: Mapping[str, Any], version: str) -> Store:
    """The store for what a task computes from its files; `version` is that of the task's code."""
    return Store(folder(), kind, facts, version=version, shared=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write the file whole or not at all: readers never see a part of it, even if the writer is interrupted."""
    try:
        _io.make_folder(path.parent, shared=True)
        _io.write(path, content, shared=True)
    except FileError as error:
        raise DataUnavailable(error.problem, remedy="set GMIP_CACHE to a folder that can be written") from error
