"""Pieces of Markdown whose strings cannot form markup."""

from __future__ import annotations

import re

from gmip.report._element import readable
from gmip.report.rows import Table

__all__ = ["bullets", "fenced", "plain", "table_markdown"]


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
