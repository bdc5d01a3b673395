"""What gmip answers stays what it was, bit for bit, while fields, modules and words change.

The values in frozen/*.json were written by `python -m tests.golden.frozen_cases --write`. Who changes a number on
purpose freezes it anew, in a commit that says why.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden.frozen_cases import KINDS, PINNED, ROOT, differences, file_of, main


@pytest.mark.slow
@pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"),
    reason="frozen on Linux, x86-64: other bits elsewhere",
)
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bits_come_out(kind: str) -> None:
    # In a process of its own: libraries choose threads and instructions when they are loaded.
    done = subprocess.run(
        [sys.executable, "-m", "tests.golden.frozen_cases", kind, "--quick"],
        cwd=ROOT,
        env={**os.environ, **PINNED},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"{done.stdout or done.stderr}", pytrace=False)


@pytest.mark.parametrize("kind", KINDS)
def test_frozen_values_are_as_many_as_asked_for(kind: str) -> None:
    frozen = json.loads(file_of(kind).read_text(encoding="utf-8"))
    assert len(frozen) >= {"accounts": 40, "audits": 20, "recipes": 1, "tables": 1}[kind]
    assert all(frozen.values())


def test_a_changed_bit_a_lost_name_and_a_new_case_are_told() -> None:
    frozen = {"audit": {"auc": 0.1 + 0.2, "kind": "bound", "old": None}}
    assert differences(frozen, json.loads(json.dumps(frozen))) == []
    now = {"audit": {"auc": 0.3, "kind": "bound"}, "account": {"mu": 1}}
    assert differences(frozen, now) == [
        ("account", "mu", "(nothing)", "1"),
        ("audit", "auc", "0.30000000000000004", "0.3"),
        ("audit", "old", "null", "(nothing)"),
    ]


def test_a_difference_is_named_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.golden.frozen_cases.FOLDER", tmp_path)
    answers = iter([0.1 + 0.2, 0.3])
    monkeypatch.setitem(KINDS, "tables", lambda folder: {"a table": lambda: {"row 1/noise": next(answers)}})
    assert main(["tables", "--write"]) == 0
    assert main(["tables"]) == 1
    assert "a table\n    row 1/noise: 0.30000000000000004 -> 0.3" in capsys.readouterr().out
