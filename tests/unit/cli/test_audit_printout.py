"""What `gmip audit` prints."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from gmip.auditing.schema import Gate
from gmip.cli.audit import print_audit
from gmip.report import ReportFiles, answer_words, card, write_junit, write_report
from tests.unit.report import sample

FILES = {
    "shared": "report-to-share.html",
    "html": "report.html",
    "markdown": "report.md",
    "json": "result.json",
    "summary": "summary.html",
}
WRITTEN = ReportFiles(folder=Path("audit"), **{name: Path("audit") / file for name, file in FILES.items()})


def test_the_answer_comes_first(capsys):
    result = sample.exposed()
    print_audit(result, WRITTEN)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"FAILS THE TARGET: {card.headline(result.runs[0])}"
    assert lines[-4].strip() == "- The run has 500 records: intervals are wide."
    assert lines[-2:] == ["Report: audit/report.html", "To share: audit/report-to-share.html"]


def test_of_several_runs_the_one_to_ship_comes_first_and_each_answer_names_its_run(capsys):
    result = sample.three_runs()
    print_audit(result, WRITTEN)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == answer_words.ship(result)[1]
    headlines = [f"{card.look(run).title.upper()}: {card.headline(run)}" for run in result.runs]
    assert [line for line in lines if line in headlines] == headlines
    assert [line for line in lines if line.startswith("--- ")] == [f"--- {run.name}" for run in result.runs]


def test_the_price_of_advice_is_printed_where_it_was_asked_for(capsys):
    print_audit(sample.tried(), WRITTEN)
    text = capsys.readouterr().out
    assert "cifar10-head: Ways to at most 5% at 1% false alarms, the most accurate first" in text
    assert "86.1% \u00b1 1.23%" in text and "not measured" in text and "More data was not tried: " in text
    assert "\n# More data\ngmip account --dataset-size 2000 " in text
    print_audit(sample.exposed(), WRITTEN)
    assert "Ways to" not in capsys.readouterr().out


GATES = {
    "none": None,
    "passed": {"tpr_lower": 0.02, "passed": True},
    "failed": {"tpr_lower": 0.08, "passed": False},
    "could not fail": {"tpr_lower": 0.0, "passed": True, "blind": True},
}
BEGINS = {"passed": "Passed: ", "failed": "Failed: ", "could not fail": "Passed only because it could not fail"}


@pytest.mark.parametrize("make", [sample.exposed, sample.three_runs])
@pytest.mark.parametrize("gate", GATES)
def test_a_gate_is_seen_everywhere(tmp_path: Path, capsys: Any, make: Any, gate: str):
    """Terminal, page, summary, Markdown, JUnit and JSON: what is said of a gate, and nothing where there is none."""
    given = GATES[gate]
    made = None if given is None else Gate(**({"fpr": 0.01, "limit": 0.05, "attack": "glir"} | given))
    result = make()
    result = result.model_copy(update={"runs": tuple(run.model_copy(update={"gate": made}) for run in result.runs)})
    written = write_report(result, tmp_path)
    print_audit(result, written)
    said = capsys.readouterr().out
    lines = [line for line in said.splitlines() if line.startswith("Gate: ")]
    assert len(lines) == (0 if made is None else len(result.runs))
    assert all(line.startswith(f"Gate: {BEGINS[gate]}") for line in lines)
    for file in (written.html, written.shared, written.summary):
        text = re.sub("<[^>]*>", "", file.read_text(encoding="utf-8"))
        several = file == written.summary and len(result.runs) > 1  # has no room for that
        assert several or [words for words in BEGINS.values() if f"Gate: {words}" in text] == (
            [] if made is None else [BEGINS[gate]]
        ), file
    markdown = written.markdown.read_text(encoding="utf-8")
    assert markdown.count("Gate: ") == (0 if made is None else len(result.runs))
    assert made is None or f"Gate: {BEGINS[gate]}" in markdown
    write_junit(result, tmp_path / "junit.xml")
    cases = ElementTree.parse(tmp_path / "junit.xml").findall("testcase")
    gates = [[child.tag for child in case] for case in cases if case.get("name", "").endswith(": gate")]
    expected = {"passed": ["system-out"], "failed": ["failure"], "could not fail": ["skipped"]}
    assert gates == ([] if made is None else [expected[gate]] * len(result.runs))
    runs = json.loads(written.json.read_text())["runs"]
    assert [run["gate"] and (run["gate"]["passed"], run["gate"]["blind"]) for run in runs] == [
        made and (made.passed, made.blind)
    ] * len(result.runs)
