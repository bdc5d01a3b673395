"""Pairs that are written with an @: a TPR at an FPR, and an epsilon at a delta."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gmip import _validate as check
from gmip._numbers import typed
from gmip.errors import InvalidArgument

__all__ = ["EpsilonAtDelta", "Rate", "RateLike"]


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


class EpsilonAtDelta(NamedTuple):
    """An epsilon and a delta of differential privacy; written 3@1e-5, or 3 for a delta of 0."""

    epsilon: float
    delta: float = 0.0

    @classmethod
    def parse(cls, name: str, given: Any) -> EpsilonAtDelta:
        """From "3@1e-5", 3, (3, 1e-5) or {"epsilon": 3, "delta": 1e-5}; complaints are about `name`."""
        try:
            if isinstance(given, str):
                found = cls(*map(float, given.split("@")))
            elif isinstance(given, Mapping):
                found = cls(**given)
            else:
                found = cls(*given) if isinstance(given, Sequence) else cls(given)
            return cls(check.non_negative("epsilon", found.epsilon), check.probability("delta", found.delta))
        except (TypeError, ValueError):
            raise InvalidArgument(
                f"must be EPS@DELTA, an epsilon of 0 or more and a delta from 0 to 1, not {given!r}",
                argument=name,
                remedy="pass one such as 3@1e-5",
            ) from None
