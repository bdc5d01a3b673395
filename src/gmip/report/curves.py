"""Which curves a figure shows, thinned so that a page stays small: result.json keeps every point."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gmip.auditing.schema import AttackOutcome, AuditResult, Band, Curve, Promise, RunAudit

__all__ = ["Figure", "Series", "overview_figure", "run_figure"]

Role = Literal["attack", "promise", "expectation", "chance"]
Array = NDArray[np.float64]

KEY_RATES = (1.0e-5, 1.0e-4, 1.0e-3, 1.0e-2, 1.0e-1)
_LOWEST = 1.0e-5  # where the accountant's curves end
# Colour, dash and marker: no two curves of a figure differ by colour alone.
_ATTACK_LOOKS = ("blue solid", "orange long", "wine dashdot", "olive short", "ink longdot")
_MARKERS = ("circle", "square", "triangle", "diamond", "cross")
_PROMISE_LOOKS = {
    "claimed": "vermillion solid",
    "susceptibility": "purple dash",
    "gdp": "green dashdot",
    "prediction": "ink dot",
}
_RUN_COLOURS = ("blue", "vermillion", "green", "purple", "orange", "wine", "olive", "ink")


@dataclass(frozen=True)
class Series:
    """One curve of a figure.

    Attributes
    ----------
    look : names of its colour and dash in the style sheet.
    stepped : the largest TPR of any threshold whose FPR is at most x, without interpolation; else straight lines.
    fpr, tpr : shape (n,), from 0 to 1, neither decreasing; if stepped, every FPR once.
    start : the lowest FPR other than 0 at which the curve says something: one false alarm among the non-members.
    band : rows FPR, lower and upper end, shape (3, m), or None.
    """

    name: str
    role: Role
    look: str
    stepped: bool
    fpr: Array
    tpr: Array
    start: float = 0.0
    marker: str | None = None
    band: Array | None = None
    prominent: bool = False

    def at(self, rate: float) -> float | None:
        """The TPR at a rate; None where the curve has nothing to say."""
        if rate < self.start * (1 - 1.0e-9):
            return None
        if self.stepped:
            return float(self.tpr[np.searchsorted(self.fpr, rate * (1 + 1.0e-9), side="right") - 1])
        return float(np.interp(rate, self.fpr, self.tpr))


@dataclass(frozen=True)
class Figure:
    """Curves on the same axes. `lowest` is the FPR, a power of ten, at which the logarithmic axes begin."""

    key: str
    series: tuple[Series, ...]
    lowest: float
    rate: float


def run_figure(run: RunAudit, key: str, rate: float) -> Figure:
    """All that is known of one run: attacks (the strongest with its band), promises, prediction, chance."""
    lowest = _lowest([run])
    attacks = [
        _measured(attack, attack.title, _ATTACK_LOOKS[i % 5], _MARKERS[i % 5], banded=i == 0)
        for i, attack in enumerate(run.attacks)
    ]
    promises = [
        _promised(promise, promise.name, _PROMISE_LOOKS[promise.key], lowest, prominent=promise.key == "claimed")
        for promise in run.promises
    ]
    return Figure(key, (*attacks, *promises, _chance(lowest)), lowest, max(rate, lowest))


def overview_figure(result: AuditResult, key: str, rate: float) -> Figure:
    """Of every run the strongest attack and, dashed in the same colour, the promise."""
    lowest = _lowest(result.runs)
    series = []
    for i, run in enumerate(result.runs):
        colour, marker = _RUN_COLOURS[i % 8], _MARKERS[i % 5]
        if run.attacks:
            series.append(_measured(run.attacks[0], f"{run.name}: measured", f"{colour} solid", marker, banded=False))
        if run.promises:
            series.append(_promised(run.promises[0], f"{run.name}: promised", f"{colour} dash", lowest))
    return Figure(key, (*series, _chance(lowest)), lowest, max(rate, lowest))


def _lowest(runs: Sequence[RunAudit]) -> float:
    """The power of ten below one false alarm, at most 0.1%, and one lower where a promise goes further."""
    others = [attack.non_members for run in runs for attack in run.attacks if attack.non_members]
    measured = min(_decade(1 / max(others)) if others else 1.0, 1.0e-3)
    smallest = [x for run in runs for promise in run.promises for x in promise.curve.fpr if x > 0]
    further = max(_decade(min(smallest)), measured / 10) if smallest else measured
    return float(f"{max(min(measured, further), _LOWEST):.0e}")


def _decade(rate: float) -> float:
    return 10.0 ** math.floor(math.log10(rate) + 1.0e-9)


def _measured(attack: AttackOutcome, name: str, look: str, marker: str, *, banded: bool) -> Series:
    fpr, tpr = _thinned_steps(attack.roc)
    return Series(
        name=name,
        role="attack",
        look=look,
        stepped=True,
        fpr=fpr,
        tpr=tpr,
        start=1 / attack.non_members if attack.non_members else 0.0,
        marker=marker,
        band=_thinned_band(attack.band) if banded else None,
        prominent=banded,
    )


def _promised(promise: Promise, name: str, look: str, lowest: float, *, prominent: bool = False) -> Series:
    fpr, tpr = _resampled(promise.curve, promise.tpr_at, lowest)
    role: Role = "expectation" if promise.key == "prediction" else "promise"
    return Series(name, role, look, False, fpr, tpr, prominent=prominent)


def _chance(lowest: float) -> Series:
    fpr, tpr = _resampled(Curve(fpr=(0.0, 1.0), tpr=(0.0, 1.0)), {}, lowest)
    return Series("Guessing", "chance", "grey fine", False, fpr, tpr)


def _thinned_steps(curve: Curve) -> tuple[Array, Array]:
    """The corners of the step function, those left out less than 0.2 points and 2% below a kept one's successor."""
    best: dict[float, float] = {}
    highest = 0.0
    for x, y in sorted(zip(curve.fpr, curve.tpr, strict=True)):
        highest = best[x] = max(highest, y)
    best.setdefault(0.0, 0.0)
    fpr = np.array(sorted(best))
    tpr = np.maximum.accumulate(np.array([best[x] for x in fpr]))
    keep = {0, len(fpr) - 1} | {int(np.searchsorted(fpr, x * (1 + 1.0e-9), side="right")) - 1 for x in KEY_RATES}
    kept = float(tpr[0])
    for i, y in enumerate(tpr):
        if i in keep or y - kept > min(0.002, 0.02 * y):
            keep.add(i)
            kept = float(y)
    chosen = sorted(keep)
    return fpr[chosen], tpr[chosen]


