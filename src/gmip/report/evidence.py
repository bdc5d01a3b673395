"""A finished audit in the forms that others ask for: SARIF for code hosts, a model card for a hub of models, a document
for a data-protection impact assessment, an entry for the registry of deployments of differential privacy, and metrics
for trackers of experiments. None names a record, a file or a seed.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from gmip._html import Html, tag
from gmip._io import make_folder, write
from gmip._numbers import count, noise, percent, rate, rate_key, setting
from gmip._validate import listed
from gmip.accounting.account import account
from gmip.auditing.schema import AuditResult, ClaimedCurve, Frozen, RunAudit
from gmip.errors import InvalidArgument
from gmip.report import answer_words, card, check_words, sentences, tables
from gmip.report.html import asset, blocks_html, page, to_html, to_summary
from gmip.report.markdown import blocks_markdown, plain, to_markdown
from gmip.report.share import FEWEST, shareable
from gmip.report.tables import Block, Cell, Table, table_of
from gmip.report.write import RESULT, cases

Form = Literal["release", "dpia", "registry", "model-card", "sarif"]


# -- SARIF 2.1.0 -------------------------------------------------------------------------------------------------------

_RULES: Final = {
    "target": "At the target's false-alarm rate, no more members are found than the target allows.",
    "claim": "No attack refutes what was claimed about the training.",
    "record": "The record of the run is what the declared run would have left.",
    "gate": "The lower bound of what attacks find does not exceed the target.",
}
# kind and level of SARIF, section 3.27.9: a level other than "none" goes with "fail" only
_KINDS: Final = {
    "failure": ("fail", "error"),
    "warning": ("fail", "warning"),
    "skipped": ("open", "none"),
    "passed": ("pass", "none"),
}


def to_sarif(result: AuditResult) -> str:
    """One result for each question about each run. What could not be decided is "open", never "pass"."""
    result = shareable(result)
    found = []
    for run in result.runs:
        for rule, kind, words in cases(run):
            of, level = _KINDS[kind]
            found.append(
                {
                    "ruleId": f"gmip/{rule}",
                    "kind": of,
                    "level": level,
                    "message": {"text": f"{run.name}: {words or _RULES[rule]}"},
                    # Code hosts show no result without a place.
                    "locations": [{"physicalLocation": {"artifactLocation": {"uri": RESULT}}}],
                }
            )
    driver: dict[str, Any] = {
        "name": "gmip",
        "rules": [{"id": f"gmip/{name}", "shortDescription": {"text": text}} for name, text in _RULES.items()],
    }
    if version := result.provenance.versions.get("gmip"):
        driver["version"] = version
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": found}],
    }
    return json.dumps(log, indent=1) + "\n"


# -- metrics, and a model card with a model-index ----------------------------------------------------------------------


class RunMetrics(Frozen):
    """What trackers and hubs show of a run: the verdict, the run's task, and numbers by name."""

    run: str
    task: str
    verdict: str
    numbers: dict[str, float]


def to_metrics(result: AuditResult) -> list[RunMetrics]:
    """The numbers of each run for trackers of experiments, and its verdict as a tag."""
    found = []
    for run in shareable(result).runs:
        at = rate_key(run.goal.fpr)
        numbers = {f"tpr_limit_at_{at}_fpr": run.goal.tpr}
        if run.answer is not None and run.answer.evidence is not None:
            tpr = run.answer.evidence.tpr
            numbers |= {f"tpr_at_{at}_fpr": tpr.value, f"tpr_at_{at}_fpr_lower": tpr.lower}
        if run.attacks:
            numbers["mu_lower"] = max(one.mu_lower for one in run.attacks)
            numbers["epsilon_lower"] = max(one.epsilon_lower for one in run.attacks)
            numbers["auc"] = max(one.auc.value for one in run.attacks)
        if run.conclusion.kind == "guaranteed" and run.answer is not None and run.answer.claimed is not None:
            numbers[f"tpr_guaranteed_at_{at}_fpr"] = run.answer.claimed
        if run.facts.test_accuracy is not None:
            numbers["test_accuracy"] = run.facts.test_accuracy
        found.append(RunMetrics(run=run.name, task=run.task, verdict=run.conclusion.kind, numbers=numbers))
    return found


