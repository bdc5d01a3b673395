"""What the page says about a run below the answer, part by part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from gmip import _numbers
from gmip._html import Html, tag
from gmip._validate import listed
from gmip.auditing.schema import AttackOutcome, AuditResult, RunAudit
from gmip.report import check_words, sentences, tables, verdict_words
from gmip.report.advice_part import advice_part
from gmip.report.figures import figure_html
from gmip.report.overlay import run_figure
from gmip.report.page import bullets, folded, table_html
from gmip.report.what_if import what_if_part

__all__ = ["PARTS", "Part", "part_html"]

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
        tag("p", sentences.strongest(run)),
        table_html(tables.attack_table(result, run), key, "attacks-table"),
        folded("Details of each attack", tag("dl", *(_attack_notes(a) for a in run.attacks), class_="notes")),
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
            "record contains." + (f" {_numbers.count(left)} more are in result.json." if left > 0 else ""),
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
    return [folded("Claim and measurement in numbers", bullets(verdict_words.reasons(run)), table, nothing)]


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
