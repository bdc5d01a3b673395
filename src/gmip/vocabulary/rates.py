"""A TPR at an FPR: what is good enough, or what a pipeline must not exceed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gmip import _validate as check
from gmip._numbers import typed
from gmip.errors import InvalidArgument

__all__ = ["Rate", "RateLike"]


@dataclass(frozen=True)
class Rate:
    """A share of the members found at a false-alarm rate; `str` writes it as 0.05@0.01, and `parse` reads that.

    tpr : above 0 and at most 1.
    fpr : between 0 and 1.
    """

    tpr: float
    fpr: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "tpr", check.probability("tpr", self.tpr, open_low=True))
        object.__setattr__(self, "fpr", check.probability("fpr", self.fpr, open_low=True, open_high=True))

    def __str__(self) -> str:
        return f"{typed(self.tpr)}@{typed(self.fpr)}"

    @classmethod
    def parse(cls, name: str, given: Any) -> Rate:
        """A rate from "0.05@0.01", (0.05, 0.01), {"tpr": 0.05, "fpr": 0.01} or itself; complaints are about `name`."""
        if isinstance(given, Rate):
            return given
        try:
            if isinstance(given, str):
                tpr, fpr = map(float, given.split("@"))
            elif isinstance(given, Mapping):
                tpr, fpr = ({"tpr": None, "fpr": None} | dict(given)).values()  # a name too many is a value too many
            else:
                tpr, fpr = given
            return cls(tpr, fpr)
        except (KeyError, TypeError, ValueError):
            raise InvalidArgument(
                f"must be TPR@FPR, two numbers between 0 and 1, not {given!r}",
                argument=name,
                remedy="pass one such as 0.05@0.01",
            ) from None


#: What functions for users take for a rate.
RateLike = Rate | str | Sequence[float] | Mapping[str, float]