def to_model_card(result: AuditResult) -> str:
    """The report in Markdown below the metadata that the Hugging Face hub reads (`model-index`).

    In a card that exists, the metadata goes between its first two lines of dashes and the text to its end.
    """
    index = []
    for one in to_metrics(result):
        name = one.task or one.run
        metrics = [{"type": key, "name": key, "value": round(value, 6)} for key, value in one.numbers.items()]
        index.append(
            {
                "task": {"type": "membership-inference-audit", "name": f"Membership-inference audit: {one.verdict}"},
                "dataset": {"type": name, "name": name},
                "metrics": metrics,
            }
        )
    title = shareable(result).title
    data = {"tags": ["membership-inference", "privacy"], "model-index": [{"name": title, "results": index}]}
    return f"---\n{yaml.safe_dump(data, sort_keys=False, allow_unicode=True)}---\n\n{to_markdown(result)}"


# -- for a data-protection impact assessment ---------------------------------------------------------------------------

_SOURCES: Final = (
    (
        "GDPR, Regulation (EU) 2016/679, Article 35(7)",
        "27 April 2016",
        "a description of the processing, its necessity, the risks, the measures",
        "1, 3, 7, 8",
    ),
    (
        "EDPB, Opinion 28/2024 on AI models",
        "17 December 2024",
        "whether personal data can be obtained from a model by means reasonably likely to be used; documented tests "
        "against attacks, membership inference among them",
        "3, 4, 5",
    ),
    (
        "ICO, Guidance on AI and data protection",
        "15 March 2023",
        "an assessment of attacks on models, membership inference among them, and of measures against them",
        "3, 4, 7",
    ),
    (
        "NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees",
        "March 2025",
        "the unit of privacy, the parameters of the guarantee, and who is trusted with what",
        "2, 3, 5, 6",
    ),
)
_BY_HAND: Final = "(by hand)"


@dataclass(frozen=True)
class _Section:
    """A heading and what stands below it."""

    title: str
    blocks: tuple[Block, ...]


def to_dpia(result: AuditResult, *, as_html: bool = False) -> str:
    """A draft for the part of an impact assessment that is about membership inference, in Markdown or as a page.

    It fills in what the audit knows and leaves to a person what it cannot know: purpose, necessity, and the decision.
    """
    result = shareable(result)
    sections = [
        _what(result),
        _unit(result),
        _attackers(result),
        _tested(result),
        _guarantee(result),
        _sampling(result),
        _measures(result),
        _decision(result),
        _sources(),
    ]
    numbered = [
        _Section(f"{number}. {one.title}" if number < len(sections) else one.title, one.blocks)
        for number, one in enumerate(sections, 1)
    ]
    title = f"Membership inference: {result.title}"
    return _html(title, numbered) if as_html else _markdown(title, numbered)


def _said(result: AuditResult, words: Callable[[RunAudit], Iterable[str]]) -> list[str]:
    """What is said of the runs, each sentence once: with the names of the runs, unless it is said of all."""
    found: dict[str, list[str]] = {}
    for run in result.runs:
        for one in dict.fromkeys(words(run)):
            found.setdefault(one, []).append(run.name)
    return [one if len(runs) == len(result.runs) else f"{listed(runs)}: {one}" for one, runs in found.items()]


def _by_run(result: AuditResult, first: str, caption: str, cells: Callable[[RunAudit], Mapping[str, Cell]]) -> Table:
    """A row for each name that a run has a cell for, and a column for each run."""
    columns = [cells(run) for run in result.runs]
    names = dict.fromkeys(name for column in columns for name in column)
    rows: list[list[Cell | str]] = [[name, *(column.get(name, "\u2013") for column in columns)] for name in names]
    heads = [caption] if len(result.runs) == 1 else [run.name for run in result.runs]
    return table_of(caption, (first, *heads), rows, texts=range(1, len(heads) + 1))


