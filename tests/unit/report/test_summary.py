"""One page: it says what the report says first, and names nobody."""

from __future__ import annotations

import pytest

from gmip.report.html import to_summary
from tests.unit.report import sample
from tests.unit.report.page import Page


def test_one_run():
    page = Page(to_summary(sample.exposed()))
    text = " ".join(page.texts[0].split())
    assert page.all("p", class_="verdict-title")[0][1] == "Fails the target"
    for said in ("Audit more candidates", "Failed: at 1% false alarms", "A false alarm is", "are wide."):
        assert said in text
    assert len(page.all("svg", class_="chart")) == 1 and page.all("script") == []


def test_several_runs_begin_with_the_one_to_ship():
    page = Page(to_summary(sample.three_runs()))
    text = page.all("main")[0][1]
    assert text.index("Ship 'GMIP noise'") < text.index("accuracy 87.3%") < text.index("13.6% (")
    assert len(page.all("li", class_="run-head")) == 3


@pytest.mark.parametrize("make", [sample.exposed, sample.three_runs])
def test_nobody_is_named(make):
    text = to_summary(make())
    for private in ("4711", "runs/", "gmip audit", "--seed", "1f0c7e4b9a02", "Linux-6.1"):
        assert private not in text


def test_what_does_not_fit_is_cut_and_said():
    result = sample.three_runs()
    runs = tuple(run.model_copy(update={"name": f"{run.name} {i}"}) for i in range(4) for run in result.runs)
    page = Page(to_summary(result.model_copy(update={"runs": runs, "title": "t" * 500})))
    assert "6 more runs are in the report." in page.texts[0]
    assert len(page.all("li", class_="run-head")) == 6
    assert page.all("h1")[0][1] == "t" * 139 + "\u2026"
