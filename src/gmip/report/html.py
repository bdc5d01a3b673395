"""The report as one self-contained page: no network, no server, only its own style and script may run."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Final, NamedTuple

from gmip._html import Html, join, tag, theme
from gmip._html import card as facts_card
from gmip._numbers import count, number, rate
from gmip._svg import Axes, chart, picture, swatch
from gmip._validate import listed
from gmip.auditing.schema import Advice, AttackOutcome, AuditResult, RunAudit
from gmip.report import advice_words, answer_words, card, sentences, tables
from gmip.report.card import command_html as command
from gmip.report.figures import (
    bars_html,
    figure_html,
    histogram_html,
    noise_html,
    overview_figure,
    run_figure,
    shortened,
)
from gmip.report.share import shareable
from gmip.report.tables import Cell, Table, plain_advice, price_notes, ways_table

# -- what our pages share ---------------------------------------------------------------------------------------------


_LONGEST_WORD = 24
_SHOWN_GROUPS = 30


def asset(name: str) -> str:
    """A file of this package."""
    return files("gmip.report").joinpath(name).read_text(encoding="utf-8")


def page(title: str, *body: Html, style: str, script: str = "") -> str:
    """A whole page of these elements: no network, and nothing runs but our style, `style` and the script, by
    their hashes."""
    style = theme() + style
    policy = f"default-src 'none'; style-src '{digest(style)}'; "
    policy += f"script-src '{digest(script)}'; " if script else ""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag(
            "meta",
            http_equiv="Content-Security-Policy",
            content=f"{policy}img-src data:; base-uri 'none'; form-action 'none'",
        ),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="generator", content="gmip"),
        tag("title", title),
        tag("link", rel="icon", href="data:,"),
        tag("style", Html(style)),
    )
    whole = tag("body", *body, tag("script", Html(script)) if script else None)
    return f"<!doctype html>\n{tag('html', head, whole, lang='en')}\n"


def digest(text: str) -> str:
    """How a policy (Content-Security-Policy) names a script or a style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def bullets(items: tuple[str, ...] | list[str]) -> Html | None:
    return tag("ul", *(tag("li", item) for item in items)) if items else None


def folded(summary: str, *children: Html | None, unfolded: bool = False, class_: str | None = None) -> Html:
    return tag("details", tag("summary", summary), *children, open=unfolded, class_=class_)


def scroll(child: Html, named_by: str) -> Html:
    """A box in which something wide can be scrolled, by keyboard too."""
    return tag("div", child, class_="scroll", role="region", tabindex="0", aria_labelledby=named_by)


def table_html(table: Table, section: str, name: str, marks: dict[str, Html] | None = None) -> Html:
    """A table in a box that scrolls."""
    identifier = f"{section}-{name}"

    def kind(index: int, cell: Cell | None = None) -> str | None:
        classes = [] if index in table.texts else ["number"]
        if cell is not None and max(map(len, cell.text.split()), default=0) > _LONGEST_WORD:
            classes.append("long")  # other words do not break inside
        return " ".join(classes) or None

    def content(cell: Cell) -> Html:
        details = [tag("small", line) for line in cell.details]
        whole = bullets(cell.sentences) if len(cell.sentences) > 1 else _isolated(cell.text)
        if cell.name is not None:
            whole = tag("span", whole, data_name=f"{section}/{cell.name}")
        return join((marks or {}).get(cell.text) or whole, *details)

    head = [tag("th", name, scope="col", class_=kind(i)) for i, name in enumerate(table.columns)]
    body = [
        tag(
            "tr",
            tag("th", content(row[0]), scope="row", class_=kind(0, row[0])),
            *(tag("td", content(c), class_=kind(i, c)) for i, c in enumerate(row[1:], 1)),
        )
        for row in table.rows
    ]
    caption = tag("caption", tag("span", table.caption), id=f"{identifier}-caption")
    # Each of several runs has such a table: its heading distinguishes them.
    whole = tag("table", caption, tag("thead", tag("tr", *head)), tag("tbody", *body))
    return scroll(whole, f"{section}-title {identifier}-caption")