def _what(result: AuditResult) -> _Section:
    version = result.provenance.versions.get("gmip", "")
    rows = [
        ["Controller, purpose, legal basis", _BY_HAND],
        ["Why these data, and why so many", _BY_HAND],
        ["Model", listed(list(dict.fromkeys(run.task or run.name for run in result.runs)))],
        ["Audited", f"{sentences.moment(result.created)}, gmip {version}, {rate(result.confidence)} confidence"],
    ]
    sizes = sorted({run.facts.dataset_size for run in result.runs if run.facts.dataset_size})
    rows.append(["Records in training", listed([count(size) for size in sizes]) if sizes else "not known"])
    return _Section(
        "The processing",
        (
            "A draft, written from an audit: a person completes and signs it. It covers one risk: that somebody finds "
            "out whether a given person's record was used for training. Tables of all attacks, groups and checks are "
            "in the report of the audit.",
            table_of("The processing", ("Question", "Answer"), rows, texts=(1,)),
        ),
    )


def _unit(result: AuditResult) -> _Section:
    def words(run: RunAudit) -> Iterator[str]:
        found = run.persons
        what = (
            "one record. Somebody with several records is less protected than these numbers say."
            if found is None
            else f"one person ({count(found.persons)} persons with {count(found.rows)} rows, at most "
            f"{count(found.most_rows)} each)."
        )
        yield f"What is protected is {what}"
        for one in run.claims:
            if one.adjacency:
                yield f"Compared data sets ({answer_words.claim_word(one)}): {one.adjacency}."

    return _Section("Unit of privacy", (_said(result, words),))


def _attackers(result: AuditResult) -> _Section:
    def found(run: RunAudit) -> dict[str, Cell]:
        return {row.label: Cell(f"{row.numbers}; {row.beside}") for row in card.rows(run)}

    in_life = {
        card.attacker(answer): f"With {card.attacker(answer)}: {card.IN_LIFE[answer.sees, answer.knows > 0.0]}."
        for run in result.runs
        for answer in run.answers
    }
    tried = {answer.sees for run in result.runs for answer in run.answers}
    parts: list[Block] = []
    if in_life:
        caption = f"Members found at {_rates(result)} false alarms"
        parts = [f"{caption}:", _by_run(result, "Attacker sees", caption, found), list(in_life.values())]
    if said := [words for sees, words in _SEEN.items() if sees not in tried]:
        parts.append(f"Not examined: attackers who see {listed(said)}.")
    return _Section(
        "Who could attack, and by what means", (*parts, list(answer_words.THREAT_MODELS[result.threat_model]))
    )


_SEEN: Final = {
    "gradients": "the gradients of the training",
    "weights": "the weights of the model",
    "predictions": "the answers of the model",
}


def _rates(result: AuditResult) -> str:
    return listed(sorted({rate(run.goal.fpr) for run in result.runs}))


def _tested(result: AuditResult) -> _Section:
    def found(run: RunAudit) -> dict[str, Cell]:
        return {str(row[0].text): row[1] for row in tables.attack_table(result, run).rows}

    def words(run: RunAudit) -> Iterator[str]:
        yield from map(sentences.left_out, run.left_out)
        yield from sentences.cautions(run)
        if run.groups:
            yield sentences.groups(result, run)

    return _Section(
        "What was tested and what was not",
        (
            f"Attacks, and the members that each finds at {_rates(result)} false alarms:",
            _by_run(result, "Attack", f"Found at {_rates(result)}", found),
            _said(result, words),
            "Not tested: other risks than membership (inference of attributes, extraction or reconstruction of "
            "records), and attackers who chose or changed training data.",
            sentences.not_shown(),
        ),
    )


