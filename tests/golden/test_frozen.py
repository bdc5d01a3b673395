"""What gmip answers stays what it was, up to rounding, while fields, modules and words change.

The values in frozen/*.json were written by `python -m tests.golden.frozen_cases --write`. Who changes a number on
purpose freezes it anew, in a commit that says why.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.golden.frozen_cases import KINDS, computed, differences, file_of, main, report

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_numbers_come_out(kind: str) -> None:
    frozen = json.loads(file_of(kind).read_text(encoding="utf-8"))
    assert len(frozen) >= {"accounts": 40, "audits": 10, "recipes": 1, "tables": 1}[kind]
    assert all(frozen.values())
    if found := differences(frozen, computed(kind)):
        pytest.fail(report(kind, found), pytrace=False)


def test_a_changed_number_a_lost_name_and_a_new_case_are_told() -> None:
    frozen = {"audit": {"auc": 0.3, "kind": "bound", "old": None, "rows": [1, 0.5]}}
    near = {"audit": {"auc": 0.1 + 0.2, "kind": "bound", "old": None, "rows": [1, 0.5 + 1e-8]}}
    assert differences(frozen, near) == []
    now = {"audit": {"auc": 0.30001, "kind": "forecast", "rows": [1, 0.5, 2]}, "account": {"mu": 1}}
    assert differences(frozen, now) == [
        ("account", "mu", "(nothing)", "1"),
        ("audit", "auc", "0.3", "0.30001"),
        ("audit", "kind", '"bound"', '"forecast"'),
        ("audit", "old", "null", "(nothing)"),
        ("audit", "rows", "[1, 0.5]", "[1, 0.5, 2]"),
    ]


def test_a_difference_is_named_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.golden.frozen_cases.FOLDER", tmp_path)
    answers = iter([0.25, 0.3])
    monkeypatch.setitem(KINDS, "tables", lambda folder: {"a table": lambda: {"row 1/noise": next(answers)}})
    assert main(["tables", "--write"]) == 0
    assert main(["tables"]) == 1
    assert "a table\n    row 1/noise: 0.25 -> 0.3" in capsys.readouterr().out
