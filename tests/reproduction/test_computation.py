from __future__ import annotations

import dataclasses

import pytest

from gmip.errors import DataUnavailable, GmipWarning, InvalidArgument
from gmip.parallel import Workers
from reproduction import computation
from reproduction.computation import reproduce
from reproduction.experiment import Study

ALONE = Workers(workers=1)


def test_rows_are_kept_and_not_computed_again(the_toy, tmp_path):
    (first,) = reproduce(the_toy.STUDY, ["toy"], tmp_path, workers=ALONE, command="python -m toy")
    assert the_toy.calls == [0.0, 1.0, 2.0, 3.0]
    assert (first.cells, first.quick, first.command) == (4, False, "python -m toy")
    assert (tmp_path / "toy.csv").read_text() == "number,square,name,none\n" + "".join(
        f'{k},{k * k},"a,b",\n' for k in range(4)
    )
    written = (tmp_path / "toy.csv").read_bytes()
    (again,) = reproduce(the_toy.STUDY, ["toy"], tmp_path, workers=ALONE)
    assert (tmp_path / "toy.csv").read_bytes() == written  # rows from the store have their columns in the same order
    assert len(the_toy.calls) == 4 and again.claims == first.claims and again.table == first.table
    assert again.seconds == first.seconds  # of the computing, not of this call


def test_what_is_missing_is_computed(the_toy, tmp_path):
    the_toy.troubles[2.0] = the_toy.invalid
    with pytest.raises(
        InvalidArgument, match=r"A cell of toy .*number=2.0.* cannot be computed: number = 2 is bad: pass another."
    ):
        reproduce(the_toy.STUDY, ["toy"], tmp_path, workers=ALONE)
    assert not (tmp_path / "toy.json").exists()
    the_toy.troubles.clear()
    reproduce(the_toy.STUDY, ["toy"], tmp_path, workers=ALONE)
    assert the_toy.calls == [0.0, 1.0, 2.0, 2.0, 3.0]


def test_a_new_version_of_the_experiment_and_other_code_are_computed_anew(the_toy, tmp_path):
    """Cells that other code computed are in no result: the probe and the constants tell."""
    hashes = set()
    for version, one, rate in ((1, 1.5, 1), (2, 1.5, 1), (2, 1.6, 1), (2, 1.6001, 1), (2, 1.6, 2)):
        changes = {"version": version, "probe": lambda one=one: [{"one": one}], "constants": {"rate": rate}}
        newer = dataclasses.replace(the_toy.EXPERIMENT, **changes)
        hashes.add(newer.decided_by())
        reproduce(Study("Toys", "", (newer,)), [], tmp_path, workers=ALONE)
    assert len(the_toy.calls) == 16 and len(hashes) == 3


def test_missing_data_are_named_and_the_rest_goes_on(the_toy, tmp_path, monkeypatch):
    the_toy.tasks[1.0] = "purchase"

    def load(name):
        raise DataUnavailable(f"{name} is not here: fetch it.")

    monkeypatch.setattr(computation, "load_task", load)
    with pytest.warns(GmipWarning, match="purchase is skipped: purchase is not here: fetch it"):
        (outcome,) = reproduce(the_toy.STUDY, [], tmp_path, workers=ALONE)
    assert the_toy.calls == [0.0, 2.0, 3.0]
    assert outcome.skipped == {"purchase": "purchase is not here: fetch it."} and outcome.cells == 3
    assert "purchase is left out: purchase is not here: fetch it." in (tmp_path / "index.html").read_text()


def test_nothing_stands_in_for_missing_data(the_toy, tmp_path, monkeypatch):
    the_toy.tasks.update(dict.fromkeys(range(4), "purchase"))
    monkeypatch.setattr(computation, "load_task", lambda name: (_ for _ in ()).throw(the_toy.unavailable))
    with pytest.warns(GmipWarning, match="purchase is skipped"):
        (outcome,) = reproduce(the_toy.STUDY, ["toy"], tmp_path, workers=ALONE)
    assert (outcome.cells, outcome.claims, outcome.figures) == (0, (), {})
    assert (tmp_path / "toy.csv").read_text() == "\n"


