"""The report in Markdown, for a model card: the verdict and its tables, without the drawings."""

from __future__ import annotations

import re

from gmip import _numbers
from gmip._html import readable
from gmip._validate import listed
from gmip.auditing.schema import AuditResult, RunAudit
from gmip.report import advice_words, answer_words, card, sentences, tables
from gmip.report.share import shareable
from gmip.report.tables import Table, plain_advice, price_notes, ways_table


def to_markdown(result: AuditResult) -> str:
    """GitHub-flavoured Markdown, for a model card: it names no record, no file and no seed.

    The same result gives the same text; strings of the result cannot form markup.
    """
    result = shareable(result)
    several = len(result.runs) > 1
    version = result.provenance.versions.get("gmip")
    parts = [
        f"# {plain(result.title.strip() or 'Membership audit')}",
        f"Membership-inference audit by gmip{f' {plain(version)}' if version else ''}, "
        f"{plain(sentences.moment(result.created))}, {_numbers.rate(result.confidence)} confidence.",
    ]
    if several:
        parts += [
            "## Which run to ship",
            plain(answer_words.ship(result)[1]),
            fenced("\n".join(card.runs_text(result))),
        ]
    for run in result.runs:
        parts += _run(result, run, several)
    parts += ["## How to read it", bullets(card.meaning(result))]
    parts.append(bullets([f"{of.title}: {of.todo}" for of in card.VERDICTS.values()]))
    parts.append(plain(sentences.not_shown()))
    parts += ["## Assumptions and threat model", bullets(answer_words.THREAT_MODELS[result.threat_model])]
    parts.append(table_markdown(tables.standing_table(result)))
    return "\n\n".join(part for part in parts if part) + "\n"


def _run(result: AuditResult, run: RunAudit, several: bool) -> list[str]:
    sharp = "###" if several else "##"
    parts = [f"## {plain(run.name)}" if several else "## The answer"]
    parts += [
        f"**{card.look(run).title}.** {plain(card.headline(run))}",
        fenced("\n".join(card.card_text(run)[1:]).strip("\n")),
    ]
    if run.gate:
        parts.append(f"Gate: {plain(sentences.gate(run, run.gate))}")
    if said := sentences.cautions(run):
        parts += ["Warnings:", bullets(said)]
    if run.groups:
        parts += [f"{sharp} Groups", plain(sentences.groups(result, run)), table_markdown(tables.group_table(run))]
    if run.advice:
        first, last = plain_advice(run)
        parts += [
            f"{sharp} What to do",
            bullets([advice_words.text(one, run) for one in first]),
            table_markdown(ways_table(run)),
        ]
        parts += [bullets([*price_notes(run), *(advice_words.text(one, run) for one in last)])]
    if about := sentences.guarantee(run):
        parts += [f"{sharp} Guarantee", bullets(about)]
    if run.check is not None:
        parts.append(table_markdown(tables.check_table(run)))
    if run.attacks:
        needs = [f"{a.title} needs {listed(a.needs)}." for a in run.attacks if a.needs]
        parts += [f"{sharp} How it was tested", table_markdown(tables.attack_table(result, run)), bullets(needs)]
    if (own := sentences.individual(run)) is not None:
        parts += [f"{sharp} Single records", plain(own)]
    if tables.fact_table(run).rows:
        parts += [f"{sharp} {sentences.facts_title(run)}", table_markdown(tables.fact_table(run))]
    return parts


# -- pieces whose strings cannot form markup -------------------------------------------------------------------------


def plain(text: str) -> str:
    """The text as text on one line: nothing in it is markup, HTML or a line of its own."""
    flat = " ".join(readable(text).split())
    escaped = re.sub(r"([\\`*_{}\[\]<>|~#&$])", r"\\\1", flat)
    # A list or a rule begins only where a line does; a bare address would become a link.
    escaped = re.sub(r"^([-+=])", r"\\\1", escaped)
    escaped = re.sub(r"^(\d+)([.)])(?=\s|$)", r"\1\\\2", escaped)
    return re.sub(r"(?i)\b(https?|ftp|mailto|www)(?=[:.])", lambda m: m.group(0) + "\u2060", escaped)


def bullets(items: tuple[str, ...] | list[str]) -> str:
    return "\n".join(f"- {plain(item)}" for item in items)


def fenced(text: str) -> str:
    """A block of code whose fence is longer than any in the text."""
    shown = readable(text)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    return f"{fence}\n{shown}\n{fence}"


def table_markdown(table: Table) -> str:
    if not table.rows:
        return ""
    rules = [":---" if i in table.texts else "---:" for i in range(len(table.columns))]
    lines = [[plain(name) for name in table.columns], rules]
    lines += [[plain(f"{c.text} ({'; '.join(c.details)})" if c.details else c.text) for c in row] for row in table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
