"""Which steps of a run are stored: every k-th, and no more than a budget has room for.

How long a run will be is not known when it starts, and what was written stays. So half of the budget goes to the first
steps, all of them: early gradients tell most about who was in. Half of the rest goes to one of 2 steps after that, half
of what then remains to one of 4, and so on. However long the run is, the budget is kept.
"""

from __future__ import annotations

import warnings
from bisect import bisect_right
from typing import Final, NamedTuple

from gmip import _validate as check
from gmip._numbers import byte_size, count
from gmip.errors import GmipWarning, InvalidArgument

__all__ = ["StoredSteps"]

_SHOWN: Final = 3  # phases that a sentence lists


class _Phase(NamedTuple):
    """Steps from `start` on, one of `stride` of them, until before `end`."""

    start: int
    stride: int
    end: int


class StoredSteps:
    """Says of each step in turn whether its vectors are stored, and warns once when the budget leaves steps out.

    Parameters
    ----------
    every : only each k-th step is considered.
    budget : bytes for the vectors, as a number or as "2 GB"; None for as many as there are.
    row_bytes : what a step takes.
    """

    def __init__(self, *, every: int, budget: float | str | None, row_bytes: int) -> None:
        self._every, self._told = every, False
        self._phases: list[_Phase] = []
        self.budget = None if budget is None else check.byte_count("budget", budget)
        if self.budget is None:
            return
        left = self._room = self.budget // row_bytes
        if left < 1:
            raise InvalidArgument(
                f"has no room for one step, which takes {byte_size(row_bytes)}",
                argument="budget",
                value=budget,
                remedy="raise it, or record some of the `parameters`",
            )
        start, stride = 0, every
        while left:
            rows = (left + 1) // 2
            self._phases.append(_Phase(start, stride, start + rows * stride))
            start, stride, left = start + rows * stride, 2 * stride, left - rows

    def admits(self, step: int) -> bool:
        if self.budget is None:
            return step % self._every == 0
        phase = self._phases[bisect_right(self._phases, step, key=lambda phase: phase.start) - 1]
        if phase.start and not self._told:
            self._told = True
            warnings.warn(
                f"budget = {byte_size(self.budget)} has room for {count(self._room)} steps, so that from now on only "
                f"some are stored ({self._described()}). All are counted; attacks see those that are stored.",
                GmipWarning,
                stacklevel=5,
            )
        return step < phase.end and (step - phase.start) % phase.stride == 0

    @property
    def notes(self) -> dict[str, str]:
        """Which steps are stored, in words for the notes of the trace."""
        return {} if self.budget is None else {"stored_steps": self._described()}

    def _described(self) -> str:
        shown = [
            f"{'all' if phase.stride == 1 else f'one of {count(phase.stride)}'} up to step {count(phase.end)}"
            for phase in self._phases[:_SHOWN]
        ]
        more = ", and so on" if len(self._phases) > _SHOWN else ""
        return f"{', '.join(shown)}{more}, none after step {count(self._phases[-1].end)}"
