"""The figures of the report: the curves with their legend and what the script reads, scores as bars, noise as a line.

Python draws everything and words every number; script.js only looks up what to show.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from gmip import _numbers
from gmip._curves import corners
from gmip._html import Html, embedded_json, tag
from gmip._svg import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Axes, Role, Series, chart, classes, guessing, swatch
from gmip.auditing.curves import excludes_nothing
from gmip.auditing.schema import AttackOutcome, AuditResult, ClaimedCurve, Curve, NoiseCurve, RunAudit
from gmip.auditing.verdict import claim_of, leading_attack
from gmip.report import answer_words
from gmip.report.answer_words import curve_name
from gmip.vocabulary import Rate

# -- which curves of an audit are drawn on the same axes --------------------------------------------------------------


T = TypeVar("T")

_TWO_DIGITS = (*range(10, 20), *range(20, 40, 2), *range(40, 100, 5))
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
    names: tuple[str, ...] = ()  # of the numbers of the first curves at the target's rate

    @property
    def first_measured(self) -> float:
        """The lowest rate at which any attack was measured."""
        return min((s.start for s in self.series if s.start), default=0.0)

    @property
    def stops(self) -> list[float]:
        """The rates that can be read out, of two digits, from `lowest` to 1, and that of the target."""
        decades = range(round(math.log10(self.lowest)), 0)
        found = {float(f"{k}e{decade - 1}") for decade in decades for k in _TWO_DIGITS}
        return sorted({*found, 1.0, *([] if self.target is None else [max(self.target[0], self.lowest)])})


def run_figure(run: RunAudit, key: str) -> Figure:
    """All that is known of one run: attacks (the one that the answer rests on with its band), claims, prediction,
    guessing."""
    lowest = _lowest([run])
    first = leading_attack(run.attacks, run.answers)
    attacks = [
        _measured(
            attack,
            attack.title,
            _ATTACK_LOOKS[i % 5],
            _MARKERS[(i + i // 5) % 5],
            run.goal if attack is first else None,
        )
        for i, attack in enumerate(run.attacks)
    ]
    claims = [
        _claimed(claim, curve_name(claim), _CLAIM_LOOKS[claim.key], prominent=claim.key == "claimed")
        for claim in run.claims
        if not _says_nothing(claim, run.goal)
    ]
    names = tuple(f"{key.removesuffix('-figure')}/found/{one.attack}" for one in run.attacks)
    return Figure(key, (*attacks, *claims, guessing()), lowest, max(run.goal.fpr, lowest), _goal(run), names)


def overview_figure(result: AuditResult, key: str) -> Figure:
    """Each run shows the attack that its answer rests on and, dashed in the same colour, the claim about such an
    attacker."""
    lowest = _lowest(result.runs)
    series = []
    for i, run in enumerate(result.runs):
        colour, marker = _RUN_COLOURS[i % 8], _MARKERS[i % 5]
        first = leading_attack(run.attacks, run.answers)
        if first is not None:
            series.append(_measured(first, f"{run.name}: measured", f"{colour} solid", marker))
        claim = next(iter(run.claims), None) if run.answer is None else claim_of(run, run.answer)
        if claim is not None and not _says_nothing(claim, run.goal):
            series.append(_claimed(claim, f"{run.name}: {answer_words.claim_word(claim)}", f"{colour} dash"))
    goal = _goal(result.runs[0])
    return Figure(key, (*series, guessing()), lowest, max(goal[0], lowest), goal)


def _says_nothing(claim: ClaimedCurve, goal: Rate) -> bool:
    """Whether it is a bound that allows all at the goal's rate: the card says "no guarantee" then."""
    return claim.is_bound and excludes_nothing(claim.tpr(goal.fpr))


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


def _measured(attack: AttackOutcome, name: str, look: str, marker: str, goal: Rate | None = None) -> Series:
    """The ROC of an attack; with a band where the goal is given, which is the interval of the card at its FPR."""
    fpr, tpr = corners(attack.roc.fpr, attack.roc.tpr)
    return Series(
        name=name,
        role="attack",
        look=look,
        fpr=fpr,
        tpr=tpr,
        start=1 / attack.non_members if attack.non_members else 0.0,
        marker=marker,
        band=None if goal is None else _band(attack, goal),
        prominent=goal is not None,
    )


