"""Which curves of an audit are drawn on the same axes, for the report and for notebooks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gmip import _numbers
from gmip._curves import corners
from gmip._svg import Role, Series, guessing
from gmip.auditing.schema import AttackOutcome, AuditResult, ClaimedCurve, Curve, RunAudit
from gmip.auditing.verdict import claim_of, leading_attack
from gmip.report.verdict_words import curve_name

__all__ = ["Figure", "overview_figure", "run_figure"]

Array = NDArray[np.float64]
T = TypeVar("T")

_LOWEST = 1.0e-5  # where the accountant's curves end
# Colour, dash and marker: no two curves of a figure differ by colour alone.
_ATTACK_LOOKS = ("blue solid", "orange long", "wine dashdot", "olive short", "ink longdot")
_MARKERS = ("circle", "square", "triangle", "diamond", "cross")
_CLAIM_LOOKS = {
    "claimed": "vermillion solid",
    "susceptibility": "purple dash",
    "list": "wine dash",
    "gdp": "green dashdot",
    "prediction": "ink dot",
}
_RUN_COLOURS = ("blue", "vermillion", "green", "purple", "orange", "wine", "olive", "ink")


@dataclass(frozen=True)
class Figure:
    """Curves on the same axes. `lowest` is the FPR, a power of ten, at which the logarithmic axes begin; `rate` the one
    that the legend reads out first; `target` the (FPR, TPR) that should not be exceeded."""

    key: str
    series: tuple[Series, ...]
    lowest: float
    rate: float
    target: tuple[float, float] | None = None

    @property
    def first_measured(self) -> float:
        """The lowest rate at which any attack was measured."""
        return min((s.start for s in self.series if s.start), default=0.0)

    @property
    def stops(self) -> list[float]:
        """The rates that can be read out: all of two digits from `lowest` to 1."""
        decades = range(round(math.log10(self.lowest)), 0)
        return [float(f"{k}e{decade - 1}") for decade in decades for k in range(10, 100)] + [1.0]


def run_figure(run: RunAudit, key: str, rate: float) -> Figure:
    """All that is known of one run: attacks (the one that the answer rests on with its band), claims, prediction,
    guessing."""
    lowest = _lowest([run])
    first = leading_attack(run.attacks, run.answers)
    attacks = [
        _measured(attack, attack.title, _ATTACK_LOOKS[i % 5], _MARKERS[(i + i // 5) % 5], banded=attack is first)
        for i, attack in enumerate(run.attacks)
    ]
    claims = [
        _claimed(claim, curve_name(claim), _CLAIM_LOOKS[claim.key], prominent=claim.key == "claimed")
        for claim in run.claims
    ]
    return Figure(key, (*attacks, *claims, guessing()), lowest, max(rate, lowest), _goal(run))


def overview_figure(result: AuditResult, key: str, rate: float) -> Figure:
    """Of every run the attack that its answer rests on and, dashed in the same colour, the claim about such an
    attacker."""
    lowest = _lowest(result.runs)
    series = []
    for i, run in enumerate(result.runs):
        colour, marker = _RUN_COLOURS[i % 8], _MARKERS[i % 5]
        first = leading_attack(run.attacks, run.answers)
        if first is not None:
            series.append(_measured(first, f"{run.name}: measured", f"{colour} solid", marker, banded=False))
        answer = next(iter(run.answers), None)
        claim = next(iter(run.claims), None) if answer is None else claim_of(run, answer)
        if claim is not None:
            series.append(_claimed(claim, f"{run.name}: claimed", f"{colour} dash"))
    return Figure(key, (*series, guessing()), lowest, max(rate, lowest), _goal(result.runs[0]))


def _goal(run: RunAudit) -> tuple[float, float]:
    return run.goal.fpr, run.goal.tpr


def _lowest(runs: Sequence[RunAudit]) -> float:
    """The power of ten below one false alarm, at most 0.1%, and one lower where a claim goes further."""
    others = [attack.non_members for run in runs for attack in run.attacks if attack.non_members]
    measured = min(_decade(1 / max(others)) if others else 1.0, 1.0e-3)
    smallest = [x for run in runs for claim in run.claims for x in claim.curve.fpr if x > 0]
    further = max(_decade(min(smallest)), measured / 10) if smallest else measured
    return float(f"{max(min(measured, further), _LOWEST):.0e}")


def _decade(rate: float) -> float:
    return 10.0 ** math.floor(math.log10(rate) + 1.0e-9)


def _measured(attack: AttackOutcome, name: str, look: str, marker: str, *, banded: bool) -> Series:
    fpr, tpr = corners(attack.roc.fpr, attack.roc.tpr)
    return Series(
        name=name,
        role="attack",
        look=look,
        fpr=fpr,
        tpr=tpr,
        start=1 / attack.non_members if attack.non_members else 0.0,
        marker=marker,
        band=_band(attack) if banded else None,
        prominent=banded,
    )


def _claimed(claim: ClaimedCurve, name: str, look: str, *, prominent: bool = False) -> Series:
    fpr, tpr = _with_exact(claim.curve, claim.tpr_at)
    role: Role = "expectation" if claim.key == "prediction" else "claim"
    return Series(name, role, look, fpr, tpr, prominent=prominent, forecast=not claim.is_bound)


def _band(attack: AttackOutcome) -> Array | None:
    """The intervals at all rates, those of the tables included; rows FPR, lower and upper end."""
    band = attack.band
    known = {x: (low, high) for x, low, high in zip(band.fpr, band.lower, band.upper, strict=True)}
    exact = {key: (one.lower, one.upper) for key, one in attack.tpr_at.items()}
    rows = [(x, *ends) for x, ends in sorted(_updated(known, exact).items())] if known else []
    return np.array(rows).T if len(rows) > 1 else None


def _with_exact(curve: Curve, exact: Mapping[str, float]) -> tuple[Array, Array]:
    """The points of a curve and the exact values that are known beside them, which win."""
    known = _updated(dict(zip(curve.fpr, curve.tpr, strict=True)), exact)
    return corners(list(known), list(known.values()))


def _updated(known: Mapping[float, T], exact: Mapping[str, T]) -> dict[float, T]:
    """What is known at rates, with what is known exactly at rates that are written as strings."""
    found = {float(key): value for key, value in exact.items() if _numbers.is_rate(key)}
    near = {x for x in known for rate in found if math.isclose(x, rate, rel_tol=1.0e-9)}
    return {x: value for x, value in known.items() if x not in near} | found
