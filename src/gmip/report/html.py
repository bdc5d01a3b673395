"""The report as one self-contained page: no network, no server, only its own style and script may run."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Final, NamedTuple

from gmip._html import Html, card, embedded_json, join, tag, theme
from gmip._numbers import count, number, percent, rate, setting
from gmip._svg import Axes, chart, picture, swatch
from gmip._validate import listed
from gmip.auditing.curves import excludes_nothing
from gmip.auditing.schema import Advice, AttackOutcome, AuditResult, RunAudit, WhatIf
from gmip.auditing.verdict import claim_of
from gmip.report import advice_words, answer_words, check_words, sentences, tables
from gmip.report.figures import exposure_chart, figure_html, overview_figure, run_figure, shortened
from gmip.report.share import shareable
from gmip.report.tables import Cell, Table, plain_advice, price_notes, ways_table
from gmip.vocabulary import Rate

# -- what our pages share ---------------------------------------------------------------------------------------------


_LONGEST_WORD = 24


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


def command(text: str) -> Html:
    """A command with a button that copies it."""
    button = tag("button", "Copy", type="button", class_="copy needs-script", aria_label=f"Copy the command {text}")
    return tag(
        "div", tag("code", text, tabindex="0"), button, tag("span", role="status", class_="copied"), class_="command"
    )


def scroll(child: Html, named_by: str) -> Html:
    """A box in which something wide can be scrolled, by keyboard too."""
    return tag("div", child, class_="scroll", role="region", tabindex="0", aria_labelledby=named_by)


def table_html(
    table: Table, section: str, name: str, marks: dict[str, Html] | None = None, *, cards: bool = False
) -> Html:
    """A table in a box that scrolls; `cards`: on a phone each of its rows is a card instead."""
    identifier = f"{section}-{name}"

    def kind(index: int, cell: Cell | None = None) -> str | None:
        classes = [] if index in table.texts else ["number"]
        if cell is not None and max(map(len, cell.text.split()), default=0) > _LONGEST_WORD:
            classes.append("long")  # other words do not break inside
        return " ".join(classes) or None

    def role(of: str) -> str | None:
        return of if cards else None  # a table that is drawn as something else is still one

    def content(cell: Cell) -> Html:
        details = [tag("small", line) for line in cell.details]
        whole = bullets(cell.sentences) if len(cell.sentences) > 1 else tag("bdi", cell.text)
        return join((marks or {}).get(cell.text) or whole, *details)

    head = [
        tag("th", name, scope="col", class_=kind(i), role=role("columnheader")) for i, name in enumerate(table.columns)
    ]
    body = [
        tag(
            "tr",
            tag("th", content(row[0]), scope="row", class_=kind(0, row[0]), role=role("rowheader")),
            *(
                tag(
                    "td",
                    content(c),
                    class_=kind(i, c),
                    role=role("cell"),
                    data_column=table.columns[i] if cards else None,
                )
                for i, c in enumerate(row[1:], 1)
            ),
            role=role("row"),
        )
        for row in table.rows
    ]
    caption = tag("caption", tag("span", table.caption), id=f"{identifier}-caption")
    # Each of several runs has such a table: its heading distinguishes them.
    whole = tag(
        "table",
        caption,
        tag("thead", tag("tr", *head, role=role("row")), role=role("rowgroup")),
        tag("tbody", *body, role=role("rowgroup")),
        class_="cards" if cards else None,
        role=role("table"),
    )
    return scroll(whole, f"{section}-title {identifier}-caption")


# -- the answer about a run -------------------------------------------------------------------------------------------


_ICONS: Final = {
    "good": "M6 12.5L10.5 17L18.5 7.5",
    "bad": "M12 6V13.5M12 17V18",
    "open": "M8.8 9.2A3.2 3.2 0 1 1 12 12.6V14M12 17.4V18.2",
    "plain": "M12 10.5V18M12 6V7",
}


def answer_box(run: RunAudit, key: str, *more: Html | None) -> Html:
    """Does it leak to the strongest attacker, and is it good enough? `more` is what else stands in the box."""
    first = run.answer
    found = "No attack was run." if first is None else answer_words.leak_sentence(run, first)
    return tag(
        "div",
        tag("p", *map(badge, answer_words.all_badges(run)), class_="badges"),
        None if run.check is None or run.check.passed else tag("p", check_words.headline(run.check), class_="headline"),
        tag("p", answer_words.suspicion(run, run.suspicion), class_="headline")
        if run.suspect and run.suspicion is not None
        else None,
        tag("p", found, class_="headline"),
        None if first is None else tag("p", answer_words.target_sentence(run, first), class_="target"),
        *more,
        id=f"{key}-verdict",
        class_=f"verdict tone-{_tone(run)}",
    )


def reasons(result: AuditResult, run: RunAudit, key: str) -> list[Html | None]:
    """What stands behind the answer: numbers, the claim, how sure it is, other attackers, warnings."""
    answers = [
        ("What to do", tag("dd", _first_advice(run, key))),
        ("The claim", tag("dd", sentences.claim(run))),
        ("How sure", tag("dd", sentences.certainty(result, run))),
        ("Gate", tag("dd", sentences.gate(run, run.gate))) if run.gate else None,
    ]
    definitions = [tag("div", tag("dt", name), text) for name, text in filter(None, answers)]
    others = [
        tag("li", *map(badge, answer_words.badges(one)), tag("p", answer_words.leak_sentence(run, one)))
        for one in run.answers[1:]
    ]
    notes = None
    if said := sentences.cautions(run):
        notes = tag("div", tag("p", tag("strong", "Warnings")), bullets(said), class_="warnings")
    return [
        tiles(run),
        tag("dl", *definitions, class_="answers"),
        tag("div", tag("p", tag("strong", "Other attackers")), tag("ul", *others), class_="others") if others else None,
        notes,
    ]


def marks(result: AuditResult) -> dict[str, Html]:
    """Each label of a badge, as a badge."""
    every = [answer_words.badges(answer) for run in result.runs for answer in run.answers]
    return {one.text: badge(one) for pair in every for one in pair}


def badge(one: answer_words.Badge) -> Html:
    return tag("span", icon(one.tone), one.text, class_=f"mark tone-{one.tone}")


def icon(kind: str) -> Html:
    shape = "M12 2L23 21.5H1Z" if kind == "bad" else "M12 1.5A10.5 10.5 0 1 1 12 22.5A10.5 10.5 0 1 1 12 1.5Z"
    return tag(
        "svg", tag("path", d=shape), tag("path", d=_ICONS[kind]), viewBox="0 0 24 24", aria_hidden="true", class_="icon"
    )


def tiles(run: RunAudit) -> Html | None:
    """Measured, claimed, wished for at the rate of the target; and what the model is good for."""
    answer = run.answer
    shown: list[tuple[str, str]] = []
    if answer is not None:
        goal = run.goal
        measured, claimed = answer_words.exposure(run, answer)
        at = f"at {rate(goal.fpr)} false alarms"
        if measured is not None:
            shown.append((percent(min(max(measured, 0.0), 1.0), "nearest"), f"of the members found {at}"))
        if claimed is not None:
            curve = claim_of(run, answer)
            says = "" if curve is None else answer_words.says(run, curve)
            shown.append(
                ("No limit", "for such an attacker") if excludes_nothing(claimed) else (percent(claimed, "up"), says)
            )
        shown.append((rate(goal.tpr), f"is the target (guessing: {rate(goal.fpr)})"))
    if run.facts.test_accuracy is not None:
        shown.append((percent(run.facts.test_accuracy, "nearest"), "accuracy of the model on test data"))
    if not shown:
        return None
    items = [tag("li", tag("span", value, class_="figure"), tag("span", text, class_="unit")) for value, text in shown]
    return tag("ul", *items, class_="tiles")


def _tone(run: RunAudit) -> str:
    """Green only where a target is guaranteed and nothing speaks against it."""
    tones = {one.tone for one in answer_words.all_badges(run)}
    return next((tone for tone in ("bad", "open", "good") if tone in tones), "plain") if run.answers else "open"


def _first_advice(run: RunAudit, key: str) -> Html:
    if not run.advice:
        return join("No recommendation.")
    first = run.advice[0]
    more = len(run.advice) > 1 or advice_words.command(first, run)
    return join(
        advice_words.text(first, run),
        " " if more else None,
        tag("a", "All steps", href=f"#{key}-advice") if more else None,
    )


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


# -- what if ----------------------------------------------------------------------------------------------------------


def what_if_part(result: AuditResult, run: RunAudit, key: str) -> list[Html | None]:
    """A table that shows all, and two sliders that read it out."""
    grid = run.what_if
    if grid is None or (len(grid.noise_std), len(grid.batch_size)) == (1, 1):
        return []
    goal = run.goal
    kind = "a bound" if grid.kind == "bound" else "a forecast, not a bound"
    about = (
        f"Members found at {rate(goal.fpr)} false alarms if only noise or batch size changes: "
        f"{answer_words.most(grid.kind)} what the table says ({kind}, for {grid.for_whom}). {_colour(grid)} the "
        f"target, {rate(goal.tpr)}; the framed cell is this run."
    )
    row, column = grid.own
    return [
        tag("p", about, *(f" {one}" for one in _limits(grid, run))),
        tag(
            "div",
            _slider(f"{key}-what-if-noise", "Noise (std on the batch mean)", len(grid.noise_std), row, "noise"),
            _slider(f"{key}-what-if-batch", "Batch size", len(grid.batch_size), column, "batch"),
            tag("p", _sentence(grid, goal, row, column), class_="what-if-answer", role="status"),
            _table(grid, goal, key),
            embedded_json(f"{key}-what-if-data", _data(grid, goal)),
            id=f"{key}-what-if-strip",
            class_="what-if",
        ),
    ]


def _limits(grid: WhatIf, run: RunAudit) -> list[str]:
    said = []
    if any(one.clip_norm is None for one in run.declared):
        said.append("Noise needs clipped gradients, and these are not: only the batch size changes.")
    if len(run.declared) > 1:
        said.append("Phases keep their batch sizes; their noise changes in proportion.")
    if grid.left_out:
        sizes = "size was" if grid.left_out == 1 else "sizes were"
        said.append(f"{grid.left_out} batch {sizes} left out: too slow to compute.")
    return said


def _colour(grid: WhatIf) -> str:
    """Green is for what is proved."""
    return "Green keeps" if grid.kind == "bound" else "Blue is expected to keep"


def _slider(identifier: str, label: str, stops: int, value: int, axis: str) -> Html | None:
    if stops == 1:
        return None
    return tag(
        "div",
        tag("label", label, for_=identifier),
        tag("input", type="range", id=identifier, min=0, max=stops - 1, value=value, data_axis=axis),
        class_="slider needs-script",
    )


def _table(grid: WhatIf, goal: Rate, key: str) -> Html:
    caption = tag("caption", tag("span", "What the accountant would say"), id=f"{key}-what-if-caption")
    head = tag(
        "tr", tag("th", "Noise / batch size", scope="col"), *(_heading(count(n), "col") for n in grid.batch_size)
    )
    rows = [
        tag("tr", _heading(setting(tau), "row"), *(_cell(grid, goal, i, j) for j in range(len(grid.batch_size))))
        for i, tau in enumerate(grid.noise_std)
    ]
    whole = tag("table", caption, tag("thead", head), tag("tbody", *rows))
    return scroll(whole, f"{key}-what-if-title {key}-what-if-caption")


def _heading(text: str, scope: str) -> Html:
    return tag("th", text, scope=scope, class_="number" if scope == "col" else None)


def _cell(grid: WhatIf, goal: Rate, i: int, j: int) -> Html:
    """Its colour, a line where the target lies between it and its neighbour, and a frame around the run itself."""
    kept = _kept(grid, goal, i, j)
    inside = "kept" if grid.kind == "bound" else "expected"
    classes = ["number", inside if kept else "near" if grid.tpr[i][j] <= 2.0 * goal.tpr else "missed"]
    if i and _kept(grid, goal, i - 1, j) != kept:
        classes.append("line-above")
    if j and _kept(grid, goal, i, j - 1) != kept:
        classes.append("line-left")
    own = (i, j) == grid.own
    mark = tag("span", "\u2713", aria_hidden="true") if kept else None
    said = [text for text, holds in ((f"{_verb(grid, kept)} the target", kept), ("this run", own)) if holds]
    heard = tag("span", f" ({', '.join(said)})", class_="only-heard") if said else None
    shown = join(percent(grid.tpr[i][j], "up"), mark, heard)
    return tag("td", shown, class_=" ".join([*classes, *(["own"] if own else [])]))


def _kept(grid: WhatIf, goal: Rate, i: int, j: int) -> bool:
    return grid.tpr[i][j] <= goal.tpr


def _verb(grid: WhatIf, kept: bool) -> str:
    if grid.kind == "bound":
        return "keeps" if kept else "does not keep"
    return "is expected to keep" if kept else "is expected to miss"


def _sentence(grid: WhatIf, goal: Rate, i: int, j: int) -> str:
    added = f"noise of std {setting(grid.noise_std[i])}" if grid.noise_std[i] else "no noise"
    kept = _verb(grid, _kept(grid, goal, i, j))
    this = " This is the run as it is." if (i, j) == grid.own else ""
    return (
        f"With {added} and batches of {count(grid.batch_size[j])}: {answer_words.most(grid.kind)} "
        f"{percent(grid.tpr[i][j], 'up')} at {rate(goal.fpr)} false alarms, "
        f"which {kept} the target of {rate(goal.tpr)}.{this}"
    )


def _data(grid: WhatIf, goal: Rate) -> dict[str, object]:
    """What the script looks up: the words of each cell, and of each stop of the sliders."""
    columns = range(len(grid.batch_size))
    return {
        "noise": [setting(tau) for tau in grid.noise_std],
        "batch": [count(n) for n in grid.batch_size],
        "sentences": [[_sentence(grid, goal, i, j) for j in columns] for i in range(len(grid.noise_std))],
        "own": list(grid.own),
    }


# -- what the page says about a run below the answer ------------------------------------------------------------------


_COMPARED: Final = {
    tables.ABOVE: tag("span", tables.ABOVE, class_="mark tone-bad"),
    tables.BELOW: tag("span", tables.BELOW, class_="mark tone-plain"),
}
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


def _curves(result: AuditResult, run: RunAudit, key: str) -> list[Html | None]:
    figure = run_figure(run, f"{key}-figure", sentences.first_rate(run))
    return [
        figure_html(figure, title="Members found against false alarms", confidence=result.confidence),
        folded("The curves in numbers", table_html(tables.curve_table(figure), key, "numbers")),
    ]


def _attacks(result: AuditResult, run: RunAudit, key: str) -> list[Html | None]:
    if not run.attacks:
        return [tag("p", "No attack was run.")]
    return [
        tag("p", sentences.rests_on(run)),
        table_html(tables.attack_table(result, run), key, "attacks-table"),
        folded("Details of each attack", tag("dl", *(_attack_notes(a) for a in run.attacks), class_="notes")),
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


def _groups(result: AuditResult, run: RunAudit, key: str) -> list[Html | None]:
    if not run.groups:
        return []
    table = table_html(tables.group_table(run), key, "groups-table")
    return [tag("p", sentences.groups(result, run)), folded(f"All {len(run.groups)} groups", table)]


def _exposed(result: AuditResult, run: RunAudit, key: str) -> list[Html | None]:
    if not run.exposed:
        return [tag("p", "No records are listed.")]
    shown = min(len(run.exposed), tables.SHOWN_RECORDS)
    left = len(run.exposed) - shown
    return [
        tag(
            "p",
            "The members that are easiest to recognise as training data. Only identifiers are shown, never what a "
            "record contains." + (f" {count(left)} more are in result.json." if left > 0 else ""),
        ),
        None if (own := sentences.individual(run)) is None else tag("p", own),
        folded(f"The {shown} most exposed", table_html(tables.exposed_table(run), key, "exposed-table")),
    ]


def _check(result: AuditResult, run: RunAudit, key: str) -> list[Html | None]:
    if run.check is None:
        return []
    table = table_html(tables.check_table(run), key, "check-table", marks=_CHECKED)
    hidden = check_words.beyond_reach(run.check)
    answer = check_words.headline(run.check)
    said = tag("p", answer if hidden is None else f"{answer} {hidden}")
    return [said, folded("All checks", table, unfolded=not run.check.passed)]


def _comparison(result: AuditResult, run: RunAudit, key: str) -> list[Html | None]:
    known = run.attacks or run.claims
    table = table_html(tables.comparison_table(run), key, "claim-table", marks=_COMPARED) if known else None
    nothing = None if known else tag("p", "Nothing was claimed and nothing was measured.")
    return [folded("Claim and measurement in numbers", bullets(answer_words.verdict_reasons(run)), table, nothing)]


def _facts(result: AuditResult, run: RunAudit, key: str) -> list[Html | None]:
    table = tables.fact_table(run)
    return [folded("Settings of the run", table_html(table, key, "facts-table"))] if table.rows else []


# A new chart or table of a run is a line here.
PARTS: Final = (
    Part("curves", "Curves", "The curves", _curves),
    Part("advice", "What to do", "What to do", advice_part),
    Part("what-if", "What if", "What if", what_if_part),
    Part("attacks", "Attacks", "Attacks", _attacks),
    Part("groups", "Groups", "Who is exposed: groups", _groups),
    Part("exposed", "Records", "Most exposed records", _exposed),
    Part("check", "Record", "The record and the declared run", _check),
    Part("claim", "Claim", sentences.comparison_title, _comparison),
    Part("facts", "", sentences.facts_title, _facts),
)


# -- the answer on one page -------------------------------------------------------------------------------------------


# What a page has room for.
_RUNS: Final = 6
_DETAILED_RUNS: Final = 4
_ADVISED_RUNS: Final = 2
_ITEMS: Final = 3
_TITLE, _NAME, _SENTENCE = 140, 60, 320


def to_summary(result: AuditResult) -> str:
    """A page of its own that prints on one sheet, A4 or Letter. The same result gives the same bytes."""
    short = _shortened(shareable(result))
    return page(short.title, tag("main", *_content(short), class_="summary"), style=asset("style.css"))


def summary_section(result: AuditResult) -> Html:
    """The same within the report: hidden until a link leads to #summary, which hides all else, for the printer too."""
    back = tag(
        "p",
        tag("a", "Back to the report", href="#answer"),
        tag("button", "Print", type="button", class_="print needs-script"),
        class_="only-screen",
    )
    content = _content(_shortened(shareable(result)))
    return tag("main", back, *content, id="summary", class_="summary within")