def _claimed(claim: ClaimedCurve, name: str, look: str, *, prominent: bool = False) -> Series:
    fpr, tpr = _with_exact(claim.curve, claim.tpr_at)
    role: Role = "expectation" if claim.key == "prediction" else "claim"
    return Series(name, role, look, fpr, tpr, prominent=prominent, forecast=not claim.is_bound)


def _band(attack: AttackOutcome, goal: Rate) -> Array | None:
    """The intervals at all rates, those of the tables included; rows FPR, lower and upper end."""
    band = attack.band
    known = {x: (low, high) for x, low, high in zip(band.fpr, band.lower, band.upper, strict=True)}
    exact = {key: (one.lower, one.upper) for key, one in attack.tpr_at.items()}
    if (found := attack.found(goal.fpr)) is not None:
        exact[_numbers.rate_key(goal.fpr)] = (found.lower, found.upper)
    rows = [(x, *ends) for x, ends in sorted(_updated(known, exact).items())] if known else []
    return np.array(rows).T if len(rows) > 1 else None


def _with_exact(curve: Curve, exact: Mapping[str, float]) -> tuple[Array, Array]:
    """The points of a curve and the exact values that are known beside them, which win."""
    known = _updated(dict(zip(curve.fpr, curve.tpr, strict=True)), exact)
    return corners(list(known), list(known.values()))


def _updated(known: Mapping[float, T], exact: Mapping[str, T]) -> dict[float, T]:
    """What is known at rates, with what is known exactly at rates that are written as strings."""
    found = {float(key): value for key, value in exact.items()}
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
        tag("ul", *(_legend_item(figure, i, stops[first]) for i in range(len(figure.series))), class_="legend"),
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
    if figure.target is not None:
        fpr, tpr = map(_numbers.rate, figure.target)
        ring = tag(
            "svg", tag("circle", cx=8, cy=8, r=6, class_="ring", fill="none", stroke_width=2), width=36, height=16
        )
        notes.append(
            tag(
                "p",
                ring,
                f" Target: at most {tpr} at {fpr} false alarms; curves above the ring exceed it",
                class_="note",
            )
        )
    start = figure.first_measured
    if start > figure.lowest:
        text = f"Not measured: lower rates than one false alarm among {_numbers.count(round(1 / start))} non-members"
        notes.append(tag("p", tag("span", class_="swatch-unmeasured", aria_hidden="true"), text, class_="note"))
    return notes


def _legend_title(rate: str) -> str:
    return f"Members found at a {rate} false-alarm rate:"


