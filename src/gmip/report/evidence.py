"""A finished audit in the forms that others ask for: SARIF for code hosts, a model card for a hub of models, a document
for a data-protection impact assessment, and metrics for trackers of experiments. None names a record, a file or a seed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from gmip._html import Html, tag
from gmip._io import make_folder, write
from gmip._numbers import count, percent, rate, rate_key
from gmip._validate import listed
from gmip.auditing.schema import AuditResult, Frozen, RunAudit
from gmip.report import answer_words, card, sentences, tables
from gmip.report.html import asset, page, table_html, to_html, to_summary
from gmip.report.html import bullets as bullets_html
from gmip.report.markdown import bullets, plain, table_markdown, to_markdown
from gmip.report.share import FEWEST, shareable
from gmip.report.tables import Cell, Table, table_of
from gmip.report.write import RESULT, cases

__all__ = ["Form", "to_dpia", "to_metrics", "to_model_card", "to_sarif", "write_for"]

Form = Literal["release", "dpia", "model-card", "sarif"]


# -- SARIF 2.1.0 -------------------------------------------------------------------------------------------------------

_RULES: Final = {
    "target": "The model keeps the target: at most so many members are found at the target's false-alarm rate.",
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
    """A heading and what stands below it: a string is a paragraph, a list is bullets."""

    title: str
    parts: tuple[str | list[str] | Table, ...]


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
        _Section(f"{number}. {one.title}" if number < len(sections) else one.title, one.parts)
        for number, one in enumerate(sections, 1)
    ]
    title = f"Membership inference: {result.title}"
    return _html(title, numbered) if as_html else _markdown(title, numbered)


def _named(run: RunAudit, result: AuditResult, words: str) -> str:
    return f"{run.name}: {words}" if len(result.runs) > 1 else words


def _what(result: AuditResult) -> _Section:
    version = result.provenance.versions.get("gmip", "")
    rows = [
        ["Controller, purpose, legal basis", _BY_HAND],
        ["Why these data, and why so many", _BY_HAND],
        ["Model", listed([run.task or run.name for run in result.runs])],
        ["Audited", f"{sentences.moment(result.created)}, gmip {version}, {rate(result.confidence)} confidence"],
    ]
    sizes = sorted({run.facts.dataset_size for run in result.runs if run.facts.dataset_size})
    rows.append(["Records in training", listed([count(size) for size in sizes]) if sizes else "not known"])
    return _Section(
        "The processing",
        (
            "A draft, written from an audit: a person completes and signs it. It covers one risk: that somebody finds "
            "out whether a given person's record was used for training.",
            table_of("The processing", ("Question", "Answer"), rows, texts=(1,)),
        ),
    )


def _unit(result: AuditResult) -> _Section:
    said = []
    for run in result.runs:
        found = run.persons
        words = (
            "one record. Somebody with several records is less protected than these numbers say."
            if found is None
            else f"one person ({count(found.persons)} persons with {count(found.rows)} rows, at most "
            f"{count(found.most_rows)} each)."
        )
        said.append(_named(run, result, f"What is protected is {words}"))
        said += [
            _named(run, result, f"Compared data sets ({answer_words.claim_word(one)}): {one.adjacency}.")
            for one in run.claims
            if one.adjacency
        ]
    return _Section("Unit of privacy", (list(dict.fromkeys(said)),))


def _attackers(result: AuditResult) -> _Section:
    rows: list[list[Cell | str]] = []
    for run in result.runs:
        for answer, row in zip(run.answers, card.rows(run), strict=True):
            who = card.IN_LIFE[answer.sees, answer.knows > 0.0]
            rows.append([_named(run, result, row.label), who, f"{row.numbers}; {row.beside}"])
    tried = {answer.sees for run in result.runs for answer in run.answers}
    said = [words for sees, words in _SEEN.items() if sees not in tried]
    columns = ("Attacker sees", "For example", f"Members found at {_rates(result)} false alarms")
    parts: list[str | list[str] | Table] = [table_of("Attackers", columns, rows, texts=(1, 2))] if rows else []
    if said:
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
    parts: list[str | list[str] | Table] = []
    for run in result.runs:
        if run.attacks:
            parts += [_named(run, result, f"{len(run.attacks)} attacks."), tables.attack_table(result, run)]
        parts.append([_named(run, result, sentences.left_out(one)) for one in run.left_out])
        parts.append([_named(run, result, one) for one in sentences.cautions(run)])
        if run.groups:
            parts += [_named(run, result, sentences.groups(result, run)), tables.group_table(run)]
    other = (
        "Not tested: other risks than membership (inference of attributes, extraction or reconstruction of records), "
        "and attackers who chose or changed training data."
    )
    return _Section("What was tested and what was not", (*parts, other, sentences.not_shown()))


def _guarantee(result: AuditResult) -> _Section:
    parts: list[str | list[str] | Table] = []
    for run in result.runs:
        if run.conclusion.kind != "guaranteed":
            parts.append(_named(run, result, "Nothing proves that the target is kept."))
        parts.append([_named(run, result, one) for one in sentences.guarantee(run)])
        for one in run.claims:
            at = f"{percent(one.tpr(run.goal.fpr), 'up')} of the members at {rate(run.goal.fpr)} false alarms"
            whom = "" if one.for_whom is None else f", for {one.for_whom}"
            most = "at most" if one.is_bound else "about"
            parts.append(_named(run, result, f"{answer_words.curve_name(one)}: {most} {at}{whom}, if this holds:"))
            refuted = run.verdict.kind == "exposed" and one.key == run.verdict.judged_by
            parts.append(
                [
                    *(one.assumptions or ["what whoever gave it assumed."]),
                    *(["An attack refutes it: something of this does not hold."] if refuted else []),
                ]
            )
        if run.check is not None:
            parts.append(tables.check_table(run))
    return _Section("Guarantee, and what it assumes", tuple(parts))


def _sampling(result: AuditResult) -> _Section:
    parts: list[str | list[str] | Table] = []
    for run in result.runs:
        tested = [f"{one.title}: {count(one.members)} members, {count(one.non_members)} others" for one in run.attacks]
        parts.append(_named(run, result, f"Candidates: {'; '.join(tested) or 'none'}."))
        if tables.fact_table(run).rows:
            parts.append(tables.fact_table(run))
    parts.append(
        "Seeds are not in this document: whoever knows the seed of the training can draw its noise again. The seed of "
        f"the audit, with which it can be repeated, is in {RESULT}, which is kept with the data."
    )
    return _Section("Sampling and seeds", tuple(parts))


def _measures(result: AuditResult) -> _Section:
    parts: list[str | list[str] | Table] = []
    for run in result.runs:
        parts.append(_named(run, result, f"Next step: {card.next_step(run)[0]}"))
        if tables.ways_table(run).rows:
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
        blocks.append(f"## {one.title}")
        for part in one.parts:
            if isinstance(part, Table):
                blocks.append(table_markdown(part))
            else:
                blocks.append(plain(part) if isinstance(part, str) else bullets(part))
    return "\n\n".join(block for block in blocks if block) + "\n"


def _html(title: str, sections: list[_Section]) -> str:
    body: list[Html | None] = [tag("h1", title)]
    for number, one in enumerate(sections, 1):
        body.append(tag("h2", one.title))
        for place, part in enumerate(one.parts):
            if isinstance(part, Table):
                body.append(table_html(part, f"part-{number}", str(place)) if part.rows else None)
            else:
                body.append(tag("p", part) if isinstance(part, str) else bullets_html(part) if part else None)
    return page(title, tag("main", *body), style=asset("style.css"))


_FORMS: Final[dict[str, dict[str, Callable[[AuditResult], str]]]] = {
    "sarif": {"audit.sarif": to_sarif},
    "model-card": {"model-card.md": to_model_card},
    "dpia": {"dpia.md": to_dpia, "dpia.html": lambda result: to_dpia(result, as_html=True)},
    "release": {
        "release/report.html": lambda result: to_html(result, shared=True),
        "release/summary.html": to_summary,
        "release/report.md": to_markdown,
    },
}


def write_for(
    result: AuditResult, form: Form, folder: str | PathLike[str], *, fewest: int = FEWEST
) -> tuple[Path, ...]:
    """Writes one form of a result into a folder, all of it free of records, files and seeds, and returns the files.

    fewest : groups with fewer members or non-members are not named, bars of histograms with fewer are joined.
    """
    shared = shareable(result, fewest=fewest)
    texts = {Path(folder) / name: make(shared) for name, make in _FORMS[form].items()}
    for path, text in texts.items():
        make_folder(path.parent)
        write(path, text.encode("utf-8", "backslashreplace"))
    return tuple(texts)
