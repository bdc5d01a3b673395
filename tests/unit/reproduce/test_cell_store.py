from __future__ import annotations

import json

import pytest

from gmip.errors import InvalidArgument
from gmip.reproduce.cell_store import CellStore, Done

DONE = Done([{"x": 0.1, "y": None, "z": "a"}], 1.5, "a machine")


@pytest.fixture
def cell(the_toy):
    return the_toy.Number(number=1.0)


def test_what_was_written_is_read(the_toy, cell, tmp_path):
    store = CellStore(tmp_path)
    assert store.read(the_toy, cell, {}) is None
    store.write(the_toy, cell, {"pool": "f"}, DONE)
    assert store.read(the_toy, cell, {"pool": "f"}) == DONE
    assert store.read(the_toy, cell, {"pool": "g"}) is None
    assert store.read(the_toy, the_toy.Number(number=1.0, task="digits"), {"pool": "f"}) is None
    assert [path.name for path in (tmp_path / "work" / "toy").iterdir()] == [
        store.file(the_toy, cell, {"pool": "f"}).name
    ]
    assert (tmp_path / "work" / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"format": "gmip-cell"}', "null"])
def test_a_damaged_file_is_as_good_as_none(the_toy, cell, tmp_path, damage):
    store = CellStore(tmp_path)
    store.write(the_toy, cell, {}, DONE)
    store.file(the_toy, cell, {}).write_text(damage)
    assert store.read(the_toy, cell, {}) is None


def test_the_rows_of_another_cell_are_refused(the_toy, cell, tmp_path):
    store = CellStore(tmp_path)
    store.write(the_toy, cell, {}, DONE)
    found = json.loads(store.file(the_toy, cell, {}).read_text())
    found["facts"]["cell"]["number"] = 2.0
    store.file(the_toy, cell, {}).write_text(json.dumps(found))
    assert store.read(the_toy, cell, {}) is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()])
def test_rows_must_be_plain(the_toy, cell, tmp_path, value):
    with pytest.raises(InvalidArgument, match="A row of toy is not plain"):
        CellStore(tmp_path).write(the_toy, cell, {}, DONE._replace(rows=[{"x": value}]))
    assert not list((tmp_path / "work").glob("toy/*"))