def _legend_item(figure: Figure, index: int, rate: float) -> Html:
    series = figure.series[index]
    found, target = series.at(rate), figure.target
    named = found is not None and target is not None and rate == target[0] and index < len(figure.names)
    return tag(
        "li",
        tag(
            "button",
            swatch(series),
            tag("span", series.name, class_="name"),
            tag("span", series.text(found), class_="value", data_name=figure.names[index] if named else None),
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
        "interval": f" ({_numbers.rate(confidence)} interval {{ends}})",
        "prefix": series.prefix,
        "tpr": [None if tpr is None else float(f"{tpr:.4g}") for tpr in found],
        "values": [None if tpr is None else series.percent(tpr) for tpr in found],
        "intervals": None if series.band is None else _interval_texts(series.band, stops),
    }


def _interval_texts(band: Array, stops: Array) -> list[str]:
    # Between two rates the lower end of the one below and the upper end of the one above hold.
    last = len(band[0]) - 1
    lower = band[1, np.clip(np.searchsorted(band[0], stops, side="right") - 1, 0, last)]
    upper = band[2, np.clip(np.searchsorted(band[0], stops, side="left"), 0, last)]
    return [
        "" if stop < band[0, 0] * (1 - 1.0e-9) else _numbers.interval(low, high, share=True)
        for stop, low, high in zip(stops.tolist(), lower.tolist(), upper.tolist(), strict=True)
    ]


# -- drawings of dots, bars and lines ---------------------------------------------------------------------------------


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

    def x(self, share: float) -> float:
        """The place at a share of the axis, from the left."""
        return self.left + share * self.across

    def y(self, share: float) -> float:
        """The place at a share of the axis, from below."""
        return self.top + (1.0 - share) * self.up


_BARS: Final = 10
_BOX: Final = Box(560, 300, left=80, right=64, top=26, bottom=58)
_AXIS: Final[dict[str, str]] = {"class_": "axis-title", "text_anchor": "middle", "fill": "currentColor"}


def histogram_html(run: RunAudit, key: str) -> Html | None:
    """The scores of members and non-members; shares, so that both sides compare."""
    bins = run.histogram
    if bins is None or not sum(bins.members) or not sum(bins.non_members):
        return None
    shares = [[n / sum(side) for n in side] for side in (bins.members, bins.non_members)]
    top, number, floor = max(map(max, shares)), len(bins.members), _BOX.y(0.0)
    uneven = bins.edges[-1] - bins.edges[-2] > 2.0 * min(b - a for a, b in pairwise(bins.edges))

    def outline(side: Sequence[float]) -> str:
        steps = [f"V{_BOX.y(share / top):.1f}H{_BOX.x(i / number):.1f}" for i, share in enumerate(side, 1)]
        return f"M{_BOX.left} {floor:g}{''.join(steps)}V{floor:g}Z"

    looks = (("look-orange", "members", "6 3"), ("look-blue", "non-members", None))
    drawn = [
        tag("path", d=outline(side), class_=f"{hue} outline", stroke_dasharray=dash)
        for side, (hue, _, dash) in zip(shares, looks, strict=True)
    ]
    names = [
        tag("g", tick(_BOX.left + 10 + 100 * i, _BOX.top - 8, "start", name, "name"), class_=hue)
        for i, (hue, name, _) in enumerate(looks)
    ]
    places = sorted({round(k * number / 4) for k in range(5)})
    ends = [tick(_BOX.x(i / number), floor + 20, "middle", _numbers.number(bins.edges[i], "nearest")) for i in places]
    title = next((one.title for one in run.attacks if one.attack == run.exposed_by), "strongest attack")
    return scatter(
        _BOX,
        *drawn,
        *names,
        *ends,
        across=f"Score ({shortened(title, 40)}): higher means member",
        up="Share of each side",
        label=f"Histogram of the scores of members and non-members by {title}. The more they overlap, the less leaks.",
        note="The more the two overlap, the less leaks. The first and last bar hold what lies beyond."
        + (" The axis is compressed on both sides." if uneven else ""),
        id=key,
    )


def bars_html(run: RunAudit, key: str) -> Html:
    """The most exposed records as bars of their scores, from the score of a typical candidate."""
    shown = run.exposed[:_BARS]
    low = min(one.score for one in shown)
    if run.histogram is not None:  # where most non-members are
        places = np.cumsum(run.histogram.non_members)
        low = min(low, run.histogram.edges[int(np.searchsorted(places, places[-1] / 2))])
    span = max(shown[0].score - low, 1.0e-300)
    box = Box(560, 24 * len(shown) + 30, left=170, right=70, top=4, bottom=26)
    bars = []
    for i, one in enumerate(shown):
        top, wide = box.top + 24 * i, max(2.0, min(1.0, (one.score - low) / span) * box.across)
        group = "" if one.group is None else f" ({one.group})"
        bars += [
            tag("rect", x=box.left, y=top + 4, width=f"{wide:.1f}", height=15, class_="dot look-orange"),
            tick(box.left - 7, top + 16, "end", shortened(f"{one.id}{group}", 22)),
            tick(box.left + wide + 6, top + 16, "start", _numbers.number(one.score, "nearest")),
        ]
    names = ", ".join(str(one.id) for one in shown)
    note = "Bars begin at the median score of non-members." if run.histogram is not None else ""
    return scatter(box, *bars, across="Score", up="", label=f"The most exposed records: {names}.", note=note, id=key)


def noise_html(
    run: RunAudit, curve: NoiseCurve, key: str, accurate: Sequence[tuple[float, float, float, float]]
) -> Html:
    """Noise against members found, by the accountant, and against accuracy: points (noise, value, lower, upper)."""
    goal = run.goal
    known = [one for one in accurate if one[0] <= max(curve.noise_std)]
    least = min(0.001, goal.fpr / 10)
    largest = max(curve.noise_std)

    def x(noise: float) -> float:
        return _BOX.x(noise / largest)

    def y(share: float) -> float:
        return _BOX.y(1.0 - math.log10(max(share, least)) / math.log10(least))

    low, high = limits([end for point in known for end in point[1:]]) if known else (0.0, 1.0)

    def right(value: float) -> float:
        return _BOX.y((value - low) / (high - low))

    points = " ".join(f"{x(n):.1f},{y(t):.1f}" for n, t in zip(curve.noise_std, curve.tpr, strict=True))
    own = curve.noise_std[curve.own], curve.tpr[curve.own]
    word = "guarantee" if curve.kind == "bound" else "forecast"
    values = "; ".join(
        f"noise {_numbers.noise(n)}: {_numbers.percent(t, 'up')}"
        for n, t in zip(curve.noise_std, curve.tpr, strict=True)
    )
    bars = [
        tag(
            "g",
            tag("path", d=f"M{x(n):.1f} {right(a):.1f}V{right(b):.1f}", class_="curve", stroke_width=2),
            tag("rect", x=f"{x(n) - 4:.1f}", y=f"{right(value) - 4:.1f}", width=8, height=8, class_="dot"),
            class_="look-purple",
        )
        for n, value, a, b in known
    ]
    scale = [
        tick(_BOX.width - _BOX.right + 7, right(v) + 4, "start", _numbers.rate(v)) for v in _round_numbers(low, high)
    ]
    decades = [10.0**-k for k in range(round(-math.log10(least)) + 1)]
    return scatter(
        _BOX,
        tag("path", d=f"M{_BOX.left} {y(goal.tpr):.1f}H{_BOX.width - _BOX.right}", class_="limit-line"),
        tick(_BOX.width - _BOX.right - 6, y(goal.tpr) - 6, "end", f"limit {_numbers.rate(goal.tpr)}"),
        tag("g", tag("polyline", points=points, fill="none", stroke_width=2.4, class_="curve"), class_="look-blue"),
        tag("g", tag("circle", cx=f"{x(own[0]):.1f}", cy=f"{y(own[1]):.1f}", r=6, class_="dot"), class_="look-blue"),
        *bars,
        *(tick(_BOX.left - 7, y(share) + 4, "end", _numbers.rate(share)) for share in decades),
        *((*scale, _right_title("Test accuracy")) if known else ()),
        *(
            tick(x(n), _BOX.y(0.0) + 20, "middle", _numbers.number(n, "nearest", 2))
            for n in (0.0, largest / 2, largest)
        ),
        across="Noise on the mean gradient (std)",
        up=f"Members found ({word})",
        label=f"Members found at {_numbers.rate(goal.fpr)} false alarms by noise, {word}: {values}.",
        note=f"Line: members found at {_numbers.rate(goal.fpr)} false alarms if only the noise changes ({word}, "
        f"{curve.for_whom}); dot: this run."
        + (" Squares, right axis: test accuracy with its 95% interval." if known else ""),
        id=key,
    )


def _right_title(text: str) -> Html:
    at = f"translate({_BOX.width - 10} {(_BOX.top + _BOX.height - _BOX.bottom) / 2:g}) rotate(90)"
    return tag("text", text, transform=at, **_AXIS)


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


def limits(values: Sequence[float], *, share: bool = True) -> tuple[float, float]:
    """Ends of an axis that leave room, and never less than four points of accuracy."""
    middle, half = (min(values) + max(values)) / 2, max((max(values) - min(values)) * 0.65, 0.02)
    low, high = middle - half, middle + half
    return (max(0.0, low), min(1.0, high)) if share else (low, high)


def _round_numbers(low: float, high: float) -> list[float]:
    step = next(one for one in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2) if (high - low) / one <= 6)
    return [k * step for k in range(math.ceil(low / step - 1.0e-9), math.floor(high / step + 1.0e-9) + 1)]


def tick(x: float, y: float, anchor: str, text: str, class_: str | None = None) -> Html:
    return tag("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, fill="currentColor", class_=class_)


def shortened(text: str, most: int) -> str:
    """The text; what was cut ends with an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"
