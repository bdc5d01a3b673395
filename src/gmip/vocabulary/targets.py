"""What a run has to keep: a privacy target, and whose privacy it is about."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from gmip import _validate as check
from gmip._numbers import typed
from gmip.errors import InvalidArgument, UnreachableTarget
from gmip.vocabulary.claims import ADJACENCIES, Adjacency

# -- pairs that are written with an @ ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rate:
    """A share of the members found at a false-alarm rate; `str` writes it as 0.05@0.01, and `parse` reads that.

    tpr : above 0 and at most 1.
    fpr : between 0 and 1.
    """

    tpr: float
    fpr: float

    def __post_init__(self) -> None:
        check.fields(self, tpr=check.above_zero, fpr=check.inside)

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

    @classmethod
    def of_target(cls, name: str, given: Any) -> Rate:
        """The rate of a target that is one: of the text tpr=0.05@0.01, or of what `parse` reads but text."""
        if not isinstance(given, str):
            return cls.parse(name, given)
        rate = PrivacyTarget.parse(name, given).rate
        if rate is None:
            raise InvalidArgument(f"must be like tpr=0.05@0.01 for an audit, not {given!r}", argument=name)
        return rate


#: What functions for users take for a rate.
RateLike = Rate | str | Sequence[float] | Mapping[str, float]
#: The target of an audit, where nobody sets one.
GOOD_ENOUGH: Final = Rate(0.05, 0.01)


def as_claim(given: Any) -> Any:
    """A claim from text: a mu from mu=0.5, (epsilon, delta) from epsilon=3@1e-5 or epsilon=3; else what was given."""
    if not isinstance(given, str):
        return given
    measure, _, value = (part.strip() for part in given.partition("="))
    try:
        numbers = [*map(float, value.split("@"))]
        if measure == "mu":
            (mu,) = numbers
            return check.non_negative("mu", mu)
        if measure == "epsilon":
            epsilon, delta = numbers if len(numbers) == 2 else (*numbers, 0.0)
            return check.non_negative("epsilon", epsilon), check.probability("delta", delta)
    except (TypeError, ValueError):
        pass
    raise InvalidArgument(
        f"must be like mu=0.5 or epsilon=3@1e-5, not {given!r}",
        argument="claim",
        remedy="mu and epsilon are 0 or more, delta is from 0 to 1",
    )


# -- what a run has to keep -------------------------------------------------------------------------------------------


#: "gmip": membership-inference privacy. "gdp": differential privacy of the same run.
Notion = Literal["gmip", "gdp"]
NOTIONS: tuple[Notion, ...] = ("gmip", "gdp")
#: A random record, whatever the records are like; "any-constant" if its susceptibility stays the same in all steps.
AnyRecord = Literal["any", "any-constant"]
ANY: tuple[AnyRecord, ...] = ("any", "any-constant")
Measure = Literal["mu", "tpr", "advantage", "epsilon"]
#: Whose privacy it is: see `gmip.account`.
Susceptibility = float | ArrayLike | AnyRecord | None
#: What a target can be about.
MEASURES: tuple[Measure, ...] = ("mu", "tpr", "advantage", "epsilon")
_LIKE: Final = {"mu": "mu=0.5", "tpr": "tpr=0.05@0.01", "advantage": "advantage=0.1", "epsilon": "epsilon=3@1e-5"}


def _plain_susceptibility(name: str, given: Any) -> Any:
    if isinstance(given, str):
        return check.one_of(name, given, ANY)
    values = check.susceptibilities(given)
    return float(values[0]) if values.size == 1 else tuple(values.tolist())


@dataclass(frozen=True, kw_only=True)
class PrivacyTarget:
    """A privacy target: exactly one of mu, TPR, advantage and epsilon, and whose privacy it is about.

    Targets can be compared and hashed: measured susceptibilities become a tuple, a single one a number.

    Parameters
    ----------
    target_mu : largest equivalent mu (over the default range of false-positive rates). It is no GDP parameter: the
        curve need not be Gaussian, and says less at rarer false positives. For differential privacy aim at an epsilon.
    target_tpr : a `Rate`, (tpr, fpr) or "0.05@0.01": an attacker who accepts `fpr` false alarms finds at most `tpr` of
        the members.
    target_advantage : largest TPR - FPR.
    target_epsilon, delta : largest epsilon at delta, of the curve of the notion asked for: of membership, unless notion
        is "gdp".
    notion, susceptibility, attacker_knows, adjacency, rows_per_person : as in `gmip.account`; susceptibility and
        attacker_knows are for "gmip" alone, adjacency for "gdp".
    best_of : only the best of a random number of runs on the same data is published, so many on average: what
        `TradeOff.best_of` leaves has to keep the target. For "gdp" alone.
    """

    target_mu: float | None = None
    target_tpr: RateLike | None = None
    target_advantage: float | None = None
    target_epsilon: float | None = None
    delta: float | None = None
    notion: Notion = "gmip"
    susceptibility: Susceptibility = None
    attacker_knows: float = 0.0
    adjacency: Adjacency | None = None
    rows_per_person: int | None = None
    best_of: float | None = None

    def __post_init__(self) -> None:
        self._check_goal()
        check.fields(
            self,
            notion=NOTIONS,
            rows_per_person=check.count,
            best_of=check.number,
            attacker_knows=check.probability,
            susceptibility=_plain_susceptibility,
            adjacency=ADJACENCIES,
        )
        gdp = self.notion == "gdp"
        if self.best_of is not None and not (gdp and 1.0 <= self.best_of < np.inf):
            raise InvalidArgument(
                "must be at least 1, and needs `notion` = 'gdp': runs on the same data share what hides a member",
                argument="best_of",
                value=self.best_of,
                remedy="pass such as 10 with `notion` = 'gdp'",
            )
        if self.adjacency is not None and not gdp:
            raise InvalidArgument("needs `notion` = 'gdp'", argument="adjacency", remedy="add it, or leave this out")
        for name, value in (("susceptibility", self.susceptibility), ("attacker_knows", self.attacker_knows or None)):
            if gdp and value is not None:
                raise InvalidArgument("does not apply to `notion` = 'gdp'", argument=name, remedy="leave it out")

    def _check_goal(self) -> None:
        given = sum(getattr(self, f"target_{one}") is not None for one in MEASURES)
        if given != 1:
            raise InvalidArgument(
                f"{given} privacy targets were given" if given else "No privacy target was given",
                remedy="pass one of `target_mu`, `target_tpr`, `target_advantage` and `target_epsilon`",
            )
        if self.target_epsilon is None and self.delta is not None:
            raise InvalidArgument(
                "belongs to `target_epsilon`", argument="delta", remedy="leave it out, or aim at an epsilon"
            )
        if self.target_epsilon is not None and self.delta is None:
            raise InvalidArgument("is missing", argument="delta", remedy="add it beside `target_epsilon`, such as 1e-6")
        check.fields(
            self,
            target_mu=check.positive,
            target_advantage=check.above_zero,
            target_epsilon=check.positive,
            delta=check.inside,
            target_tpr=Rate.parse,
        )
        wanted = self.rate
        if wanted is not None and wanted.tpr <= wanted.fpr:
            raise UnreachableTarget(
                f"at a false-alarm rate of {wanted.fpr:g} cannot be reached, guessing alone finds {wanted.fpr:g} of "
                "the members",
                argument="target_tpr",
                value=wanted.tpr,
                remedy="ask for more than that",
            )

    def __str__(self) -> str:
        persons = (self.rows_per_person or 1) > 1
        whose = f" for persons with up to {self.rows_per_person} records" if persons else ""
        whose += "" if self.best_of is None else f" after the best of {self.best_of:g} runs on average"
        if self.rate is not None:
            return f"TPR = {self.rate.tpr:g} at FPR = {self.rate.fpr:g}{whose}"
        if self.target_epsilon is not None:
            of = "" if self.notion == "gdp" else " of membership"  # no epsilon of differential privacy
            return f"epsilon{of} = {self.target_epsilon:g} at delta = {self.delta:g}{whose}"
        return f"{self.measure} = {self.value:g}{whose}"

    @property
    def rate(self) -> Rate | None:
        """The TPR at an FPR, of a target that is one."""
        return self.target_tpr if isinstance(self.target_tpr, Rate) else None

    @property
    def measure(self) -> Measure:
        """What is measured."""
        return next(one for one in MEASURES if getattr(self, f"target_{one}") is not None)

    @property
    def value(self) -> float:
        """What must not be exceeded."""
        given: Any = getattr(self, f"target_{self.measure}")
        return float(given.tpr if isinstance(given, Rate) else given)

    @property
    def is_share(self) -> bool:
        """Whether it is about a share of the members, from 0 to 1: a TPR or an advantage."""
        return self.measure in ("tpr", "advantage")

    @property
    def whose(self) -> dict[str, Any]:
        """Whose privacy it is about: keywords of `gmip.account`."""
        record = np.array(self.susceptibility) if isinstance(self.susceptibility, tuple) else self.susceptibility
        unit = {
            name: getattr(self, name) for name in ("adjacency", "rows_per_person") if getattr(self, name) is not None
        }
        return {"notion": self.notion, "susceptibility": record, "attacker_knows": self.attacker_knows, **unit}

    def by_noise_alone(self) -> Self:
        """The same number by differential privacy: for any record and any attacker."""
        return dataclasses.replace(self, notion="gdp", susceptibility=None, attacker_knows=0.0)

    def scaled(self, factor: float) -> Self:
        """The same kind of target, stricter or looser: with a TPR, what it has above its FPR."""
        if self.rate is not None:
            tpr, fpr = self.rate.tpr, self.rate.fpr
            return dataclasses.replace(self, target_tpr=Rate(min(1.0, fpr + factor * (tpr - fpr)), fpr))
        value = factor * self.value
        changed: Any = {f"target_{self.measure}": min(1.0, value) if self.is_share else value}
        return dataclasses.replace(self, **changed)

    # -- as text, as keywords, and as JSON ------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """The number as `parse` reads it, such as tpr=0.05@0.01; whose privacy it is about is not in it."""
        if self.rate is not None:
            return f"tpr={self.rate}"
        at = "" if self.delta is None else f"@{typed(self.delta)}"
        return f"{self.measure}={typed(self.value)}{at}"

    @classmethod
    def parse(cls, name: str, text: str) -> PrivacyTarget:
        """A target from mu=2, tpr=0.05@0.01, advantage=0.1 or epsilon=3@1e-5; complaints are about `name`."""
        measure, equals, value = (part.strip() for part in text.partition("="))
        if not equals or measure not in MEASURES:
            near = check.did_you_mean(measure, MEASURES) if equals else ""
            raise InvalidArgument(
                f"must be {check.listed([f'{one}=...' for one in MEASURES], 'or')}, not {text!r}{near}",
                argument=name,
                remedy="pass one such as tpr=0.05@0.01, mu=0.5 or epsilon=3@1e-5",
            )
        numbers = value.split("@")
        try:
            first, *second = map(float, numbers)
        except ValueError:
            first, second = np.nan, []
        if np.isnan(first) or len(second) != (measure in ("tpr", "epsilon")):
            raise InvalidArgument(f"must be like {_LIKE[measure]}, not {text!r}", argument=name)
        try:
            goal: dict[str, Any] = {f"target_{measure}": Rate(first, *second) if measure == "tpr" else first}
            return cls(**goal) if measure != "epsilon" else cls(**goal, delta=second[0])
        except (InvalidArgument, UnreachableTarget) as error:
            about = f"{str(error.argument).removeprefix('target_')} of {name}"
            raise type(error)(error.problem, argument=about, value=error.value, remedy=error.remedy) from None

    @classmethod
    def of(cls, target: PrivacyTarget | None, keywords: Mapping[str, Any]) -> PrivacyTarget:
        """What a function was asked for, that takes a target or the keywords of one."""
        if target is None:
            return cls(**keywords)
        if keywords:
            raise InvalidArgument(
                f"is given beside `{next(iter(keywords))}`", argument="target", remedy="say it in the target alone"
            )
        return target

    def as_json(self) -> dict[str, Any]:
        """Plain values, without those that are not set; `from_json` reads them."""
        rate = None if self.rate is None else [self.rate.tpr, self.rate.fpr]
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)} | {"target_tpr": rate}
        return {name: value for name, value in plain.items() if value not in (None, 0.0)}

    @classmethod
    def from_json(cls, given: Any) -> PrivacyTarget:
        """A target from plain values, which may be from a file that somebody edited."""
        if not isinstance(given, Mapping):
            raise InvalidArgument(f"target = {given!r} is none", remedy="write it as {target_mu: 0.5}")
        known = [field.name for field in dataclasses.fields(cls)]
        for name in given:
            if name not in known:
                raise InvalidArgument(f"target has {name!r}, which is not known{check.did_you_mean(name, known)}")
        return cls(**given)
