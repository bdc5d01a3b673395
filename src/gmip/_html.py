"""HTML that cannot be written unescaped: a plain string is text, only what `tag` returns is markup."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

_VOID = frozenset({"br", "input", "link", "meta"})
_UNREADABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def theme() -> str:
    """The style that our pages share: colours of dark and light, type, and charts."""
    return files("gmip").joinpath("_theme.css").read_text(encoding="utf-8")


class Html(str):
    """Markup, as opposed to text that still has to be escaped."""

    __slots__ = ()


def readable(text: str) -> str:
    """The text with what no page can show (control characters, halves of surrogate pairs) made visible as U+FFFD."""
    return _UNREADABLE.sub("\ufffd", text)


def _escaped(child: str) -> str:
    return child if isinstance(child, Html) else html.escape(readable(child), quote=True)


def join(*children: str | None) -> Html:
    """Children one after the other, strings escaped, None left out."""
    return Html("".join(_escaped(child) for child in children if child is not None))


def tag(name: str, /, *children: str | None, **attributes: str | float | bool | None) -> Html:
    """An element. Attribute names: `class_` is class, `aria_label` is aria-label; None and False leave one out."""
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        written = key.rstrip("_").replace("_", "-")
        parts.append(written if value is True else f'{written}="{html.escape(readable(str(value)), quote=True)}"')
    opening = f"<{' '.join(parts)}>"
    return Html(opening if name in _VOID else f"{opening}{join(*children)}</{name}>")


def embedded_json(identifier: str, value: Any) -> Html:
    """A block of data that a script reads; no string in it can close the block."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Html(f'<script type="application/json" id="{html.escape(identifier, quote=True)}">{text}</script>')


def card(title: str, rows: Sequence[tuple[str, str]], *more: Html) -> Html:
    """Facts about an object in a notebook, in its own colours, dark or light: a title, a table, and what follows it."""
    cells = [
        tag(
            "tr",
            tag("th", name, scope="row", style="text-align: left; font-weight: normal"),
            tag("td", value, style="text-align: left"),
        )
        for name, value in rows
    ]
    return tag("div", tag("strong", title), tag("table", *cells) if rows else None, *more, style="max-width: 46em")
