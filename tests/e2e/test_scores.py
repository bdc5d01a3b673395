"""`gmip audit scores.csv` as a user meets it."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gmip._io import hold_folder
from gmip.report import read_result
from gmip.report.answer_words import curve_name
from tests.e2e.cli import assert_one_sentence

ROOT = Path(__file__).parents[2]
REPORT = {"report.html", "report-to-share.html", "report.md", "summary.html", "result.json", ".lock"}


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sklearn", reason="the example's model is scikit-learn's")
    path = tmp_path_factory.mktemp("scores") / "scores.csv"
    subprocess.run([sys.executable, ROOT / "examples" / "scores.py", path], check=True, capture_output=True)
    return path


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    lines = [f"{i},{i % 2},{rng.normal(1.5 * (i % 2))}" for i in range(200)]
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(["id,member,score", *lines]) + "\n")
    return path


def test_the_example_ends_in_the_same_report(run, example: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run("audit", str(example), "--claim", "mu=0.5", "--gate", "--target", "tpr=0.2@0.1", "--out", str(out))
    (one,) = read_result(out).runs
    assert done.code == 1 and one.gate is not None and not one.gate.passed
    assert done.err.splitlines()[-1].endswith("the target is 20%.")
    assert one.verdict.kind == "exposed" and "Claim refuted: " in done.out
    assert {attack.attack for attack in one.attacks} == {"confidence", "margin"}
    assert one.grouped_by == "group" and len(one.groups) == 10
    assert {path.name for path in out.iterdir()} == REPORT | {"exposed-scores.csv", "groups-scores.csv"}
    with (out / "exposed-scores.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 1797 and rows[0]["member"] == "True" and rows[0]["group"] in "0123456789"
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "worst group: " in page and "Batch size" not in page
    assert "gradient" not in (out / "report.md").read_text(encoding="utf-8")


def test_without_a_claim(run, scores: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run("audit", str(scores), "--out", str(out), "--junit", str(tmp_path / "j.xml"), "--json")
    assert done.code == 0
    found = json.loads(done.out)
    assert found == json.loads((out / "result.json").read_text())
    assert found["runs"][0]["verdict"]["kind"] == "measured" and found["runs"][0]["claims"] == []
    assert 'skipped="1"' in (tmp_path / "j.xml").read_text()
    assert run("report", str(out)).code == 0
    compared = run("report", str(out), str(out))
    assert compared.code == 0 and "No claim" not in compared.err and "mine (2)" in compared.out


def test_no_former_junit_stays_where_an_audit_ends_early(run, tmp_path: Path) -> None:
    junit, other, bad = tmp_path / "j.xml", tmp_path / "mine.xml", tmp_path / "bad.csv"
    junit.write_text('<testsuite><testcase classname="gmip.audit"/></testsuite>')
    other.write_text("<mine/>")
    bad.write_text("nothing\n1\n")
    for file in (junit, other):
        assert run("audit", str(bad), "--out", str(tmp_path / "out"), "--junit", str(file)).code == 2
    assert not junit.exists() and other.exists()


def test_a_gate_with_too_few_records_says_that_it_cannot_fail(run, tmp_path: Path) -> None:
    path = tmp_path / "few.csv"
    path.write_text("member,score\n" + "".join(f"{i % 2},{i % 2}\n" for i in range(20)))
    done = run("audit", str(path), "--gate", "--target", "tpr=0.3@0.01", "--out", str(tmp_path / "out"))
    assert done.code == 0 and "could not fail" in done.out
    assert "could not fail: there are too few candidates" in done.err
    assert "Passed only because it could not fail" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_an_epsilon_and_other_columns(run, scores: Path, tmp_path: Path) -> None:
    scores.write_text(scores.read_text().replace("id,member,score", "record,in_train,likelihood"))
    arguments = ["audit", str(scores), "--out", str(tmp_path / "out"), "--claim", "epsilon=0.1@1e-5"]
    sentence = assert_one_sentence(run(*arguments))
    assert "no column 'member'" in sentence and "name it with --column member=NAME" in sentence
    assert not (tmp_path / "out").exists()
    done = run(*arguments, "--column", "member=in_train", "--column", "score=likelihood")
    assert done.code == 0 and "Claim refuted: " in done.out
    (one,) = read_result(tmp_path / "out").runs
    assert curve_name(one.claims[0]) == "Claim: epsilon = 0.1 at delta = 1e-05"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--attacks", "loss"], "--attacks are for predictions"),
        (["--budget", "8s"], "--budget does not apply"),
        (["--claim", "epsilon=x@1"], "--claim must be like mu=0.5 or epsilon=3@1e-5"),
        (["--column", "score"], "--column must be ROLE=NAME"),
        (["--column", "scor=a"], "--column must be one of member, score, label, probability"),
        (["--out", "/dev/null/x"], "cannot be made a folder"),
    ],
)
def test_requests_that_are_refused(run, scores: Path, monkeypatch, options: list[str], words: str) -> None:
    monkeypatch.chdir(scores.parent)
    assert words in run("audit", str(scores), *options).err.splitlines()[-1]
    assert run("audit", str(scores), *options).code == 2


def test_options_for_scores_alone(run) -> None:
    assert "--column applies to a file of scores" in assert_one_sentence(run("audit", "digits", "--column", "id=a"))


def test_a_folder_in_use_says_by_whom(run, scores: Path, tmp_path: Path) -> None:
    with hold_folder(tmp_path / "out"):
        done = run("audit", str(scores), "--out", str(tmp_path / "out"))
    assert "is in use by process" in assert_one_sentence(done)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {".lock"}


def test_scores_of_the_wrong_sign_pass_no_gate(run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = [f"{i % 2},{rng.normal(-0.6 * (i % 2))}" for i in range(1200)]
    (tmp_path / "neg.csv").write_text("\n".join(["member,score", *lines]) + "\n")
    where = ("--out", str(tmp_path / "out"), "--junit", str(tmp_path / "j.xml"))
    done = run("audit", str(tmp_path / "neg.csv"), "--gate", "--target", "tpr=0.05@0.01", *where)
    assert done.code == 1 and "Cannot tell, so it does not pass" in done.err.splitlines()[-1]
    assert done.out.startswith("INCONCLUSIVE: Members score lower than non-members")
    assert "Cannot tell, so it does not pass" in (tmp_path / "j.xml").read_text()
    assert "**Inconclusive.**" in (tmp_path / "out" / "report.md").read_text()


def test_few_records_are_said_to_be_few_everywhere(run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = [f"{i % 2},{rng.normal(0.3 * (i % 2))}" for i in range(60)]
    (tmp_path / "few.csv").write_text("\n".join(["member,score", *lines]) + "\n")
    junit = tmp_path / "ci" / "deep" / "junit.xml"
    where = ("--out", str(tmp_path / "out"), "--junit", str(junit), "--claim", "epsilon=1")
    done = run("audit", str(tmp_path / "few.csv"), "--gate", "--target", "tpr=0.2@0.1", *where)
    assert done.code == 0 and done.out.startswith("INCONCLUSIVE: ")
    assert "80% power to fail where" in done.out and "where" in junit.read_text()
    done = run("audit", str(tmp_path / "few.csv"), "--out", str(tmp_path / "out"))
    assert "30 members and 30 non-members are too few to test 5% at 1% false alarms. At least 100 of each" in done.out
    assert "1% of 30 is less than one" in (tmp_path / "out" / "report.md").read_text()
