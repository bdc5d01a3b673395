"""A report as a browser parses it, by the parser of the standard library: independent of what wrote it."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

VOID = {"br", "input", "link", "meta"}


class Page(HTMLParser):
    """Elements in order as (name, attributes), and the text inside each, markup removed."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[int] = []
        self.feed(source)
        self.close()
        assert not self._open, "an element is not closed"

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert len(dict(attrs)) == len(attrs), f"{tag} has an attribute twice"
        self.elements.append((tag, dict(attrs)))
        self.texts.append("")
        if tag not in VOID:
            self._open.append(len(self.elements) - 1)

    def handle_endtag(self, tag: str) -> None:
        assert self.elements[self._open.pop()][0] == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        for index in self._open:
            self.texts[index] += data

    def all(self, name: str, **attributes: str) -> list[tuple[dict[str, str | None], str]]:
        """Attributes and text of every element of a name; class_ asks for one of its classes."""
        found = []
        for (tag, attrs), text in zip(self.elements, self.texts, strict=True):
            wanted = dict(attributes)
            classes = (attrs.get("class") or "").split()
            named = tag == name and wanted.pop("class_", None) in (None, *classes)
            if named and all(attrs.get(key) == value for key, value in wanted.items()):
                found.append((attrs, text))
        return found

    def data(self, identifier: str) -> Any:
        return json.loads(self.all("script", id=identifier)[0][1])
