"""The answer on one page, to print and to hand out: it names no record, no file and no seed."""

from __future__ import annotations

import dataclasses
from typing import Final

from gmip import _numbers
from gmip._html import Html, tag
from gmip._svg import Axes, chart, swatch
from gmip.auditing.advice_schema import Advice
from gmip.auditing.schema import AuditResult, RunAudit
from gmip.report import advice_words, answer_words, sentences, tables
from gmip.report.answer_box import answer_box, badge, icon, marks, tiles
from gmip.report.exposure_chart import exposure_chart
from gmip.report.overlay import run_figure
from gmip.report.page import asset, bullets, page, table_html
from gmip.report.share import shareable

__all__ = ["summary_section", "to_summary"]

# What a page has room for.
_RUNS: Final = 6
_TOLD_RUNS: Final = 4
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
    sure = f"{_numbers.rate(f'{result.confidence:.6g}')} confidence"
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
        ("Pipeline limit", tag("p", sentences.gate(run, run.gate)) if run.gate else None),
        ("How sure", tag("p", sentences.certainty(result, run))),
        ("Warnings", _warnings(run)),
    ]
    words = [tag("div", tag("p", tag("strong", name)), text) for name, text in said if text is not None]
    return [
        answer_box(result, run, "summary"),
        tiles(result, run),
        tag("div", _chart(run), tag("div", *words, class_="words"), class_="halves"),
    ]


def _several(result: AuditResult) -> list[Html | None]:
    shipped = answer_words.ship(result)
    tone = "bad" if shipped.run is None else "good"
    left = len(result.runs) - _RUNS
    table = tables.overview_table(result)
    table = dataclasses.replace(table, rows=table.rows[:_RUNS])
    advised = len(result.runs) <= _ADVISED_RUNS
    told = [
        tag(
            "li",
            tag("p", tag("strong", run.name), *map(badge, answer_words.all_badges(run, found)), class_="badges"),
            tag("p", answer_words.headline(result, run)),
            tag("p", tag("strong", "What to do: "), _advice(run, run.advice[0])) if run.advice and advised else None,
        )
        for run in result.runs
        for found in [answer_words.front(result, run)]
    ]
    warned = _warnings(*result.runs)
    return [
        tag("div", tag("p", icon(tone), shipped.words, class_="headline ship"), class_=f"verdict tone-{tone}"),
        exposure_chart(result, "summary-exposure"),
        table_html(table, "summary", "table", marks=marks(result), cards=True),
        tag("p", f"{left} more runs are in the report.") if left > 0 else None,
        tag("ul", *told, class_="told") if len(told) <= _TOLD_RUNS else None,
        warned and tag("div", tag("p", tag("strong", "Warnings")), warned, class_="words"),
    ]


def _advice(run: RunAudit, advice: Advice) -> str:
    return _cut(advice_words.text(advice, run), _SENTENCE)


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
    """With strings that cannot fill the page; what was cut ends with an ellipsis."""

    def run(one: RunAudit) -> RunAudit:
        return one.model_copy(
            update={
                "name": _cut(one.name, _NAME),
                "warnings": tuple(_cut(words, _SENTENCE) for words in one.warnings),
                "attacks": tuple(a.model_copy(update={"title": _cut(a.title, _NAME)}) for a in one.attacks),
            }
        )

    title = _cut(result.title.strip() or "Membership audit", _TITLE)
    return result.model_copy(update={"title": title, "runs": tuple(map(run, result.runs))})


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"
