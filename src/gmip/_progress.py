"""How long work tells how far it is: one protocol for training, attacks, shadow models, audits and experiments."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Progress", "Watch", "silent"]


class Progress(Protocol):
    """Called with how much of a piece of work is done, out of how much."""

    def __call__(self, done: int, total: int, /) -> None: ...


class Watch(Protocol):
    """Called with the name of each stage of long work; returns that stage's own progress."""

    def __call__(self, stage: str, /) -> Progress: ...


def silent(stage: str, /) -> Progress:
    """The watch of nobody."""
    return lambda done, total: None
