"""Errors in the user's own code: one sentence, the line in their file, exit code 2, no report."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.cli import assert_one_sentence

GOOD = """\
import torch
from torch import nn

from gmip import Examples, Recipe, Task


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        if len(x) > 2:
            pass
        return self.layer(x)


def make_model():
    return Net()


def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def records(count, top=3):
    torch.manual_seed(0)
    return Examples(torch.randn(count, 4), torch.arange(count) % top)


def make_task():
    recipe = Recipe(dataset_size=20, batch_size=20, sampling="full", num_steps=2, learning_rate=0.1)
    return Task(name="mine", make_model=make_model, pool=records(80), test=records(9), recipe=recipe, loss=loss)
"""
LINE = {text.strip(): number for number, text in enumerate(GOOD.splitlines(), 1)}
MISTAKES = {
    "make_model raises": (
        "return Net()",
        "return Nett()",
        "make_model raised NameError: name 'Nett' is",
        "return Net()",
    ),
    "no model": ("return Net()", "return 3", "make_model returned int", "def make_model():"),
    "wrong shapes": (
        "nn.Linear(4, 3)",
        "nn.Linear(5, 3)",
        "cannot take inputs of shape (2, 4): Runtime",
        "return self.layer(x)",
    ),
    "later": ("            pass", "            raise ValueError('no')", "Your code raised ValueError: no", "pass"),
    "file of the model": (
        "            pass",
        "            open('/no/such')",
        "Your code raised FileNotFoundError",
        "pass",
    ),
    "labels": (", loss=loss", "", "record 2 of its pool has the label 2, and the model has 2 classes", None),
    "one loss": (
        'reduction="none"',
        'reduction="mean"',
        "its loss returned shape () for 2 records",
        "def loss(outputs, targets):",
    ),
    "NaN": ("return nn.f", "return float('nan') * nn.f", "its loss is NaN", "def loss(outputs, targets):"),
    "a loss that raises": ("return nn.f", "return 1 / 0 * nn.f", "its loss raised ZeroDivisionError", None),
    "no test": ("test=records(9)", "test=records(0)", "its test is empty: give it some records as test", None),
    "no pool": ("pool=records(80)", "pool=[1, 2]", "its pool is list", None),
    "recipe": ("learning_rate=0.1", "learning_rate=-1", "learning_rate = -1", None),
    "no task": ("return Task(", "return dict(", "make_task() returned dict", "def make_task():"),
    "too few": ("torch.randn(count, 4)", "torch.randn(count + 1, 4)", "do not belong together", None),
    "gaps": ("torch.randn(count, 4)", "torch.full((count, 4), torch.nan)", "has NaN in the inputs", None),
}


def task(tmp_path: Path, old: str = "", new: str = "") -> str:
    assert old in GOOD
    text = GOOD.replace(old, new) if old else GOOD
    if old == ", loss=loss":
        text = text.replace("nn.Linear(4, 3)", "nn.Linear(4, 2)")
    (tmp_path / "mine.py").write_text(text)
    return f"{tmp_path / 'mine.py'}:make_task"


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(run, tmp_path: Path, name: str) -> None:
    old, new, words, line = MISTAKES[name]
    spec = task(tmp_path, old, new)
    done = run("audit", spec, "--attacks", "loss", "--out", str(tmp_path / "out"))
    lines = done.err.strip().splitlines()
    assert done.code == 2 and done.out == "" and "Traceback" not in done.err, done.err
    assert words in lines[-1], lines[-1]
    if line is not None:
        assert f"(mine.py, line {LINE[line]})" in lines[-1], lines[-1]
    assert not (tmp_path / "out" / "report.html").exists()
    if name == "make_model raises":
        shown = run("audit", spec, "--attacks", "loss", "--out", str(tmp_path / "out"), "--debug")
        assert shown.code == 2 and "Traceback" in shown.err and shown.err.strip().splitlines()[-1] == lines[-1]


def test_the_same_file_without_a_mistake(run, tmp_path: Path) -> None:
    assert run("audit", task(tmp_path), "--attacks", "loss", "--out", str(tmp_path / "out")).code == 0


def test_other_commands(run, tmp_path: Path) -> None:
    spec = task(tmp_path, "return Net()", "return Nett()")
    assert "(mine.py, line " in assert_one_sentence(run("train", spec, "--out", str(tmp_path / "run")))
    assert not (tmp_path / "run").exists()


def test_a_fault_of_gmip_stays_one(run, monkeypatch, tmp_path: Path) -> None:
    from gmip.attacks.loss import Loss

    def fails(*args: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Loss, "_score", fails)
    done = run("audit", task(tmp_path), "--attacks", "loss", "--out", str(tmp_path / "out"))
    assert done.code == 70 and "Traceback" in done.err
