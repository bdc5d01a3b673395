from __future__ import annotations

from gmip.report.html import to_html
from gmip.report.markdown import to_markdown
from gmip.report.tables import accuracy_words, price_notes, ways_table
from tests.unit.report import sample
from tests.unit.report.page import Page


def test_the_table_has_the_price_of_each_way() -> None:
    (run,) = sample.tried().runs
    table = ways_table(run)
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["As it is", "\u2013", "at most 3.39%", "87.3% \u00b1 0.4%"],
        [
            "More noise",
            "noise multiplier 10 instead of 0 (clip 1)",
            "about 4.99%",
            "86.1% \u00b1 1.23%",
        ],
        ["More data", "2,000 records instead of 500, for as many steps", "about 5%", "not measured"],
    ]
    assert table.rows[1][2].details == ("forecast",)
    assert price_notes(run)[0].endswith("on 400 records that are not members (the run had 500).")
    assert price_notes(run)[1].startswith("More data was not tried: only 400 records ")


def test_what_was_not_measured_says_so() -> None:
    run = sample.tried().runs[0].model_copy(update={"tried": None, "tried_left_out": ()})
    table = ways_table(run)
    assert [row[0].text for row in table.rows] == ["More noise", "More data"]
    assert "--try-advice" in price_notes(run)[0]
    assert price_notes(sample.consistent().runs[0]) == [] and ways_table(sample.consistent().runs[0]).rows == ()


def test_one_training_has_no_error() -> None:
    (run,) = sample.tried().runs
    assert run.tried is not None
    assert accuracy_words(run.tried.model_copy(update={"seeds": 1, "error": 0.0})) == "87.3%"


def test_page_and_markdown_show_it_in_the_order_of_the_advice() -> None:
    page = Page(to_html(sample.tried()))
    commands = [text for _, text in page.all("code")]
    assert (
        "gmip account --dataset-size 2000 --batch-size 2000 --steps 1 --params 650 --sampling full --clip 1 --fpr 0.01"
        in commands
    )
    text = to_markdown(sample.tried())
    places = [
        text.index(words) for words in ("Do not rely", "| More noise |", "| More data |", "Audit more candidates")
    ]
    assert places == sorted(places)
    assert "gmip train" not in text  # a model card repeats no command