def test_other_data_are_other_cells(the_toy, tmp_path, monkeypatch):
    the_toy.tasks[1.0] = "digits"

    class Data:
        fingerprints = {"pool": "1"}  # noqa: RUF012

    monkeypatch.setattr(computation, "load_task", lambda name: Data)
    reproduce(the_toy.STUDY, ["toy"], tmp_path, workers=ALONE)
    Data.fingerprints = {"pool": "2"}
    reproduce(the_toy.STUDY, ["toy"], tmp_path, workers=ALONE)
    assert the_toy.calls == [0.0, 1.0, 2.0, 3.0, 1.0]


def test_a_worker_without_the_data_leaves_its_cells_out(the_toy, tmp_path):
    the_toy.troubles[1.0] = the_toy.unavailable
    (outcome,) = reproduce(the_toy.STUDY, ["toy"], tmp_path, workers=ALONE)
    assert outcome.cells == 3 and outcome.skipped == {"toy": "The set is not here: fetch it."}


def test_a_full_result_is_not_replaced_by_a_quick_one(the_toy, tmp_path):
    (quick,) = reproduce(the_toy.STUDY, ["toy"], tmp_path, quick=True, workers=ALONE)
    assert quick.quick and quick.cells == 3 and "Quick: the last cell." in (tmp_path / "index.html").read_text()
    reproduce(the_toy.STUDY, ["toy"], tmp_path, workers=ALONE)
    assert the_toy.calls == [0.0, 1.0, 2.0, 3.0]  # those of the quick run served
    with pytest.raises(InvalidArgument, match=r"toy\.json is of a full run .*: pass another folder"):
        reproduce(the_toy.STUDY, ["toy"], tmp_path, quick=True, workers=ALONE)


def test_progress(the_toy, tmp_path):
    told = []
    watch = lambda name: lambda *done: told.append((name, *done))  # noqa: E731
    reproduce(the_toy.STUDY, [], tmp_path, workers=ALONE, watch=watch)
    assert told == [("toy", k, 4) for k in range(5)]


def test_unknown_names_and_folders(the_toy, tmp_path):
    with pytest.raises(InvalidArgument, match="'ty' is not an experiment, did you mean 'toy': pass one of"):
        reproduce(the_toy.STUDY, ["ty"], tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgument, match=r"out = .*file' is a file: pass a folder"):
        reproduce(the_toy.STUDY, ["toy"], tmp_path / "file", workers=ALONE)


@pytest.mark.parametrize("together", [True, False])
def test_an_experiment_that_shows_the_rows_of_another_computes_nothing(the_toy, tmp_path, together):
    study = Study("Two", "", (the_toy.EXPERIMENT, dataclasses.replace(the_toy.EXPERIMENT, name="twin", shows="toy")))
    told = []
    for names in [["toy", "twin"]] if together else [["twin"], ["toy"]]:
        reproduce(study, names, tmp_path, workers=ALONE, watch=lambda name: lambda *done: told.append((name, *done)))
    assert the_toy.calls == [0.0, 1.0, 2.0, 3.0]
    assert not (tmp_path / "twin.csv").exists() and "Numbers: toy.csv" in (tmp_path / "index.html").read_text()
    assert ("twin", 4, 4) in told and ("toy", 4, 4) in told
    assert len([path for path in (tmp_path / "work").iterdir() if path.is_dir()]) == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()])
def test_rows_must_be_plain(the_toy, tmp_path, value):
    strange = dataclasses.replace(the_toy.EXPERIMENT, run=lambda cell: [{"x": value}])
    with pytest.raises(InvalidArgument, match="A row of toy is not plain"):
        reproduce(Study("Toys", "", (strange,)), [], tmp_path, workers=ALONE)
    assert not list((tmp_path / "work").glob("toy-*/*.entry"))


def test_a_damaged_cell_is_computed_again(the_toy, folder):
    (entry, *_) = sorted((folder / "work").glob("toy-*/*.entry"))
    kept = entry.read_bytes()
    entry.write_bytes(kept[:-2] + b"x\n")
    with pytest.warns(GmipWarning, match="is damaged"):
        reproduce(the_toy.STUDY, [], folder, workers=ALONE)
    assert len(the_toy.calls) == 5 and len(entry.read_bytes()) > 100
