from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import matplotlib
import pytest

from gmip.errors import GmipWarning, InvalidArgument
from gmip.parallel import Workers
from gmip.reproduce import look, redraw, reproduce
from gmip.reproduce.output import check_folder, read_csv, read_outcome, to_csv, write_index

ALONE = Workers(workers=1)


@pytest.fixture
def folder(the_toy, tmp_path):
    reproduce(["toy"], tmp_path, settings=ALONE, command="gmip reproduce toy <&>")
    return tmp_path


def test_files(folder):
    assert sorted(path.name for path in folder.iterdir()) == [
        "claims.md",
        "index.html",
        "toy-empty.svg",
        "toy.csv",
        "toy.json",
        "toy.svg",
        "work",
    ]


def test_an_outcome_is_read_as_it_was(the_toy, tmp_path):
    (outcome,) = reproduce(["toy"], tmp_path, settings=ALONE)
    assert read_outcome(tmp_path, "toy") == outcome
    assert outcome.versions["matplotlib"] == matplotlib.__version__ and outcome.machines


def test_what_is_no_result_is_not_on_the_page(folder):
    (folder / "utility.json").write_text(json.dumps({"format": "other"}))
    with pytest.warns(GmipWarning, match=r"utility\.json is no result of this gmip"):
        write_index(folder)
    assert "A toy" in (folder / "index.html").read_text()
    with pytest.raises(InvalidArgument, match=r"utility\.json is no result of this gmip: remove it"):
        check_folder(folder, ["utility"], quick=True)


def test_rows_are_read_as_they_were():
    rows = [
        {"a": 1, "b": 0.1, "c": "x,y", "d": None, "e": True},
        {"a": -2, "b": 1.0e-12, "c": "one step", "d": 3.0, "f": "K = d"},
    ]
    assert read_csv(to_csv(rows)) == [dict.fromkeys("abcdef") | row for row in rows]
    assert read_csv(to_csv([])) == []


def test_drawn_again_from_the_csv(the_toy, folder):
    kept = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    (folder / "toy.svg").unlink()
    (again,) = redraw(["all"], folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == kept
    assert again == read_outcome(folder, "toy") and len(the_toy.calls) == 4
    (folder / "toy.csv").write_text("number,square\n7,49\n")
    assert (
        redraw(["toy"], folder)[0].claims[0].measured == "1" and "| They grow |" in (folder / "claims.md").read_text()
    )


def test_what_cannot_be_drawn_again(folder, tmp_path):
    for names, where, sentence in (
        (["all"], tmp_path / "none", "has no results to be drawn again: run it without --redraw"),
        (["utility"], folder, "has no results of utility to be drawn again"),
    ):
        with pytest.raises(InvalidArgument, match=sentence):
            redraw(names, where)
    (folder / "toy.csv").write_text("other\n1\n")
    with pytest.raises(InvalidArgument, match=r"toy\.csv is not what toy writes now: run it without --redraw"):
        redraw(["toy"], folder)


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found, self.ids, self.references, self.styled = [], [], [], []
        self.feed(text)

    def handle_starttag(self, name, attributes):
        given = dict(attributes)
        self.found.append(name)
        self.ids += [given["id"]] if "id" in given else []
        self.styled += [name] if "style" in given else []
        self.references += [v[1:] for k, v in attributes if k in ("href", "xlink:href") and v and v.startswith("#")]
        self.references += [r for _, v in attributes for r in re.findall(r"url\(#(.*?)\)", v or "")]


def test_the_page_needs_nothing_else(folder):
    text = (folder / "index.html").read_text()
    page = Page(text)
    assert len(page.ids) == len(set(page.ids)) and set(page.references) <= set(page.ids)
    assert page.styled == [] and page.found.count("style") == 1 and "script" not in page.found
    assert page.found.count("svg") == 2
    (style,) = re.findall("<style>(.*?)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src &#x27;sha256-{digest}&#x27;" in text or f"style-src 'sha256-{digest}'" in text
    assert not re.findall(r'(?:src|href)="(?!#|data:)', text)


def test_the_page_says_what_was_claimed_and_measured(folder):
    text = (folder / "index.html").read_text()
    for words in ("They grow", "&lt;b&gt;yes&lt;/b&gt;", "Really.", "Squares grow.", "A toy &lt;experiment&gt;"):
        assert words in text
    assert "gmip reproduce toy &lt;&amp;&gt;" in text and "1 of 1 claims agree" in text
    assert "squares &amp; &quot;more&quot;" in text and "4 cells" in text


def drawn():
    with look.style():
        figure, (axes,) = look.panels(1)
        axes.plot([0.123456789, 1.0], [1.0, 2.0], marker="o")
        axes.set(xlabel="$10^{-5}$", xscale="log")
        return look.to_svg(figure)


def test_figures_are_the_same_bytes_and_leave_no_trace():
    before = dict(matplotlib.rcParams)
    assert drawn() == drawn()
    assert dict(matplotlib.rcParams) == before


def test_figures_are_vectors():
    tree = ElementTree.fromstring(drawn())
    kinds = {element.tag.rpartition("}")[2] for element in tree.iter()}
    assert "path" in kinds and not kinds & {"image", "text"}
    long = [v for e in tree.iter() for k, v in e.items() if k in ("d", "x", "y") and re.search(r"\.\d{3,}", v)]
    assert long == []
    assert 'transform="scale(0.015625)"' in drawn()  # of letters: not to be rounded


def test_inline_keeps_the_drawing():
    svg = drawn()
    kept = ElementTree.fromstring(look.inline(svg, "a", 'x < "y"'))
    shapes = [e.get("d") for e in ElementTree.fromstring(svg).iter() if e.tag.endswith("path")]
    assert [e.get("d") for e in kept.iter() if e.tag.endswith("path")] == shapes
    assert kept.get("aria-label") == 'x < "y"'
    colours = set(re.findall(r"stroke: (#\w+)", svg))
    assert colours == {e.get("stroke") for e in kept.iter() if (e.get("stroke") or "").startswith("#")}
