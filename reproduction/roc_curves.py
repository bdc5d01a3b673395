"""ROC curves as rows of a CSV: TPR at a few dozen FPRs, a curve to a row, and their means and bands over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gmip.accounting.composition import group_susceptibilities, stochastic_composition
from gmip.accounting.gaussian_pair import ChiSquared
from gmip.accounting.tradeoff import TradeOff
from gmip.report.tables import Cell, Table
from gmip.stats.scores import auc, tpr_at_fpr
from reproduction import figures
from reproduction.experiment import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "RATES",
    "Band",
    "Curves",
    "area_table",
    "attack_row",
    "band",
    "by_curve",
    "chance",
    "column",
    "curve_row",
    "draw",
    "draw_all",
    "legend",
    "over_records",
]

Array = NDArray[np.float64]
Curves = Mapping[str, tuple[str, dict[str, Any]]]  # name -> title, look
# Log-spaced to 0.1, then evenly: one grid for both kinds of axes; as they are written in the heading of a CSV.
RATES: Final = tuple(
    float(f"{rate:.3g}") for rate in (*np.geomspace(1.0e-3, 0.1, 25), *np.linspace(0.1, 1.0, 28)[1:-1])
)
_LEAST_ALARMS: Final = 2  # non-members below which an FPR is not told


def column(fpr: float) -> str:
    """Where a row has the TPR at one of RATES."""
    return f"tpr_at_{fpr:g}"


def attack_row(members: ArrayLike, non_members: ArrayLike) -> Row:
    """The row of an attack's scores: AUC and TPRs; no TPR where the FPR is less than two of the non-members."""
    least = _LEAST_ALARMS / np.size(non_members)
    tpr = np.asarray(tpr_at_fpr(members, non_members, RATES))
    values = [_short(t) if a >= least * (1.0 - 1.0e-9) else None for a, t in zip(RATES, tpr, strict=True)]
    facts: Row = {"candidates": min(np.size(members), np.size(non_members)), "auc": _short(auc(members, non_members))}
    return facts | dict(zip(map(column, RATES), values, strict=True))


def curve_row(curve: TradeOff) -> Row:
    """The row of a trade-off curve."""
    tpr = np.asarray(curve.tpr_at(np.array(RATES)))
    return {"candidates": None, "auc": _short(curve.auc())} | {
        column(a): _short(t) for a, t in zip(RATES, tpr, strict=True)
    }


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def over_records(susceptibilities: Array, *, dimension: int, batch_size: int) -> TradeOff:
    """Stochastic composition of Theorem 5.1 over measured susceptibilities, shape (c,).

    docs/theory/trade-offs.md, "Stochastic composition".
    """
    values, shares = group_susceptibilities(np.maximum(susceptibilities, 1.0e-9))
    curves = [ChiSquared(dimension=dimension, susceptibility=k, batch_size=batch_size) for k in values]
    return stochastic_composition(curves, shares)


class Band(NamedTuple):
    """TPR at RATES over seeds, each of shape (rates,): NaN where none is told."""

    mean: Array
    low: Array
    high: Array
    error: Array  # standard error; 0 for one seed
    auc: float
    auc_error: float  # standard error; 0 for one seed
    seeds: int
    size: int  # candidates of a kind, of all seeds; 0 for a curve that is not measured

    def at(self, fpr: float) -> float:
        """The mean TPR at one of RATES."""
        return float(self.mean[RATES.index(fpr)])

    def area_error(self) -> float:
        """The standard error of the AUC: over seeds, and at least what counting gives at chance."""
        return max(self.auc_error, float((6.0 * self.size) ** -0.5))

    def excess(self, bound: Band) -> Array:
        """How far the mean is above a bound at each of RATES, in standard errors: over seeds, and at least those of
        counting the members found and the false alarms that set the threshold, by the bound's own slope."""
        rates, tpr = np.array(RATES), np.clip(bound.mean, 1.0e-6, 1.0 - 1.0e-6)
        slope = np.maximum(np.gradient(tpr, rates), 0.0)
        counting = np.sqrt((tpr * (1.0 - tpr) + slope**2 * rates * (1.0 - rates)) / self.size)
        return np.asarray((self.mean - bound.mean) / np.maximum(self.error, counting))


