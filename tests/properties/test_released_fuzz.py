"""Whatever is in weights, tables of members or a task file: a sentence and exit code 2, or a whole report.

GMIP_FUZZED_FILES sets how many files of each kind are tried.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save
from torch import nn

from gmip.cli import main
from gmip.report import read_result

pytestmark = pytest.mark.slow

FUZZ = settings(
    max_examples=int(os.environ.get("GMIP_FUZZED_FILES", "14")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TASK = """\
import torch
from torch import nn
from gmip import Examples, Recipe, Task

def make_model():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))

def records(count):
    rows = torch.arange(count * 3, dtype=torch.float32).reshape(count, 3).sin()
    return Examples(rows, torch.arange(count) % 2)

def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, reduction="none")

def make_task():
    recipe = Recipe(dataset_size=8, batch_size=4, num_steps=2, learning_rate=0.1)
    return Task(name="mine", make_model=make_model, pool=records(40), test=records(4), recipe=recipe, loss=loss)
"""


def weights(kind: str) -> bytes:
    torch.manual_seed(0)
    state = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).state_dict()
    if kind == "safetensors":
        return save(state)
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


GOOD = {
    "weights.safetensors": weights("safetensors"),
    "weights.pt": weights("pt"),
    "members.csv": b"id,group\n" + b"".join(b"%d,a\n" % i for i in range(8)),
    "others.csv": b"id,group\n" + b"".join(b"%d,b\n" % i for i in range(8, 16)),
    "mine.py": TASK.encode(),
}
MODELS = ("weights.safetensors", "weights.pt")
CELLS = [b"", b"1", b"-1", b"99", b"nan", b"a", b"1e400", b"label,x,y,z", b"\xff", b"\x00", b'"', b"id"]
CODE = ["0", "-1", "nan", "None", "float('nan')", "1 / 0", "[]", "torch.zeros(1)", "'x'", "lambda *a: 3", "nn.Linear"]


@st.composite
def damaged(draw: st.DrawFn, *names: str) -> dict[str, bytes]:
    name = draw(st.sampled_from(names))
    content = GOOD[name]
    if name.endswith(".csv") and draw(st.booleans()):
        lines = content.split(b"\n")
        for _ in range(draw(st.integers(1, 3))):
            lines[draw(st.integers(0, len(lines) - 1))] = b",".join(draw(st.lists(st.sampled_from(CELLS), max_size=3)))
        content = b"\n".join(lines)
    elif name == "mine.py":
        tokens = TASK.replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split(" ")
        for _ in range(draw(st.integers(1, 2))):
            tokens[draw(st.integers(0, len(tokens) - 1))] = draw(st.sampled_from(CODE))
        content = " ".join(tokens).encode()
    else:
        changed = bytearray(content)
        for _ in range(draw(st.integers(1, 3))):
            at = draw(st.integers(0, len(changed)))
            changed[at : at + draw(st.integers(0, 8))] = draw(st.binary(max_size=4))
        content = bytes(changed)
    return GOOD | {name: content}


@FUZZ
@given(damaged("mine.py"), st.sampled_from(MODELS))
def test_task_files(files: dict[str, bytes], model: str) -> None:
    audited(files, model)


@FUZZ
@given(damaged("members.csv", "others.csv"), st.sampled_from(MODELS))
def test_member_files(files: dict[str, bytes], model: str) -> None:
    audited(files, model)


@pytest.mark.parametrize("model", MODELS)
def test_weights(model: str) -> None:
    @FUZZ
    @given(damaged(model))
    def fuzzed(files: dict[str, bytes]) -> None:
        audited(files, model)

    fuzzed()


def audited(files: dict[str, bytes], model: str) -> None:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the damaged task, as SyntaxWarning
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        given = {"--model": model, "--members": "members.csv", "--non-members": "others.csv"}
        options = [text for option, name in given.items() for text in (option, f"{folder}/{name}")]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(
                ["audit", f"{folder}/mine.py:make_task", *options, "--attacks", "loss", "--out", f"{folder}/out"]
            )
        assert code in (0, 2), err.getvalue()
        assert "Traceback" not in err.getvalue()
        if code == 2:
            assert out.getvalue() == "" and not Path(folder, "out", "report.html").exists()
        else:
            read_result(Path(folder) / "out")
