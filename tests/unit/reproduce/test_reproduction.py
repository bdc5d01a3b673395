from __future__ import annotations

import sys
import types

import pytest

from gmip.errors import DataUnavailable, InvalidArgument
from gmip.parallel import Workers
from gmip.reproduce import experiments, prepare, reproduce, reproduction

ALONE = Workers(workers=1)


def test_rows_are_kept_and_not_computed_again(the_toy, tmp_path):
    (first,) = reproduce(["toy"], tmp_path, settings=ALONE, command="gmip reproduce toy")
    assert the_toy.calls == [0.0, 1.0, 2.0, 3.0]
    assert (first.cells, first.quick, first.command) == (4, False, "gmip reproduce toy")
    assert (tmp_path / "toy.csv").read_text() == "number,square,name,none\n" + "".join(
        f'{k},{k * k},"a,b",\n' for k in range(4)
    )
    (again,) = reproduce(["toy"], tmp_path, settings=ALONE)
    assert len(the_toy.calls) == 4 and again.claims == first.claims and again.table == first.table
    assert again.seconds == first.seconds  # of the computing, not of this call


def test_what_is_missing_is_computed(the_toy, tmp_path):
    the_toy.troubles[2.0] = the_toy.invalid
    with pytest.raises(
        InvalidArgument, match=r"A cell of toy .*number=2.0.* cannot be computed: number = 2 is bad: pass another."
    ):
        reproduce(["toy"], tmp_path, settings=ALONE)
    assert not (tmp_path / "toy.json").exists()
    the_toy.troubles.clear()
    reproduce(["toy"], tmp_path, settings=ALONE)
    assert the_toy.calls == [0.0, 1.0, 2.0, 2.0, 3.0]


def test_a_new_version_of_the_experiment_is_computed_anew(the_toy, tmp_path, monkeypatch):
    reproduce(["toy"], tmp_path, settings=ALONE)
    monkeypatch.setattr(the_toy, "VERSION", 2)
    reproduce(["toy"], tmp_path, settings=ALONE)
    assert len(the_toy.calls) == 8


def test_missing_data_are_named_and_the_rest_goes_on(the_toy, tmp_path, monkeypatch):
    the_toy.tasks[1.0] = "purchase"

    def load(name):
        raise DataUnavailable(f"{name} is not here: fetch it.")

    monkeypatch.setattr(reproduction, "load_task", load)
    plan = prepare(["toy"])
    assert plan.missing == {"purchase": "purchase is not here: fetch it."}
    (outcome,) = reproduce(plan, tmp_path, settings=ALONE)
    assert the_toy.calls == [0.0, 2.0, 3.0]
    assert outcome.skipped == plan.missing and outcome.cells == 3
    assert "purchase is left out: purchase is not here: fetch it." in (tmp_path / "index.html").read_text()


def test_nothing_stands_in_for_missing_data(the_toy, tmp_path, monkeypatch):
    the_toy.tasks.update(dict.fromkeys(range(4), "purchase"))
    monkeypatch.setattr(reproduction, "load_task", lambda name: (_ for _ in ()).throw(the_toy.unavailable))
    (outcome,) = reproduce(["toy"], tmp_path, settings=ALONE)
    assert (outcome.cells, outcome.claims, outcome.figures) == (0, (), {})
    assert (tmp_path / "toy.csv").read_text() == "\n"


def test_other_data_are_other_cells(the_toy, tmp_path, monkeypatch):
    the_toy.tasks[1.0] = "digits"

    class Data:
        fingerprints = {"pool": "1"}  # noqa: RUF012

    monkeypatch.setattr(reproduction, "load_task", lambda name: Data)
    reproduce(["toy"], tmp_path, settings=ALONE)
    Data.fingerprints = {"pool": "2"}
    reproduce(["toy"], tmp_path, settings=ALONE)
    assert the_toy.calls == [0.0, 1.0, 2.0, 3.0, 1.0]


def test_a_worker_without_the_data_leaves_its_cells_out(the_toy, tmp_path):
    the_toy.troubles[1.0] = the_toy.unavailable
    (outcome,) = reproduce(["toy"], tmp_path, settings=ALONE)
    assert outcome.cells == 3 and outcome.skipped == {"toy": "The set is not here: fetch it."}


def test_a_full_result_is_not_replaced_by_a_quick_one(the_toy, tmp_path):
    (quick,) = reproduce(["toy"], tmp_path, quick=True, settings=ALONE)
    assert quick.quick and quick.cells == 3 and "Quick: the last cell." in (tmp_path / "index.html").read_text()
    reproduce(["toy"], tmp_path, settings=ALONE)
    assert the_toy.calls == [0.0, 1.0, 2.0, 3.0]  # those of the quick run served
    with pytest.raises(InvalidArgument, match=r"toy\.json is of a full run .*: pass another folder"):
        reproduce(["toy"], tmp_path, quick=True, settings=ALONE)


def test_progress(the_toy, tmp_path):
    told = []
    reproduce(
        ["toy"], tmp_path, settings=ALONE, watch=lambda name: lambda done, total: told.append((name, done, total))
    )
    assert told == [("toy", k, 4) for k in range(5)]


def test_unknown_names_and_folders(the_toy, tmp_path):
    with pytest.raises(InvalidArgument, match="'ty' is not an experiment, did you mean 'toy': pass one of"):
        prepare(["ty"])
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgument, match=r"out = .*file' is a file: pass a folder"):
        reproduce(["toy"], tmp_path / "file", settings=ALONE)


@pytest.mark.parametrize("together", [True, False])
def test_an_experiment_that_shows_the_rows_of_another_computes_nothing(the_toy, tmp_path, monkeypatch, together):
    twin = types.ModuleType("twin")
    vars(twin).update({key: value for key, value in vars(the_toy).items() if not key.startswith("__")})
    vars(twin).update(NAME="twin", ROWS_OF="toy")
    monkeypatch.setattr(experiments, "_NAMES", (*experiments._NAMES, "twin"))
    monkeypatch.setitem(sys.modules, "gmip.reproduce.experiments.twin", twin)
    told = []
    for names in [["toy", "twin"]] if together else [["twin"], ["toy"]]:
        reproduce(names, tmp_path, settings=ALONE, watch=lambda name: lambda *done: told.append((name, *done)))
    assert the_toy.calls == [0.0, 1.0, 2.0, 3.0]
    assert not (tmp_path / "twin.csv").exists() and "Numbers: toy.csv" in (tmp_path / "index.html").read_text()
    assert ("twin", 4, 4) in told and ("toy", 4, 4) in told
    assert [path.name for path in (tmp_path / "work").iterdir() if path.is_dir()] == ["toy"]
