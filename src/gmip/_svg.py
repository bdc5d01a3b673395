"""ROC curves as SVG, for the report and for notebooks: they need no script, no style sheet and no identifiers.

Colours and dashes are attributes, which a style sheet may override; text and axes take the colour of the text around.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gmip import _numbers
from gmip._curves import read_bound, read_steps, thin_steps
from gmip._html import Html, tag

Role = Literal["attack", "claim", "expectation", "chance"]
Array = NDArray[np.float64]

WIDTH, HEIGHT = 520, 440
LEFT, RIGHT, TOP, BOTTOM = 78, 26, 14, 62
_X_TITLE: Final = "False alarms: share of non-members accused"
_Y_TITLE: Final = "Share of members found"
_PIXELS: Final = 4.0  # between the points of a smooth curve
_FINE: Final = 0.125  # of a pixel, between corners of a prominent measured one: a reader may zoom in
_COARSE: Final = 1.0  # between those of the others
# Each has a contrast of 3 or more against white and against black.
_COLOURS: Final = {
    "blue": "#0a7abf",
    "vermillion": "#d55e00",
    "green": "#009069",
    "purple": "#b8578f",
    "orange": "#a87408",
    "wine": "#b0426f",
    "olive": "#7d7d28",
    "ink": "currentColor",
    "grey": "#7b8490",
}
_DASHES: Final = {
    "solid": None,
    "dash": "8 4",
    "long": "12 4",
    "short": "5 3",
    "dashdot": "9 3 2 3",
    "longdot": "14 3 2 3",
    "dot": "0.1 5",
    "fine": "3 4",
}
_WIDTHS: Final = {"dot": 3.0, "fine": 1.4}
_MARKERS: Final = {
    "circle": "M4 0A4 4 0 1 1 -4 0A4 4 0 1 1 4 0Z",
    "square": "M-3.6 -3.6H3.6V3.6H-3.6Z",
    "triangle": "M0 -4.6L4.4 3.4H-4.4Z",
    "diamond": "M0 -5L5 0L0 5L-5 0Z",
    "cross": "M-5 -2H-2V-5H2V-2H5V2H2V5H-2V2H-5Z",
}


@dataclass(frozen=True)
class Series:
    """One curve of a figure.

    Attributes
    ----------
    role : a measured attack (a step function), a claim (guarantee or forecast, read as an upper bound), an
        expectation, or guessing.
    look : names of its colour and dash.
    fpr, tpr : shape (n,), from 0 to 1, the FPRs increasing, the TPRs not decreasing.
    start : the lowest FPR other than 0 at which the curve says something: one false alarm among the non-members.
    band : rows FPR, lower and upper end, shape (3, m), or None.
    forecast : whether a claim is no bound, so that an attacker can do better.
    """

    name: str
    role: Role
    look: str
    fpr: Array
    tpr: Array
    start: float = 0.0
    marker: str | None = None
    band: Array | None = None
    prominent: bool = False
    forecast: bool = False

    def read(self, rates: ArrayLike) -> Array:
        """The TPR at rates, of their shape; NaN where the curve says nothing."""
        x = np.asarray(rates, dtype=np.float64)
        if self.role == "attack":
            return np.where(x < self.start * (1 - 1.0e-9), np.nan, read_steps(self.fpr, self.tpr, x))
        return read_bound(self.fpr, self.tpr, x) if self.role == "claim" else np.interp(x, self.fpr, self.tpr)

    def at(self, rate: float) -> float | None:
        found = float(self.read(rate))
        return None if math.isnan(found) else found

    @property
    def prefix(self) -> str:
        """What stands before a number of this curve."""
        return {"claim": "about " if self.forecast else "at most ", "expectation": "about "}.get(self.role, "")

    def percent(self, tpr: float) -> str:
        """A TPR of this curve for people: claims are rounded up."""
        return _numbers.percent(tpr, "up" if self.role == "claim" else "nearest")

    def text(self, tpr: float | None) -> str:
        return "not measured" if tpr is None else f"{self.prefix}{self.percent(tpr)}"

    @property
    def colour(self) -> str:
        return _COLOURS[self.look.split()[0]]

    @property
    def dash(self) -> str:
        return self.look.split()[1]


class Axes:
    """Places in the drawing by rates: linear, or logarithmic from `lowest`, a power of ten, to 1."""

    def __init__(self, lowest: float | None) -> None:
        self.log = lowest is not None
        self.lowest = lowest or 0.0

    def unit(self, rates: ArrayLike) -> Array:
        """0 at the beginning of an axis, 1 at its end; what lies below a logarithmic axis is just outside."""
        values = np.asarray(rates, dtype=np.float64)
        if not self.log:
            return values
        return np.asarray(1 - np.log10(np.maximum(values, self.lowest / 10)) / math.log10(self.lowest))

    def x(self, rates: ArrayLike) -> Array:
        return LEFT + self.unit(rates) * (WIDTH - LEFT - RIGHT)

    def y(self, rates: ArrayLike) -> Array:
        return HEIGHT - BOTTOM - self.unit(rates) * (HEIGHT - TOP - BOTTOM)

    def rates(self, step: float) -> Array:
        """The rates at every `step`-th pixel from left to right."""
        units = np.linspace(0.0, 1.0, round((WIDTH - LEFT - RIGHT) / step) + 1)
        return self.lowest ** (1 - units) if self.log else units

    @property
    def ticks(self) -> list[float]:
        if self.log:
            return [float(f"1e-{k}") for k in range(round(-math.log10(self.lowest)), -1, -1)]
        return [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]

    @property
    def marks(self) -> list[float]:
        """Where curves carry their markers."""
        return self.ticks[1:-1] if self.log else [0.1, 0.3, 0.5, 0.7, 0.9]


def guessing() -> Series:
    """The diagonal."""
    return Series("Guessing", "chance", "grey fine", np.array([0.0, 1.0]), np.array([0.0, 1.0]))


def chart(
    series: Sequence[Series],
    axes: Axes,
    *,
    label: str,
    identifier: str | None = None,
    unmeasured: float = 0.0,
    pointer: bool = False,
    target: tuple[float, float] | None = None,
) -> Html:
    """The curves on one pair of axes; the first lies on top.

    Parameters
    ----------
    label : what the drawing shows, for those who cannot see it.
    unmeasured : rates below this are shaded on logarithmic axes.
    target : (FPR, TPR) that the curves should pass below; marked by a ring.
    pointer : adds a line and a dot for each curve, hidden, which a script can put at a rate.
    """
    across, up = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    plot: dict[str, str | float] = {"x": LEFT, "y": TOP, "width": across, "height": up, "fill": "none"}
    # A drawing in the drawing clips the curves; two pixels more, so that a curve along the edge is seen whole.
    window = {"x": LEFT - 2, "y": TOP - 2, "width": across + 4, "height": up + 4}
    curves = [_curve(one, i, axes) for i, one in reversed(list(enumerate(series)))]
    return tag(
        "svg",
        tag("rect", class_="plot", **plot),
        _unmeasured(axes, unmeasured),
        tag("g", *_ticks(axes), class_="ticks", fill="currentColor"),
        tag(
            "svg",
            *curves,
            _pointer(series) if pointer else None,
            viewBox=" ".join(f"{window[key]}" for key in ("x", "y", "width", "height")),
            class_="curves",
            **window,
        ),
        tag("rect", class_="frame", stroke="#8a93a0", stroke_opacity=0.6, **plot),
        _ring(target, axes),
        tag(
            "text",
            _X_TITLE,
            x=(LEFT + WIDTH - RIGHT) / 2,
            y=HEIGHT - 10,
            class_="axis-title",
            text_anchor="middle",
            fill="currentColor",
        ),
        tag(
            "text",
            _Y_TITLE,
            transform=f"translate(15 {(TOP + HEIGHT - BOTTOM) / 2:g}) rotate(-90)",
            class_="axis-title",
            text_anchor="middle",
            fill="currentColor",
        ),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        id=identifier,
        class_="chart",
        role="img",
        aria_label=label,
        data_scale="log" if axes.log else "linear",
        width="100%",
        font_size=13.5,
    )


def picture(series: Sequence[Series], *, label: str, lowest: float, unmeasured: float = 0.0) -> Html:
    """The curves on logarithmic axes with a legend below, for a notebook."""
    names = [tag("div", swatch(one), " ", one.name, style="white-space: nowrap") for one in series]
    drawing = chart(series, Axes(lowest), label=label, unmeasured=unmeasured)
    legend = tag("div", *names, style="display: flex; flex-wrap: wrap; gap: 0 1.5em; font-size: 90%")
    return tag("div", drawing, legend, style="max-width: 30em")


def swatch(series: Series) -> Html:
    """A piece of the curve for a legend."""
    marker = None if series.marker is None else _marker(series, 22, 8)
    return tag(
        "svg",
        _line(series, "M2 8H42"),
        marker,
        viewBox="0 0 44 16",
        width=44,
        height=16,
        class_=classes(series),
        aria_hidden="true",
    )


def classes(series: Series) -> str:
    """The names that a style sheet knows it by."""
    return " ".join([f"look-{series.look.split()[0]}", *(["prominent"] if series.prominent else [])])


def _line(series: Series, d: str) -> Html:
    width = _WIDTHS.get(series.dash, 3.0 if series.prominent else 2.0)
    return tag(
        "path",
        d=d,
        class_="curve",
        fill="none",
        stroke=series.colour,
        stroke_width=f"{width:g}",
        stroke_dasharray=_DASHES[series.dash],
        stroke_linecap="round" if series.dash == "dot" else None,
        stroke_linejoin="round",
    )


def _marker(series: Series, x: float, y: float) -> Html:
    return tag(
        "path",
        d=_MARKERS[series.marker or "circle"],
        transform=f"translate({_short(x)} {_short(y)})",
        class_="marker",
        fill=series.colour,
    )


def _curve(series: Series, index: int, axes: Axes) -> Html:
    band = None
    if series.band is not None:
        band = tag(
            "path", d=_band_path(series.band, series.start, axes), class_="band", fill=series.colour, opacity=0.17
        )
    marks = [] if series.marker is None else [(rate, series.at(rate)) for rate in axes.marks]
    markers = [_marker(series, float(axes.x(rate)), float(axes.y(tpr))) for rate, tpr in marks if tpr is not None]
    path = _steps_path(series, axes) if series.role == "attack" else _smooth_path(series, axes)
    return tag("g", band, _line(series, path), *markers, class_=f"series {classes(series)}", data_series=index)


def _steps_path(series: Series, axes: Axes) -> str:
    """The staircase, exact at every pixel."""
    fpr, tpr = thin_steps(series.fpr, series.tpr, axes.rates(_FINE if series.prominent else _COARSE))
    begin = series.start if axes.log else 0.0
    if axes.log and not series.read(begin) > 0.0:  # logarithms have no place for a TPR of 0: the curve begins later
        begin = next((float(x) for x, y in zip(series.fpr, series.tpr, strict=True) if x > begin and y > 0.0), 1.0)
    first = float(read_steps(series.fpr, series.tpr, begin))
    later = fpr > begin * (1 + 1.0e-9)
    xs, ys = axes.x(fpr[later]), axes.y(tpr[later])
    steps = "".join(f"H{_short(x)}V{_short(y)}" for x, y in zip(xs, ys, strict=True))
    bottom = "" if axes.log or not first else f"{_short(float(axes.y(0.0)))}V"  # a jump at 0 is part of the curve
    return f"M{_short(float(axes.x(begin)))} {bottom}{_short(float(axes.y(first)))}{steps}"


def _smooth_path(series: Series, axes: Axes) -> str:
    rates = axes.rates(_PIXELS)
    if not axes.log:  # where the curve is steep, a pixel is too much
        rates = np.union1d(rates, np.geomspace(1.0e-5, rates[1], 24))
    xs, ys = axes.x(rates), axes.y(series.read(rates))
    jump = f"M{_short(xs[0])} {_short(float(axes.y(0.0)))}L" if not axes.log and series.tpr[0] > 0 else "M"
    return jump + _joined(xs, ys)


def _band_path(band: Array, start: float, axes: Axes) -> str:
    band = band[:, band[0] >= (start * (1 - 1.0e-9) if axes.log else 0.0)]
    if not band.size:
        return ""
    fpr, lower, upper = np.column_stack([band, np.ones(3)])  # where everybody is accused, everybody is found
    xs, ys = axes.x(np.append(fpr, fpr[::-1])), axes.y(np.append(upper, lower[::-1]))
    return f"M{_joined(xs, ys)}Z"


def _joined(xs: Array, ys: Array) -> str:
    """Straight lines between places; those that round to the one before are left out."""
    places = [f"{_short(x)} {_short(y)}" for x, y in zip(xs.tolist(), ys.tolist(), strict=True)]
    return "L".join(one for i, one in enumerate(places) if not i or one != places[i - 1])


def _ring(target: tuple[float, float] | None, axes: Axes) -> Html | None:
    if target is None:
        return None
    x, y = _short(float(axes.x(target[0]))), _short(float(axes.y(target[1])))
    what = tag("title", f"Target: {_numbers.rate(target[1])} at {_numbers.rate(target[0])} false alarms")
    return tag("circle", what, cx=x, cy=y, r=8, class_="ring", fill="none", stroke="currentColor", stroke_width=2)


def _pointer(series: Sequence[Series]) -> Html:
    dots = [
        tag("circle", r=3.5, fill=one.colour, class_=classes(one), data_series=i, visibility="hidden")
        for i, one in enumerate(series)
    ]
    return tag("g", tag("path", d=f"M0 {TOP}V{HEIGHT - BOTTOM}"), *dots, class_="pointer", visibility="hidden")


def _unmeasured(axes: Axes, below: float) -> Html | None:
    if not axes.log or below <= axes.lowest:
        return None
    width = _short(float(axes.x(below)) - LEFT)
    return tag(
        "rect",
        class_="unmeasured",
        x=LEFT,
        y=TOP,
        width=width,
        height=HEIGHT - TOP - BOTTOM,
        fill="#8a93a0",
        fill_opacity=0.15,
    )


def _ticks(axes: Axes) -> list[Html]:
    parts = []
    for value in axes.ticks:
        x, y, label = _short(float(axes.x(value))), _short(float(axes.y(value))), _numbers.rate(value)
        parts += [
            tag(
                "path",
                d=f"M{x} {TOP}V{HEIGHT - BOTTOM}M{LEFT} {y}H{WIDTH - RIGHT}",
                class_="grid",
                stroke="#8a93a0",
                stroke_opacity=0.25,
            ),
            tag("text", label, x=x, y=HEIGHT - BOTTOM + 21, text_anchor="middle"),
            tag("text", label, x=LEFT - 7, y=y, dy="0.35em", text_anchor="end"),
        ]
    return parts


def _short(place: float) -> str:
    return f"{place:.1f}".removesuffix(".0")
