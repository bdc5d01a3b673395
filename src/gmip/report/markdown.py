"""The report in Markdown, for a model card: the verdict and its tables, without the drawings."""

from __future__ import annotations

from gmip.auditing.schema import AuditResult, RunAudit
from gmip.report import rows, words
from gmip.report._markdown import bullets, fenced, plain, table_markdown

__all__ = ["to_markdown"]


def to_markdown(result: AuditResult) -> str:
    """GitHub-flavoured Markdown. The same result gives the same text; strings of the result cannot form markup."""
    several = len(result.runs) > 1
    parts = [
        f"# {plain(result.title.strip() or 'Membership audit')}",
        f"Membership-inference audit by gmip, {plain(words.moment(result.created))}, "
        f"{words.rate(f'{result.confidence:.6g}')} confidence.",
    ]
    if several:
        parts += ["## Overview", table_markdown(rows.overview_table(result))]
    for run in result.runs:
        parts += _run(result, run, several)
    parts += ["## Assumptions and threat model", bullets(result.threat_model) or "None were written down."]
    parts += ["## How to repeat this audit"]
    if result.provenance.command:
        parts.append(fenced(result.provenance.command))
    parts.append(table_markdown(rows.version_table(result)))
    return "\n\n".join(part for part in parts if part) + "\n"


def _run(result: AuditResult, run: RunAudit, several: bool) -> list[str]:
    sharp = "###" if several else "##"
    parts = [
        f"## {plain(run.name)}" if several else "## The answer",
        f"**{words.LABELS[run.verdict.kind]}.** {plain(words.headline(run.verdict))}",
        f"- What was asked: {plain(words.question(run))}\n- How sure: {plain(words.certainty(result, run))}",
        bullets(run.verdict.reasons),
    ]
    if run.gate:
        parts.append(f"Limit for pipelines: {plain(words.gate(run, run.gate))}")
    if run.warnings:
        parts += ["To bear in mind:", bullets(run.warnings)]
    if run.attacks or run.promises:
        parts += [f"{sharp} Promise against measurement", table_markdown(rows.comparison_table(run))]
    if run.attacks:
        needs = [f"{a.title} needs {words.listing(a.needs)}." for a in run.attacks if a.needs]
        parts += [f"{sharp} Attacks", table_markdown(rows.attack_table(result, run)), bullets(needs)]
    if run.exposed:
        parts += [f"{sharp} Most exposed records", table_markdown(rows.exposed_table(run))]
    if run.advice:
        parts.append(f"{sharp} What to do")
        for advice in run.advice:
            parts.append(f"- {plain(advice.text)}")
            if advice.command:
                parts.append(fenced(advice.command))
    parts += [f"{sharp} What is proved, approximate and measured", table_markdown(rows.standing_table(run))]
    parts += [f"{sharp} What ran", table_markdown(rows.fact_table(run))]
    return parts
