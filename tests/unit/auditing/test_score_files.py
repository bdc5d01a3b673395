from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gmip.auditing import read_scores
from gmip.errors import FileError, InvalidArgument

ROWS = [(1, 0.5), (1, -1e-3), (0, 0.25), (0, 7.0)]
SCORES = [score for _, score in ROWS]


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(("name", "delimiter"), [("a.csv", ","), ("a.csv", ";"), ("a.tsv", "\t"), ("A.CSV", ",")])
def test_csv(tmp_path: Path, name: str, delimiter: str) -> None:
    lines = [["member", "score"], *([str(cell) for cell in row] for row in ROWS)]
    text = "\ufeff" + "\r\n".join(delimiter.join(line) for line in lines) + "\r\n\r\n"
    table = read_scores(written(tmp_path / name, text))
    assert table.scores["score"].tolist() == SCORES and table.member.tolist() == [True, True, False, False]
    assert table.ids.tolist() == [1, 2, 3, 4]


def test_quotes(tmp_path: Path) -> None:
    text = "member,score,group\n" + "".join(f'{m},{s},"Zürich, ""A"""\n' for m, s in ROWS)
    table = read_scores(written(tmp_path / "a.csv", text))
    assert table.groups is not None and table.groups.names == ('Zürich, "A"',)


def test_json_lines(tmp_path: Path) -> None:
    lines = [json.dumps({"id": f"r{i}", "member": bool(m), "score": s}) for i, (m, s) in enumerate(ROWS)]
    table = read_scores(written(tmp_path / "a.jsonl", "\n".join(lines) + "\n\n"))
    assert table.scores["score"].tolist() == SCORES and table.ids.tolist() == ["r0", "r1", "r2", "r3"]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "", "is empty"),
        ("a.csv", "member,score\n", "no records"),
        ("a.csv", "member,score\n1,0.5\n1\n", "Record 2 has 1 cells where the header has 2"),
        ("a.csv", "member,score\n1,0.5\n1,1\n0,nan\n0,1\n", "'nan' in column 'score' of record 3"),
        ("a.csv", "a,b\n1,2\n", "no column 'member'"),
        ("a.csv", f"member,score\n1,{'9' * 200_000}\n", "not CSV"),
        ("a.jsonl", "", "is empty"),
        ("a.jsonl", "{\n", "Line 1 is not JSON"),
        ("a.jsonl", "[" * 100_000, "Line 1 is not JSON"),
        ("a.jsonl", "[1]\n", "Line 1 is not a JSON object"),
        ("a.jsonl", '{"member": 1, "score": 1}\n{"member": 1}\n', "Line 2 has no 'score'"),
        ("a.jsonl", '{"member": 1, "score": null}\n' * 2, "None in column 'score' of record 1"),
        ("a.docx", "x", "not a known kind of table: pass one of .csv"),
        ("a.xlsx", "x", r"save the sheet as CSV"),
        ("a.sav", "x", r"pandas.read_spss\(...\).to_csv"),
        ("a.DTA", "x", r"pandas.read_stata"),
        ("a.rds", "x", r"write.csv\(readRDS"),
        ("a.pkl", "x", r"gmip.Estimator"),
        ("a.pt", "x", r"--model FILE --members"),
        ("a.csv", "member,label,y_pred\n1,2.5,2.4\n", r"for values, write a column loss, such as \(y_pred - label\)"),
        ("a.csv", "member,label,p\n1,1,0.4\n", r"name the class: columns probability:CLASS=p"),
        ("a.csv", 'member,score\n1,"1,234"\n0,"2,345"\n', "which is not a number"),
        ("a.csv", "member,score\nalt,1\nneu,2\n", "say what it says of members: columns member:VALUE=member"),
    ],
)
def test_what_is_refused(tmp_path: Path, name: str, text: str, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words) as refused:
        read_scores(written(tmp_path / name, text))
    assert name in str(refused.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="No such file"):
        read_scores(tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(FileError, match="is not a file"):
        read_scores(tmp_path / "folder.csv")
    (tmp_path / "b.csv").write_bytes(b"member,score\n\xff\xfe,1\n")
    with pytest.raises(InvalidArgument, match="not text in UTF-8"):
        read_scores(tmp_path / "b.csv")


class FakeTable:
    """The part of a pyarrow table that is read."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self.columns, self.column_names = columns, list(columns)

    def column(self, name: str) -> Any:
        return types.SimpleNamespace(to_numpy=lambda: np.array(self.columns[name]))


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path / "a.parquet", "PAR1")
    columns = {"member": [m for m, _ in ROWS], "score": SCORES}
    arrow, parquet = types.ModuleType("pyarrow"), types.ModuleType("pyarrow.parquet")
    arrow.parquet, parquet.read_table = parquet, lambda path: FakeTable(columns)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyarrow", arrow)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet)
    assert read_scores(file).scores["score"].tolist() == SCORES

    def damaged(path: Path) -> None:
        raise ValueError("Parquet magic bytes not found")

    parquet.read_table = damaged  # type: ignore[attr-defined]
    with pytest.raises(InvalidArgument, match="not Parquet that can be read"):
        read_scores(file)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InvalidArgument, match="Parquet needs pyarrow or pandas, and neither is installed: pip install"):
        read_scores(file)


def test_a_huge_file_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "huge.csv"
    with path.open("wb") as file:
        file.write(b"member,score\n")
        file.truncate(50 * 2**30)  # sparse: takes no room
    with pytest.raises(InvalidArgument, match=r"huge.csv has 50.0 GiB, and tables of at most 2 GiB are read: "):
        read_scores(path)


@pytest.mark.parametrize("text", ["x" * 2**21, "member,score\n" + "\0" * 2**21, "member,score\n" + "1," * 2**20])
def test_endless_lines_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"is too long|is not CSV|cells where"):
        read_scores(written(tmp_path / "a.csv", text))


@pytest.mark.parametrize(
    ("header", "words", "columns"),
    [
        ("member", ("ja", "nein"), {}),
        ("split", ("train", "test"), {}),
        ("cohort", ("old", "new"), {"member:old": "cohort"}),
        ("member", ("1", "2"), {"member:1": "member"}),
    ],
)
def test_two_values_say_who_was_in(
    tmp_path: Path, header: str, words: tuple[str, str], columns: dict[str, str]
) -> None:
    text = f"{header};score\n" + "".join(f"{words[1 - m]};{s:.4f}\n".replace(".", ",") for m, s in ROWS)
    table = read_scores(written(tmp_path / "a.csv", text), columns)
    assert table.member.tolist() == [True, True, False, False] and table.scores["score"].tolist() == SCORES


def test_the_probability_of_one_class_is_enough(tmp_path: Path) -> None:
    rows = [("1", "ill", 0.9), ("1", "well", 0.2), ("0", "ill", 0.4), ("0", "well", 0.7)]
    lines = "".join(f"{m},{y},{p},{p}\n" for m, y, p in rows)
    path = written(tmp_path / "a.csv", "member,label,risk,ref_a_p\n" + lines)
    found = read_scores(path, {"probability:ill": "risk"}, ["loss"])
    assert np.argsort(found.scores["loss"]).tolist() == [3, 2, 1, 0]  # .3, .4, .8 and .9 of the true class
    with pytest.raises(InvalidArgument, match="the label 'well', which is none of their classes"):
        read_scores(path, {"probability:sick": "risk"})
    with pytest.raises(InvalidArgument, match="only member, probability and logit may name a value"):
        read_scores(path, {"id:3": "risk"})
