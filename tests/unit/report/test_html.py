"""The page: escaped, self-contained, the same every time, and saying what the result says."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gmip._html import readable
from gmip.auditing.schema import ExposedRecord
from gmip.report import to_html
from tests.unit.report import sample
from tests.unit.report.page import Page

EVERY = [sample.consistent, sample.exposed, sample.inconclusive, sample.three_runs, sample.bare, sample.hostile]


@cache
def page_of(make) -> Page:
    return Page(to_html(make()))


@pytest.fixture(scope="module")
def exposed() -> Page:
    return page_of(sample.exposed)


@pytest.fixture(scope="module")
def several() -> Page:
    return page_of(sample.three_runs)


@pytest.mark.parametrize("make", EVERY)
def test_nothing_leaves_the_page_and_nothing_else_runs(make):
    page = page_of(make)
    for name, attributes in page.elements:
        assert name in {
            *("html", "head", "meta", "title", "link", "style", "script", "body", "header", "nav", "main", "footer"),
            *(
                "section",
                "h1",
                "h2",
                "h3",
                "p",
                "a",
                "ul",
                "ol",
                "li",
                "data",
                "i",
                "line",
                "polyline",
                "dl",
                "dt",
                "dd",
                "div",
                "span",
                "strong",
                "time",
            ),
            *(
                "table",
                "caption",
                "thead",
                "tbody",
                "tr",
                "th",
                "td",
                "small",
                "bdi",
                "details",
                "summary",
                "pre",
                "code",
            ),
            *("figure", "button", "input", "label", "svg", "rect", "circle", "g", "path", "text"),
        }
        assert not [key for key in attributes if key.startswith("on") or key in ("style", "src", "srcset", "action")]
        if "href" in attributes:
            assert attributes["href"] == "data:," or (attributes["href"] or "").startswith("#")
    programs = [text for attributes, text in page.all("script") if attributes.get("type") != "application/json"]
    assert len(programs) == 1
    (policy,) = [a["content"] for a, _ in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None and "unsafe" not in policy and policy.startswith("default-src 'none';")
    for text in (programs[0], page.all("style")[0][1]):
        assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in policy
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", programs[0] + page.all("style")[0][1])


@pytest.mark.parametrize("make", EVERY)
def test_structure(make):
    page = page_of(make)
    titles = [text for _, text in page.all("title") if not text.startswith("Target: ")]  # those of drawings
    assert len(titles) == len(page.all("h1")) == len(page.all("main")) == 1
    levels = [int(name[1]) for name, _ in page.elements if name in ("h1", "h2", "h3")]
    assert levels[0] == 1 and all(b - a <= 1 for a, b in pairwise(levels))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.elements:
        for key in ("for", "aria-labelledby", "aria-describedby"):
            assert all(part in ids for part in (attributes.get(key) or "").split())
        if (attributes.get("href") or "").startswith("#"):
            assert (attributes["href"] or "")[1:] in ids
    assert len(page.all("table")) == len(page.all("caption"))
    assert all(attributes["scope"] in ("col", "row") for attributes, _ in page.all("th"))
    assert all(attributes.get("type") == "button" for attributes, _ in page.all("button"))


@pytest.mark.parametrize("make", EVERY)
def test_the_same_every_time(make):
    assert to_html(make()) == to_html(make())


def test_small_enough_to_mail():
    assert len(to_html(sample.consistent())) < 200_000


def test_hostile_strings_are_text():
    page = Page(to_html(sample.hostile()))
    shown = readable(sample.HOSTILE)
    assert page.all("h1")[0][1] == shown and page.all("title")[0][1] == shown
    assert (shown) in [text for _, text in page.all("bdi")]  # an identifier
    assert page.data("run-1-figure-data")["series"][0]["name"] == sample.HOSTILE
    assert "\x00" not in page.texts[0] and "\udcff" not in page.texts[0]


@settings(max_examples=25)
@given(st.text(), st.text())
def test_any_text_survives(title, identifier):
    run = (
        sample.bare().runs[0].model_copy(update={"exposed": (ExposedRecord(id=identifier, score=1.0),), "name": title})
    )
    source = to_html(sample.bare().model_copy(update={"title": "t" + title, "runs": (run,)}))
    source.encode()
    page = Page(source.replace("\r", "&#13;"))
    assert page.all("h1")[0][1] == readable(("t" + title).strip())
    assert readable(identifier) in [text for _, text in page.all("th", scope="row")]


def test_the_card_comes_first(exposed):
    source = " ".join(exposed.all("main")[0][1].split())
    said = "11% (8.39% to 14.1%) of the members can be identified at 1% false alarms; the limit is 5%."
    assert source.index("Fails the target") < source.index(said) < source.index("gradients")
    assert source.index("Next: ") < source.index("Evidence") < source.index("How to read it")
    assert exposed.all("p", class_="verdict-title")[0][1] == "Fails the target"
    assert "Probability of such scores if the claim held" in exposed.all("section", id="run-1-guarantee")[0][1]
    assert "The run has 500 records: intervals are wide." in source
    assert len(exposed.all("figure", class_="drawing")) == 2  # scores, and the most exposed records


def test_legend_speaks_of_one_percent(exposed):
    assert exposed.all("p", class_="legend-title")[0][1] == ("Members found at a 1% false-alarm rate:")
    values = [text for _, text in exposed.all("span", class_="value")]
    assert values[0] == "11%" and values[3] == "at most 3.39%" and values[6].startswith("about") and values[7] == "1%"


def table(page: Page, caption: str) -> list[list[str]]:
    """The rows of the table whose caption begins so."""
    start = next(
        i
        for i, ((name, _), text) in enumerate(zip(page.elements, page.texts, strict=True))
        if name == "table" and text.startswith(caption)
    )
    rows: list[list[str]] = []
    for (name, _), text in list(zip(page.elements, page.texts, strict=True))[start + 1 :]:
        if name == "table":
            break
        if name == "tr":
            rows.append([])
        elif name in ("td", "th"):
            rows[-1].append(text)
    return rows


def test_table_of_attacks(exposed):
    rows = table(exposed, "Attacks; those with a list last")
    assert rows[0][:3] == ["Attack", "Found at 1%", "AUC"]
    assert [row[0] for row in rows[1:]] == [
        *("GLiR500 + 50012 s", "LiRA, 16 shadow models500 + 5003 min 4 s", "Loss threshold500 + 5000.4 s")
    ]
    glir = dict(zip(rows[0], rows[1], strict=True))
    assert glir["Found at 1%"] == "11%8.39% to 14.1%"
    assert glir["p-value of the claim"] == "below 0.01%refuted"
    assert glir["μ at least"] == "0.82"  # 0.82006 down


def test_a_rate_below_one_false_alarm_is_not_measured():
    attack = sample.attack(0.0, seed=1, members=40, others=40)
    run = sample.run("consistent", claimed=0.5, found=0.0, attacks=(attack,))
    rows = table(Page(to_html(sample.result(run))), "Attacks; those with a list last")
    assert rows[1][1] == "not measured1% of 40 is less than one"


def test_records_and_advice(exposed):
    rows = table(exposed, "The members found most easily by GLiR")
    assert rows[1] == ["4711", "9.1", "0.02%", "99%", "1980"] and len(rows) == 11
    commands = [text for _, text in exposed.all("code")]
    assert commands == [
        *2 * ["gmip audit audit.yaml    # with repeats: 5 in it; gmip init writes one"],
        "gmip audit cifar10 --run runs/cifar10-head --attacks glir,lira,loss --seed 7",
    ]


def test_columns_that_nobody_has_are_left_out():
    run = (
        sample.exposed().runs[0].model_copy(update={"exposed": (ExposedRecord(id="a", score=2.0),), "exposed_by": None})
    )
    rows = table(Page(to_html(sample.result(run))), "The members found most easily")
    assert rows == [["Record", "Score"], ["a", "2"]]


def test_long_lists_of_records_are_cut():
    records = tuple(ExposedRecord(id=i, score=1.0) for i in range(72))
    page = Page(to_html(sample.result(sample.exposed().runs[0].model_copy(update={"exposed": records}))))
    assert len(table(page, "The members found most easily")) == 51
    assert "22 more are in result.json." in page.texts[0]


def test_provenance(exposed):
    rows = {row[0]: row[1] for row in table(exposed, "What the audit ran on")}
    assert rows["Seed"] == "7" and rows["Version of torch"] == "2.13.0"
    assert rows["Fingerprint of inputs"] == "sha256:1f0c7e4b9a02"
    assert '"repeats": 1' in exposed.all("pre")[0][1]


def test_curves_in_numbers(exposed):
    rows = table(exposed, "Members found, by false alarms")
    assert rows[0][:2] == ["False alarms", "GLiR"]
    at = {row[0]: row[1:] for row in rows[1:]}
    assert at["1%"][0] == "11%" and at["1%"][3] == "at most 3.39%" and at["0.01%"][0] == "not measured"
    assert {text.split()[-1] for text in at["100%"]} == {"100%"} and list(at)[:4] == ["0.01%", "0.02%", "0.05%", "0.1%"]


def test_several_runs(several):
    assert [text for _, text in several.all("h2")] == [
        *("Which run to ship", "no noise", "GMIP noise", "GDP noise"),
        *("How to read it", "Assumptions and threat model", "How to repeat this audit"),
    ]
    heads = [text for _, text in several.all("li", class_="run-head")]
    assert heads[0] == "no noiseFails the targetaccuracy 87.3%" and heads[2] == "GDP noiseGuaranteedaccuracy 79.2%"
    assert several.all("section", id="overview")[0][1].startswith("Which run to shipShip 'GMIP noise'")
    assert len(several.all("figure", class_="roc")) == 4


def test_as_little_as_possible():
    page = Page(to_html(sample.bare()))
    assert page.all("h1")[0][1] == "Membership audit"
    assert page.all("p", class_="verdict-title")[0][1] == "Inconclusive"
    for text in ("No attack was run.", "No recommendation."):
        assert text in page.texts[0]


def test_noise_and_accuracy_are_one_picture():
    page = Page(to_html(sample.tried()))
    (drawing,) = page.all("svg", id="run-1-noise-chart")
    assert "noise 0.02: 4.9%" in (drawing[0]["aria-label"] or "")
    assert len(page.all("rect", class_="dot")) == 10 + 2  # records; the run itself and the way that was tried
