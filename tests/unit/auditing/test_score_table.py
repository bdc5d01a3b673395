from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gmip.auditing.prediction_table import table_from_columns
from gmip.auditing.score_table import find_columns
from gmip.errors import InvalidArgument

MEMBER, SCORE = [1, 1, 0, 0], [0.5, 0.1, 0.2, 0.3]


def test_columns_by_their_usual_names() -> None:
    found = find_columns(["Record_ID", "is_member", "score_loss", "LiRA_score", "score", "group", "run", "age"])
    assert (found.member, found.id, found.group, found.run) == ("is_member", "Record_ID", "group", "run")
    assert found.scores == {"loss": "score_loss", "LiRA": "LiRA_score", "score": "score"}


def test_columns_by_name() -> None:
    found = find_columns(
        ["in_train", "loss", "lira", "site"], {"member": "in_train", "score": ["loss"], "group": "site"}
    )
    assert (found.member, found.scores, found.group) == ("in_train", {"loss": "loss"}, "site")


@pytest.mark.parametrize(
    ("names", "given", "words"),
    [
        (["score"], {}, "no column 'member'"),
        (["member", "x"], {}, "no column 'score'.*'member' and 'x'"),
        (["member", "score"], {"score": "scroe"}, "no column 'scroe', did you mean 'score'"),
        (["member", "score"], {"scores": "score"}, "columns = 'scores' is not known"),
        (["member", "score", "score"], {}, "two columns 'score'"),
        (["member", "score", "a"], {"id": ["a", "score"]}, "several columns for 'id'"),
    ],
)
def test_columns_that_are_missing(names: list[str], given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        find_columns(names, given)


def test_a_table() -> None:
    table = table_from_columns({"member": MEMBER, "score": SCORE, "id": ["07", "8", "9", "x"], "group": ["a", "b"] * 2})
    assert table.member.tolist() == [True, True, False, False]
    assert table.scores["score"].tolist() == SCORE and table.ids.tolist() == ["07", "8", "9", "x"]
    assert table.groups is not None and table.groups.names == ("a", "b") and table.groups.codes.tolist() == [0, 1, 0, 1]
    assert table_from_columns({"member": MEMBER, "score": SCORE, "id": ["4", "3", "2", "1"]}).ids.dtype == np.int64


@pytest.mark.parametrize("words", [["Yes", "yes", "no", " No"], [True, True, False, False], ["in", "IN", "out", "out"]])
def test_words_for_members(words: list[Any]) -> None:
    assert table_from_columns({"member": words, "score": SCORE}).member.tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"score": [0.5, float("nan"), 0.2, 0.3]},
            r"nan in column 'score' of record 2, which is not finite: leave out",
        ),
        ({"score": ["0.5", "0.1", "inf", "1"]}, r"'inf' in column 'score' of record 3"),
        ({"score": np.array([0.5, 1j, 0.2, 0.3])}, r"in column 'score' of record 1, which is not a number"),
        ({"score": ["0.5", "0.1", "", "1"]}, r"'' in column 'score' of record 3, which is not a number"),
        ({"score": [0.5]}, "4 cells in column 'member' and 1 in 'score'"),
        ({"score": [[0.5], [0.1], [0.2], [0.3]]}, "one dimension"),
        ({"member": [1, 2, 0, 0]}, "2 in column 'member' of record 2"),
        ({"member": [1, 0, 0, 0]}, "1 members among 4 records: pass at least 2"),
        ({"member": [], "score": []}, "no records"),
        ({"id": [1, 1, 2, 3]}, "1 repeated entries in column 'id'"),
        ({"run": ["a", "a", "b", "b"]}, "of run 'a' are all of members"),
        ({"group": ["x" * 300] * 4}, "longer than 200"),
    ],
)
def test_cells_that_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        table_from_columns({"member": MEMBER, "score": SCORE} | change)


def test_a_column_of_records_is_no_column_of_groups() -> None:
    many = np.arange(3000)
    with pytest.raises(InvalidArgument, match="more than 1,000 different names in column 'group'"):
        table_from_columns({"member": many % 2, "score": many, "group": many})