def _guarantee(result: AuditResult) -> _Section:
    assumptions: dict[str, int] = {}

    def words(run: RunAudit) -> Iterator[str]:
        if run.conclusion.kind != "guaranteed":
            yield "Nothing proves that the target is kept."
        yield from sentences.guarantee(run)
        for one in () if run.check is None else run.check.outcomes:
            if one.status != "passed":
                yield f"{check_words.title(one)}: {tables.CHECKED[one.status]}. {check_words.sentence(one)}"

    def claims(run: RunAudit) -> dict[str, Cell]:
        cells: dict[str, Cell] = {}
        for one in run.claims:
            name = answer_words.curve_name(one) + ("" if one.for_whom is None else f", for {one.for_whom}")
            said = one.assumptions or ("What the source of the claim assumed.",)
            numbers = [str(assumptions.setdefault(each, len(assumptions) + 1)) for each in said]
            refuted = run.verdict.kind == "exposed" and one.key == run.verdict.judged_by
            text = f"{'at most' if one.is_bound else 'about'} {percent(one.tpr(run.goal.fpr), 'up')}"
            text += f", if {', '.join(numbers)}" + ("; an attack refutes it" if refuted else "")
            cells[name] = Cell(f"{cells[name].text}; {text}" if name in cells else text)
        return cells

    parts: list[Block] = [_said(result, words)]
    if any(run.claims for run in result.runs):
        caption = f"Members found at {_rates(result)} false alarms"
        parts += [f"{caption}, and the numbers of what each assumes:", _by_run(result, "What holds", caption, claims)]
        rows = [[str(number), one] for one, number in assumptions.items()]
        parts.append(table_of("Assumptions", ("Number", "Assumption"), rows, texts=(1,)))
    return _Section("Guarantee, and what it assumes", tuple(parts))


def _sampling(result: AuditResult) -> _Section:
    def candidates(run: RunAudit) -> Iterator[str]:
        sizes: dict[tuple[int, int], list[str]] = {}
        for one in run.attacks:
            sizes.setdefault((one.members, one.non_members), []).append(one.title)
        for (members, others), titles in sizes.items():
            whose = "" if len(sizes) == 1 else f" ({listed(titles)})"
            yield f"Candidates: {count(members)} members, {count(others)} others{whose}."

    facts = _by_run(result, "Fact", "What ran", lambda run: {r[0].text: r[1] for r in tables.fact_table(run).rows})
    seeds = (
        "Seeds are not in this document: whoever knows the seed of the training can draw its noise again. The seed of "
        f"the audit, with which it can be repeated, is in {RESULT}, which is kept with the data."
    )
    return _Section("Sampling and seeds", (_said(result, candidates), facts, seeds))


def _measures(result: AuditResult) -> _Section:
    parts: list[Block] = [_said(result, lambda run: [f"Next step: {card.next_step(run)[0]}"])]
    for run in result.runs:
        if tables.ways_table(run).rows:
            parts += [f"{run.name}:"] if len(result.runs) > 1 else []
            parts.append(tables.ways_table(run))
    return _Section("Measures, and what they cost", tuple(parts))


def _decision(result: AuditResult) -> _Section:
    found = [f"{run.name or 'The run'}: {card.look(run).title}. {card.headline(run)}" for run in result.runs]
    rows = [
        ["Remaining risk, in the words of the controller", _BY_HAND],
        ["Decision: release / release with measures / do not release", _BY_HAND],
        ["Advice of the data-protection officer", _BY_HAND],
        ["Name, role, date, signature", _BY_HAND],
        ["To be reviewed", _BY_HAND],
    ]
    return _Section("Result and decision", (found, table_of("Decision", ("Question", "Answer"), rows, texts=(1,))))


def _sources() -> _Section:
    columns = ("Source", "Date", "What it asks, in our words", "Answered in")
    return _Section(
        "Sources",
        (
            table_of("Sources", columns, [list(one) for one in _SOURCES], texts=(1, 2, 3)),
            "This document answers what an audit of a model can answer. It is no legal advice.",
        ),
    )


