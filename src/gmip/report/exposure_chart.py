"""Several runs as dots: what each model is good for against what it gives away, claimed and measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from gmip import _numbers
from gmip._html import Html, tag
from gmip.auditing.schema import AuditResult
from gmip.report import answer_words

__all__ = ["exposure_chart"]

_WIDTH, _HEIGHT = 520, 330
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 26, 34, 62
_LINE: Final = 18.0  # height of a name
_LOWEST: Final = 1.0e-3
_LONGEST_NAME: Final = 28
_HUES: Final = ("blue", "vermillion", "green", "purple", "orange", "wine", "olive", "ink")


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
        answer = answer_words.front(result, run)
        if answer is not None and run.facts.test_accuracy is not None:
            found = answer_words.exposure(run, answer)
            dots.append(_Dot(run.name, _HUES[i % len(_HUES)], run.facts.test_accuracy, *found))
    if len(dots) < 2:
        return None
    low, high = _range([dot.accuracy for dot in dots])

    def x(share: float) -> float:
        return _LEFT + (1 - math.log10(max(share, _LOWEST)) / math.log10(_LOWEST)) * (_WIDTH - _LEFT - _RIGHT)

    def y(accuracy: float) -> float:
        return _TOP + (high - accuracy) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    told = "; ".join(
        f"{dot.name}: accuracy {_numbers.percent(dot.accuracy, 'nearest')}, measured {_share(dot.measured)}, claimed "
        f"{_share(dot.claimed)}"
        for dot in dots
    )
    at = _numbers.rate(goal.fpr)
    target = x(goal.tpr)
    drawing = tag(
        "svg",
        tag("rect", x=_LEFT, y=_TOP, width=_WIDTH - _LEFT - _RIGHT, height=_HEIGHT - _TOP - _BOTTOM, class_="frame"),
        *(_tick(x(share), _HEIGHT - _BOTTOM + 21, "middle", _numbers.rate(share)) for share in (0.001, 0.01, 0.1, 1.0)),
        *(_tick(_LEFT - 7, y(value) + 4, "end", _numbers.rate(f"{value:.6g}")) for value in _round_numbers(low, high)),
        tag("path", d=f"M{target:.1f} {_TOP}V{_HEIGHT - _BOTTOM}", stroke="currentColor", stroke_dasharray="5 4"),
        _tick(target, _TOP - 8, "middle", f"target {_numbers.rate(goal.tpr)}"),
        *(_drawn(dot, x, y, at_height) for dot, at_height in zip(dots, _name_heights(dots, y), strict=True)),
        tag("text", f"Members found at {at} false alarms", x=(_LEFT + _WIDTH - _RIGHT) / 2, y=_HEIGHT - 10, **_AXIS),
        tag(
            "text", "Test accuracy", transform=f"translate(15 {(_TOP + _HEIGHT - _BOTTOM) / 2:g}) rotate(-90)", **_AXIS
        ),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        class_="chart",
        role="img",
        id=key,
        font_size=13.5,
        aria_label=f"Accuracy against members found at {at} false alarms. {told}.",
    )
    note = tag(
        "p",
        "Full dots are measured, rings are guaranteed, forecast or claimed. Up and to the left is better.",
        class_="note",
    )
    return tag("figure", tag("div", drawing, class_="chart-box"), note, class_="drawing")


_AXIS: Final[dict[str, str]] = {"class_": "axis-title", "text_anchor": "middle", "fill": "currentColor"}


def _range(values: list[float]) -> tuple[float, float]:
    """Limits that leave room, and never less than four points of accuracy."""
    middle, half = (min(values) + max(values)) / 2, max((max(values) - min(values)) * 0.65, 0.02)
    return max(0.0, middle - half), min(1.0, middle + half)


def _round_numbers(low: float, high: float) -> list[float]:
    step = next(one for one in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2) if (high - low) / one <= 6)
    return [k * step for k in range(math.ceil(low / step - 1.0e-9), math.floor(high / step + 1.0e-9) + 1)]


def _share(value: float | None) -> str:
    return "not known" if value is None else _numbers.percent(min(max(value, 0.0), 1.0), "nearest")


def _tick(x: float, y: float, anchor: str, text: str, class_: str | None = None) -> Html:
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
        left = sum(places) / len(places) < (_LEFT + _WIDTH - _RIGHT) / 2
        place, anchor = (min(places) - 5, "start") if left else (max(places) + 5, "end")
        parts.append(_tick(place, name_at, anchor, _shortened(dot.name), class_="name"))
    return tag("g", *parts, class_=f"look-{dot.hue}")


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}\u2026"
