from __future__ import annotations

import json

import matplotlib
import pytest

from gmip.errors import GmipWarning, InvalidArgument
from gmip.parallel import Workers
from reproduction.computation import reproduce
from reproduction.experiment import Study
from reproduction.experiments import PAPER
from reproduction.results import check_folder, read_csv, read_outcome, redraw, to_csv, write_index
from tests.reproduction import toy

ALONE = Workers(workers=1)


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
    (outcome,) = reproduce(the_toy.STUDY, ["toy"], tmp_path, workers=ALONE)
    assert read_outcome(tmp_path, "toy") == outcome
    assert outcome.versions["matplotlib"] == matplotlib.__version__ and outcome.machines


def test_what_is_no_result_is_not_on_the_page(folder):
    study = Study("Both", "", (*toy.STUDY.experiments, *PAPER.select(["utility"])))
    (folder / "utility.json").write_text(json.dumps({"format": "other"}))
    with pytest.warns(GmipWarning, match=r"utility\.json is not a result of this version of gmip"):
        write_index(study, folder)
    assert "A toy" in (folder / "index.html").read_text()
    with pytest.raises(InvalidArgument, match=r"utility\.json is not a result of this version of gmip: remove it"):
        check_folder(folder, PAPER.select(["utility"]), quick=True)


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
    (again,) = redraw(the_toy.STUDY, [], folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == kept
    assert again == read_outcome(folder, "toy") and len(the_toy.calls) == 4
    (folder / "toy.csv").write_text("number,square\n7,49\n")
    (again,) = redraw(the_toy.STUDY, ["toy"], folder)
    assert again.claims[0].measured == "1" and "| They grow |" in (folder / "claims.md").read_text()


def test_what_cannot_be_drawn_again(folder, tmp_path):
    study = Study("Both", "", (*toy.STUDY.experiments, *PAPER.select(["utility"])))
    for names, where, sentence in (
        ([], tmp_path / "none", "has no results to redraw: compute them first"),
        (["utility"], folder, "has no results of utility to redraw"),
    ):
        with pytest.raises(InvalidArgument, match=sentence):
            redraw(study, names, where)
    (folder / "toy.csv").write_text("other\n1\n")
    with pytest.raises(InvalidArgument, match=r"toy\.csv was not written by this version of toy: compute it again"):
        redraw(study, ["toy"], folder)
