"""The frame of both pages."""

from __future__ import annotations

from gmip._html import Html, tag

__all__ = ["frame"]


def frame(title: str, *body: Html, audits: bool, script: bool = False) -> str:
    """A whole page; `audits` tells whether there is a folder of audits to link to."""
    links = [tag("li", tag("a", "Calculator", href="/"))]
    if audits:
        links.append(tag("li", tag("a", "Audits", href="/audits")))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} - gmip"),
        tag("link", rel="icon", href="data:,"),
        tag("link", rel="stylesheet", href="/static/app.css"),
        tag("script", src="/static/app.js", type="module") if script else None,
    )
    whole = tag(
        "body",
        tag("nav", tag("ul", *links), aria_label="Pages"),
        tag("main", *body),
    )
    return f"<!doctype html>\n{tag('html', head, whole, lang='en')}\n"
