from __future__ import annotations

import re
from xml.etree import ElementTree

import matplotlib

from reproduction import figures


def drawn():
    with figures.style():
        figure, (axes,) = figures.panels(1)
        axes.plot([0.123456789, 1.0], [1.0, 2.0], marker="o")
        axes.set(xlabel="$10^{-5}$", xscale="log")
        return figures.to_svg(figure)


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
    kept = ElementTree.fromstring(figures.inline(svg, "a", 'x < "y"'))
    shapes = [e.get("d") for e in ElementTree.fromstring(svg).iter() if e.tag.endswith("path")]
    assert [e.get("d") for e in kept.iter() if e.tag.endswith("path")] == shapes
    assert kept.get("aria-label") == 'x < "y"'
    colours = set(re.findall(r"stroke: (#\w+)", svg))
    assert colours == {e.get("stroke") for e in kept.iter() if (e.get("stroke") or "").startswith("#")}
