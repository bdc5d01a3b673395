"""Whatever an audit is given: a sentence and exit code 2 (or a report), never a traceback, never half a report.

GMIP_FUZZED_FILES sets how many inputs of each kind are tried.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gmip.auditing import AuditConfig
from gmip.cli import main
from gmip.report import read_result

pytestmark = pytest.mark.slow

REPORT = {"report.html", "report.md", "result.json"}
FUZZ = settings(
    max_examples=int(os.environ.get("GMIP_FUZZED_FILES", "40")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

NAMES = st.sampled_from([*AuditConfig.model_fields, "taks", "path", "name", "recipe", "count", "options"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 5)
    | st.floats(allow_nan=True)
    | st.sampled_from(["digits", "loss", "glir", "0.05@0.01", "nowhere", "", "inf", "\u2028<script>"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


def run(*arguments: object) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return code, out.getvalue(), err.getvalue()


def check(code: int, err: str, folder: Path) -> None:
    """One sentence and nothing written, or a whole report."""
    written = {path.name for path in folder.glob("re*")} & REPORT
    assert "Traceback" not in err
    assert not list(folder.rglob("*.tmp"))
    if code == 2:
        *_, sentence = err.strip().splitlines()
        assert len(sentence) > 20, err
        assert written == set()
    else:
        assert code in (0, 1)
        assert written == REPORT
        read_result(folder)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz") / "run"
    code, _, err = run("train", "--dataset-size", 30, "--batch-size", 30, "--steps", 2, "--seed", 1, "--out", folder)
    assert code == 0, err
    return folder


@FUZZ
@given(st.dictionaries(NAMES, VALUES, max_size=4))
@example({"runs": [{"recipe": {"num_steps": 1, "dataset_size": 20, "batch_size": 10}}], "attacks": ["loss"]})
@example({"attacks": ["loss"], "candidates": 1})
@example({"fprs": [0.5, 0.5], "attacks": "loss"})
@example({"title": "\ud800", "attacks": ["loss"]})
def test_settings(recorded: Path, chosen: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        path = Path(folder) / "audit.yaml"
        # A run and an attack that take no time, where the settings leave them open.
        quick = {"runs": [{"path": str(recorded)}], "attacks": ["loss"]} | chosen | {"out": str(out)}
        path.write_text(json.dumps(quick), encoding="utf-8", errors="surrogatepass")
        code, _, err = run("audit", path)
        check(code, err, out)


@FUZZ
@given(st.binary(max_size=80) | st.text(max_size=80).map(lambda text: text.encode("utf-8", "ignore")))
@example(b"a: &a [*a, *a]\n")
@example(b"task: digits\ntask: adult\n")
def test_files_of_settings(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "audit.yaml"
        path.write_bytes(content + b"\nout: [no, path]\n")  # what is valid otherwise is wrong there
        code, out, err = run("audit", path)
        assert (code, out) == (2, "") and err.count("\n") == 1 and "Traceback" not in err


TASKS = {
    "empty": "",
    "syntax": "def make_task(:\n",
    "raises": "def make_task():\n    raise RuntimeError('no\\nluck')\n",
    "nothing": "def make_task():\n    pass\n",
    "argument": "def make_task(x):\n    pass\n",
    "not a function": "make_task = 3\n",
    "exit": "raise SystemExit(3)\n",
    "nan": "SCALE = float('nan')\n",
    "huge": "SCALE = 1e38\n",
    "two records": "KEEP = 2\n",
    "batch norm": "LAYERS = [nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)]\n",
    "fine": "\n",
}
OWN = """
import torch
from torch import nn
from gmip.tasks import Examples, Task
from gmip.vocabulary import Recipe

SCALE, KEEP, LAYERS = 1.0, 120, [nn.Linear(4, 2)]
{}
if "make_task" not in globals():
    def make_task():
        inputs = SCALE * torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
        data = Examples(inputs, (inputs[:, 0] > 0).long())
        return Task(
            name="own",
            make_model=lambda: nn.Sequential(*LAYERS),
            pool=data[range(KEEP)],
            test=data[range(120, 200)],
            recipe=Recipe(dataset_size=min(30, KEEP), batch_size=min(30, KEEP), num_steps=2, learning_rate=0.1),
        )
"""


@pytest.mark.parametrize("kind", TASKS)
def test_task_files(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(OWN.format(TASKS[kind]) if kind not in ("empty", "syntax") else TASKS[kind])
    code, _, err = run("audit", f"{path}:make_task", "--out", tmp_path / "out", "--attacks", "loss,glir", "--seed", 1)
    check(code, err, tmp_path / "out")
    assert (code == 0) == (kind == "fine"), err


@FUZZ
@given(st.data())
def test_damaged_traces(recorded: Path, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "run"
        shutil.copytree(recorded, copy)
        files = sorted(path for path in copy.rglob("*") if path.is_file() and path.name != "result.json")
        victim = data.draw(st.sampled_from(files), label="file")
        content = victim.read_bytes()
        how = data.draw(st.sampled_from(["cut", "flip", "remove", "empty"]), label="how")
        if how == "remove":
            victim.unlink()
        elif how == "empty":
            victim.write_bytes(b"")
        else:
            at = data.draw(st.integers(0, len(content) - 1), label="at")
            changed = content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :]
            victim.write_bytes(content[:at] if how == "cut" else changed)
        out = Path(folder) / "out"
        code, _, err = run("audit", "--run", copy, "--attacks", "loss,seed", "--out", out, "--seed", 1)
        check(code, err, out)


@pytest.mark.parametrize("candidates", [1, 2, 3])
def test_hardly_any_candidates(recorded: Path, tmp_path: Path, candidates: int) -> None:
    asked = {"task": "digits", "candidates": candidates, "attacks": "loss", "seed": 1, "runs": str(recorded)}
    (tmp_path / "few.yaml").write_text(json.dumps(asked), encoding="utf-8")
    code, _, err = run("audit", tmp_path / "few.yaml", "--out", tmp_path / "out")
    check(code, err, tmp_path / "out")
    assert (code == 2) == (candidates == 1), err
