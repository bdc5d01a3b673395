"""Records and ids in tables."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gmip.errors import InvalidArgument
from gmip.tasks import Examples
from gmip.tasks.records import read_record_table, read_records

POOL = Examples(torch.zeros(10, 1, 2), torch.zeros(10, dtype=torch.int64))


def table(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_records(tmp_path: Path) -> None:
    one = table(tmp_path / "a.csv", "id,a,label,b,group\n7,0.5,1,2,x\n8,1.5,0,3,y\n")
    other = table(tmp_path / "b.jsonl", '{"a": 9, "label": 2, "b": 8}\n')
    found = read_records(one, other)
    assert found.inputs.tolist() == [[0.5, 2.0], [1.5, 3.0], [9.0, 8.0]] and found.targets.tolist() == [1, 0, 2]
    named = read_records(table(tmp_path / "c.csv", "x,kind\n1,dog\n2,cat\n"), label="kind")
    assert named.targets.tolist() == [1, 0]
    assert read_records(table(tmp_path / "d.csv", "x,y\n1,0.5\n")).targets.dtype == torch.float32


@pytest.mark.parametrize(
    ("text", "ids"),
    [("id\n3\n1\n", [3, 1]), ("3\n1\n", [3, 1]), ("row,group\n2,a\n4,b\n", [2, 4]), ("whatever\n5.0\n", [5])],
)
def test_ids(tmp_path: Path, text: str, ids: list[int]) -> None:
    found = read_record_table(table(tmp_path / "a.csv", text), POOL)
    assert found.ids is not None and found.ids.tolist() == ids and len(found) == len(ids)
    assert found.groups == (("a", "b") if "group" in text else None)


def test_records_like_the_pools(tmp_path: Path) -> None:
    found = read_record_table(table(tmp_path / "a.csv", "a,b,label\n1,2,3\n"), POOL)
    assert found.examples is not None and found.examples.inputs.shape == (1, 1, 2) and len(found) == 1
    assert found.names is None
    named = read_record_table(table(tmp_path / "b.csv", "id,a,b,label\nanna,1,2,3\n"), POOL)
    assert named.names == ("anna",) and named.examples is not None and named.examples.inputs.shape == (1, 1, 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id\nx\n", "has 'x' in column 'id'"),
        ("id\n", "has no records"),
        ("id\n1\n1\n", "twice"),
        ("a,b\n1,2\n", "neither a column of ids nor one of labels"),
        ("a,label\n1,2\n", "1 columns of features"),
        ("a,b,label\n1,x,2\n", "'x' in column 'b' of record 1, which is not a number"),
        ("a,b,label\n1,1e300,2\n", "not a finite number"),
        ("a,b,label\n1,2,0.5\n", "labels of another kind"),
        ("label\n1\n", "no column but the label"),
        ("", "The file is empty"),
        ("a,a\n1,2\n", "two columns 'a'"),
    ],
)
def test_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        read_record_table(table(tmp_path / "a.csv", text), POOL)


def test_records_of_different_kinds(tmp_path: Path) -> None:
    one, other = table(tmp_path / "a.csv", "a,label\n1,2\n"), table(tmp_path / "b.csv", "b,label\n1,2\n")
    with pytest.raises(InvalidArgument, match="other columns than"):
        read_records(one, other)
    with pytest.raises(InvalidArgument, match="no column 'lable', did you mean 'label'"):
        read_records(one, label="lable")
    with pytest.raises(InvalidArgument, match="is empty"):
        read_records()
