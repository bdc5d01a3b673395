"""Work that takes no time, and does what the tests need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass
class Draws:
    """A random number that follows from the job; `before` is called with the job first, and may raise."""

    before: Callable[[int], None] = field(default=lambda job: None)
    cargo: Any = None
    name: str = "Work 'draws'"

    def title(self, job: int) -> str:
        return f"draw {job}"

    def compute(self, job: int) -> float:
        torch.manual_seed(job)
        self.before(job)
        return float(torch.rand(1000).sum())