def _content(result: AuditResult) -> list[Html | None]:
    when = f"{sentences.moment(result.created)}, " if result.created else ""
    sure = f"{rate(result.confidence)} confidence"
    return [
        tag("p", f"Summary of a membership-inference audit, {when}{sure}", class_="kicker"),
        tag("h1", result.title, id="summary-title"),
        *(_several(result) if len(result.runs) > 1 else _one(result, result.runs[0])),
        tag("p", sentences.not_shown(), class_="note"),
        tag("p", "Written by gmip. This page names no records, files or seeds, and can be passed on.", class_="note"),
    ]


def _one(result: AuditResult, run: RunAudit) -> list[Html | None]:
    others = [
        tag("li", tag("strong", f"{leak.text}. {target.text}. "), answer_words.leak_sentence(run, one))
        for one in run.answers[1:]
        for leak, target in [answer_words.badges(one)]
    ]
    said = [
        ("What to do", bullets([_advice(run, one) for one in run.advice[:_ITEMS]])),
        ("Other attackers", tag("ul", *others) if others else None),
        ("The claim", tag("p", sentences.verdict_sentences(run))),
        ("Gate", tag("p", sentences.gate(run, run.gate)) if run.gate else None),
        ("How sure", tag("p", sentences.certainty(result, run))),
        ("Warnings", _warnings(run)),
    ]
    words = [tag("div", tag("p", tag("strong", name)), text) for name, text in said if text is not None]
    return [
        answer_box(run, "summary"),
        tiles(run),
        tag("div", _chart(run), tag("div", *words, class_="words"), class_="halves"),
    ]