def _isolated(text: str) -> Html:
    """Words of others cannot turn what stands around them; numbers need no such care."""
    return join(text) if text.isascii() else tag("bdi", text)


# -- what to do about a run -------------------------------------------------------------------------------------------


def advice_part(result: AuditResult, run: RunAudit, key: str) -> list[Html | None]:
    """Other advice, the ways to the target, and commands to copy."""
    if not run.advice:
        return [tag("p", "No recommendation.")]
    ways = [one for one in run.advice if one.way is not None]
    first, last = plain_advice(run)
    commands = [
        tag("li", tag("p", advice_words.NAMES[one.way.change]), command(copied))
        for one in ways
        if one.way is not None and (copied := advice_words.command(one, run)) is not None
    ]
    return [
        _listed(run, first),
        table_html(ways_table(run), key, "ways-table") if ways else None,
        *(tag("p", note, class_="note") for note in price_notes(run)),
        folded("Commands to copy", tag("ul", *commands, class_="advice commands")) if commands else None,
        _listed(run, last),
    ]


def _listed(run: RunAudit, some: list[Advice]) -> Html | None:
    items = []
    for one in some:
        copied = advice_words.command(one, run)
        items.append(tag("li", tag("p", advice_words.text(one, run)), None if copied is None else command(copied)))
    return tag("ul", *items, class_="advice") if items else None


# -- what the page says about a run below the answer ------------------------------------------------------------------


_CHECKED: Final = {
    tables.CHECKED["failed"]: tag("span", tables.CHECKED["failed"], class_="mark tone-bad"),
    tables.CHECKED["passed"]: tag("span", tables.CHECKED["passed"], class_="mark tone-plain"),
}


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


def part_html(part: Part, result: AuditResult, run: RunAudit, key: str) -> Html | None:
    content = part.content(result, run, key)
    if not content:
        return None
    heading = part.title if isinstance(part.title, str) else part.title(run)
    return tag("section", tag("h3", heading, id=f"{key}-{part.key}-title"), *content, id=f"{key}-{part.key}")


def _evidence(result: AuditResult, run: RunAudit, key: str) -> list[Html | None]:
    if not run.attacks and not run.claims:
        return []
    figure = run_figure(run, f"{key}-figure")
    return [
        figure_html(figure, title="Members found against false alarms", confidence=result.confidence),
        folded("The curves in numbers", table_html(tables.curve_table(figure), key, "numbers")),
        histogram_html(run, f"{key}-histogram"),
    ]


def _groups(result: AuditResult, run: RunAudit, key: str) -> list[Html | None]:
    if not run.groups:
        return []
    lines = [card.group_row(one, run) for one in run.groups]
    measured = [one for one in lines if one.found is not None]
    table = table_html(tables.group_table(run), key, "groups-table")
    drawn = card.forest(measured[:_SHOWN_GROUPS], run.goal, key, grouped=True)
    small, few = len(lines) - len(measured), None
    if small:
        which = f"{small} of {len(lines)} groups are" if measured else "Every group is"
        few = tag("p", f"{which} too small to measure at {rate(run.goal.fpr)} false alarms.")
    return [
        tag("p", sentences.groups(result, run)),
        tag("div", drawn, class_="panel") if measured else None,
        few,
        folded(f"All {len(run.groups)} groups in numbers", table),
    ]


def _noise(result: AuditResult, run: RunAudit, key: str) -> list[Html | None]:
    drawing = noise_html(run, f"{key}-noise-chart", _accuracies(run))
    return [] if drawing is None else [drawing]


def _accuracies(run: RunAudit) -> list[tuple[float, float, float, float]]:
    """(noise, accuracy, lower, upper) of the run itself, and of trainings with other noise where they were tried."""
    found = []
    facts, ways = run.facts, [one.way for one in run.advice if one.way is not None and one.way.accuracy is not None]
    if facts.test_accuracy is not None and facts.noise_std is not None:
        share = facts.test_accuracy
        ends = card.accuracy_ends(share, facts.test_records) if facts.test_records else (share, share)
        found.append((facts.noise_std, share, *ends))
    for way in ways:
        tried = way.accuracy
        if way.change in ("noise", "noise-alone") and tried is not None:
            error = 1.96 * tried.error
            found.append((way.runs[0].noise_std, tried.mean, tried.mean - error, tried.mean + error))
    return found


