"""The report as one self-contained page: no network, no server, only its own style and script may run."""

from __future__ import annotations

import json
from collections.abc import Sequence

from gmip import _numbers
from gmip._html import Html, tag
from gmip.auditing.schema import AuditResult, RunAudit
from gmip.report import answer_words, sentences, tables, verdict_words
from gmip.report.answer_box import answer_box, icon, marks, reasons
from gmip.report.exposure_chart import exposure_chart
from gmip.report.figures import figure_html
from gmip.report.overlay import overview_figure
from gmip.report.page import asset, bullets, command, digest, folded, page, scroll, table_html
from gmip.report.run_parts import PARTS, Part, part_html
from gmip.report.summary import summary_section

__all__ = ["script_digest", "to_html"]

_STANDING_NOTES = (
    "Proved: a theorem, under the assumptions listed. Approximation: a formula that is close, but can be too high or "
    "too low. Given: stated by whoever asked for the audit. Measured: an estimate from a finite number of candidates."
)
_PRIVATE = (
    "This page names records of the training data: keep it as safe as the data, and do not pass it on. "
    "report-to-share.html is a copy without them."
)
_SHARED = "This copy names no records, files or seeds, and can be passed on."


def to_html(result: AuditResult, *, shared: bool = False) -> str:
    """The page. The same result gives the same bytes; every string of the result is escaped.

    `shared` : the result is `shareable`; the page says so, and has no part about records or about repeating it.
    """
    parts = [part for part in PARTS if not (shared and part.key == "exposed")]
    return page(
        _title(result),
        tag("a", "Skip to the answer", href="#answer", class_="skip"),
        _header(result),
        _contents(result, parts, shared),
        tag(
            "main",
            _overview(result),
            *(_run(result, run, f"run-{i}", parts) for i, run in enumerate(result.runs, 1)),
            _assumptions(result),
            None if shared else _repeat(result),
            id="answer",
            tabindex="-1",
        ),
        tag("footer", tag("p", "Written by gmip. " + (_SHARED if shared else _PRIVATE))),
        summary_section(result),
        style=asset("style.css") + asset("what_if.css"),
        script=_script(),
    )


def script_digest() -> str:
    """The script of our reports, as a policy (Content-Security-Policy) names it."""
    return digest(_script())


def _script() -> str:
    return asset("script.js") + asset("what_if.js")


def _title(result: AuditResult) -> str:
    return result.title.strip() or "Membership audit"


def _header(result: AuditResult) -> Html:
    version = result.provenance.versions.get("gmip")
    parts = [
        tag("time", sentences.moment(result.created), datetime=result.created) if result.created else None,
        tag("span", f"{_numbers.rate(f'{result.confidence:.6g}')} confidence"),
        tag("span", f"{len(result.runs)} run{'s' if len(result.runs) > 1 else ''}"),
        tag("span", f"gmip {version}") if version else None,
    ]
    return tag(
        "header",
        tag("p", "Membership-inference audit", class_="kicker"),
        tag("h1", _title(result)),
        tag("p", *parts, class_="meta"),
    )


def _contents(result: AuditResult, parts: Sequence[Part], shared: bool) -> Html:
    if len(result.runs) > 1:
        entries = [("overview", "Overview"), *((f"run-{i}", run.name) for i, run in enumerate(result.runs, 1))]
    else:
        there = [part for part in parts if part.name and part.content(result, result.runs[0], "run-1")]
        entries = [("run-1-verdict", "Answer"), *((f"run-1-{part.key}", part.name) for part in there)]
    entries += [
        ("threat-model", "Assumptions"),
        *([] if shared else [("repeat", "Repeat it")]),
        ("summary", "One-page summary"),
    ]
    items = [tag("li", tag("a", name, href=f"#{key}")) for key, name in entries]
    return tag("nav", tag("ul", *items), aria_label="On this page")


def _overview(result: AuditResult) -> Html | None:
    """Several runs: which one to ship, accuracy against exposure, one table and one figure of all of them."""
    if len(result.runs) < 2:
        return None
    figure = overview_figure(result, "overview-figure", sentences.first_rate(result.runs[0]))
    shipped = answer_words.ship(result)
    tone = "bad" if shipped.run is None else "good"
    return tag(
        "section",
        tag("h2", "Which run to ship", id="overview-title"),
        tag("div", tag("p", icon(tone), shipped.words, class_="headline ship"), class_=f"verdict tone-{tone}"),
        exposure_chart(result, "overview-exposure"),
        table_html(tables.overview_table(result), "overview", "table", marks=marks(result), cards=True),
        figure_html(figure, title="All runs: members found against false alarms", confidence=result.confidence),
        folded("The curves in numbers", table_html(tables.curve_table(figure), "overview", "numbers")),
        id="overview",
        aria_labelledby="overview-title",
    )


def _run(result: AuditResult, run: RunAudit, key: str, parts: Sequence[Part]) -> Html:
    """The answer about a run and its parts; of several runs, all but the answer is folded."""
    several = len(result.runs) > 1
    behind = reasons(result, run, key)
    below = [part_html(part, result, run, key) for part in parts]
    if several:
        cautions = len(sentences.cautions(run))
        warned = f" ({cautions} warning{'s' if cautions > 1 else ''})" if cautions else ""
        named = f"'{run.name}'" if run.name else "this run"
        inside = tag("div", *behind, class_="reasons")
        below = [folded(f"All about {named}{warned}", inside, *below, class_="whole")]
    return tag(
        "section",
        tag("h2", run.name if several else "The answer", id=f"{key}-title"),
        answer_box(result, run, key, *([] if several else behind)),
        *below,
        id=key,
        class_="run",
        aria_labelledby=f"{key}-title",
    )


def _assumptions(result: AuditResult) -> Html:
    """Once for all runs."""
    table = table_html(tables.standing_table(result), "standing", "table")
    return tag(
        "section",
        tag("h2", "Assumptions and threat model", id="threat-model-title"),
        bullets(verdict_words.THREAT_MODELS[result.threat_model]),
        tag("h3", "What is proved, approximate or measured", id="standing-title"),
        folded("What each number rests on", tag("p", _STANDING_NOTES), table),
        id="threat-model",
        aria_labelledby="threat-model-title",
    )


def _repeat(result: AuditResult) -> Html:
    p = result.provenance
    settings = None
    if p.config:
        text = json.dumps(p.config, indent=2, sort_keys=True, default=str)
        summary = tag("summary", "All settings", id="repeat-settings")
        settings = tag("details", summary, scroll(tag("pre", text), "repeat-settings"))
    return tag(
        "section",
        tag("h2", "How to repeat this audit", id="repeat-title"),
        command(p.command) if p.command else None,
        folded("Seed, versions and fingerprints", table_html(tables.version_table(result), "repeat", "table")),
        settings,
        id="repeat",
        aria_labelledby="repeat-title",
    )
