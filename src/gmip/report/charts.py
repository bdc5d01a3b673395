"""Figures as SVG, drawn here so that they print and show without scripts; script.js adds tooltips and zoom.

script.js draws the same paths from the same numbers when the view changes; tests/e2e/test_report_browser.py holds the
two together.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gmip import _numbers
from gmip._html import Html, embedded_json, tag
from gmip.report.curves import Figure, Series

__all__ = ["figure_html", "symbols"]

WIDTH, HEIGHT = 520, 440
LEFT, RIGHT, TOP, BOTTOM = 78, 26, 14, 62
X_TITLE = "False alarms: non-members accused"
Y_TITLE = "Members found"

_SYMBOLS = {
    "circle": "M4 0A4 4 0 1 1 -4 0A4 4 0 1 1 4 0Z",
    "square": "M-3.6 -3.6H3.6V3.6H-3.6Z",
    "triangle": "M0 -4.6L4.4 3.4H-4.4Z",
    "diamond": "M0 -5L5 0L0 5L-5 0Z",
    "cross": "M-5 -2H-2V-5H2V-2H5V2H2V5H-2V2H-5Z",
}


class _Axes:
    """From rates to places in the drawing."""

    def __init__(self, lowest: float | None) -> None:
        self.log = lowest is not None
        self.lowest = lowest or 0.0

    def unit(self, value: float) -> float:
        """0 at the beginning of an axis, 1 at its end; what lies below a logarithmic axis is just outside."""
        if not self.log:
            return value
        return 1 - math.log10(max(value, self.lowest / 10)) / math.log10(self.lowest)

    def x(self, value: float) -> float:
        return LEFT + self.unit(value) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - self.unit(value) * (HEIGHT - TOP - BOTTOM)

    @property
    def ticks(self) -> list[float]:
        if self.log:
            return [float(f"1e-{k}") for k in range(round(-math.log10(self.lowest)), -1, -1)]
        return [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]

    @property
    def marks(self) -> list[float]:
        return self.ticks[:-1] if self.log else [0.1, 0.3, 0.5, 0.7, 0.9]


def symbols() -> Html:
    """The markers, defined once for the page."""
    shapes = [tag("path", id=f"marker-{name}", d=d) for name, d in _SYMBOLS.items()]
    return tag("svg", tag("defs", *shapes), width=0, height=0, aria_hidden="true", class_="away")


def figure_html(figure: Figure, *, title: str, confidence: float) -> Html:
    """Both drawings of a figure, its legend (which reads out the values at one rate) and its controls."""
    key = figure.key
    legend_id = f"{key}-legend-title"
    charts = [
        _chart(figure, _Axes(None), f"{key}-linear", title, "Linear axes"),
        _chart(figure, _Axes(figure.lowest), f"{key}-log", title, "Logarithmic axes: where few false alarms count"),
    ]
    notes = _notes(figure, confidence)
    slider = tag(
        "div",
        tag("label", "False alarms that the attacker accepts", for_=f"{key}-rate"),
        tag(
            "input",
            type="range",
            id=f"{key}-rate",
            min=0,
            max=round(-math.log10(figure.lowest)) * 60,
            value=round((1 - math.log10(figure.rate) / math.log10(figure.lowest)) * 60 * -math.log10(figure.lowest)),
            aria_describedby=legend_id,
        ),
        class_="slider needs-script",
    )
    legend = tag(
        "div",
        tag("p", _legend_title(figure.rate), id=legend_id, class_="legend-title"),
        tag("ul", *(_legend_item(s, i, figure.rate) for i, s in enumerate(figure.series)), class_="legend"),
        *notes,
        class_="legend-box",
    )
    hint = tag(
        "p",
        "Point at a curve for its numbers, click to keep them, drag to zoom, double-click to zoom out. "
        "The names in the legend hide and show a curve.",
        class_="note needs-script",
    )
    return tag(
        "figure",
        tag("div", *charts, class_="charts"),
        tag("div", class_="tooltip", hidden=True),
        slider,
        legend,
        hint,
        embedded_json(f"{key}-data", _data(figure, confidence)),
        class_="roc",
        id=key,
        aria_label=title,
    )


def _notes(figure: Figure, confidence: float) -> list[Html]:
    notes = [
        tag(
            "p",
            tag("span", class_=f"swatch-band {_classes(series)}", aria_hidden="true"),
            f"{_numbers.rate(f'{confidence:.6g}')} interval of {series.name}",
            class_="note",
        )
        for series in figure.series
        if series.band is not None
    ]
    start = _first_rate(figure)
    if start > figure.lowest:
        text = f"Below one false alarm among {_numbers.count(round(1 / start))} non-members: nothing was measured there"
        notes.append(tag("p", tag("span", class_="swatch-unmeasured", aria_hidden="true"), text, class_="note"))
    return notes


def _first_rate(figure: Figure) -> float:
    """The lowest rate at which any attack was measured."""
    return min((s.start for s in figure.series if s.start), default=0.0)


def _legend_title(rate: float) -> str:
    return f"An attacker who accepts {_numbers.rate(f'{rate:.6g}')} false alarms finds, of the members:"


def _legend_item(series: Series, index: int, rate: float) -> Html:
    line = tag("path", d="M2 8H42", class_="curve")
    marker = None if series.marker is None else tag("use", href=f"#marker-{series.marker}", x=22, y=8, class_="marker")
    swatch = tag(
        "svg", line, marker, viewBox="0 0 44 16", width=44, height=16, class_=_classes(series), aria_hidden="true"
    )
    value = tag("span", _value(series, rate), class_="value")
    return tag(
        "li",
        tag(
            "button",
            swatch,
            tag("span", series.name, class_="name"),
            value,
            type="button",
            aria_pressed="true",
            data_series=index,
        ),
    )


def _value(series: Series, rate: float) -> str:
    """What a curve says at a rate. script.js says it in the same words."""
    found = series.at(rate)
    if found is None:
        return "not measured"
    if series.role == "promise":
        return f"at most {_numbers.percent(found, 'up')}"
    return f"{'about ' if series.role == 'expectation' else ''}{_numbers.percent(found, 'nearest')}"


def _classes(series: Series) -> str:
    return " ".join([*(f"look-{part}" for part in series.look.split()), *(["prominent"] if series.prominent else [])])


def _chart(figure: Figure, axes: _Axes, identifier: str, subject: str, title: str) -> Html:
    clip = f"{identifier}-clip"
    plot = {"x": LEFT, "y": TOP, "width": WIDTH - LEFT - RIGHT, "height": HEIGHT - TOP - BOTTOM}
    # A curve along the edge is seen whole.
    clipped = {"x": LEFT - 2, "y": TOP - 2, "width": WIDTH - LEFT - RIGHT + 4, "height": HEIGHT - TOP - BOTTOM + 4}
    curves = [_curve(series, i, axes) for i, series in reversed(list(enumerate(figure.series)))]  # the first on top
    drawing = tag(
        "svg",
        tag("defs", tag("clipPath", tag("rect", **clipped), id=clip)),
        tag("rect", class_="plot", **plot),
        _unmeasured(figure, axes),
        tag("g", *_ticks(axes), class_="ticks"),
        tag("g", *curves, clip_path=f"url(#{clip})", class_="curves"),
        tag("g", class_="cross", clip_path=f"url(#{clip})"),
        tag("rect", class_="frame", **plot),
        tag("text", X_TITLE, x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 10, class_="axis-title", text_anchor="middle"),
        tag(
            "text",
            Y_TITLE,
            transform=f"translate(15 {(TOP + HEIGHT - BOTTOM) / 2:g}) rotate(-90)",
            class_="axis-title",
            text_anchor="middle",
        ),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        id=identifier,
        class_="chart",
        role="img",
        aria_label=_alternative(figure, f"{subject}. {title}"),
        data_scale="log" if axes.log else "linear",
    )
    buttons = tag(
        "div",
        *(
            tag(
                "button",
                sign,
                type="button",
                aria_label=f"{name}: {title.lower()}, {subject}",
                data_zoom=zoom,
                title=name,
            )
            for zoom, sign, name in (
                ("in", "+", "Zoom in"),
                ("out", "\u2212", "Zoom out"),
                ("reset", "⟲", "Whole curve"),
            )
        ),
        class_="zoom needs-script",
    )
    return tag(
        "div",
        tag("div", tag("p", title, class_="chart-title"), buttons, class_="chart-head"),
        drawing,
        class_="chart-box",
    )


def _alternative(figure: Figure, title: str) -> str:
    values = [f"{series.name} {_value(series, figure.rate)}" for series in figure.series]
    return (
        f"Chart. {title}. Across: false alarms. Up: members found. "
        f"{_legend_title(figure.rate)} {'; '.join(values)}. The table of numbers below has more rates."
    )


def _unmeasured(figure: Figure, axes: _Axes) -> Html | None:
    """Shades the rates below one false alarm, of which a measured curve knows nothing."""
    start = _first_rate(figure)
    if not axes.log or start <= figure.lowest:
        return None
    return tag(
        "rect", class_="unmeasured", x=LEFT, y=TOP, width=_short(axes.x(start) - LEFT), height=HEIGHT - TOP - BOTTOM
    )


def _ticks(axes: _Axes) -> list[Html]:
    parts = []
    for value in axes.ticks:
        x, y, label = _short(axes.x(value)), _short(axes.y(value)), _numbers.rate(value)
        parts += [
            tag("path", d=f"M{x} {TOP}V{HEIGHT - BOTTOM}M{LEFT} {y}H{WIDTH - RIGHT}", class_="grid"),
            tag("text", label, x=x, y=HEIGHT - BOTTOM + 21, text_anchor="middle"),
            tag("text", label, x=LEFT - 7, y=y, dy="0.35em", text_anchor="end"),
        ]
    return parts


def _curve(series: Series, index: int, axes: _Axes) -> Html:
    band = None
    if series.band is not None:
        band = tag("path", d=_band_path(series, axes), class_="band")
    marks = [] if series.marker is None else [(rate, series.at(rate)) for rate in axes.marks]
    uses = [
        tag("use", href=f"#marker-{series.marker}", x=_short(axes.x(rate)), y=_short(axes.y(tpr)), class_="marker")
        for rate, tpr in marks
        if tpr is not None
    ]
    path = tag("path", d=_path(series, axes), class_="curve")
    return tag("g", band, path, *uses, class_=f"series {_classes(series)}", data_series=index)


def _path(series: Series, axes: _Axes) -> str:
    begin = series.start if axes.log else 0.0
    first = series.at(begin) if series.stepped else float(series.tpr[0])
    points = [(begin, first or 0.0)] + [
        (float(x), float(y)) for x, y in zip(series.fpr, series.tpr, strict=True) if x > begin * (1 + 1.0e-9)
    ]
    xs, ys = [_short(axes.x(x)) for x, _ in points], [_short(axes.y(y)) for _, y in points]
    pairs = zip(xs[1:], ys[1:], strict=True)
    rest = (f"H{x}V{y}" if series.stepped else f"L{x} {y}" for x, y in pairs)
    bottom = "" if axes.log or not first else f"{_short(axes.y(0.0))}V"  # a jump at 0 is part of the curve
    return f"M{xs[0]} {bottom}{ys[0]}{''.join(rest)}"


def _band_path(series: Series, axes: _Axes) -> str:
    assert series.band is not None

    def places(xs: list[float], ys: list[float]) -> list[str]:
        return [f"{_short(axes.x(x))} {_short(axes.y(y))}" for x, y in zip(xs, ys, strict=True)]

    shown = series.band[:, series.band[0] >= (series.start * (1 - 1.0e-9) if axes.log else 0.0)]
    if shown.shape[1] < 2:
        return ""
    fpr, lower, upper = shown.tolist()
    return f"M{'L'.join(places(fpr, upper) + places(fpr[::-1], lower[::-1]))}Z"


def _short(place: float) -> str:
    text = f"{place:.1f}"
    return text.removesuffix(".0")


def _data(figure: Figure, confidence: float) -> dict[str, Any]:
    """What script.js needs. Six digits: less than a hundredth of a pixel at any zoom that it offers."""

    def numbers(values: Any) -> list[float]:
        return [float(f"{v:.6g}") for v in np.asarray(values).tolist()]

    return {
        "box": [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM],
        "lowest": figure.lowest,
        "rate": figure.rate,
        "confidence": _numbers.rate(f"{confidence:.6g}"),
        "series": [
            {
                "name": s.name,
                "role": s.role,
                "stepped": s.stepped,
                "start": float(f"{s.start:.6g}"),
                "x": numbers(s.fpr),
                "y": numbers(s.tpr),
                "band": None if s.band is None else [numbers(row) for row in s.band],
            }
            for s in figure.series
        ],
    }