def _exposed(result: AuditResult, run: RunAudit, key: str) -> list[Html | None]:
    if not run.exposed:
        return []
    shown = min(len(run.exposed), tables.SHOWN_RECORDS)
    left = len(run.exposed) - shown
    return [
        tag(
            "p",
            "The members that are easiest to recognise as training data. Only identifiers are shown, never what a "
            "record contains." + (f" {count(left)} more are in result.json." if left > 0 else ""),
        ),
        None if (own := sentences.individual(run)) is None else tag("p", own),
        bars_html(run, f"{key}-bars"),
        folded(f"The {shown} most exposed in numbers", table_html(tables.exposed_table(run), key, "exposed-table")),
    ]


def _guarantee(result: AuditResult, run: RunAudit, key: str) -> list[Html | None]:
    said = bullets(sentences.guarantee(run))
    if said is None or run.check is None:
        return [] if said is None else [said]
    table = table_html(tables.check_table(run), key, "check-table", marks=_CHECKED)
    return [said, folded("All checks of the record", table, unfolded=not run.check.passed)]


def _tested(result: AuditResult, run: RunAudit, key: str) -> list[Html | None]:
    table = tables.fact_table(run)
    facts = folded(sentences.facts_title(run), table_html(table, key, "facts-table")) if table.rows else None
    if not run.attacks:
        return [facts] if facts else []
    notes = tag("dl", *(_attack_notes(a) for a in run.attacks), class_="notes")
    return [
        table_html(tables.attack_table(result, run), key, "attacks-table"),
        folded("Details of each attack", notes),
        facts,
    ]


def _attack_notes(attack: AttackOutcome) -> Html:
    needs = listed(attack.needs) if attack.needs else "nothing beyond the model"
    bounds = [f"{number(b.mu, 'down')} ({b.method})" for b in attack.mu_bounds]
    said = [
        f"The attacker needs {needs}.",
        f"Lower bounds on μ by method: {listed(bounds)}." if bounds else None,
        *sentences.attack_notes(attack),
    ]
    return tag("div", tag("dt", attack.title), tag("dd", bullets([one for one in said if one])))


# A new chart or table of a run is a line here.
PARTS: Final = (
    Part("evidence", "Evidence", "Evidence", _evidence),
    Part("groups", "Groups", "Groups", _groups),
    Part("advice", "What to do", "What to do", advice_part),
    Part("noise", "Noise", "Noise, exposure and accuracy", _noise),
    Part("exposed", "Records", "Most exposed records", _exposed),
    Part("guarantee", "Guarantee", "Guarantee", _guarantee),
    Part("tested", "How it was tested", "How it was tested", _tested),
)


# -- the answer on one page -------------------------------------------------------------------------------------------


# What a page has room for.
_RUNS: Final = 6
_DETAILED_RUNS: Final = 4
_ITEMS: Final = 3
_TITLE, _NAME, _SENTENCE = 140, 60, 320


def to_summary(result: AuditResult) -> str:
    """A page of its own that prints on one sheet, A4 or Letter. The same result gives the same bytes."""
    short = _shortened(shareable(result))
    return page(short.title, tag("main", *_content(short), class_="summary"), style=asset("style.css"))


def summary_section(result: AuditResult) -> Html:
    """The same but for the curves, within the report: hidden until a link leads to #summary, which hides all else."""
    back = tag(
        "p",
        tag("a", "Back to the report", href="#answer"),
        tag("button", "Print", type="button", class_="print needs-script"),
        class_="only-screen",
    )
    content = _content(_shortened(shareable(result)), curves=False)
    return tag("main", back, *content, id="summary", class_="summary within")


def _content(result: AuditResult, *, curves: bool = True) -> list[Html | None]:
    when = f"{sentences.moment(result.created)}, " if result.created else ""
    sure = f"{rate(result.confidence)} confidence"
    return [
        tag("p", f"Summary of a membership-inference audit, {when}{sure}", class_="kicker"),
        tag("h1", result.title, id="summary-title"),
        *(_several(result) if len(result.runs) > 1 else _one(result, result.runs[0], curves)),
        tag("p", sentences.not_shown(), class_="note"),
        tag("p", "Written by gmip. This page names no records, files or seeds, and can be passed on.", class_="note"),
    ]


