"""What a number or a curve is worth: a proved bound or a forecast, about whom, on which assumptions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

#: "bound": no attacker does better under the assumptions. "forecast": one can, because the record is a typical one or a
#: step of the argument is an approximation. Whoever passes a number on passes its kind on.
Kind = Literal["bound", "forecast"]
#: How neighbouring data sets of differential privacy differ.
Adjacency = Literal["replace-one", "add-or-remove-one", "zero-out-one"]
ADJACENCIES: Final[tuple[Adjacency, ...]] = get_args(Adjacency)


def weakest(kinds: Iterable[Kind]) -> Kind:
    """The kind of what is made of several numbers: a bound if all of them are."""
    return "bound" if all(kind == "bound" for kind in kinds) else "forecast"


@dataclass(frozen=True)
class Claim:
    """What a curve says, and about whom.

    kind : "bound" or "forecast".
    for_whom : the record and the attacker that the curve is about, as the end of a sentence: "for ...".
    assumptions : what has to hold, as sentences.
    caveat : a sentence that must not be left out, whatever else is.
    adjacency : for differential privacy, how neighbouring data sets differ.
    not_a_member : for membership inference, what the alternative to being a member is.
    """

    kind: Kind = "bound"
    for_whom: str = "the test that the curve was made from"
    assumptions: tuple[str, ...] = ()
    caveat: str | None = None
    adjacency: Adjacency | None = None
    not_a_member: str | None = None

    @property
    def mirrored(self) -> Claim:
        """What the curve with the two kinds of error swapped claims: nothing about members, if this one does."""
        if self.not_a_member is None:
            return self
        return Claim("forecast", "nobody, because the two kinds of error are swapped")

    @classmethod
    def of_all(cls, claims: Sequence[Claim]) -> Claim:
        """What a curve claims that is made from several: a bound only if all of them are."""
        different = list(dict.fromkeys(claims))
        if len(different) == 1:
            return different[0]

        def words(said: Iterable[str | None], between: str) -> str | None:
            return between.join(dict.fromkeys(one for one in said if one is not None)) or None

        adjacencies = {claim.adjacency for claim in different}
        return cls(
            kind=weakest(claim.kind for claim in different),
            for_whom=words((claim.for_whom for claim in different), "; and ") or cls.for_whom,
            assumptions=tuple(dict.fromkeys(one for claim in different for one in claim.assumptions)),
            caveat=words((claim.caveat for claim in different), " "),
            adjacency=adjacencies.pop() if len(adjacencies) == 1 else None,
            not_a_member=words((claim.not_a_member for claim in different), "; or "),
        )
