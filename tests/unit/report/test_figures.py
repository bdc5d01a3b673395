"""The figures: which curves they show, and what legend, table and script are told."""

from __future__ import annotations

import math
import re

import pytest

from gmip import _numbers
from gmip._svg import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH
from gmip.auditing.schema import Band
from gmip.report.figures import figure_html, overview_figure, run_figure
from tests.unit.report import sample
from tests.unit.report.page import Page


@pytest.fixture(scope="module")
def page() -> Page:
    figure = run_figure(sample.consistent().runs[0], "f")
    return Page(figure_html(figure, title="Title", confidence=0.95))


def paths(page: Page, look: str) -> list[str]:
    """The `d` of the curve of a look, in the linear and the logarithmic drawing."""
    found = []
    for i, (name, attributes) in enumerate(page.elements):
        if name == "g" and look in (attributes.get("class") or "").split():
            curve = next(a for n, a in page.elements[i + 1 :] if n == "path" and a.get("class") == "curve")
            found.append(curve["d"] or "")
    return found


def numbers(path: str) -> list[float]:
    return [float(x) for x in re.findall(r"-?\d+(?:\.\d+)?", path)]


def test_chance_runs_from_corner_to_corner(page):
    for path in paths(page, "look-grey"):
        places = numbers(path)
        assert places[:2] == [LEFT, HEIGHT - BOTTOM] or places[0] < LEFT  # the logarithm of 0 is outside
        assert places[-2:] == [WIDTH - RIGHT, TOP]
        inside = [(x, y) for x, y in zip(places[::2], places[1::2], strict=True) if x >= LEFT]
        for x, y in inside:
            across, up = (x - LEFT) / (WIDTH - LEFT - RIGHT), (HEIGHT - BOTTOM - y) / (HEIGHT - TOP - BOTTOM)
            assert across == pytest.approx(up, abs=0.001)


def test_claim_where_it_belongs(page):
    log, linear = paths(page, "look-vermillion")
    claimed = sample.consistent().runs[0].claims[0].tpr_at["0.01"]
    x = LEFT + (1 - math.log10(0.01) / math.log10(1e-4)) * (WIDTH - LEFT - RIGHT)
    y = HEIGHT - BOTTOM - (1 - math.log10(claimed) / math.log10(1e-4)) * (HEIGHT - TOP - BOTTOM)
    drawn = dict(zip(numbers(log)[::2], numbers(log)[1::2], strict=True))
    assert drawn[round(x)] == pytest.approx(y, abs=0.06)
    half = LEFT + 0.5 * (WIDTH - LEFT - RIGHT)
    assert f"L{half:g} " in linear


def test_measured_curve_is_a_staircase_that_starts_at_one_false_alarm(page):
    log, linear = paths(page, "look-blue")
    assert re.fullmatch(r"M[\d.]+ [\d.]+(V[\d.]+)?(H[\d.]+V[\d.]+)+", linear)
    assert re.fullmatch(r"M[\d.]+ [\d.]+(H[\d.]+V[\d.]+)+", log)
    assert numbers(log)[0] == pytest.approx(LEFT + (1 - 2.69897 / 4) * (WIDTH - LEFT - RIGHT), abs=0.06)  # 1/500
    assert linear.startswith(f"M{LEFT} {HEIGHT - BOTTOM}")


def test_text_alternative(page):
    labels = [attributes["aria-label"] for attributes, _ in page.all("svg", role="img")]
    assert len(labels) == 2
    for label in labels:
        assert label is not None and "GLiR 11%; LiRA, 16 shadow models 5.4%" in label
        assert "Guarantee by the accountant (GMIP) at most 12%" in label


def test_every_curve_has_a_name_in_the_legend(page):
    names = [text for _, text in page.all("span", class_="name")]
    data = page.data("f-data")
    assert names == [series["name"] for series in data["series"]] and len(names) == 8
    assert len(page.all("g", class_="series")) == 16


def test_data_for_the_script(page):
    data = page.data("f-data")
    assert data["lowest"] == 1e-4 and data["stops"][0] == 1e-4 and data["stops"][-1] == 1
    assert len(data["stops"]) == len(data["rates"]) == 129
    assert [data["rates"][i] for i in (0, 1, 64, 65, 128)] == ["0.01%", "0.011%", "1%", "1.1%", "100%"]
    slider = page.all("input")[0][0]
    assert slider["max"] == "128" and slider["value"] == "64"  # 1% is in the middle of four powers of ten
    first, claimed = data["series"][0], data["series"][3]
    assert first["values"][64] == "11%" and first["tpr"][64] == 0.11
    assert first["values"][0] is None and first["tpr"][0] is None  # below one false alarm
    assert claimed["prefix"] == "at most " and claimed["values"][64] == "12%"
    assert all(len(one[key]) == 129 for one in data["series"] for key in ("tpr", "values"))
    at = sample.consistent().runs[0].attacks[0].tpr_at["0.01"]
    assert first["intervals"][64] == _numbers.interval(at.lower, at.upper, share=True)
    assert first["interval"] == " (95% interval {ends})"


def test_intervals_between_rates_are_the_wider_ones():
    attack = sample.attack(1.0, seed=1).model_copy(
        update={"band": Band(fpr=(0.02, 0.04), lower=(0.1, 0.2), upper=(0.3, 0.5)), "tpr_at": {}}
    )
    run = sample.consistent().runs[0].model_copy(update={"attacks": (attack,)})
    data = Page(figure_html(run_figure(run, "f"), title="Title", confidence=0.9)).data("f-data")
    texts = dict(zip(data["rates"], data["series"][0]["intervals"], strict=True))
    assert texts["2%"] == "10% to 30%" and texts["3%"] == "10% to 50%"
    assert texts["1.9%"] == ""


def test_unmeasured_rates_are_shaded_and_explained(page):
    assert len(page.all("rect", class_="unmeasured")) == 1
    assert "lower rates than one false alarm among 500 non-members" in page.texts[0]
    run = sample.bare().runs[0]
    empty = Page(figure_html(run_figure(run, "f"), title="Title", confidence=0.95))
    assert not empty.all("rect", class_="unmeasured") and "Not measured" not in empty.texts[0]


def test_overview():
    figure = overview_figure(sample.three_runs(), "f")
    overview = Page(figure_html(figure, title="Title", confidence=0.95))
    assert len(paths(overview, "look-blue")) == 4  # measured and claimed, twice drawn
    assert not overview.all("path", class_="band")
