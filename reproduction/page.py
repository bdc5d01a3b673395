"""One self-contained page: each experiment's figures, what was claimed and measured, and how to repeat it.

The Markdown has the same but for the tables of numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gmip import _numbers
from gmip._html import Html, tag
from gmip.report import sentences
from gmip.report.html import asset, page, table_html
from gmip.report.markdown import bullets, fenced, plain, table_markdown
from gmip.report.tables import Cell, Table
from reproduction.experiment import Claim, Experiment, Outcome, Study

__all__ = ["Section", "to_html", "to_markdown"]

_TONES: Final = {"agrees": "good", "contradicted": "bad", "differs": "open"}
_STYLE: Final = """
.sheet { margin: 0 0 0.8rem; padding: 0.8rem; background: #ffffff; border: 1px solid var(--line); border-radius: 10px; }
.sheet svg { display: block; width: 100%; height: auto; max-width: 66rem; margin: 0 auto; }
.facts { color: var(--soft); font-size: 0.92rem; }
"""


class Section(NamedTuple):
    """An experiment, its outcome and its figures as markup."""

    experiment: Experiment
    outcome: Outcome
    figures: Sequence[Html]


def to_html(study: Study, sections: Sequence[Section]) -> str:
    """The page. No script, no network; every string of an outcome is escaped."""
    entries = [
        tag("li", tag("a", section.experiment.title, href=f"#{section.outcome.experiment}")) for section in sections
    ]
    return page(
        study.title,
        tag("a", "Skip to the results", href="#results", class_="skip"),
        tag(
            "header",
            tag("p", study.about, class_="kicker"),
            tag("h1", study.title),
            tag("p", tag("span", _tally(sections)), class_="meta"),
        ),
        tag("nav", tag("ul", *entries), aria_label="On this page"),
        tag("main", *map(_section, sections), id="results", tabindex="-1"),
        tag("footer", tag("p", "The numbers are in the CSV files beside this page.")),
        style=asset("style.css") + _STYLE,
    )


def _tally(sections: Sequence[Section]) -> str:
    verdicts = [claim.verdict for section in sections for claim in section.outcome.claims if not claim.ours]
    own = sum(claim.ours for section in sections for claim in section.outcome.claims)
    told = f"Of {len(verdicts)} claims of the paper {verdicts.count('agrees')} agree with what was measured here, "
    told += f"{verdicts.count('differs')} differ, {verdicts.count('contradicted')} are contradicted."
    if not verdicts:
        told = "No claim of the paper is judged here."
    return f"{told} {own} claims of our own are in tables of their own." if own else told


def _section(section: Section) -> Html:
    experiment, outcome, name = section.experiment, section.outcome, section.outcome.experiment
    notes = _notes(section)
    return tag(
        "section",
        tag("h2", experiment.title, id=f"{name}-title"),
        tag("p", tag("strong", f"{experiment.paper}. "), experiment.claim),
        tag("ul", *(tag("li", note) for note in notes)) if notes else None,
        *(tag("figure", drawn, class_="sheet") for drawn in section.figures),
        *(table_html(each, name, f"claims-{i}") for i, each in enumerate(_claim_tables(outcome.claims))),
        tag("details", tag("summary", "The numbers"), table_html(outcome.table, name, "numbers"))
        if outcome.table.rows
        else None,
        tag("div", tag("code", outcome.command), class_="command") if outcome.command else None,
        tag("p", _facts(section), class_="facts"),
        id=name,
        aria_labelledby=f"{name}-title",
    )


def to_markdown(study: Study, sections: Sequence[Section]) -> str:
    """GitHub-flavoured Markdown; figures are linked, as files beside it."""
    parts = [f"# {study.title}", plain(_tally(sections))]
    for section in sections:
        experiment, outcome = section.experiment, section.outcome
        parts += [f"## {plain(experiment.title)}", f"**{plain(experiment.paper)}.** {plain(experiment.claim)}"]
        parts += [bullets(notes)] if (notes := _notes(section)) else []
        parts += [f"![{plain(experiment.title)}]({name})" for name in outcome.figures]
        for each in _claim_tables(outcome.claims):
            parts += [f"{plain(each.caption)}:", table_markdown(each)]
        parts += [fenced(outcome.command)] if outcome.command else []
        parts.append(plain(_facts(section)))
    return "\n\n".join(parts) + "\n"


def _notes(section: Section) -> list[str]:
    quick = [f"Quick: {section.experiment.quick}"] if section.outcome.quick else []
    return quick + [f"{task} is left out: {reason}" for task, reason in section.outcome.skipped.items()]


def _claim_tables(claims: Sequence[Claim]) -> list[Table]:
    """The paper's claims, and ours, where there are such."""
    kinds = (
        ("What the paper says, and what was measured", "Published", [c for c in claims if not c.ours]),
        ("Not in the paper: what was expected, and what was measured", "Expected", [c for c in claims if c.ours]),
    )
    return [
        Table(
            caption,
            ("Claim", said, "Measured here", "Verdict", "In words"),
            tuple(
                (
                    *map(Cell, (c.what, c.published, c.measured)),
                    Cell(c.verdict, tone=_TONES.get(c.verdict)),
                    Cell(c.words),
                )
                for c in mine
            ),
            frozenset(range(5)),
        )
        for caption, said, mine in kinds
        if mine
    ]


def _facts(section: Section) -> str:
    outcome, rows = section.outcome, section.experiment.source
    versions = ", ".join(f"{name} {number}" for name, number in outcome.versions.items())
    machines = "; ".join(outcome.machines) or "no machine"
    return (
        f"{_numbers.count(outcome.cells)} cells, {_numbers.duration(outcome.seconds)} of computing on one thread, on "
        f"{machines}; {versions}; {sentences.moment(outcome.created)}. Numbers: {rows}.csv."
    )
