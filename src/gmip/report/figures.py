"""A figure of the report: its two drawings, its legend and what its script reads.

Python draws everything and words every number; script.js only looks up what to show.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gmip import _numbers
from gmip._html import Html, embedded_json, tag
from gmip._svg import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Axes, Series, chart, classes, swatch
from gmip.report.overlay import Figure

__all__ = ["figure_html"]

Array = NDArray[np.float64]


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
        "Point at a curve to read its numbers; click to keep that rate. Drag a rectangle to zoom, in all charts alike; "
        "double-click to see all. Click a name in the legend to hide or show its curve.",
        class_="note needs-script",
    )
    axes = [
        tag("button", f"{name} axes", type="button", data_axes=kind, aria_pressed="true" if kind == "log" else "false")
        for kind, name in (("log", "Logarithmic"), ("linear", "Linear"))
    ]
    return tag(
        "figure",
        tag(
            "div",
            tag("div", *axes, role="group", aria_label="Axes"),
            tag("div", *_zoom_buttons(), role="group", aria_label="Zoom"),
            class_="switch needs-script",
        ),
        tag("p", class_="note zoomed", role="status"),
        tag(
            "div",
            _chart(figure, Axes(figure.lowest), "log", title, "Logarithmic axes: low false-alarm rates", stops[first]),
            _chart(figure, Axes(None), "linear", title, "Linear axes", stops[first]),
            class_="charts",
        ),
        tag("div", class_="tooltip", hidden=True),
        slider,
        legend,
        hint,
        embedded_json(f"{key}-data", _data(figure, confidence)),
        class_="roc",
        id=key,
        data_axes="log",
        aria_label=title,
    )


def _zoom_buttons() -> list[Html]:
    """Around the rate that the slider keeps: closer, farther, all."""
    names = (("0.5", "+", "Zoom in"), ("2", "\u2212", "Zoom out"), ("Infinity", "Show all", None))
    return [
        tag("button", text, type="button", data_zoom=factor, aria_label=label, disabled=factor != "0.5")
        for factor, text, label in names
    ]


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
        target=figure.target,
    )
    return tag("div", tag("p", title, class_="chart-title"), drawing, class_=f"chart-box {kind}")


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
    verb = "is expected to find" if series.role == "expectation" or series.forecast else "finds"
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
