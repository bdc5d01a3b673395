"""A result.json of an earlier gmip is still read and rendered.

audit_result.json was written by `write_report` at commit 534a5af from the exposed run of tests/unit/report/sample.py,
with 30 candidates of each kind and fewer points of the promised curves; floats have six digits.
"""

from __future__ import annotations

import json
from pathlib import Path

from gmip.report import read_result, to_html, to_markdown, write_report
from tests.unit.report.page import Page

FILE = Path(__file__).parent / "audit_result.json"


def test_it_is_read_as_it_was_written():
    assert json.loads(read_result(FILE).model_dump_json(exclude_unset=True)) == json.loads(FILE.read_text())


def test_it_is_rendered(tmp_path):
    result = read_result(FILE)
    page = Page(to_html(result))
    assert page.all("h1")[0][1] == "CIFAR-10 classifier, release 3"
    badges = page.all("p", class_="badges")[0][1]
    assert badges.startswith("Leak measuredTarget") and "Promise refuted" in badges
    assert "tells members from others better than the promise allows" in page.texts[0]  # its words are its own
    assert "| Found at 1% | at most 3.39% |" in to_markdown(result)
    again = write_report(result, tmp_path)
    assert read_result(again.json) == result
