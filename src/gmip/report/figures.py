"""The figures of the report: the curves with their legend and what the script reads, and runs as dots.

Python draws everything and words every number; script.js only looks up what to show.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from gmip import _numbers
from gmip._curves import corners
from gmip._html import Html, embedded_json, tag
from gmip._svg import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Axes, Role, Series, chart, classes, guessing, swatch
from gmip.auditing.schema import AttackOutcome, AuditResult, ClaimedCurve, Curve, RunAudit
from gmip.auditing.verdict import claim_of, leading_attack
from gmip.report import answer_words
from gmip.report.answer_words import curve_name

# -- which curves of an audit are drawn on the same axes --------------------------------------------------------------


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
        _claimed(claim, curve_name(run, claim), _CLAIM_LOOKS[claim.key], prominent=claim.key == "claimed")
        for claim in run.claims
    ]
    return Figure(key, (*attacks, *claims, guessing()), lowest, max(rate, lowest), _goal(run))


def overview_figure(result: AuditResult, key: str, rate: float) -> Figure:
    """Each run shows the attack that its answer rests on and, dashed in the same colour, the claim about such an
    attacker."""
    lowest = _lowest(result.runs)
    series = []
    for i, run in enumerate(result.runs):
        colour, marker = _RUN_COLOURS[i % 8], _MARKERS[i % 5]
        first = leading_attack(run.attacks, run.answers)
        if first is not None:
            series.append(_measured(first, f"{run.name}: measured", f"{colour} solid", marker, banded=False))
        claim = next(iter(run.claims), None) if run.answer is None else claim_of(run, run.answer)
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


# -- a figure of the report -------------------------------------------------------------------------------------------


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
            "input", type="range", id=f"{key}-rate", min=0, max=len(stops) - 1, value=first, aria_describedby=legend_id
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
            f"{_numbers.rate(confidence)} interval of {series.name}",
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
    name = f"{_numbers.rate(confidence)} interval"
    return [
        "" if stop < band[0, 0] * (1 - 1.0e-9) else f" ({name} {_numbers.interval(low, high, share=True)})"
        for stop, low, high in zip(stops.tolist(), lower.tolist(), upper.tolist(), strict=True)
    ]


# -- several runs as dots ---------------------------------------------------------------------------------------------


class Box(NamedTuple):
    """The size of a drawing and the margins around its axes, in pixels."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int

    @property
    def across(self) -> int:
        return self.width - self.left - self.right

    @property
    def up(self) -> int:
        return self.height - self.top - self.bottom


_BOX: Final = Box(520, 330, left=78, right=26, top=34, bottom=62)
_AXIS: Final[dict[str, str]] = {"class_": "axis-title", "text_anchor": "middle", "fill": "currentColor"}
_LINE: Final = 18.0  # height of a name
_LEAST_EXPOSURE: Final = 1.0e-3
_LONGEST_NAME: Final = 28


class _Dot(NamedTuple):
    name: str
    hue: str
    accuracy: float
    measured: float | None
    claimed: float | None


def exposure_chart(result: AuditResult, key: str) -> Html | None:
    """Accuracy against members found at the target's rate; None where fewer than two runs have an accuracy."""
    goal = result.runs[0].goal
    dots = []
    for i, run in enumerate(result.runs):
        if run.answer is not None and run.facts.test_accuracy is not None:
            found = answer_words.exposure(run, run.answer)
            dots.append(_Dot(run.name, _RUN_COLOURS[i % len(_RUN_COLOURS)], run.facts.test_accuracy, *found))
    if len(dots) < 2:
        return None
    low, high = _range([dot.accuracy for dot in dots])

    def x(share: float) -> float:
        return _BOX.left + (1 - math.log10(max(share, _LEAST_EXPOSURE)) / math.log10(_LEAST_EXPOSURE)) * _BOX.across

    def y(accuracy: float) -> float:
        return _BOX.top + (high - accuracy) / (high - low) * _BOX.up

    values = "; ".join(
        f"{dot.name}: accuracy {_numbers.percent(dot.accuracy, 'nearest')}, measured {_share(dot.measured)}, claimed "
        f"{_share(dot.claimed)}"
        for dot in dots
    )
    at = _numbers.rate(goal.fpr)
    target = x(goal.tpr)
    floor = _BOX.height - _BOX.bottom
    return scatter(
        _BOX,
        *(tick(x(share), floor + 21, "middle", _numbers.rate(share)) for share in (0.001, 0.01, 0.1, 1.0)),
        *(tick(_BOX.left - 7, y(value) + 4, "end", _numbers.rate(value)) for value in _round_numbers(low, high)),
        tag("path", d=f"M{target:.1f} {_BOX.top}V{floor}", stroke="currentColor", stroke_dasharray="5 4"),
        tick(target, _BOX.top - 8, "middle", f"target {_numbers.rate(goal.tpr)}"),
        *(_drawn(dot, x, y, at_height) for dot, at_height in zip(dots, _name_heights(dots, y), strict=True)),
        across=f"Members found at {at} false alarms",
        up="Test accuracy",
        label=f"Accuracy against members found at {at} false alarms. {values}.",
        note="Full dots are measured, rings are guaranteed, forecast or claimed. Up and to the left is better.",
        id=key,
        font_size=13.5,
    )


