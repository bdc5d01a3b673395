"""The privacy target that `gmip calibrate` and `gmip train` aim at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import typer

from gmip import _numbers
from gmip._cli import parse
from gmip._cli.errors import BadRequest
from gmip.accounting.tradeoff import TradeOff

__all__ = ["TARGET", "Target", "TargetAdvantage", "TargetMu", "TargetTpr", "read_target", "target_option"]

TARGET = "The target (exactly one)"


def target_option(name: str, metavar: str, help: str) -> Any:
    return typer.Option(name, metavar=metavar, rich_help_panel=TARGET, show_default=False, help=help)


TargetMu = Annotated[str | None, target_option("--target-mu", "MU", "Largest equivalent mu of the run.")]
TargetTpr = Annotated[
    str | None,
    target_option("--target-tpr", "TPR@FPR", "Largest share of members found at a false-alarm rate, as in 0.05@0.01."),
]
TargetAdvantage = Annotated[
    str | None, target_option("--target-advantage", "A", "Largest TPR - FPR, a number from 0 to 1.")
]


class Target(NamedTuple):
    keywords: dict[str, Any]  # of gmip.calibrate
    answer: dict[str, float]  # in JSON
    measure: Callable[[TradeOff], float]
    words: str  # what then holds


def read_target(mu: str | None, tpr: str | None, advantage: str | None) -> Target:
    given = [value for value in (mu, tpr, advantage) if value is not None]
    if len(given) != 1:
        what = "no target was" if not given else f"{len(given)} targets were"
        raise BadRequest(f"{what} given: pass exactly one of --target-mu, --target-tpr and --target-advantage.")
    if mu is not None:
        value = parse.positive("--target-mu", mu)
        return Target({"target_mu": value}, {"mu": value}, lambda c: c.equivalent_mu(), f"mu stays at or below {value}")
    if tpr is not None:
        most, rate = parse.tpr_at_fpr("--target-tpr", tpr)
        return Target(
            {"target_tpr": (most, rate)},
            {"tpr": most, "fpr": rate},
            lambda c: c.tpr_at(rate),
            f"an attacker who accepts {_numbers.rate(rate)} false alarms finds at most "
            f"{_numbers.rate(most)} of the members",
        )
    value = parse.probability("--target-advantage", given[0])
    words = f"the attacker's advantage (TPR - FPR) stays at or below {_numbers.rate(value)}"
    return Target({"target_advantage": value}, {"advantage": value}, lambda c: c.advantage(), words)
