"""Verdicts and gates as a build server reads them."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from gmip.auditing.schema import AuditResult, Gate, RunAudit
from gmip.report import answer_words, write_junit
from tests.unit.report import sample


def written(path: Path, *runs: RunAudit, title: str = "audit") -> ElementTree.Element:
    result: AuditResult = sample.consistent().model_copy(update={"runs": runs, "title": title})
    write_junit(result, path)
    return ElementTree.parse(path).getroot()


def holding() -> RunAudit:
    (run,) = sample.consistent().runs
    return run.model_copy(update={"conclusion": run.conclusion.model_copy(update={"kind": "passes", "why": "below"})})


def test_what_holds_passes(tmp_path: Path) -> None:
    run = holding()
    gate = Gate(fpr=0.1, limit=0.9, tpr_lower=0.2, attack=run.attacks[0].attack, passed=True)
    suite = written(tmp_path / "j.xml", run.model_copy(update={"gate": gate}), title='a "title" <b>\x00')
    assert suite.attrib == {"name": 'a "title" <b>', "tests": "3", "failures": "0", "skipped": "0"}


def test_a_gate_that_could_not_fail_is_skipped(tmp_path: Path) -> None:
    run = holding()
    gate = Gate(fpr=0.01, limit=0.9, tpr_lower=0.2, attack=run.attacks[0].attack, passed=True, blind=True)
    suite = written(tmp_path / "j.xml", run.model_copy(update={"gate": gate}))
    (skipped,) = suite.iter("skipped")
    assert str(skipped.get("message")).startswith("Passed only because it could not fail: there are too few candidates")
    assert suite.get("failures") == "0"


def test_a_leak_to_an_attacker_with_a_list_does_not_pass(tmp_path: Path) -> None:
    run = holding()
    leaking = run.model_copy(
        update={"verdict": run.verdict.model_copy(update={"list_leak": run.attacks[0].attack}), "gate": None}
    )
    suite = written(tmp_path / "j.xml", leaking)
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "0", "1")


def test_what_does_not_hold_fails_and_doubt_is_skipped(tmp_path: Path) -> None:
    run = holding()
    gate = Gate(fpr=0.1, limit=0.05, tpr_lower=0.2, attack=run.attacks[0].attack, passed=False)
    exposed = run.verdict.model_copy(update={"kind": "exposed"})
    unsure = run.verdict.model_copy(update={"kind": "inconclusive"})
    broken = run.model_copy(update={"gate": gate, "verdict": exposed})
    suite = written(tmp_path / "j.xml", broken, run.model_copy(update={"verdict": unsure, "gate": None}))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("5", "2", "1")
    messages = [failure.get("message") for failure in suite.iter("failure")]
    assert (
        messages[0] == answer_words.verdict_headline(broken) and "20%" in str(messages[1]) and "5%" in str(messages[1])
    )


@pytest.mark.parametrize(
    ("kind", "tag", "title"),
    [
        ("fails", "failure", "Fails the target."),
        ("probably-fails", "failure", "Probably fails."),
        ("inconclusive", "skipped", "Inconclusive."),
    ],
)
def test_the_verdict_of_the_card_is_there_without_claim_and_gate(
    tmp_path: Path, kind: str, tag: str, title: str
) -> None:
    run = holding()
    measured = run.model_copy(
        update={
            "conclusion": run.conclusion.model_copy(update={"kind": kind}),
            "verdict": run.verdict.model_copy(update={"kind": "measured", "reason": "no-claim"}),
            "gate": None,
        }
    )
    cases = written(tmp_path / "j.xml", measured).iter("testcase")
    (target,) = (one for one in cases if "target" in one.get("name", ""))
    (said,) = target.iter(tag)
    assert str(said.get("message")).startswith(title)
