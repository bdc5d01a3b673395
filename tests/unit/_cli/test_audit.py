"""What `gmip audit` prints."""

from __future__ import annotations

from gmip._cli.audit import _print
from tests.unit.report import sample


def test_the_verdict_comes_first(capsys):
    _print(sample.exposed(), "audit/report.html")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == sample.exposed().runs[0].verdict.headline
    assert lines[-2].strip() == "- The run has 500 records: intervals are wide."
    assert lines[-1] == "Report: audit/report.html"


def test_of_several_runs_each_verdict_names_its_run(capsys):
    result = sample.three_runs()
    _print(result, "audit/report.html")
    lines = capsys.readouterr().out.splitlines()
    headlines = [f"{run.name}: {run.verdict.headline}" for run in result.runs]
    assert [line for line in lines if line in headlines] == headlines
