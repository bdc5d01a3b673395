"""The audits of a folder: what is listed, and that nothing outside it is read."""

from __future__ import annotations

import html
import os
import re
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from gmip.app.audit_list import audits_page, find_audits, read_report
from gmip.app.calculator import PRESETS, Question
from gmip.report import write_report
from tests.unit.report import sample


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "runs"
    write_report(sample.exposed(), inside / "a")
    write_report(sample.three_runs(), inside / "deep" / "b")
    (inside / "broken").mkdir()
    (inside / "broken" / "result.json").write_text("{")
    return inside


def test_audits_are_found_and_their_reports_read(folder: Path):
    found = find_audits(folder)
    assert sorted(audit.place for audit in found) == ["a", "broken", "deep/b"]
    whole = {audit.place: audit for audit in found}
    assert whole["broken"].result is None and not whole["broken"].report
    page = read_report(folder, whole["a"].key)
    assert page == (folder / "a" / "report.html").read_text(encoding="utf-8")
    listed = audits_page(found)
    assert f"/audits/{whole['deep/b'].key}" in listed and "result.json cannot be read" in listed


def test_results_of_other_commands_are_no_broken_audits(folder: Path):
    """gmip train writes a result.json, too."""
    (folder / "trained").mkdir()
    (folder / "trained" / "result.json").write_text('{"format": "gmip-result", "version": 1, "task": "digits"}')
    assert sorted(audit.place for audit in find_audits(folder)) == ["a", "broken", "deep/b"]


def test_an_unknown_key_is_nothing(folder: Path):
    for key in ("", "..", "a", "0" * 16, "../a/report.html"):
        assert read_report(folder, key) is None


def test_links_lead_nowhere(folder: Path, tmp_path: Path):
    outside = tmp_path / "outside"
    write_report(sample.exposed(), outside)
    (folder / "link").symlink_to(outside)
    report = folder / "a" / "report.html"
    report.unlink()
    report.symlink_to(outside / "report.html")
    places = {audit.place: audit for audit in find_audits(folder)}
    assert "link" not in places and not places["a"].report
    assert read_report(folder, places["a"].key) is None


def test_a_pipe_does_not_hang(folder: Path):
    (folder / "pipe").mkdir()
    os.mkfifo(folder / "pipe" / "result.json")
    assert "pipe" not in {audit.place for audit in find_audits(folder)}


def test_an_empty_folder_says_so(tmp_path: Path):
    assert "No audit here yet" in audits_page(find_audits(tmp_path))


def test_a_run_opens_in_the_calculator(folder: Path):
    """Its link holds a form that the calculator reads."""
    page = audits_page(find_audits(folder))
    links = [html.unescape(link) for link in re.findall(r'href="/[?]([^"]*)"', page)]
    assert len(links) == 4
    forms = [dict(parse_qsl(link, keep_blank_values=True)) for link in links]
    for form in forms:
        question = Question.read(PRESETS["digits"] | form)
        assert (question.run.num_params, question.keep) == (650, "steps")
    assert {form["noise_std"] for form in forms} == {"0", "0.0132", "0.0475"}
