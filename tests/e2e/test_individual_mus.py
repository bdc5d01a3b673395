"""The example of individual mus, as a user runs it."""

from __future__ import annotations

import csv
import runpy
from pathlib import Path

import pytest

from gmip._numbers import number
from gmip.report import read_result

EXAMPLE = Path(__file__).parents[2] / "examples" / "individual_mus.py"


@pytest.mark.slow
def test_the_example_ends_in_the_same_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE))["main"](str(tmp_path / "out"))
    plain, noisy = read_result(tmp_path / "out").runs
    assert plain.individual is not None and noisy.individual is not None
    assert plain.individual.members == noisy.individual.members == 100
    assert 0.0 < (plain.individual.beyond or 0.0) < 0.2 and noisy.individual.beyond == 0.0
    assert (noisy.individual.largest_mu or 9.0) <= 0.5 < (plain.individual.median_mu or 0.0)
    with (tmp_path / "out" / "exposed-plain.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["member"] == "True"]
    assert max(float(row["own_mu"]) for row in rows) == pytest.approx(plain.individual.largest_mu, rel=1e-3)
    said = capsys.readouterr().out
    assert "plain: Exposure of single records" in said and "of them exceed the claim (mu " in said
    assert said.count("Least protected members: ") == 2
    largest = max(rows, key=lambda row: float(row["own_mu"]))
    assert f"members: {largest['id']} ({number(float(largest['own_mu']), 'up')})" in said
    assert "Own mu" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
