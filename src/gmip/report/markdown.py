"""The report in Markdown, for a model card: the verdict and its tables, without the drawings."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gmip import _numbers
from gmip._html import readable
from gmip.auditing.schema import AuditResult, RunAudit
from gmip.report import answer_words, card, sentences, tables
from gmip.report.html import PARTS
from gmip.report.share import shareable
from gmip.report.tables import Block, Folded, Steps, Table


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
    parts.append(bullets([f"{of.title}: {of.todo}" for of in card.LOOKS]))
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
    for part in PARTS:
        if blocks := blocks_markdown(part.content(result, run, "")):
            parts += [f"{sharp} {part.title}", *blocks]
    return parts


def blocks_markdown(blocks: Sequence[Block]) -> list[str]:
    """Blocks without the drawings."""
    found: list[str] = []
    for block in blocks:
        if isinstance(block, str):
            found.append(plain(block))
        elif isinstance(block, list):
            found.append(bullets(block))
        elif isinstance(block, Table):
            found.append(table_markdown(block))
        elif isinstance(block, Steps):
            found.append(bullets([text for text, _ in block.items]))
        elif isinstance(block, Folded):
            inside = blocks_markdown(block.blocks)
            found += [f"**{plain(block.title)}**", *inside] if inside else []
    return [one for one in found if one]


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