def _several(result: AuditResult) -> list[Html | None]:
    left = len(result.runs) - _RUNS
    table = tables.overview_table(result)
    table = dataclasses.replace(table, rows=table.rows[:_RUNS])
    advised = len(result.runs) <= _ADVISED_RUNS
    items = [
        tag(
            "li",
            tag("p", tag("strong", run.name), *map(badge, answer_words.all_badges(run)), class_="badges"),
            tag("p", answer_words.headline(run)),
            tag("p", tag("strong", "What to do: "), _advice(run, run.advice[0])) if run.advice and advised else None,
        )
        for run in result.runs
    ]
    warned = _warnings(*result.runs)
    return [
        _shipped(result),
        exposure_chart(result, "summary-exposure"),
        table_html(table, "summary", "table", marks=marks(result), cards=True),
        tag("p", f"{left} more runs are in the report.") if left > 0 else None,
        tag("ul", *items, class_="told") if len(items) <= _DETAILED_RUNS else None,
        warned and tag("div", tag("p", tag("strong", "Warnings")), warned, class_="words"),
    ]


def _shipped(result: AuditResult) -> Html:
    """Which of several runs to ship."""
    shipped = answer_words.ship(result)
    tone = "bad" if shipped.run is None else "good"
    return tag("div", tag("p", icon(tone), shipped.words, class_="headline ship"), class_=f"verdict tone-{tone}")