def _one(result: AuditResult, run: RunAudit, curves: bool) -> list[Html | None]:
    return [
        card.card_html(run, "run-1"),
        tag(
            "div",
            _chart(run) if curves else None,
            tag("div", bullets(card.meaning(result)), _notes(run), class_="words"),
            class_="halves",
        ),
    ]


def _several(result: AuditResult) -> list[Html | None]:
    left = len(result.runs) - _RUNS
    shown = result.model_copy(update={"runs": result.runs[:_RUNS]})
    items = [tag("li", tag("strong", f"{run.name}: "), card.headline(run)) for run in result.runs[:_DETAILED_RUNS]]
    return [
        _shipped(result),
        tag("div", card.runs_html(shown, linked=False), class_="panel"),
        tag("p", f"{left} more runs are in the report.") if left > 0 else None,
        tag("ul", *items) if len(result.runs) <= _DETAILED_RUNS else None,
        tag("div", bullets(card.meaning(result)), _notes(*result.runs), class_="words"),
    ]


def _notes(*runs: RunAudit) -> Html | None:
    """The gate and the warnings."""
    gates = [f"Gate: {sentences.gate(run, run.gate)}" for run in runs if run.gate is not None]
    warned = _warnings(*runs)
    if not gates and warned is None:
        return None
    heading = tag("p", tag("strong", "Warnings")) if warned else None
    return tag("div", bullets(gates) if len(runs) == 1 else None, heading, warned)


def _shipped(result: AuditResult) -> Html:
    """Which of several runs to ship."""
    kind, said = answer_words.ship(result)
    kept = card.VERDICTS[kind]
    words = tag("p", card.icon(kept), said, class_="headline ship")
    return tag("div", words, class_=f"verdict tone-{kept.tone}")


def _warnings(*runs: RunAudit) -> Html | None:
    said = list(dict.fromkeys(one for run in runs for one in sentences.cautions(run)))
    left = len(said) - _ITEMS
    more = [f"{left} more {'is' if left == 1 else 'are'} in the report."] if left > 0 else []
    return bullets([*said[:_ITEMS], *more])


def _chart(run: RunAudit) -> Html | None:
    if not run.attacks and not run.claims:
        return None
    figure = run_figure(run, "summary-figure")
    drawing = chart(
        figure.series,
        Axes(figure.lowest),
        label="Members found against false alarms, logarithmic axes. The report has the numbers.",
        unmeasured=figure.first_measured,
        target=figure.target,
    )
    names = [tag("li", swatch(one), tag("span", one.name)) for one in figure.series]
    return tag("div", drawing, tag("ul", *names, class_="names"), class_="chart-box")


def _shortened(result: AuditResult) -> AuditResult:
    """The result with strings that cannot fill the page; what was cut ends with an ellipsis."""

    def run(one: RunAudit) -> RunAudit:
        return one.model_copy(
            update={
                "name": shortened(one.name, _NAME),
                "warnings": tuple(shortened(words, _SENTENCE) for words in one.warnings),
                "attacks": tuple(a.model_copy(update={"title": shortened(a.title, _NAME)}) for a in one.attacks),
            }
        )

    title = shortened(result.title.strip() or "Membership audit", _TITLE)
    return result.model_copy(update={"title": title, "runs": tuple(map(run, result.runs))})


# -- the report as one self-contained page ----------------------------------------------------------------------------


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
            _read(result),
            _assumptions(result),
            None if shared else _repeat(result),
            id="answer",
            tabindex="-1",
        ),
        tag("footer", tag("p", "Written by gmip. " + (_SHARED if shared else _PRIVATE))),
        summary_section(result),
        style=asset("style.css"),
        script=asset("script.js"),
    )


def script_digest() -> str:
    """The script of our reports, as a policy (Content-Security-Policy) names it."""
    return digest(asset("script.js"))


def _title(result: AuditResult) -> str:
    return result.title.strip() or "Membership audit"