def band(rows: Sequence[Row]) -> Band:
    """Mean and two standard errors over the rows, one for each seed."""
    values = np.array([[_number(row.get(column(a))) for a in RATES] for row in rows], dtype=np.float64)
    areas = np.array([row["auc"] for row in rows], dtype=np.float64)
    mean, n = values.mean(axis=0), len(rows)
    count = sum(row["candidates"] or 0 for row in rows)
    if n == 1:
        return Band(mean, mean, mean, np.zeros_like(mean), float(areas[0]), 0.0, 1, count)
    error = values.std(axis=0, ddof=1) / np.sqrt(n)
    low, high = np.maximum(mean - 2.0 * error, 0.0), np.minimum(mean + 2.0 * error, 1.0)
    return Band(mean, low, high, error, float(areas.mean()), float(areas.std(ddof=1) / np.sqrt(n)), n, count)


def _number(value: Any) -> float:
    return np.nan if value is None or value == "" else float(value)


def by_curve(rows: Sequence[Row], order: Iterable[str] = (), /, **facts: Any) -> dict[str, Band]:
    """Bands of all curves (the rows' "curve") among the rows with these facts, those of `order` first."""
    mine: dict[str, list[Row]] = {name: [] for name in order}
    for row in rows:
        if all(row[key] == value for key, value in facts.items()):
            mine.setdefault(row["curve"], []).append(row)
    return {name: band(each) for name, each in mine.items() if each}


def draw(axes: Axes, found: Band, *, shaded: bool, log: bool, **style: Any) -> None:
    """A curve with its band: TPR on logarithmic axes, FNR, as the paper has it, on linear ones."""
    rates = np.array(RATES)
    told = ~np.isnan(found.mean)
    x, mean, low, high = rates[told], found.mean[told], found.low[told], found.high[told]
    if not log:
        x, mean, low, high = (np.concatenate([[0.0], part, [1.0]]) for part in (x, mean, low, high))
        mean, low, high = 1.0 - mean, 1.0 - low, 1.0 - high
    axes.plot(x, mean, **style)
    if shaded:
        floor = 1.0e-6 if log else 0.0
        axes.fill_between(x, np.maximum(low, floor), np.maximum(high, floor), color=style["color"], alpha=0.2, lw=0)


def draw_all(axes: Axes, bands: Mapping[str, Band], curves: Curves, *, log: bool) -> dict[str, Any]:
    """Guessing and all curves, attacks with their bands; gives the lines by their titles, for `legend`."""
    chance(axes, log=log)
    for curve, found in bands.items():
        title, style = curves[curve]
        draw(axes, found, shaded=found.size > 0, log=log, label=title, **style)
    return {str(line.get_label()): line for line in axes.get_lines()}


def legend(figure: Figure, lines: Mapping[str, Any], curves: Curves, *, columns: int) -> None:
    """Below the panels, in the order of `curves`."""
    order = [title for title, _ in curves.values()] + ["Guessing"]
    figure.legend(
        handles=[lines[title] for title in order if title in lines],
        title="Mean over seeds; band: two standard errors",
        loc="outside lower center",
        ncols=columns,
    )


def area_table(parts: Iterable[tuple[str, str, Mapping[str, Band]]], curves: Curves, *, part: str) -> Table:
    """AUC and TPR of all curves; parts : (data set, `part`, bands)."""
    body = []
    for name, where, bands in parts:
        for curve, found in bands.items():
            told = ["none" if math.isnan(found.at(a)) else f"{100 * found.at(a):.1f}%" for a in (0.01, 0.1)]
            error = (f"± {found.auc_error:.4f}",) if found.size > 0 and found.seeds > 1 else ()
            area = Cell(f"{found.auc:.4f}", error)
            body.append((*map(Cell, (name, where, curves[curve][0])), area, *map(Cell, told)))
    columns = ("Data set", part, "Curve", "AUC", "TPR at FPR 1%", "TPR at FPR 10%")
    return Table("AUC with its standard error over seeds, and TPR", columns, tuple(body), frozenset({0, 1, 2}))


def chance(axes: Axes, *, log: bool) -> None:
    """Guessing, and the axes."""
    rates = np.array([1.0e-3, 1.0]) if log else np.array([0.0, 1.0])
    axes.plot(rates, rates if log else 1.0 - rates, color=figures.GREY, linewidth=0.9, label="Guessing")
    if log:
        axes.set(xscale="log", yscale="log", xlim=(1.0e-3, 1.0), ylim=(8.0e-4, 1.15))
        axes.minorticks_off()
    else:
        axes.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0), aspect="equal")
