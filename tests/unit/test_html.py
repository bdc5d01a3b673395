"""HTML that cannot be written unescaped."""

from __future__ import annotations

import unicodedata

import pytest

from gmip._html import Html, embedded_json, join, readable, tag
from tests.unit.report.page import Page


def test_embedded_data_cannot_end_its_block():
    block = embedded_json("a", {"x": "</script><!--<script>\u2028&"})
    assert block.count("<") == 2 and block.isascii()
    assert Page(block).data("a") == {"x": "</script><!--<script>\u2028&"}
    with pytest.raises(ValueError, match="JSON"):
        embedded_json("a", float("nan"))


def test_what_no_page_can_show_is_made_visible():
    for code in range(0x3000):
        character = chr(code)
        hidden = unicodedata.category(character) == "Cc" and character not in "\n\t"
        assert readable(character) == ("\ufffd" if hidden else character)
    assert readable("a\ud800\udfffb") == "a\ufffd\ufffdb" and readable("😀") == "😀"


def test_elements():
    assert tag("p", "<b>", Html("<i>"), class_="a&b", hidden=True, id=None, data_x='"') == (
        '<p class="a&amp;b" hidden data-x="&quot;">&lt;b&gt;<i></p>'
    )
    assert join("&", None, Html("&amp;")) == "&amp;&amp;" and tag("br") == "<br>"
