"""`gmip init task.py`: from questions, from options, from a model and two files; and the audit that follows."""

from __future__ import annotations

import random
import shlex
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from gmip.report import read_result
from gmip.tasks import load
from gmip.vocabulary import Recipe
from tests.e2e.cli import assert_one_sentence


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 4), nn.Linear(4, 2, bias=False)


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    drawn = random.Random(0)
    for name in ("members", "others"):
        rows = [f"{drawn.gauss(0, 1)},{drawn.gauss(0, 1)},{drawn.choice(['cat', 'dog'])}" for _ in range(30)]
        Path(f"{name}.csv").write_text("\n".join(["a,b,kind", *rows]) + "\n")
    torch.manual_seed(0)
    save_file(nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2)).state_dict(), "chain.safetensors")
    save_file(Named().state_dict(), "named.safetensors")
    save_file(nn.Linear(2, 2).state_dict(), "one.safetensors")
    save_file({"conv.weight": torch.zeros(2, 1, 3, 3)}, "conv.safetensors")
    Path("gmip_net.py").write_text("from torch import nn\n\n\ndef Net():\n    return nn.Linear(2, 2)\n")


TWO = ["--members", "members.csv", "--non-members", "others.csv", "--column", "label=kind"]


@pytest.mark.parametrize(("weights", "guessed"), [("chain", True), ("named", True), ("one", False)])
def test_from_a_model_and_two_files(run, weights: str, guessed: bool) -> None:
    done = run("init", "task.py", "--model", f"{weights}.safetensors", *TWO)
    assert done.code == 0 and "cannot be used yet" not in done.out, done.err
    assert ("check the activations" in Path("task.py").read_text()) == guessed
    task = load("task.py:make_task")
    assert len(task.pool) == 60 and len(task.test) == 30 and task.recipe.dataset_size == 30
    command = shlex.split(done.out.strip().split("Next: ")[1])
    assert command[:2] == ["gmip", "audit"] and command[-1] == "30:60"
    assert run(*command[1:], "--attacks", "loss", "--out", "out").code == 0
    (one,) = read_result("out").runs
    assert one.verdict.kind == "measured" and one.attacks[0].members == 30
    assert "already exists" in assert_one_sentence(run("init", "task.py", "--model", f"{weights}.safetensors", *TWO))


def test_names_and_groups_of_records_come_with_them(run) -> None:
    for name, first in (("members", 0), ("others", 30)):
        header, *rows = Path(f"{name}.csv").read_text().split()
        rows = [f"p-{first + i},{'north' if i % 2 else 'south'},{2020 + i % 3},{row}" for i, row in enumerate(rows)]
        Path(f"{name}.csv").write_text("\n".join([f"patient,site,year,{header}", *rows]) + "\n")
    arguments = ["--model", "one.safetensors", *TWO]
    words = assert_one_sentence(run("init", "task.py", *arguments))
    assert "'p-0' in column 'patient'" in words and "--column id=NAME" in words
    roles = ["--column", "id=patient", "--column", "group=site", "--column", "ignore=year"]
    done = run("init", "task.py", *arguments, *roles)
    assert done.code == 0 and "alphabetical order (cat, dog), which is a guess" in done.out, done.err
    assert "CLASSES = ['cat', 'dog']" in Path("task.py").read_text()
    command = shlex.split(done.out.strip().split("Next: ")[1])
    assert run(*command[1:], "--attacks", "loss", "--out", "out").code == 0
    (one,) = read_result("out").runs
    assert str(one.exposed[0].id).startswith("p-") and {each.group for each in one.groups} == {"north", "south"}


def test_a_wrong_order_of_classes_is_no_clearance(run) -> None:
    drawn = random.Random(1)
    for name in ("members", "others"):
        values = [(drawn.gauss(0, 1), drawn.gauss(0, 1)) for _ in range(200)]
        rows = [f"{a},{b},{'cat' if a > 0 else 'dog'}" for a, b in values]
        Path(f"{name}.csv").write_text("\n".join(["a,b,kind", *rows]) + "\n")
    save_file({"weight": torch.tensor([[-3.0, 0.0], [3.0, 0.0]]), "bias": torch.zeros(2)}, "one.safetensors")
    command = shlex.split(run("init", "task.py", "--model", "one.safetensors", *TWO).out.strip().split("Next: ")[1])
    done = run(*command[1:], "--attacks", "loss", "--out", "out", "--gate", "--target", "tpr=0.05@0.01")
    assert done.code == 1
    assert done.out.startswith("INCONCLUSIVE: The model answers its own training records worse than guessing")
    assert "the order of the classes" in done.out


def test_from_one_file_and_code(run) -> None:
    done = run("init", "task.py", "--data", "members.csv", "--column", "label=kind", "--model", "gmip_net.py:Net")
    assert done.code == 0 and "Next: gmip audit task.py:make_task" in done.out
    task = load("task.py:make_task")
    assert (len(task.pool), len(task.test), task.recipe.dataset_size) == (24, 6, 8)
    assert task.recipe == Recipe(dataset_size=8, batch_size=8, num_steps=10, learning_rate=0.1)


def test_by_asking(run, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"Table of records": "members.csv", "Code that makes": "gmip_net:Net"}
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.prompt", lambda what: next(a for q, a in answers.items() if what.startswith(q)))
    assert run("init", "task.py", "--column", "label=kind").code == 0
    assert load("task.py:make_task").make_model().out_features == 2


def test_a_draft_that_does_not_work_yet_says_so(run) -> None:
    Path("gmip_wide.py").write_text("from torch import nn\n\n\ndef Net():\n    return nn.Linear(3, 2)\n")
    done = run("init", "task.py", "--data", "members.csv", "--column", "label=kind", "--model", "gmip_wide:Net")
    assert done.code == 0 and "It cannot be used yet. Task 'task' cannot be used: its model cannot take" in done.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["task.py"], "A task file needs --data"),
        (["task.py", "--data", "members.csv", "--column", "label=kind"], "A task file needs --model"),
        (["task.py", "--data", "members.csv", *TWO], "--data and --members are both given"),
        (["task.py", *TWO, "--model", "conv.safetensors"], "not a chain of linear layers"),
        (["task.py", *TWO, "--model", "net:"], "--model = 'net:' must be MODULE:NAME"),
        (["task.py", "--data", "no.csv", "--model", "gmip_net.py:Net"], "no.csv"),
        (["task.py", "--data", "members.csv", "--model", "gmip_net.py:Net"], "has no column 'label'"),
        (["a.yaml", "--data", "members.csv"], "--data is for a task file"),
        (["no/folder/task.py", *TWO, "--model", "one.safetensors"], "cannot be written"),
    ],
)
def test_refused(run, arguments: list[str], words: str) -> None:
    assert words in assert_one_sentence(run("init", *arguments))
    assert not Path("task.py").exists()
