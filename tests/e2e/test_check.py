"""gmip check, and what an audit says about a record that fails it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import gmip
from gmip.cli import main
from gmip.report import card, write_junit, write_report
from gmip.report.sentences import cautions
from tests.unit.auditing.faulty_runs import FAULTS, SETTINGS, Fault, Setting, make_task, record_run

TASK = f"{Path(__file__).parents[1] / 'unit' / 'auditing' / 'faulty_runs.py'}:make_task"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    task = make_task()
    for name, fault in (("sound", Fault()), ("reused", FAULTS["reused noise"])):
        record_run(task, folder / name, SETTINGS["full, noise"], fault, seed=3)
    record_run(task, folder / "sum", SETTINGS["full"], FAULTS["sum for mean"], seed=3)
    return {path.name: path for path in folder.iterdir()}


def test_exit_codes_and_words(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(runs["sound"]), "--task", TASK]) == 0
    assert "The record matches the declared run" in capsys.readouterr().out
    assert main(["check", str(runs["sum"]), "--task", TASK]) == 1
    told = capsys.readouterr().out
    assert told.startswith("The record does not match the declared run. The recorded gradient is 120 times")
    assert "Scale of the gradient" in told and "FAILED" in told


def test_the_same_reason_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Dropout hides several things from the check."""
    record_run(make_task(), tmp_path / "run", SETTINGS["full"], FAULTS["dropout"], seed=3)
    main(["check", str(tmp_path / "run"), "--task", TASK])
    told = " ".join(capsys.readouterr().out.split())
    said = [one.split(": ", 1)[1] for one in told.split(" - ")[1:]]
    assert len(said) == len(set(said))


def test_json(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(runs["reused"]), "--task", TASK, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert not told["passed"] and told["steps"]
    (failed,) = [one for one in told["outcomes"] if one["status"] == "failed"]
    assert (failed["check"], failed["finding"]) == ("noise-steps", "noise-repeats")
    assert failed["value"] == pytest.approx(1.0) and "drawn once" in failed["sentence"]


def test_training_outside_the_record_guarantees_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Noisy steps, and many of a second, plain optimizer after them or before: used to be guaranteed."""
    task, targets = make_task(), {}
    noisy = dataclasses.replace(SETTINGS["full, noise"], noise_std=0.03)  # so little that all of it can be checked
    for name, fault in (
        ("sound", Fault()),
        ("trained on", Fault(outside=300)),
        ("trained before", Fault(before=300)),
    ):
        record_run(task, tmp_path / name, noisy, fault, seed=3)
        (run,) = gmip.audit(task, runs=[tmp_path / name], attacks=["loss"], target="tpr=0.9@0.01", seed=1).runs
        targets[name] = run.answers[0].target
        assert run.verdict.unmatched is (name == "trained on")
    assert targets["sound"] == "guaranteed"
    assert "guaranteed" not in (targets["trained on"], targets["trained before"])
    assert main(["check", str(tmp_path / "trained on"), "--task", TASK]) == 1
    assert capsys.readouterr().out.startswith("The record does not match the declared run. Something other than")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nowhere", "--task", TASK], "holds no trace"),
        (["RUN", "--task", "adult-census"], "adult"),
        (["RUN", "--task", "digits"], "other data"),
        (["RUN"], "TASK is missing"),
    ],
)
def test_mistakes(runs: dict[str, Path], capsys: pytest.CaptureFixture[str], args: list[str], words: str) -> None:
    assert main(["check", *(str(runs["sound"]) if arg == "RUN" else arg for arg in args)]) == 2
    told = capsys.readouterr()
    assert words in told.err and told.err.count("\n") == 1 and told.out == ""


def test_an_audit_begins_with_it(runs: dict[str, Path], tmp_path: Path) -> None:
    """Reused noise escapes likelihood-ratio attacks, and used to be "consistent"."""
    result = gmip.audit(make_task(), runs=[runs["reused"], runs["sound"]], attacks=["loss"], seed=1)
    faulty, sound = result.runs
    assert faulty.check is not None and not faulty.check.passed
    assert faulty.verdict.kind != "consistent" and faulty.verdict.unmatched
    assert any(one.check == "noise-steps" for one in faulty.check.failed)
    assert faulty.advice[0].kind == "fix-record"
    assert sound.check is not None and sound.check.passed and not sound.verdict.unmatched
    written = write_report(result, tmp_path / "report")
    page, text = written.html.read_text(), (tmp_path / "report" / "report.md").read_text()
    for shown in (page, text):
        assert "does not match the declared run" in shown and "Noise of different steps" in shown
    write_junit(result, tmp_path / "junit.xml")
    assert 'name="reused: record"><failure' in (tmp_path / "junit.xml").read_text()
    again = gmip.report.read_result(tmp_path / "report")
    assert again.runs[0].check == faulty.check


@pytest.mark.parametrize(
    ("setting", "target", "open_"),
    [
        (dataclasses.replace(SETTINGS["full, noise"], noise_std=0.03), "guaranteed", set()),
        (
            Setting(sampling="fixed", batch_size=30, noise_std=0.12, ids=False),
            "not-guaranteed",
            {"batches", "clipping", "noise-layers", "noise-rows"},
        ),
    ],
    ids=["all checked", "batches not known"],
)
def test_what_could_not_be_checked_guarantees_nothing(
    tmp_path: Path, setting: Setting, target: str, open_: set[str]
) -> None:
    record_run(make_task(), tmp_path / "run", setting, seed=3)
    (run,) = gmip.audit(make_task(), runs=[tmp_path / "run"], attacks=["loss"], target="tpr=0.9@0.01", seed=1).runs
    assert run.check is not None and run.check.passed
    assert {one.check for one in run.check.bound_unchecked} >= open_
    assert {one.target for one in run.answers} == {target}
    if open_:
        assert {one.why for one in run.answers} == {"unchecked"}
        assert any("how batches were drawn" in one for one in cautions(run))
        assert card.rows(run)[0].beside.endswith(", not checked")
