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
from gmip.reproduce import look, reproduce
from gmip.reproduce.output import check_folder, read_outcome, write_index

ALONE = Workers(workers=1)


@pytest.fixture
def folder(the_toy, tmp_path):
    reproduce(["toy"], tmp_path, settings=ALONE, command="gmip reproduce toy <&>")
    return tmp_path


def test_files(folder):
    assert sorted(path.name for path in folder.iterdir()) == [
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
