"""Several runs as dots: what each model is good for against what it gives away, promised and measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from gmip import _numbers
from gmip._html import Html, tag
from gmip.auditing.attacker_answers import DEFAULT_GOAL
from gmip.auditing.schema import AuditResult
from gmip.report import answer_words

__all__ = ["exposure_chart"]

_WIDTH, _HEIGHT = 640, 330
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 120, 16, 58
_LOWEST: Final = 1.0e-3
_HUES: Final = ("blue", "vermillion", "green", "purple", "orange", "wine", "olive", "ink")


class _Dot(NamedTuple):
    name: str
    hue: str
    accuracy: float
    measured: float | None
    promised: float | None


def exposure_chart(result: AuditResult, key: str) -> Html | None:
    """Accuracy against members found at the target's rate; None where fewer than two runs have an accuracy."""
    goal = result.runs[0].goal or DEFAULT_GOAL
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
        f"{dot.name}: accuracy {_numbers.percent(dot.accuracy, 'nearest')}, measured {_share(dot.measured)}, promised "
        f"{_share(dot.promised)}"
        for dot in dots
    )
    at = _numbers.rate(goal.fpr)
    target = x(goal.tpr)
    drawing = tag(
        "svg",
        tag("rect", x=_LEFT, y=_TOP, width=_WIDTH - _LEFT - _RIGHT, height=_HEIGHT - _TOP - _BOTTOM, class_="frame"),
        *(_tick(x(share), _HEIGHT - _BOTTOM + 21, "middle", _numbers.rate(share)) for share in (0.001, 0.01, 0.1, 1.0)),
        *(
            _tick(_LEFT - 7, y(value) + 4, "end", _numbers.percent(value, "nearest"))
            for value in np.linspace(low, high, 4)
        ),
        tag("path", d=f"M{target:.1f} {_TOP}V{_HEIGHT - _BOTTOM}", stroke="currentColor", stroke_dasharray="5 4"),
        _tick(target + 5, _TOP + 14, "start", f"target {_numbers.rate(goal.tpr)}"),
        *(part for dot in dots for part in _drawn(dot, x, y)),
        tag("text", f"Members found at {at} false alarms", x=(_LEFT + _WIDTH - _RIGHT) / 2, y=_HEIGHT - 10, **_AXIS),
        tag(
            "text", "Test accuracy", transform=f"translate(15 {(_TOP + _HEIGHT - _BOTTOM) / 2:g}) rotate(-90)", **_AXIS
        ),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        class_="chart",
        role="img",
        id=key,
        aria_label=f"Accuracy against members found at {at} false alarms. {told}.",
    )
    note = tag("p", "Full dots are measured, rings promised. Up and to the left is better.", class_="note")
    return tag("figure", tag("div", drawing, class_="chart-box"), note, class_="drawing")


_AXIS: Final[dict[str, str]] = {"class_": "axis-title", "text_anchor": "middle", "fill": "currentColor"}


def _range(values: list[float]) -> tuple[float, float]:
    """Limits that leave room, and never less than four points of accuracy."""
    middle, half = (min(values) + max(values)) / 2, max((max(values) - min(values)) * 0.65, 0.02)
    return max(0.0, middle - half), min(1.0, middle + half)


def _share(value: float | None) -> str:
    return "not known" if value is None else _numbers.percent(min(max(value, 0.0), 1.0), "nearest")


def _tick(x: float, y: float, anchor: str, text: str) -> Html:
    return tag("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, fill="currentColor")


def _drawn(dot: _Dot, x: Callable[[float], float], y: Callable[[float], float]) -> list[Html]:
    height = f"{y(dot.accuracy):.1f}"
    places = [x(value) for value in (dot.measured, dot.promised) if value is not None]
    parts = []
    if len(places) == 2:
        parts.append(tag("path", d=f"M{places[0]:.1f} {height}H{places[1]:.1f}", class_="curve", stroke_width=1.5))
    if dot.promised is not None:
        parts.append(tag("circle", cx=f"{x(dot.promised):.1f}", cy=height, r=6, class_="curve", fill="none"))
    if dot.measured is not None:
        parts.append(tag("circle", cx=f"{x(dot.measured):.1f}", cy=height, r=5, class_="dot"))
    if places:
        parts.append(_tick(max(places) + 10, y(dot.accuracy) + 4, "start", dot.name))
    return [tag("g", *parts, class_=f"look-{dot.hue}")]
