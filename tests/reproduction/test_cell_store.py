from __future__ import annotations

import dataclasses
import json

import pytest

from gmip.errors import InvalidArgument
from reproduction.cell_store import CellKey, CellResult, CellStore

RESULT = CellResult([{"x": 0.1, "y": None, "z": "a"}], 1.5, "a machine")


@pytest.fixture
def key(the_toy):
    return CellKey.of(the_toy.EXPERIMENT, the_toy.Number(number=1.0), {"pool": "f"})


def test_what_was_written_is_read(key, tmp_path):
    store = CellStore(tmp_path)
    assert store.read(key) is None
    store.write(key, RESULT)
    assert store.read(key) == RESULT
    assert list((tmp_path / "work" / "toy").iterdir()) == [store.file(key)]
    assert (tmp_path / "work" / ".gitignore").read_text() == "*\n"


def test_whatever_decides_the_rows_is_in_the_key(the_toy, key):
    cell, other = the_toy.Number(number=1.0), dataclasses.replace(the_toy.EXPERIMENT, version=2)
    assert key == CellKey.of(the_toy.EXPERIMENT, cell, {"pool": "f"})
    keys = {
        key,
        CellKey.of(the_toy.EXPERIMENT, cell, {"pool": "g"}),
        CellKey.of(the_toy.EXPERIMENT, the_toy.Number(number=2.0), {"pool": "f"}),
        CellKey.of(the_toy.EXPERIMENT, the_toy.Number(number=1.0, task="digits"), {"pool": "f"}),
        CellKey.of(other, cell, {"pool": "f"}),
        CellKey.of(dataclasses.replace(the_toy.EXPERIMENT, name="twin"), cell, {"pool": "f"}),
    }
    assert len(keys) == 6


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"format": "gmip-cell"}', "null"])
def test_a_damaged_file_counts_as_none(key, tmp_path, damage):
    store = CellStore(tmp_path)
    store.write(key, RESULT)
    store.file(key).write_text(damage)
    assert store.read(key) is None


def test_the_rows_of_another_cell_are_refused(key, tmp_path):
    store = CellStore(tmp_path)
    store.write(key, RESULT)
    found = json.loads(store.file(key).read_text())
    found["facts"] = found["facts"].replace("1.0", "2.0")
    store.file(key).write_text(json.dumps(found))
    assert store.read(key) is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()])
def test_rows_must_be_plain(key, tmp_path, value):
    with pytest.raises(InvalidArgument, match="A row of toy is not plain"):
        CellStore(tmp_path).write(key, RESULT._replace(rows=[{"x": value}]))
    assert not list((tmp_path / "work").glob("toy/*"))
