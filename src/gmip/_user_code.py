"""Errors that are not of gmip, in one sentence: where one happened in code of the user that gmip runs (task files), and
that memory ran out."""

from __future__ import annotations

import inspect
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_NO_MEMORY: Final = re.compile("not enough memory|out of memory|can't allocate memory", re.IGNORECASE)  # of torch
_MOST_SAID: Final = 200  # characters
_OURS: Final = Path(__file__).resolve().parent
_folders: set[Path] = set()  # of the files that were loaded


def ran(path: Path) -> None:
    """Say that a file of the user is about to run: it, and what is in its folder, is the user's code."""
    _folders.add(path.resolve().parent)


def where(error: BaseException) -> str | None:
    """The innermost line of the user's code that an error came through ("file.py, line 12"); None: it is not theirs."""
    if isinstance(error, SyntaxError) and error.filename is not None and _is_user_file(error.filename):
        return f"{Path(error.filename).name}, line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    last = next((frame for frame in reversed(frames) if _is_user_file(frame.filename)), None)
    return None if last is None else f"{Path(last.filename).name}, line {last.lineno}"


def said_by(error: BaseException) -> str:
    """An error of the user's code in a few words: its class, its first line, where it happened."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    place = where(error)
    words = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return words if place is None else f"{words} ({place})"


def out_of_memory(error: BaseException) -> str | None:
    """A sentence for an error that says that memory ran out, by Python, NumPy or torch; None for any other."""
    if not isinstance(error, MemoryError) and not (isinstance(error, RuntimeError) and _NO_MEMORY.search(str(error))):
        return None
    said = next(iter(str(error).splitlines()), "").strip().rstrip(".")
    why = f" ({said[:_MOST_SAID]})" if said else ""
    return f"There is not enough memory for this{why}: free some, pass smaller sizes, or use a larger machine."


def defined_at(function: Callable[..., Any]) -> str:
    """The place of a function or class of the user, such as " (file.py, line 12)"; empty where that is not known."""
    try:
        file = inspect.getsourcefile(function) or ""
        line = inspect.getsourcelines(function)[1]
    except (TypeError, OSError):
        return ""
    return f" ({Path(file).name}, line {line})" if _is_user_file(file) else ""


def _is_user_file(filename: str) -> bool:
    if filename.startswith("<"):
        return False
    file = Path(filename).resolve()
    installed = [Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()]
    if _OURS in file.parents or "site-packages" in file.parts or any(p in file.parents for p in installed):
        return False
    return any(folder in file.parents for folder in _folders)
