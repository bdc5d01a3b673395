"""Markdown for a model card, read back by an independent parser."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from gmip._html import readable
from gmip.report import to_markdown
from gmip.report.markdown import fenced, plain
from tests.unit.report import sample

PARSER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def kinds(text: str) -> set[str]:
    tokens = PARSER.parse(text)
    return {t.type for t in tokens} | {c.type for t in tokens for c in t.children or ()}


MARKUP = [
    *("1. a", "- a", "+ a", "# a", "a\n===", "> a", "![a](b)", "&amp;", "a <b>c</b>", "~~a~~", "\\", "| a |", "    a"),
    *("http://a.b", "<http://a.b>", "**a**", "`a`", "[a]: b", "***", "1) a", "= a", "a\\\nb", "*", "_a_", "$a$"),
]


@given(st.text() | st.lists(st.sampled_from(MARKUP)).map(" ".join) | st.text("\\`*_{}[]<>()|~#&$!-+=.:1a\n "))
def test_text_is_text(text):
    rendered = PARSER.parse("x\n\n" + plain(text))
    assert {t.type for t in rendered} <= {"paragraph_open", "inline", "paragraph_close"}
    inlines = [t for t in rendered if t.type == "inline"][1:]
    content = "".join(c.content for t in inlines for c in t.children or ())
    assert {c.type for t in inlines for c in t.children or ()} <= {"text", "text_special"}
    assert content.replace("\u2060", "") == " ".join(readable(text).split()).replace("\u2060", "")


@given(st.text())
def test_code_is_code(text):
    tokens = PARSER.parse(fenced("a" + text.replace("\r", "")))
    assert [t.type for t in tokens] == ["fence"]


@pytest.mark.parametrize("make", [sample.consistent, sample.three_runs, sample.hostile, sample.bare])
def test_only_our_own_markup(make):
    text = to_markdown(make())
    assert text == to_markdown(make()) and text.endswith("\n")
    assert not kinds(text) & {"html_block", "html_inline", "link_open", "image", "em_open", "code_inline", "hr"}


def test_what_it_says():
    text = to_markdown(sample.exposed())
    assert text.startswith(
        "# CIFAR-10 classifier, release 3\n\nMembership-inference audit by gmip 0.1.0, 5 March 2026, 14:02 UTC"
    )
    assert "**Fails the target.** 11% (8.39% to 14.1%) of the members can be identified at 1% false alarms" in text
    assert "Claim refuted: GLiR finds 11%" in text and "o measured   . guessing   ! limit" in text
    for private in ("4711", "runs/", "--seed", "sha256"):  # a model card names no record, file or seed
        assert private not in text
    assert "Gate: Failed: at 1% false alarms" in text
    tables = [t for t in PARSER.parse(text) if t.type == "table_open"]
    assert len(tables) == 3


def test_tables_have_as_many_cells_everywhere():
    for line in to_markdown(sample.hostile()).splitlines():
        if line.startswith("|"):
            assert line.endswith("|")
    tokens = PARSER.parse(to_markdown(sample.three_runs()))
    assert len([t for t in tokens if t.type == "table_open"]) == 3 * 2 + 1
    assert [t.content for t in tokens if t.type == "inline" and t.level == 1][:3] == [
        *("CIFAR-10 classifier: three ways to train it", tokens[4].content, "Which run to ship")
    ]
