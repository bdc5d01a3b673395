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
from gmip.report.tables import Block, Cell, Folded, Steps, Table, plain_advice, price_notes, ways_table

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


def blocks_html(blocks: Sequence[Block], section: str, name: str) -> list[Html]:
    """Blocks as a page shows them; ids within begin with `section` and `name`."""
    found: list[Html | None] = []
    for place, block in enumerate(blocks):
        if isinstance(block, str):
            found.append(tag("p", block))
        elif isinstance(block, list):
            found.append(bullets(block))
        elif isinstance(block, Table):
            found.append(table_html(block, section, f"{name}-{place}") if block.rows else None)
        elif isinstance(block, Steps):
            items = [tag("li", tag("p", text), command(copied)) for text, copied in block.items]
            found.append(tag("ul", *items, class_="advice") if items else None)
        elif isinstance(block, Folded):
            inside = blocks_html(block.blocks, section, f"{name}-{place}")
            found.append(folded(block.title, *inside, unfolded=block.unfolded) if inside else None)
        else:
            found.append(block())
    return [one for one in found if one is not None]


def table_html(table: Table, section: str, name: str) -> Html:
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
        return join(tag("span", cell.text, class_=f"mark tone-{cell.tone}") if cell.tone else whole, *details)

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


# -- what is said about a run below the answer ------------------------------------------------------------------------


class Part(NamedTuple):
    """A part of what a report says about a run, below the answer; Markdown has it without its drawings.

    key : of its HTML id; name : in the contents of the page; title : its heading.
    content : from the result, the run and the id of the run's section, which ids within drawings begin with; nothing
        where the run has no such part.
    """

    key: str
    name: str
    title: str
    content: Callable[[AuditResult, RunAudit, str], list[Block]]


def _evidence(result: AuditResult, run: RunAudit, key: str) -> list[Block]:
    if not run.attacks and not run.claims:
        return []
    figure = run_figure(run, f"{key}-figure")
    title = "Members found against false alarms"
    return [
        lambda: figure_html(figure, title=title, confidence=result.confidence),
        lambda: folded("The curves in numbers", table_html(tables.curve_table(figure), key, "numbers")),
        lambda: histogram_html(run, f"{key}-histogram"),
    ]


def _groups(result: AuditResult, run: RunAudit, key: str) -> list[Block]:
    if not run.groups:
        return []
    lines = [card.group_row(one, run) for one in run.groups]
    measured = [one for one in lines if one.found is not None]
    small, few = len(lines) - len(measured), []
    if small:
        which = f"{small} of {len(lines)} groups are" if measured else "Every group is"
        few.append(f"{which} too small to measure at {rate(run.goal.fpr)} false alarms.")
    drawn = card.forest(measured[:_SHOWN_GROUPS], run.goal, key, grouped=True)
    return [
        sentences.groups(result, run),
        lambda: tag("div", drawn, class_="panel") if measured else None,
        *few,
        Folded(f"All {len(run.groups)} groups in numbers", [tables.group_table(run)]),
    ]


def _advice(result: AuditResult, run: RunAudit, key: str) -> list[Block]:
    """Other advice, the ways to the target, and commands to copy."""
    if not run.advice:
        return ["No recommendation."]

    def steps(some: list[Advice]) -> Steps:
        return Steps([(advice_words.text(one, run), advice_words.command(one, run)) for one in some])

    first, last = plain_advice(run)
    commands = [
        (advice_words.NAMES[one.way.change], copied)
        for one in run.advice
        if one.way is not None and (copied := advice_words.command(one, run)) is not None
    ]
    folded_ = Folded("Commands to copy", [Steps(commands)])
    return [steps(first), ways_table(run), *price_notes(run), folded_, steps(last)]


def _noise(result: AuditResult, run: RunAudit, key: str) -> list[Block]:
    curve = run.noise_curve
    if curve is None or len(curve.noise_std) < 2:
        return []
    return [lambda: noise_html(run, curve, f"{key}-noise-chart", _accuracies(run))]


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


def _exposed(result: AuditResult, run: RunAudit, key: str) -> list[Block]:
    own = sentences.individual(run)
    said: list[Block] = [] if own is None else [own]
    if not run.exposed:
        return said
    shown = min(len(run.exposed), tables.SHOWN_RECORDS)
    left = len(run.exposed) - shown
    return [
        "The members that are easiest to recognise as training data. Only identifiers are shown, never what a record "
        "contains." + (f" {count(left)} more are in result.json." if left > 0 else ""),
        *said,
        lambda: bars_html(run, f"{key}-bars"),
        Folded(f"The {shown} most exposed in numbers", [tables.exposed_table(run)]),
    ]


def _guarantee(result: AuditResult, run: RunAudit, key: str) -> list[Block]:
    said = sentences.guarantee(run)
    if run.check is None:
        return [said] if said else []
    return [said, Folded("All checks of the record", [tables.check_table(run)], unfolded=not run.check.passed)]


def _tested(result: AuditResult, run: RunAudit, key: str) -> list[Block]:
    facts: list[Block] = [Folded(sentences.facts_title(run), [tables.fact_table(run)])]
    if not run.attacks:
        return facts if tables.fact_table(run).rows else []
    needs = [f"{one.title} needs {listed(one.needs or ['nothing beyond the model'])}." for one in run.attacks]
    details = Folded(
        "Details of each attack", [needs, lambda: tag("dl", *map(_attack_notes, run.attacks), class_="notes")]
    )
    return [tables.attack_table(result, run), details, *facts]


def _attack_notes(attack: AttackOutcome) -> Html | None:
    bounds = [f"{number(b.mu, 'down')} ({b.method})" for b in attack.mu_bounds]
    said = [f"Lower bounds on μ by method: {listed(bounds)}."] if bounds else []
    said += sentences.attack_notes(attack)
    return tag("div", tag("dt", attack.title), tag("dd", bullets(said))) if said else None


# A new chart or table of a run is a line here.
PARTS: Final = (
    Part("evidence", "Evidence", "Evidence", _evidence),
    Part("groups", "Groups", "Groups", _groups),
    Part("advice", "What to do", "What to do", _advice),
    Part("noise", "Noise", "Noise, exposure and accuracy", _noise),
    Part("exposed", "Records", "Single records", _exposed),
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


def _content(result: AuditResult) -> list[Html | None]:
    when = f"{sentences.moment(result.created)}, " if result.created else ""
    sure = f"{rate(result.confidence)} confidence"
    return [
        tag("p", f"Summary of a membership-inference audit, {when}{sure}", class_="kicker"),
        tag("h1", result.title),
        *(_several(result) if len(result.runs) > 1 else _one(result, result.runs[0])),
        tag("p", sentences.not_shown(), class_="note"),
        tag("p", "Written by gmip. This page names no records, files or seeds, and can be passed on.", class_="note"),
    ]


def _one(result: AuditResult, run: RunAudit) -> list[Html | None]:
    return [
        card.card_html(run, "run-1"),
        tag(
            "div",
            _chart(run),
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
        there = [part for part in parts if part.content(result, result.runs[0], "run-1")]
        entries = [("run-1", "Answer"), *((f"run-1-{part.key}", part.name) for part in there)]
    entries += [
        ("read", "How to read it"),
        ("threat-model", "Assumptions"),
        *([] if shared else [("repeat", "Repeat it")]),
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
    below = [
        tag("section", tag("h3", part.title, id=f"{key}-{part.key}-title"), *drawn, id=f"{key}-{part.key}")
        for part in parts
        if (drawn := blocks_html(part.content(result, run, key), key, part.key))
    ]
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
        for of in card.LOOKS
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