def scatter(
    box: Box, *parts: Html, across: str, up: str, label: str, note: str, **attributes: str | float | bool | None
) -> Html:
    """A figure of dots in a frame, with the titles of its axes and a note."""
    middle = (box.left + box.width - box.right) / 2, (box.top + box.height - box.bottom) / 2
    drawing = tag(
        "svg",
        tag("rect", x=box.left, y=box.top, width=box.across, height=box.up, class_="frame"),
        *parts,
        tag("text", across, x=middle[0], y=box.height - 10, **_AXIS),
        tag("text", up, transform=f"translate(15 {middle[1]:g}) rotate(-90)", **_AXIS),
        viewBox=f"0 0 {box.width} {box.height}",
        class_="chart",
        role="img",
        **attributes,
        aria_label=label,
    )
    return tag("figure", tag("div", drawing, class_="chart-box"), tag("p", note, class_="note"), class_="drawing")


def _range(values: list[float]) -> tuple[float, float]:
    """Limits that leave room, and never less than four points of accuracy."""
    middle, half = (min(values) + max(values)) / 2, max((max(values) - min(values)) * 0.65, 0.02)
    return max(0.0, middle - half), min(1.0, middle + half)


def _round_numbers(low: float, high: float) -> list[float]:
    step = next(one for one in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2) if (high - low) / one <= 6)
    return [k * step for k in range(math.ceil(low / step - 1.0e-9), math.floor(high / step + 1.0e-9) + 1)]


def _share(value: float | None) -> str:
    return "not known" if value is None else _numbers.percent(min(max(value, 0.0), 1.0), "nearest")


def tick(x: float, y: float, anchor: str, text: str, class_: str | None = None) -> Html:
    return tag("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, fill="currentColor", class_=class_)


def _name_heights(dots: list[_Dot], y: Callable[[float], float]) -> list[float]:
    """Each name above its dots, and below the names above it."""
    found, last = {}, -math.inf
    for i in sorted(range(len(dots)), key=lambda i: -dots[i].accuracy):
        found[i] = last = max(y(dots[i].accuracy) - 11, last + _LINE)
    return [found[i] for i in range(len(dots))]


def _drawn(dot: _Dot, x: Callable[[float], float], y: Callable[[float], float], name_at: float) -> Html:
    height = f"{y(dot.accuracy):.1f}"
    places = [x(value) for value in (dot.measured, dot.claimed) if value is not None]
    parts = []
    if len(places) == 2:
        parts.append(tag("path", d=f"M{places[0]:.1f} {height}H{places[1]:.1f}", class_="curve", stroke_width=1.5))
    if dot.claimed is not None:
        parts.append(tag("circle", cx=f"{x(dot.claimed):.1f}", cy=height, r=6, class_="curve", fill="none"))
    if dot.measured is not None:
        parts.append(tag("circle", cx=f"{x(dot.measured):.1f}", cy=height, r=5, class_="dot"))
    if places:
        left = sum(places) / len(places) < (_BOX.left + _BOX.width - _BOX.right) / 2
        place, anchor = (min(places) - 5, "start") if left else (max(places) + 5, "end")
        parts.append(tick(place, name_at, anchor, shortened(dot.name, _LONGEST_NAME), class_="name"))
    return tag("g", *parts, class_=f"look-{dot.hue}")


def shortened(text: str, most: int) -> str:
    """The text; what was cut ends with an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"
