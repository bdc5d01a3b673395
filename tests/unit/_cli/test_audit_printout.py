"""What `gmip audit` prints."""

from __future__ import annotations

from pathlib import Path

from gmip._cli.audit_printout import print_audit
from gmip.report import Written, answer_words
from tests.unit.report import sample

FILES = {"html": "report.html", "markdown": "report.md", "json": "result.json", "summary": "summary.html"}
WRITTEN = Written(folder=Path("audit"), **{name: Path("audit") / file for name, file in FILES.items()})


def test_the_answer_comes_first(capsys):
    result = sample.exposed()
    print_audit(result, WRITTEN)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == answer_words.headline(result, result.runs[0])
    assert lines[0].startswith("An attacker who sees every gradient finds") and "Target missed" in lines[0]
    assert lines[-2].strip() == "- The run has 500 records: intervals are wide."
    assert lines[-1] == "Report: audit/report.html"


def test_of_several_runs_the_one_to_ship_comes_first_and_each_answer_names_its_run(capsys):
    result = sample.three_runs()
    print_audit(result, WRITTEN)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == answer_words.ship(result).words
    headlines = [f"{run.name}: {answer_words.headline(result, run)}" for run in result.runs]
    assert [line for line in lines if line in headlines] == headlines


def test_the_price_of_advice_is_printed_where_it_was_asked_for(capsys):
    print_audit(sample.tried(), WRITTEN)
    text = capsys.readouterr().out
    assert "cifar10-head: Ways to at most 5% at 1% false alarms, the most accurate first" in text
    assert "86.1% \u00b1 1.23%" in text and "not measured" in text and "More data was not tried." in text
    print_audit(sample.exposed(), WRITTEN)
    assert "Ways to" not in capsys.readouterr().out