def _advice(run: RunAudit, advice: Advice) -> str:
    return shortened(advice_words.text(advice, run), _SENTENCE)


def _warnings(*runs: RunAudit) -> Html | None:
    said = list(dict.fromkeys(one for run in runs for one in sentences.cautions(run)))
    left = len(said) - _ITEMS
    more = [f"{left} more {'is' if left == 1 else 'are'} in the report."] if left > 0 else []
    return bullets([*said[:_ITEMS], *more])


def _chart(run: RunAudit) -> Html | None:
    if not run.attacks and not run.claims:
        return None
    figure = run_figure(run, "summary-figure", sentences.first_rate(run))
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
    return tag(
        "section",
        tag("h2", "Which run to ship", id="overview-title"),
        _shipped(result),
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
        answer_box(run, key, *([] if several else behind)),
        *below,
        id=key,
        class_="run",
        aria_labelledby=f"{key}-title",
    )


def _assumptions(result: AuditResult) -> Html:
    """The assumptions stand once for all runs."""
    table = table_html(tables.standing_table(result), "standing", "table")
    return tag(
        "section",
        tag("h2", "Assumptions and threat model", id="threat-model-title"),
        bullets(answer_words.THREAT_MODELS[result.threat_model]),
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


# -- what a notebook shows of a result --------------------------------------------------------------------------------


def to_card(result: AuditResult) -> str:
    """The verdicts and the curves as HTML; no record and no folder is named."""
    rows = [(run.name, answer_words.verdict_headline(run)) for run in result.runs]
    figure = run_figure(result.runs[0], "", 0.01) if len(result.runs) == 1 else overview_figure(result, "", 0.01)
    label = "Members found against false alarms"
    drawing = picture(figure.series, label=label, lowest=figure.lowest, unmeasured=figure.first_measured)
    return card(result.title, rows, drawing)
