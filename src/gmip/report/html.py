"""The report as one self-contained page: no network, no server, only its own style and script may run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gmip import _numbers
from gmip._html import Html, join, tag
from gmip._validate import listed
from gmip.auditing.attacker_answers import DEFAULT_GOAL, answers_of
from gmip.auditing.overlay import overview_figure, run_figure
from gmip.auditing.schema import Advice, AttackerAnswer, AttackOutcome, AuditResult, RunAudit
from gmip.report import answer_words, sentences, tables
from gmip.report.exposure_chart import exposure_chart
from gmip.report.figures import figure_html
from gmip.report.page import asset, bullets, page, scroll, table_html

__all__ = ["to_html"]

_ICONS = {
    "good": "M6 12.5L10.5 17L18.5 7.5",
    "bad": "M12 6V13.5M12 17V18",
    "open": "M8.8 9.2A3.2 3.2 0 1 1 12 12.6V14M12 17.4V18.2",
    "plain": "M12 10.5V18M12 6V7",
}
_COMPARED = {
    tables.ABOVE: tag("span", tables.ABOVE, class_="mark tone-bad"),
    tables.BELOW: tag("span", tables.BELOW, class_="mark tone-plain"),
}
_STANDING_NOTES = (
    "Proved: a theorem, under the assumptions listed. Approximation: a formula that is close, but can be too high or "
    "too low. Given: stated by whoever asked for the audit. Measured: an estimate from a finite number of candidates."
)


_PRIVATE = (
    "This page names records of the training data: keep it as safe as the data, and do not pass it on. "
    "gmip audit --share writes a copy without them."
)
_SHARED = "This copy names no records, files or seeds, and can be passed on."


def to_html(result: AuditResult, *, shared: bool = False) -> str:
    """The page. The same result gives the same bytes; every string of the result is escaped.

    `shared` : the result is `shareable`; the page says so, and has no part about records or about repeating it.
    """
    return page(
        _title(result),
        tag("a", "Skip to the answer", href="#answer", class_="skip"),
        _header(result),
        _contents(result, shared),
        tag(
            "main",
            _answers(result),
            *_runs(result, shared),
            _threat_model(result),
            None if shared else _repeat(result),
            id="answer",
            tabindex="-1",
        ),
        tag("footer", tag("p", "Written by gmip. " + (_SHARED if shared else _PRIVATE))),
        style=asset("style.css"),
        script=asset("script.js"),
    )


def _title(result: AuditResult) -> str:
    return result.title.strip() or "Membership audit"


# -- the frame of the page --------------------------------------------------------------------------------------------


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


def _contents(result: AuditResult, shared: bool) -> Html:
    if len(result.runs) > 1:
        entries = [("overview", "Overview"), *((f"run-{i}", run.name) for i, run in enumerate(result.runs, 1))]
    else:
        there = [part for part in _PARTS if part.name and part.content(result, result.runs[0], "run-1")]
        entries = [("run-1-verdict", "Answer"), *((f"run-1-{part.key}", part.name) for part in there)]
    entries += [("threat-model", "Threat model"), *([] if shared else [("repeat", "Repeat it")])]
    items = [tag("li", tag("a", name, href=f"#{key}")) for key, name in entries]
    return tag("nav", tag("ul", *items), aria_label="On this page")


def _answers(result: AuditResult) -> Html | None:
    """Several runs: which one to ship, accuracy against exposure, one table and one figure of all of them."""
    if len(result.runs) < 2:
        return None
    figure = overview_figure(result, "overview-figure", _rate(result.runs[0]))
    shipped = answer_words.ship(result)
    tone = "bad" if shipped.run is None else "good"
    return tag(
        "section",
        tag("h2", "Which run to ship", id="overview-title"),
        tag("div", tag("p", _icon(tone), shipped.words, class_="headline ship"), class_=f"verdict tone-{tone}"),
        exposure_chart(result, "overview-exposure"),
        table_html(tables.overview_table(result), "overview", "table", marks=_marks(result)),
        figure_html(figure, title="All runs: members found against false alarms", confidence=result.confidence),
        _in_numbers(tables.curve_table(figure), "overview"),
        id="overview",
        aria_labelledby="overview-title",
    )


def _rate(run: RunAudit) -> float:
    return float(sentences.headline_rate(run) or 0.01) or 0.01


def _runs(result: AuditResult, shared: bool) -> list[Html]:
    parts = [part for part in _PARTS if not (shared and part.key == "exposed")]
    return [_run(result, run, f"run-{i}", parts) for i, run in enumerate(result.runs, 1)]


def _threat_model(result: AuditResult) -> Html:
    return tag(
        "section",
        tag("h2", "Assumptions and threat model", id="threat-model-title"),
        bullets(result.threat_model) or tag("p", "None are given."),
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
        _command(p.command) if p.command else None,
        table_html(tables.version_table(result), "repeat", "table"),
        settings,
        id="repeat",
        aria_labelledby="repeat-title",
    )


# -- one run ----------------------------------------------------------------------------------------------------------


def _run(result: AuditResult, run: RunAudit, key: str, parts: Sequence[Part]) -> Html:
    name = run.name if len(result.runs) > 1 else "The answer"
    return tag(
        "section",
        tag("h2", name, id=f"{key}-title"),
        _verdict(result, run, key),
        *(_part(part, result, run, key) for part in parts),
        id=key,
        class_="run",
        aria_labelledby=f"{key}-title",
    )


def _part(part: Part, result: AuditResult, run: RunAudit, key: str) -> Html | None:
    content = part.content(result, run, key)
    if not content:
        return None
    heading = part.title if isinstance(part.title, str) else part.title(run)
    title = tag("h3", heading, id=f"{key}-{part.key}-title")
    return tag("section", title, *content, id=f"{key}-{part.key}")


def _curves(result: AuditResult, run: RunAudit, key: str) -> list[Html | None]:
    figure = run_figure(run, f"{key}-figure", _rate(run))
    return [
        figure_html(figure, title="Members found against false alarms", confidence=result.confidence),
        _in_numbers(tables.curve_table(figure), key),
    ]


def _standing(result: AuditResult, run: RunAudit, key: str) -> list[Html | None]:
    table = table_html(tables.standing_table(run), key, "standing-table")
    return [_folded("What each number rests on", tag("p", _STANDING_NOTES), table)]


def _facts(result: AuditResult, run: RunAudit, key: str) -> list[Html | None]:
    table = tables.fact_table(run)
    return [_folded("Settings of the run", table_html(table, key, "facts-table"))] if table.rows else []


def _marks(result: AuditResult) -> dict[str, Html]:
    """Each label of a badge, as a badge."""
    every = [answer_words.badges(answer) for run in result.runs for answer in answers_of(run, result.confidence)]
    return {badge.text: _badge(badge) for pair in every for badge in pair}


def _badge(badge: answer_words.Badge) -> Html:
    return tag("span", _icon(badge.tone), badge.text, class_=f"mark tone-{badge.tone}")


def _verdict(result: AuditResult, run: RunAudit, key: str) -> Html:
    found = answers_of(run, result.confidence)
    first = next(iter(found), None)
    answers = [
        ("What to do", tag("dd", _first_advice(run, key))),
        ("The promise", tag("dd", f"{sentences.label(run.verdict)}. {sentences.headline(run.verdict)}")),
        ("How sure", tag("dd", sentences.certainty(result, run))),
        ("Pipeline limit", tag("dd", sentences.gate(run, run.gate))) if run.gate else None,
    ]
    definitions = [tag("div", tag("dt", name), text) for name, text in filter(None, answers)]
    notes = None
    if said := sentences.cautions(run):
        notes = tag("div", tag("p", tag("strong", "Warnings")), bullets(said), class_="warnings")
    others = [
        tag("li", *map(_badge, answer_words.badges(one)), tag("p", answer_words.leak_sentence(run, one)))
        for one in found[1:]
    ]
    tone = _tone(run, first)
    return tag(
        "div",
        tag("p", *map(_badge, _badges(run, first)), class_="badges"),
        None if run.check is None or run.check.passed else tag("p", run.check.headline, class_="headline"),
        tag("p", "No attack was run." if first is None else answer_words.leak_sentence(run, first), class_="headline"),
        None if first is None else tag("p", answer_words.target_sentence(run, first), class_="target"),
        _tiles(result, run),
        tag("dl", *definitions, class_="answers"),
        tag("div", tag("p", tag("strong", "Other attackers")), tag("ul", *others), class_="others") if others else None,
        notes,
        id=f"{key}-verdict",
        class_=f"verdict tone-{tone}",
    )


def _badges(run: RunAudit, answer: AttackerAnswer | None) -> list[answer_words.Badge]:
    shown = [] if answer is None else list(answer_words.badges(answer))
    if run.check is not None and not run.check.passed:
        shown.insert(0, answer_words.Badge("The record does not match the run", "bad"))
    if run.verdict.kind == "exposed":
        shown.append(answer_words.Badge("Promise refuted", "bad"))
    if run.gate is not None:
        passed = run.gate.passed
        shown.append(answer_words.Badge("Gate passed", "plain") if passed else answer_words.Badge("Gate failed", "bad"))
    return shown


def _tone(run: RunAudit, answer: AttackerAnswer | None) -> str:
    """Green only where a target is guaranteed and nothing speaks against it."""
    tones = {badge.tone for badge in _badges(run, answer)}
    return next((tone for tone in ("bad", "open", "good") if tone in tones), "plain") if answer else "open"


def _icon(kind: str) -> Html:
    shape = "M12 2L23 21.5H1Z" if kind == "bad" else "M12 1.5A10.5 10.5 0 1 1 12 22.5A10.5 10.5 0 1 1 12 1.5Z"
    return tag(
        "svg", tag("path", d=shape), tag("path", d=_ICONS[kind]), viewBox="0 0 24 24", aria_hidden="true", class_="icon"
    )


def _tiles(result: AuditResult, run: RunAudit) -> Html | None:
    """Measured, promised, wished for at the rate of the target; and what the model is good for."""
    answer = answer_words.front(result, run)
    tiles: list[tuple[str, str]] = []
    if answer is not None:
        goal = run.goal or DEFAULT_GOAL
        measured, promised = answer_words.exposure(run, answer)
        at = f"at {_numbers.rate(goal.fpr)} false alarms"
        if measured is not None:
            tiles.append((_numbers.percent(min(max(measured, 0.0), 1.0), "nearest"), f"of the members found {at}"))
        if promised is not None:
            curve = answer_words.promise_for(run, answer)
            bound = curve is not None and curve.is_bound
            says = "is the most that the promise allows" if bound else "is about what the promise expects"
            tiles.append((_numbers.percent(promised, "up"), says))
        tiles.append((_numbers.rate(goal.tpr), f"is the target (guessing: {_numbers.rate(goal.fpr)})"))
    if run.facts.test_accuracy is not None:
        tiles.append((_numbers.percent(run.facts.test_accuracy, "nearest"), "accuracy of the model on test data"))
    if not tiles:
        return None
    items = [tag("li", tag("span", value, class_="figure"), tag("span", text, class_="unit")) for value, text in tiles]
    return tag("ul", *items, class_="tiles")


def _first_advice(run: RunAudit, key: str) -> Html:
    if not run.advice:
        return join("No recommendation.")
    more = len(run.advice) > 1 or run.advice[0].command
    return join(
        run.advice[0].text, " " if more else None, tag("a", "All steps", href=f"#{key}-advice") if more else None
    )


def _attacks(result: AuditResult, run: RunAudit, key: str) -> list[Html | None]:
    if not run.attacks:
        return [tag("p", "No attack was run.")]
    rate = sentences.headline_rate(run)
    told = sentences.meaning(run.attacks[0], rate) if rate else ""
    mixed = len({one.attacker_knows > 0.0 for one in run.attacks}) == 2
    return [
        tag("p", f"The strongest{' without a list' if mixed else ''} was {run.attacks[0].title}. {told}"),
        table_html(tables.attack_table(result, run), key, "attacks-table"),
        _folded("Details of each attack", tag("dl", *(_attack_notes(a) for a in run.attacks), class_="notes")),
    ]


def _attack_notes(attack: AttackOutcome) -> Html:
    needs = listed(attack.needs) if attack.needs else "nothing beyond the model"
    bounds = [f"{_numbers.number(b.mu, 'down')} ({b.method})" for b in attack.mu_bounds]
    said = [
        f"The attacker needs {needs}.",
        f"Lower bounds on μ by method: {listed(bounds)}." if bounds else None,
        *sentences.attack_notes(attack),
    ]
    return tag("div", tag("dt", attack.title), tag("dd", bullets([one for one in said if one])))


def _comparison(result: AuditResult, run: RunAudit, key: str) -> list[Html | None]:
    known = run.attacks or run.promises
    table = table_html(tables.comparison_table(run), key, "promise-table", marks=_COMPARED) if known else None
    nothing = None if known else tag("p", "Nothing was promised and nothing was measured.")
    return [_folded("Promise and measurement in numbers", bullets(run.verdict.reasons), table, nothing)]


def _check(result: AuditResult, run: RunAudit, key: str) -> list[Html | None]:
    if run.check is None:
        return []
    marks = {
        tables.CHECKED["failed"]: tag("span", tables.CHECKED["failed"], class_="mark tone-exposed"),
        tables.CHECKED["passed"]: tag("span", tables.CHECKED["passed"], class_="mark tone-consistent"),
    }
    return [tag("p", run.check.headline), table_html(tables.check_table(run), key, "check-table", marks=marks)]


def _groups(result: AuditResult, run: RunAudit, key: str) -> list[Html | None]:
    if not run.groups:
        return []
    return [tag("p", sentences.groups(result, run)), table_html(tables.group_table(run), key, "groups-table")]


def _exposed(result: AuditResult, run: RunAudit, key: str) -> list[Html | None]:
    if not run.exposed:
        return [tag("p", "No records are listed.")]
    left = len(run.exposed) - tables.SHOWN_RECORDS
    return [
        tag(
            "p",
            "The members that are easiest to recognise as training data. Only identifiers are shown, never what a "
            "record contains." + (f" {_numbers.count(left)} more are in result.json." if left > 0 else ""),
        ),
        table_html(tables.exposed_table(run), key, "exposed-table"),
        None if (own := sentences.individual(run)) is None else tag("p", own),
    ]


def _advice(result: AuditResult, run: RunAudit, key: str) -> list[Html | None]:
    def item(advice: Advice) -> Html:
        return tag("li", tag("p", advice.text), _command(advice.command) if advice.command else None)

    if not run.advice:
        return [tag("p", "No recommendation.")]
    return [tag("ol", *map(item, run.advice), class_="advice")]


# -- pieces -----------------------------------------------------------------------------------------------------------


def _command(text: str) -> Html:
    button = tag("button", "Copy", type="button", class_="copy needs-script", aria_label=f"Copy the command {text}")
    return tag("div", tag("code", text), button, tag("span", role="status", class_="copied"), class_="command")


def _folded(summary: str, *children: Html | None) -> Html:
    return tag("details", tag("summary", summary), *children)


def _in_numbers(table: tables.Table, section: str) -> Html:
    return tag("details", tag("summary", "The curves in numbers"), table_html(table, section, "numbers"))


class Part(NamedTuple):
    """A part of what the page says about a run, below the answer.

    key : of its HTML id; name : in the contents of the page, "" for one that is not listed there; title : its heading,
        which may depend on the run.
    content : from the result, the run and the id of the run's section, which ids within the part begin with; nothing
        where the run has no such part.
    """

    key: str
    name: str
    title: str | Callable[[RunAudit], str]
    content: Callable[[AuditResult, RunAudit, str], list[Html | None]]


# A new chart or table of a run is a line here.
_PARTS: Final = (
    Part("check", "Record", "The record and the declared run", _check),
    Part("curves", "Curves", "The curves", _curves),
    Part("advice", "What to do", "What to do", _advice),
    Part("attacks", "Attacks", "Attacks", _attacks),
    Part("groups", "Groups", "Who is exposed: groups", _groups),
    Part("exposed", "Records", "Most exposed records", _exposed),
    Part("promise", "Promise", sentences.comparison_title, _comparison),
    Part("standing", "Proved or measured", "What is proved, approximate or measured", _standing),
    Part("facts", "", sentences.facts_title, _facts),
)