def _header(result: AuditResult) -> Html:
    version = result.provenance.versions.get("gmip")
    parts = [
        tag("time", sentences.moment(result.created), datetime=result.created) if result.created else None,
        tag("span", f"{rate(result.confidence)} confidence"),
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
        entries = [("run-1", "Answer"), *((f"run-1-{part.key}", part.name) for part in there)]
    entries += [
        ("read", "How to read it"),
        ("threat-model", "Assumptions"),
        *([] if shared else [("repeat", "Repeat it")]),
        ("summary", "One-page summary"),
    ]
    items = [tag("li", tag("a", name, href=f"#{key}")) for key, name in entries]
    return tag("nav", tag("ul", *items), aria_label="On this page")


def _overview(result: AuditResult) -> Html | None:
    """Several runs: which one to ship, the rows of all of them, and one figure."""
    if len(result.runs) < 2:
        return None
    figure = overview_figure(result, "overview-figure")
    return tag(
        "section",
        tag("h2", "Which run to ship", id="overview-title"),
        _shipped(result),
        tag("div", card.runs_html(result), class_="panel"),
        figure_html(figure, title="All runs: members found against false alarms", confidence=result.confidence),
        folded("The curves in numbers", table_html(tables.curve_table(figure), "overview", "numbers")),
        id="overview",
        aria_labelledby="overview-title",
    )


def _run(result: AuditResult, run: RunAudit, key: str, parts: Sequence[Part]) -> Html:
    """The card of a run and its parts; of several runs, all but the card is folded."""
    several = len(result.runs) > 1
    below = [part_html(part, result, run, key) for part in parts]
    cautions = sentences.cautions(run)
    warned = None
    if cautions:
        warned = tag("div", tag("p", tag("strong", "Warnings")), bullets(cautions), class_="warnings")
    gate = None if run.gate is None else tag("p", tag("strong", "Gate: "), sentences.gate(run, run.gate))
    if several:
        said = f" ({len(cautions)} warning{'s' if len(cautions) > 1 else ''})" if cautions else ""
        named = f"'{run.name}'" if run.name else "this run"
        below = [folded(f"All about {named}{said}", warned, *below, class_="whole")]
    return tag(
        "section",
        tag("h2", run.name if several else "The answer", id=f"{key}-title"),
        card.card_html(run, key, gate, None if several else warned),
        *below,
        id=key,
        class_="run",
        aria_labelledby=f"{key}-title",
    )


def _read(result: AuditResult) -> Html:
    """Said once: what the words mean, and what to do about each verdict."""
    verdicts = [
        tag("li", tag("span", card.icon(of), of.title, class_=f"mark tone-{of.tone}"), f" {of.todo}")
        for of in card.VERDICTS.values()
    ]
    return tag(
        "section",
        tag("h2", "How to read it", id="read-title"),
        bullets(card.meaning(result)),
        tag("h3", "What to do about each verdict", id="verdicts-title"),
        tag("ul", *verdicts, class_="verdicts"),
        id="read",
        aria_labelledby="read-title",
    )


def _assumptions(result: AuditResult) -> Html:
    """The assumptions stand once for all runs."""
    table = table_html(tables.standing_table(result), "threat-model", "table")
    return tag(
        "section",
        tag("h2", "Assumptions and threat model", id="threat-model-title"),
        bullets(answer_words.THREAT_MODELS[result.threat_model]),
        folded("What each curve is, and what it assumes", table),
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


# -- what a notebook shows of a result --------------------------------------------------------------------------------


def to_card(result: AuditResult) -> str:
    """The card and the curves as HTML; no record and no folder is named."""
    one = len(result.runs) == 1
    words = card.card_text(result.runs[0]) if one else [answer_words.ship(result)[1], "", *card.runs_text(result)]
    figure = run_figure(result.runs[0], "") if one else overview_figure(result, "")
    label = "Members found against false alarms"
    drawing = picture(figure.series, label=label, lowest=figure.lowest, unmeasured=figure.first_measured)
    return facts_card(result.title, [], tag("pre", "\n".join(words), style="white-space: pre-wrap"), drawing)
