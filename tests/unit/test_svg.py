"""Drawings stand alone: in a notebook no style sheet and no script help them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from gmip._svg import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Axes, Series, chart, guessing, picture
from tests.unit.report.page import Page

STEPS = Series(
    name="attack <b>",
    role="attack",
    look="blue solid",
    fpr=np.array([0.0, 0.25, 0.5, 1.0]),
    tpr=np.array([0.5, 0.75, 1.0, 1.0]),
    start=0.25,
    marker="circle",
    band=np.array([[0.25, 1.0], [0.5, 0.9], [0.9, 1.0]]),
)
BOUND = Series("bound", "claim", "vermillion dash", np.array([0.0, 0.1, 0.5, 1.0]), np.array([0.1, 0.4, 0.9, 1.0]))


def test_what_curves_say():
    assert STEPS.at(0.2) is None and STEPS.at(0.3) == 0.75 and STEPS.text(STEPS.at(0.2)) == "not measured"
    assert BOUND.at(0.1) == 0.4 and BOUND.at(0.3) == pytest.approx(0.86)  # 0.9 - 0.2 * 0.2, the line on the right
    assert BOUND.text(0.12345) == "at most 12.4%" and STEPS.text(0.12345) == "12.3%"
    assert guessing().at(0.3) == pytest.approx(0.3)


@pytest.mark.parametrize("lowest", [None, 1e-3])
def test_axes(lowest):
    axes = Axes(lowest)
    assert axes.x(1.0) == WIDTH - RIGHT and axes.y(1.0) == TOP
    start = lowest or 0.0
    assert axes.x(start) == pytest.approx(LEFT) and axes.y(start) == pytest.approx(HEIGHT - BOTTOM)
    rates = axes.rates(1)
    assert rates[0] == pytest.approx(start) and rates[-1] == 1.0 and len(rates) == WIDTH - LEFT - RIGHT + 1
    np.testing.assert_allclose(np.diff(axes.x(rates)), 1.0)


def test_staircase_is_drawn_corner_by_corner():
    page = Page(chart([STEPS], Axes(None), label="x"))
    (path,) = [attributes["d"] for attributes, _ in page.all("path", class_="curve")]
    across, up = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    places = [float(x) for x in re.findall(r"[\d.]+", path or "")]
    corners = [LEFT, HEIGHT - BOTTOM, TOP + up / 2, LEFT + across / 4, TOP + up / 4, LEFT + across / 2, TOP]
    assert places[:7] == pytest.approx(corners, abs=0.06)


def test_colours_and_dashes_need_no_style_sheet():
    page = Page(chart([STEPS, BOUND], Axes(1e-3), label="x", unmeasured=0.25))
    bound, steps = [attributes for attributes, _ in page.all("path", class_="curve")]  # the first lies on top
    assert bound["stroke"] == "#d55e00" and bound["stroke-dasharray"] == "8 4" and bound["fill"] == "none"
    assert steps["stroke"] == "#0a7abf" and "stroke-dasharray" not in steps
    assert {attributes.get("fill") for attributes, _ in page.all("text", class_="axis-title")} == {"currentColor"}
    assert len(page.all("rect", class_="unmeasured")) == 1


def contrast(colour: str, ground: float) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    light, dark = sorted([0.2126 * red + 0.7152 * green + 0.0722 * blue, ground], reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colour", ["blue", "vermillion", "green", "purple", "orange", "wine", "olive", "grey"])
def test_colours_show_on_dark_and_light_ground(colour):
    drawn = Series("a", "chance", f"{colour} solid", np.array([0.0, 1.0]), np.array([0.0, 1.0])).colour
    assert contrast(drawn, 1.0) >= 3 and contrast(drawn, 0.0075) >= 3  # white, and the #111111 of dark notebooks


def test_names_are_text():
    page = Page(picture([STEPS], label='a "label" <i>', lowest=1e-3))
    assert "attack <b>" in page.texts[0]
    assert page.all("svg", role="img")[0][0]["aria-label"] == 'a "label" <i>'
    assert not page.all("b") and not page.all("i")


def d(series: Series, axes: Axes, which: str = "curve") -> str:
    (attributes, _), *_ = Page(chart([series], axes, label="x")).all("path", class_=which)
    return attributes["d"] or ""


def test_no_cliff_where_nothing_is_found_at_first():
    """A TPR of 0 has no place on logarithmic axes: the curve begins where it is found, not below the drawing."""
    none = Series("a", "attack", "blue solid", np.array([0.0, 0.1, 1.0]), np.array([0.0, 0.4, 1.0]), start=0.01)
    axes = Axes(1e-3)
    places = [float(x) for x in re.findall(r"[\d.]+", d(none, axes))]
    assert places[:2] == pytest.approx([float(axes.x(0.1)), float(axes.y(0.4))], abs=0.06)
    assert max(places[1:2] + [float(y) for y in re.findall(r"V([\d.]+)", d(none, axes))]) <= HEIGHT - BOTTOM


def test_a_band_ends_where_the_curve_does():
    band = np.array([[0.25, 0.5], [0.5, 0.6], [0.9, 0.95]])
    cut = Series("a", "attack", "blue solid", STEPS.fpr, STEPS.tpr, start=0.25, band=band)
    assert f"L{WIDTH - RIGHT} {TOP}L" in d(cut, Axes(None), "band")


def test_steep_curves_are_smooth_on_linear_axes():
    """Between two pixels from the left the curve rises by most of the drawing: it is drawn there, too."""
    rates = np.append(0.0, np.geomspace(1e-5, 1.0, 200))
    steep = Series("a", "claim", "blue solid", rates, rates**0.1)
    places = [float(x) for x in re.findall(r"[\d.]+", d(steep, Axes(None)))]
    heights = np.array(places[1::2])
    assert np.max(np.abs(np.diff(heights[1:]))) < 0.12 * HEIGHT
