"""The figures of a report: which curves each one shows, its two drawings, its legend and what its script reads.

Python draws everything and words every number; script.js only looks up what to show.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gmip import _numbers
from gmip._curves import corners
from gmip._html import Html, embedded_json, tag
from gmip._svg import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Axes, Series, chart, classes, swatch
from gmip.auditing.schema import AttackOutcome, AuditResult, Curve, Promise, RunAudit
from gmip.report import sentences

__all__ = ["Figure", "figure_html", "overview_figure", "run_figure"]

Array = NDArray[np.float64]
T = TypeVar("T")

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
class Figure:
    """Curves on the same axes. `lowest` is the FPR, a power of ten, at which the logarithmic axes begin; `rate` the one
    that the legend reads out first."""

    key: str
    series: tuple[Series, ...]
    lowest: float
    rate: float

    @property
    def first_measured(self) -> float:
        """The lowest rate at which any attack was measured."""
        return min((s.start for s in self.series if s.start), default=0.0)

    @property
    def stops(self) -> list[float]:
        """The rates that can be read out: all of two digits from `lowest` to 1."""
        decades = range(round(math.log10(self.lowest)), 0)
        return [float(f"{k}e{decade - 1}") for decade in decades for k in range(10, 100)] + [1.0]


# -- which curves -----------------------------------------------------------------------------------------------------


def run_figure(run: RunAudit, key: str, rate: float) -> Figure:
    """All that is known of one run: attacks (the strongest with its band), promises, prediction, guessing."""
    lowest = _lowest([run])
    attacks = [
        _measured(attack, attack.title, _ATTACK_LOOKS[i % 5], _MARKERS[i % 5], banded=i == 0)
        for i, attack in enumerate(run.attacks)
    ]
    promises = [
        _promised(promise, promise.name, _PROMISE_LOOKS[promise.key], prominent=promise.key == "claimed")
        for promise in run.promises
    ]
    return Figure(key, (*attacks, *promises, _guessing()), lowest, max(rate, lowest))


def overview_figure(result: AuditResult, key: str, rate: float) -> Figure:
    """Of every run the strongest attack and, dashed in the same colour, the promise."""
    lowest = _lowest(result.runs)
    series = []
    for i, run in enumerate(result.runs):
        colour, marker = _RUN_COLOURS[i % 8], _MARKERS[i % 5]
        if run.attacks:
            series.append(_measured(run.attacks[0], f"{run.name}: measured", f"{colour} solid", marker, banded=False))
        if run.promises:
            series.append(_promised(run.promises[0], f"{run.name}: promised", f"{colour} dash"))
    return Figure(key, (*series, _guessing()), lowest, max(rate, lowest))


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


def _promised(promise: Promise, name: str, look: str, *, prominent: bool = False) -> Series:
    fpr, tpr = _with_exact(promise.curve, promise.tpr_at)
    return Series(
        name, "expectation" if promise.key == "prediction" else "promise", look, fpr, tpr, prominent=prominent
    )


def _guessing() -> Series:
    return Series("Guessing", "chance", "grey fine", np.array([0.0, 1.0]), np.array([0.0, 1.0]))


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
    found = {float(key): value for key, value in exact.items() if sentences.is_rate(key)}
    near = {x for x in known for rate in found if math.isclose(x, rate, rel_tol=1.0e-9)}
    return {x: value for x, value in known.items() if x not in near} | found


# -- how they are shown -----------------------------------------------------------------------------------------------


def figure_html(figure: Figure, *, title: str, confidence: float) -> Html:
    """Both drawings of a figure, its legend (which reads out the values at one rate) and its controls."""
    key, stops = figure.key, figure.stops
    legend_id = f"{key}-legend-title"
    first = min(range(len(stops)), key=lambda i: abs(math.log(stops[i] / figure.rate)))
    slider = tag(
        "div",
        tag("label", "False-alarm rate", for_=f"{key}-rate"),
        tag(
            "input",
            type="range",
            id=f"{key}-rate",
            min=0,
            max=len(stops) - 1,
            value=first,
            aria_describedby=legend_id,
        ),
        class_="slider needs-script",
    )
    legend = tag(
        "div",
        tag("p", _legend_title(_numbers.rate(stops[first])), id=legend_id, class_="legend-title"),
        tag("ul", *(_legend_item(s, i, stops[first]) for i, s in enumerate(figure.series)), class_="legend"),
        *_notes(figure, confidence),
        class_="legend-box",
    )
    hint = tag(
        "p",
        "Point at a curve to read its numbers; click to keep that rate. Click a name in the legend to hide or show its "
        "curve.",
        class_="note needs-script",
    )
    return tag(
        "figure",
        tag(
            "div",
            _chart(figure, Axes(None), "linear", title, "Linear axes", stops[first]),
            _chart(figure, Axes(figure.lowest), "log", title, "Logarithmic axes: low false-alarm rates", stops[first]),
            class_="charts",
        ),
        tag("div", class_="tooltip", hidden=True),
        slider,
        legend,
        hint,
        embedded_json(f"{key}-data", _data(figure, confidence)),
        class_="roc",
        id=key,
        aria_label=title,
    )


def _chart(figure: Figure, axes: Axes, kind: str, subject: str, title: str, rate: float) -> Html:
    values = "; ".join(f"{series.name} {series.text(series.at(rate))}" for series in figure.series)
    label = (
        f"Chart. {subject}. {title}. Across: false alarms. Up: members found. "
        f"{_legend_title(_numbers.rate(rate))} {values}. The table of numbers below has more rates."
    )
    drawing = chart(
        figure.series,
        axes,
        label=label,
        identifier=f"{figure.key}-{kind}",
        unmeasured=figure.first_measured,
        pointer=True,
    )
    return tag("div", tag("p", title, class_="chart-title"), drawing, class_="chart-box")


def _notes(figure: Figure, confidence: float) -> list[Html]:
    notes = [
        tag(
            "p",
            tag("span", class_=f"swatch-band {classes(series)}", aria_hidden="true"),
            f"{_numbers.rate(f'{confidence:.6g}')} interval of {series.name}",
            class_="note",
        )
        for series in figure.series
        if series.band is not None
    ]
    start = figure.first_measured
    if start > figure.lowest:
        text = f"Not measured: lower rates than one false alarm among {_numbers.count(round(1 / start))} non-members"
        notes.append(tag("p", tag("span", class_="swatch-unmeasured", aria_hidden="true"), text, class_="note"))
    return notes


def _legend_title(rate: str) -> str:
    return f"Members found at a {rate} false-alarm rate:"


def _legend_item(series: Series, index: int, rate: float) -> Html:
    return tag(
        "li",
        tag(
            "button",
            swatch(series),
            tag("span", series.name, class_="name"),
            tag("span", series.text(series.at(rate)), class_="value"),
            type="button",
            aria_pressed="true",
            data_series=index,
        ),
    )


def _data(figure: Figure, confidence: float) -> dict[str, Any]:
    """What script.js looks up: at each stop the rate, and of each curve its TPR, in words too; null: not measured."""
    stops = np.array(figure.stops)
    return {
        "box": [LEFT, TOP, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM],
        "lowest": figure.lowest,
        "stops": figure.stops,
        "rates": [_numbers.rate(stop) for stop in figure.stops],
        "legend": _legend_title("{rate}"),
        "series": [_series_data(series, stops, confidence) for series in figure.series],
    }


def _series_data(series: Series, stops: Array, confidence: float) -> dict[str, Any]:
    found = [None if math.isnan(tpr) else tpr for tpr in series.read(stops).tolist()]
    verb = "is expected to find" if series.role == "expectation" else "finds"
    how = " by guessing" if series.role == "chance" else ""
    return {
        "name": series.name,
        "sentence": f"An attacker who accepts {{rate}} false alarms {verb} {{value}} of the members{how}{{interval}}.",
        "prefix": series.prefix,
        "tpr": [None if tpr is None else float(f"{tpr:.4g}") for tpr in found],
        "values": [None if tpr is None else series.percent(tpr) for tpr in found],
        "intervals": None if series.band is None else _interval_texts(series.band, stops, confidence),
    }


def _interval_texts(band: Array, stops: Array, confidence: float) -> list[str]:
    # Between two rates the lower end of the one below and the upper end of the one above hold.
    last = len(band[0]) - 1
    lower = band[1, np.clip(np.searchsorted(band[0], stops, side="right") - 1, 0, last)]
    upper = band[2, np.clip(np.searchsorted(band[0], stops, side="left"), 0, last)]
    name = f"{_numbers.rate(f'{confidence:.6g}')} interval"
    return [
        "" if stop < band[0, 0] * (1 - 1.0e-9) else f" ({name} {_numbers.interval(low, high, share=True)})"
        for stop, low, high in zip(stops.tolist(), lower.tolist(), upper.tolist(), strict=True)
    ]
