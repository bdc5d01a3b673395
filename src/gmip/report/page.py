"""What our pages share: the frame, whose policy lets only its own style and script run, and tables."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from gmip._html import Html, join, tag, theme
from gmip.report.tables import Cell, Table

__all__ = ["asset", "bullets", "command", "digest", "folded", "page", "scroll", "table_html"]

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
