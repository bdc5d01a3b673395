"""The report in Markdown, for a model card: the verdict and its tables, without the drawings."""

from __future__ import annotations

import re

from gmip.auditing.schema import AuditResult, RunAudit
from gmip.report import rows, words
from gmip.report._element import readable

__all__ = ["to_markdown"]


def to_markdown(result: AuditResult) -> str:
    """GitHub-flavoured Markdown. The same result gives the same text; strings of the result cannot form markup."""
    several = len(result.runs) > 1
    parts = [
        f"# {_text(result.title.strip() or 'Membership audit')}",
        f"Membership-inference audit by gmip, {_text(words.moment(result.created))}, "
        f"{words.rate(f'{result.confidence:.6g}')} confidence.",
    ]
    if several:
        parts += ["## Overview", _table(rows.overview_table(result))]
    for run in result.runs:
        parts += _run(result, run, several)
    parts += ["## Assumptions and threat model", _list(result.threat_model) or "None were written down."]
    parts += ["## How to repeat this audit"]
    if result.provenance.command:
        parts.append(_fenced(result.provenance.command))
    parts.append(_table(rows.version_table(result)))
    return "\n\n".join(part for part in parts if part) + "\n"


def _run(result: AuditResult, run: RunAudit, several: bool) -> list[str]:
    sharp = "###" if several else "##"
    parts = [
        f"## {_text(run.name)}" if several else "## The answer",
        f"**{words.LABELS[run.verdict.kind]}.** {_text(words.headline(run.verdict))}",
        f"- What was asked: {_text(words.question(run))}\n- How sure: {_text(words.certainty(result, run))}",
        _list(run.verdict.reasons),
    ]
    if run.gate:
        parts.append(f"Limit for pipelines: {_text(words.gate(run, run.gate))}")
    if run.warnings:
        parts += ["To bear in mind:", _list(run.warnings)]
    if run.attacks or run.promises:
        parts += [f"{sharp} Promise against measurement", _table(rows.comparison_table(run))]
    if run.attacks:
        needs = [f"{a.title} needs {words.listing(a.needs)}." for a in run.attacks if a.needs]
        parts += [f"{sharp} Attacks", _table(rows.attack_table(result, run)), _list(needs)]
    if run.exposed:
        parts += [f"{sharp} Most exposed records", _table(rows.exposed_table(run))]
    if run.advice:
        parts.append(f"{sharp} What to do")
        for advice in run.advice:
            parts.append(f"- {_text(advice.text)}")
            if advice.command:
                parts.append(_fenced(advice.command))
    parts += [f"{sharp} What is proved, approximate and measured", _table(rows.standing_table(run))]
    parts += [f"{sharp} What ran", _table(rows.fact_table(run))]
    return parts


def _text(text: str) -> str:
    """The text as text on one line: nothing in it is markup, HTML or a line of its own."""
    flat = " ".join(readable(text).split())
    escaped = re.sub(r"([\\`*_{}\[\]<>|~#&$])", r"\\\1", flat)
    # A list or a rule begins only where a line does; a bare address would become a link.
    escaped = re.sub(r"^([-+=])", r"\\\1", escaped)
    escaped = re.sub(r"^(\d+)([.)])(?=\s|$)", r"\1\\\2", escaped)
    return re.sub(r"(?i)\b(https?|ftp|mailto|www)(?=[:.])", lambda m: m.group(0) + "\u2060", escaped)


def _list(items: tuple[str, ...] | list[str]) -> str:
    return "\n".join(f"- {_text(item)}" for item in items)


def _fenced(text: str) -> str:
    """A block of code whose fence is longer than any in the text."""
    shown = readable(text)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    return f"{fence}\n{shown}\n{fence}"


def _table(table: rows.Table) -> str:
    if not table.rows:
        return ""
    rules = [":---" if i in table.texts else "---:" for i in range(len(table.columns))]
    lines = [[_text(name) for name in table.columns], rules]
    lines += [[_text(f"{c.text} ({'; '.join(c.details)})" if c.details else c.text) for c in row] for row in table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