def _markdown(title: str, sections: list[_Section]) -> str:
    blocks = [f"# {plain(title)}"]
    for one in sections:
        blocks += [f"## {one.title}", *blocks_markdown(one.blocks)]
    return "\n\n".join(blocks) + "\n"


def _html(title: str, sections: list[_Section]) -> str:
    body: list[Html | None] = [tag("h1", title)]
    for number, one in enumerate(sections, 1):
        section = f"part-{number}"
        body += [tag("h2", one.title, id=f"{section}-title"), *blocks_html(one.blocks, section, "block")]
    return page(title, tag("main", *body), style=asset("style.css"))


# -- for the registry of deployments of differential privacy -----------------------------------------------------------


def to_registry(result: AuditResult) -> dict[str, str]:
    """A draft for each run with differential privacy, in the format of the registry of deployments, in YAML.

    The registry (opendp/deployments-registry-data, its schema of 15 July 2026; arXiv 2509.13509) has no room for runs
    without a guarantee, or whose guarantee the audit contradicts: they are left out.
    """
    entries = {}
    for number, run in enumerate(shareable(result).runs, 1):
        claim = next((one for one in run.claims if one.key == "gdp" and one.is_bound and one.adjacency), None)
        sound = (run.check is None or run.check.passed) and run.verdict.kind != "exposed"
        if claim is None or not run.declared or not sound:
            continue
        epsilon = float(account(list(run.declared), notion="gdp").epsilon(result.delta))
        if not math.isfinite(epsilon):
            continue
        slug = "_".join(re.findall(r"[a-z0-9]+", run.name.lower())) or f"run_{number}"
        name = f"dp_registry_{slug}.yaml"
        while name in entries:
            name = f"dp_registry_{slug}_{number}.yaml"
        entry = _registry_entry(result, run, claim, epsilon) | {"url_slug": slug.replace("_", "-")}
        entries[name] = yaml.safe_dump(entry, sort_keys=False, allow_unicode=True, width=math.inf)
    if not entries:
        raise InvalidArgument(
            "no run has a guarantee of differential privacy that its audit does not contradict",
            remedy="train with clipping and noise (gmip train --clip --noise-multiplier), or ask for --for dpia",
        )
    return entries


def _registry_entry(result: AuditResult, run: RunAudit, claim: ClaimedCurve, epsilon: float) -> dict[str, Any]:
    declared = run.declared[0]
    rows = declared.rows_per_person
    guarantee = f"At most {percent(claim.tpr(run.goal.fpr), 'up')} of the members are found at {rate(run.goal.fpr)}"
    mechanism = (
        f"Noisy SGD: Gaussian noise of standard deviation {noise(one.noise_std)} on the mean of gradients that are "
        f"clipped to norm {'none' if one.clip_norm is None else setting(one.clip_norm)}; batches of "
        f"{count(one.batch_size)} of {count(one.dataset_size)} records, {one.sampling} sampling; "
        f"{count(one.num_steps)} steps."
        for one in run.declared
    )
    checked = ["The record of the training was not checked."]
    if run.check is not None:
        checked = [check_words.headline(run.check), check_words.beyond_reach(run.check) or ""]
    return {
        "url_slug": "",
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": {
                "name": _BY_HAND,
                "data_curators": [_BY_HAND],
                "intended_use": _BY_HAND,
                "data_product_type": "Machine learning model",
                "data_product_region": _BY_HAND,
                "description": _BY_HAND,
                "publication_date": "1900-01-01",
            },
            "dp_variant": {
                "variant_name": "Approximate DP",
                "data_domain": _BY_HAND,
                "unprotected_quantities": "The number of records, and whatever was done with the data outside the "
                "recorded steps (preprocessing, choice of hyperparameters): to be checked (by hand).",
            },
            "privacy_loss": {
                "privacy_unit": "record" if rows == 1 else "person",
                "privacy_unit_details": f"Adjacent data sets: {claim.adjacency}"
                + (", records" if rows == 1 else f", persons with at most {count(rows)} records each"),
                "privacy_parameters": {"epsilon": math.ceil(epsilon * 1e4) / 1e4, "delta": result.delta},
                "privacy_parameters_details": " ".join((f"{guarantee} false alarms.", *claim.assumptions)),
            },
            "deployment_model": {
                "model_name": "Central",
                "model_name_details": "Whoever trains sees all records and adds the noise: to be checked (by hand).",
                "actors": _BY_HAND,
            },
            "accounting": {
                "post_processing": "Everything that is computed from the recorded gradients.",
                "composition": "All steps together, by the curve of trade-offs between false alarms and members found.",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": _BY_HAND,
                "mechanisms": " ".join((*mechanism, "Attacks on the rounding of the noise are not covered.")),
                "justification": " ".join(filter(None, (f"{card.look(run).title}. {card.headline(run)}", *checked))),
            },
            "administrative": {
                "notes": f"Audited with gmip {result.provenance.versions.get('gmip', '')}, "
                f"{sentences.moment(result.created)}. To be replaced: 1900-01-01 and {_BY_HAND}. To be added: sector, "
                "release_type, data_source_type, access_type.",
                "registry_authors": [_BY_HAND],
            },
        },
    }


