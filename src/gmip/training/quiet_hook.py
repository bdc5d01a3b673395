"""A hook for modules that copies of the module do not take along."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

__all__ = ["QuietHook"]


class QuietHook:
    """Calls `listen`; a deep copy of it does nothing, and neither does what comes out of a pickle.

    copy.deepcopy(model) and torch.save(model) copy the hooks of a model: what `listen` belongs to (open files, threads)
    cannot be copied, and must not hear what a copy of the model does. The stand-in is a function of Python's own
    library that takes anything and returns None, so that a saved model can be loaded where gmip is not installed.
    """

    def __init__(self, listen: Callable[..., Any]) -> None:
        self._listen = listen

    def __call__(self, *args: Any) -> Any:
        return self._listen(*args)

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., None]:
        return nullcontext.__exit__

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext, "__exit__")