def _thinned_band(band: Band) -> Array | None:
    if len(band.fpr) < 2:
        return None
    order = np.argsort(np.array(band.fpr), kind="stable")
    if order.size > 200:  # as many from the ranks of the rates, whatever their spacing
        order = order[np.unique(np.linspace(0, order.size - 1, 200).round().astype(int))]
    return np.array([band.fpr, band.lower, band.upper])[:, order]


def _resampled(curve: Curve, exact: Mapping[str, float], lowest: float) -> tuple[Array, Array]:
    """The curve at rates that serve both kinds of axes, with the exact values where they are known."""
    decades = round(-math.log10(lowest))
    grid = np.concatenate(
        [np.logspace(-decades, 0, 20 * decades + 1), np.linspace(0.0, 1.0, 51), [x for x in KEY_RATES if x > lowest]]
    )
    known = {float(f"{x:.6g}"): 0.0 for x in grid if x <= 1.0}
    order = np.argsort(np.array(curve.fpr), kind="stable")
    xs, ys = np.array(curve.fpr)[order], np.maximum.accumulate(np.array(curve.tpr)[order])
    for x in known:
        known[x] = float(np.interp(x, xs, ys))
    for key, value in exact.items():
        try:
            known[float(key)] = value
        except ValueError:  # a rate in words has no place on an axis
            continue
    fpr = np.array(sorted(x for x in known if 0.0 <= x <= 1.0))
    return fpr, np.maximum.accumulate(np.array([known[float(x)] for x in fpr]))
