"""The example of estimators, as a user runs it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from gmip.report import read_result

EXAMPLE = Path(__file__).parents[2] / "examples" / "estimator.py"


@pytest.mark.slow
def test_the_example_ends_in_the_same_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE))["main"](str(tmp_path / "out"))
    runs = {run.name: run for run in read_result(tmp_path / "out").runs}
    areas = {name: {one.attack: one.auc.value for one in run.attacks} for name, run in runs.items()}
    assert list(runs) == ["RandomForestClassifier", "LogisticRegression", "RandomForestRegressor"]
    assert areas["RandomForestClassifier"]["lira"] > areas["RandomForestClassifier"]["loss"] > 0.5
    assert areas["LogisticRegression"]["optimum-decode"] > 0.55 and areas["RandomForestRegressor"]["lira"] > 0.75
    assert all(run.verdict.kind == "measured" for run in runs.values())
    assert (tmp_path / "out" / "report.html").is_file()
    found = re.findall(
        r"depth (\w+): accuracy (\S+), members found at 10% false alarms (\S+)%", capsys.readouterr().out
    )
    assert [depth for depth, _, _ in found] == ["2", "4", "None"]
    assert all(float(accuracy) > 0.9 for _, accuracy, _ in found)
    assert float(found[2][2]) > float(found[0][2])  # deep trees know their records
