"""`gmip audit predictions.csv` as a user meets it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gmip.report import read_result
from tests.e2e.cli import assert_one_sentence

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sklearn", reason="the example's models are scikit-learn's")
    path = tmp_path_factory.mktemp("predictions") / "predictions.csv"
    subprocess.run([sys.executable, ROOT / "examples" / "predictions.py", path], check=True, capture_output=True)
    return path


def test_the_example_ends_in_the_same_report(run, example: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run("audit", str(example), "--claim", "mu=0.2", "--gate", "--target", "tpr=0.15@0.1", "--out", str(out))
    (one,) = read_result(out).runs
    assert done.code == 1 and one.verdict.kind == "exposed" and one.gate is not None and not one.gate.passed
    auc = {attack.attack: attack.auc.value for attack in one.attacks}
    assert set(auc) == {"combined", "lira", "rmia", "loss", "margin", "entropy", "confidence"}
    assert min(auc["lira"], auc["rmia"]) > auc["loss"] + 0.05
    assert one.grouped_by == "class" and len(one.groups) == 10
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "worst group: " in page and "reference models" in page
    assert {path.name for path in out.iterdir()} >= {"report.md", "exposed-predictions.csv", "groups-predictions.csv"}


def test_chosen_attacks_and_columns(run, example: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    columns = [f"--column=logit=p_{digit}" for digit in range(10)]
    assert run("audit", str(example), "--attacks", "loss", *columns, "--out", str(out)).code == 0
    assert [one.attack for one in read_result(out).runs[0].attacks] == ["loss"]
    refused = assert_one_sentence(run("audit", str(example), "--attacks", "glir", "--out", str(out)))
    assert "pass one of 'loss', 'lira', 'rmia'" in refused