_FORMS: Final[dict[Form, Callable[[AuditResult], dict[str, str]]]] = {
    "sarif": lambda result: {"audit.sarif": to_sarif(result)},
    "model-card": lambda result: {"model-card.md": to_model_card(result)},
    "dpia": lambda result: {"dpia.md": to_dpia(result), "dpia.html": to_dpia(result, as_html=True)},
    "registry": to_registry,
    "release": lambda result: {
        "release/report.html": to_html(result, shared=True),
        "release/summary.html": to_summary(result),
        "release/report.md": to_markdown(result),
    },
}


def write_for(
    result: AuditResult, form: Form, folder: str | PathLike[str], *, fewest: int = FEWEST
) -> tuple[Path, ...]:
    """Writes one form of a result into a folder, all of it free of records, files and seeds, and returns the files.

    fewest : groups with fewer members or non-members are not named, bars of histograms with fewer are joined.
    """
    texts = {Path(folder) / name: text for name, text in _FORMS[form](shareable(result, fewest=fewest)).items()}
    for path, text in texts.items():
        make_folder(path.parent)
        write(path, text.encode("utf-8", "backslashreplace"))
    return tuple(texts)


# -- trackers of experiments -------------------------------------------------------------------------------------------


def log_mlflow(result: AuditResult) -> None:
    """Logs an audit to the active run of MLflow: gmip/<run>/<metric>, a tag with the verdict, and the folder release.

    What is logged names no record, no file and no seed (`gmip.report.share.shareable`).
    """
    import mlflow

    for one in to_metrics(result):
        mlflow.log_metrics({f"gmip/{_plain(one.run)}/{name}": value for name, value in one.numbers.items()})
        mlflow.set_tag(f"gmip.{_plain(one.run)}.verdict", one.verdict)
    with tempfile.TemporaryDirectory() as folder:
        write_for(result, "release", folder)
        mlflow.log_artifacts(str(Path(folder) / "release"), artifact_path="gmip")


def log_wandb(result: AuditResult, run: Any) -> None:
    """Logs an audit to a run of Weights & Biases: the same into its summary, and the folder release as an artifact."""
    import wandb

    for one in to_metrics(result):
        numbers: dict[str, Any] = dict(one.numbers)
        for name, value in (numbers | {"verdict": one.verdict}).items():
            run.summary[f"gmip/{_plain(one.run)}/{name}"] = value
    with tempfile.TemporaryDirectory() as folder:
        write_for(result, "release", folder)
        artifact = wandb.Artifact("gmip-audit", type="report")
        artifact.add_dir(str(Path(folder) / "release"))
        run.log_artifact(artifact)


def _plain(name: str) -> str:
    """A name of characters that both trackers take."""
    return "".join(c if c.isalnum() or c in "-_. " else "_" for c in name) or "run"
