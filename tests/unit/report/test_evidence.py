"""Finished audits in the forms that others ask for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gmip._html import readable
from gmip.auditing.schema import AuditResult, Conclusion, GroupOutcome, Histogram
from gmip.report import evidence, share
from tests.unit.report import sample

SAMPLES = {
    name: getattr(sample, name)
    for name in ("consistent", "exposed", "tried", "inconclusive", "three_runs", "bare", "hostile")
}
# The part of SARIF 2.1.0 (OASIS, 27 March 2020) that is written here, in our own words; whole files were checked
# against the schema of OASIS itself on 2026-11-18.
TEXT: dict[str, Any] = {
    "type": "object",
    "required": ["text"],
    "additionalProperties": False,
    "properties": {"text": {"type": "string", "minLength": 1}},
}
SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool", "results"],
                "additionalProperties": False,
                "properties": {
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "properties": {"driver": {"type": "object", "required": ["name", "rules"]}},
                    },
                    "results": {
                        "type": "array",
                        "minItems": 1,
                        "items": {
                            "type": "object",
                            "required": ["message", "ruleId", "locations"],
                            "additionalProperties": False,
                            "properties": {
                                "ruleId": {"type": "string"},
                                "kind": {"enum": ["notApplicable", "pass", "fail", "review", "open", "informational"]},
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "message": TEXT,
                                "locations": {"type": "array", "minItems": 1},
                            },
                        },
                    },
                },
            },
        },
    },
}


def concluded(kind: Any) -> AuditResult:
    result: AuditResult = sample.consistent()
    (run,) = result.runs
    changed = run.model_copy(update={"conclusion": Conclusion(kind=kind, why="measured")})
    return result.model_copy(update={"runs": (changed,)})


@pytest.mark.parametrize("name", SAMPLES)
def test_sarif_has_the_form_of_the_standard(name: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    log = json.loads(evidence.to_sarif(SAMPLES[name]()))
    jsonschema.validate(log, SARIF)
    (run,) = log["runs"]
    rules = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert {one["ruleId"] for one in run["results"]} <= rules
    assert [one for one in run["results"] if (one["kind"] == "fail") == (one["level"] == "none")] == []


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("fails", ("fail", "error")),
        ("probably-fails", ("fail", "warning")),
        ("inconclusive", ("open", "none")),
        ("passes", ("pass", "none")),
        ("guaranteed", ("pass", "none")),
    ],
)
def test_what_is_undecided_is_open_in_sarif(kind: str, shown: tuple[str, str]) -> None:
    log = json.loads(evidence.to_sarif(concluded(kind)))
    (found,) = [one for one in log["runs"][0]["results"] if one["ruleId"] == "gmip/target"]
    assert (found["kind"], found["level"]) == shown


@pytest.mark.parametrize("name", SAMPLES)
def test_the_hub_reads_the_model_card(name: str) -> None:
    hub = pytest.importorskip("huggingface_hub")
    result = SAMPLES[name]()
    card = hub.ModelCard(evidence.to_model_card(result), ignore_metadata_errors=False)
    found = {one.metric_type: one.metric_value for one in card.data.eval_results}
    first = evidence.to_metrics(result)[0]
    assert set(first.numbers) <= set(found)
    assert len(card.data.eval_results) == sum(len(one.numbers) for one in evidence.to_metrics(result))


def test_a_guaranteed_number_needs_the_verdict() -> None:
    key = "tpr_guaranteed_at_0.01_fpr"
    assert key not in evidence.to_metrics(concluded("passes"))[0].numbers
    assert key in evidence.to_metrics(concluded("guaranteed"))[0].numbers


@pytest.mark.parametrize("name", SAMPLES)
def test_the_impact_assessment_leaves_the_decision_to_a_person(name: str) -> None:
    result = SAMPLES[name]()
    text, page = evidence.to_dpia(result), evidence.to_dpia(result, as_html=True)
    for number, title in enumerate(("The processing", "Unit of privacy", "Who could attack"), 1):
        assert f"## {number}. {title}" in text and f"<h2>{number}. {title}" in page
    assert text.count("(by hand)") == page.count("(by hand)") == 7
    assert "<script>" not in text.replace("\\<script\\>", "") and "<script>alert" not in page


@pytest.mark.parametrize("form", ["release", "dpia", "model-card", "sarif"])
def test_no_record_path_or_seed_is_written(form: evidence.Form, tmp_path: Path) -> None:
    (run,) = sample.exposed().runs
    named = [one.model_copy(update={"id": f"PATIENT-{n}"}) for n, one in enumerate(run.exposed)]
    secret = run.model_copy(update={"exposed": tuple(named), "path": "/home/someone/hospital.csv"})
    result = sample.result(secret)
    provenance = result.provenance.model_copy(update={"seed": 987654321, "command": "gmip audit hospital.csv"})
    assert named
    files = evidence.write_for(result.model_copy(update={"provenance": provenance}), form, tmp_path)
    assert {file for file in tmp_path.rglob("*") if file.is_file()} == set(files)
    for file in files:
        text = file.read_text()
        assert [word for word in ("PATIENT", "hospital", "987654321", "someone") if word in text] == []
        assert readable(text) == text


def groups(*sizes: tuple[int, int]) -> tuple[GroupOutcome, ...]:
    return tuple(GroupOutcome(group=f"g{n}", members=m, non_members=o) for n, (m, o) in enumerate(sizes))


def shared_groups(fewest: int, *sizes: tuple[int, int]) -> list[tuple[str, int, int]]:
    (run,) = sample.consistent().runs
    result = sample.result(run.model_copy(update={"groups": groups(*sizes)}))
    once = share.shareable(result, fewest=fewest)
    assert share.shareable(once) == once  # what is passed on does not change when it is passed on again
    return [(one.group, one.members, one.non_members) for one in once.runs[0].groups]


def test_one_small_group_is_not_told_by_subtraction() -> None:
    assert shared_groups(10, (50, 50), (30, 30), (4, 40)) == [("g0", 50, 50), ("smaller groups", 34, 70)]
    assert shared_groups(10, (50, 50), (6, 6), (6, 6)) == [("g0", 50, 50), ("smaller groups", 12, 12)]
    assert shared_groups(40, (50, 50), (30, 30), (30, 40)) == [("g0", 50, 50), ("smaller groups", 60, 70)]
    assert shared_groups(10, (50, 50), (30, 30)) == [("g0", 50, 50), ("g1", 30, 30)]
    assert shared_groups(10, (3, 3)) == [("smaller groups", 3, 3)]


@pytest.mark.parametrize(
    ("members", "others", "expected"),
    [
        ((20, 3, 20), (20, 20, 20), ((20, 23), (20, 40))),
        ((20, 0, 20), (20, 0, 20), ((20, 0, 20), (20, 0, 20))),
        ((20, 0, 3), (20, 0, 0), ((23,), (20,))),
        ((20, 20, 20), (20, 20, 4), ((20, 40), (20, 24))),
        ((1, 2, 3), (1, 2, 3), None),
    ],
)
def test_no_bar_counts_a_few(members: Any, others: Any, expected: Any) -> None:
    (run,) = sample.consistent().runs
    drawn = Histogram(edges=(0.0, 1.0, 2.0, 3.0), members=members, non_members=others)
    shown = share.shareable(sample.result(run.model_copy(update={"histogram": drawn}))).runs[0].histogram
    assert (None if shown is None else (shown.members, shown.non_members)) == expected
    if shown is not None:
        assert (shown.edges[0], shown.edges[-1]) == (0.0, 3.0)
