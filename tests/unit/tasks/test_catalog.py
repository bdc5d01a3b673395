"""Tasks by name and by file: what is loaded, and the sentence for each mistake."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gmip.errors import DataUnavailable, InvalidArgument
from gmip.tasks import load, names

OWN = """
from __future__ import annotations

import torch

from gmip.tasks import Examples, Task
from gmip.vocabulary import Recipe
import gmip_test_neighbour

NOT_A_FUNCTION = 3


def make_task(rows: int = gmip_test_neighbour.ROWS) -> Task:
    records = Examples(torch.zeros(rows, 2), torch.zeros(rows, dtype=torch.int64))
    recipe = Recipe(dataset_size=4, batch_size=2, num_steps=1, learning_rate=0.1)
    return Task(name="own", make_model=lambda: torch.nn.Linear(2, 2), pool=records, test=records, recipe=recipe)


def raises():
    raise KeyError("lost\\nand more")


def data_missing():
    from gmip.errors import DataUnavailable

    raise DataUnavailable("There is no data.")


def other():
    return 3


def wants(rows, *, more=1):
    return make_task()
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "own.py"
    path.write_text(OWN, encoding="utf-8")
    (tmp_path / "gmip_test_neighbour.py").write_text("ROWS = 8\n", encoding="utf-8")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "gmip_test_neighbour", raising=False)
    return path


def test_names() -> None:
    assert names()[0] == "digits" and len(set(names())) == len(names())


def test_built_in() -> None:
    assert load("digits").name == "digits"


def test_own_task_with_a_neighbour(own: Path) -> None:
    path = list(sys.path)
    task = load(f"{own}:make_task")
    assert task.name == "own" and len(task.pool) == 8
    assert sys.path == path
    assert "own" not in sys.modules


def test_the_file_is_read_anew(own: Path) -> None:
    load(f"{own}:make_task")
    own.write_text(OWN.replace('name="own"', 'name="changed"'), encoding="utf-8")
    assert load(f"{own}:make_task").name == "changed"


def test_a_relative_path(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(own.parent)
    assert load("own.py:make_task").name == "own"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "digts",
            f"task = 'digts' is not known, did you mean 'digits': pass one of {', '.join(names())}, or "
            "path/to/file.py:function.",
        ),
        (
            "zzz",
            f"task = 'zzz' is not known: pass one of {', '.join(names())}, or path/to/file.py:function.",
        ),
        ("CIFAR10", "task = 'CIFAR10' is not known, did you mean 'cifar10': "),
        ("", "task = '' is not known: pass one of "),
        ("own.py", "task = 'own.py' names no function: write own.py:make_task."),
        ("own.py:", "task = 'own.py:' names no function: write own.py:make_task."),
        ("gone.py:make_task", "task = 'gone.py:make_task' names a file that is not there: check the path gone.py."),
        ("own.py:nothing", "task = 'own.py:nothing' cannot be used, because own.py has no function nothing."),
        ("own.py:NOT_A_FUNCTION", "task = 'own.py:NOT_A_FUNCTION' cannot be used, because own.py has no function"),
        (
            "own.py:raises",
            "task = 'own.py:raises' cannot be used: raises() raised KeyError: 'lost\\nand more' (own.py, line 20)",
        ),
        (
            "own.py:other",
            "task = 'own.py:other' cannot be used, because other() returned int (own.py, line 29): return a gmip.Task.",
        ),
        (
            "own.py:wants",
            "task = 'own.py:wants' needs wants to be callable without arguments (missing a required argument: 'rows'): "
            "give them defaults.",
        ),
        (
            "broken.py:f",
            "task = 'broken.py:f' cannot be used: importing broken.py raised ZeroDivisionError: division by zero "
            "(broken.py, line 1)",
        ),
        (
            "syntax.py:f",
            "task = 'syntax.py:f' cannot be used: importing syntax.py raised SyntaxError: invalid syntax "
            "(syntax.py, line 1)",
        ),
        ("own.txt:f", "task = 'own.txt:f' is not a Python file: give it a name that ends in .py."),
    ],
)
def test_mistakes(spec: str, message: str, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"broken.py": "1 / 0\n", "syntax.py": "def f(:\n", "own.txt": OWN}.items():
        (own.parent / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(own.parent)
    path, modules = list(sys.path), set(sys.modules)
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        load(spec)
    assert sys.path == path
    if spec.startswith(("broken", "syntax")):
        assert set(sys.modules) == modules


def test_what_gmip_raises_itself_passes(own: Path) -> None:
    with pytest.raises(DataUnavailable, match=r"^There is no data\.$"):
        load(f"{own}:data_missing")


def test_the_example_of_the_docs(tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "tasks.md"
    if not page.is_file():
        pytest.skip("docs are not part of this copy")
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    (tmp_path / "my_task.py").write_text(example, encoding="utf-8")
    task = load(f"{tmp_path / 'my_task.py'}:make_task")
    assert task.name == "mine" and len(task.pool) == 800 and len(task.test) == 200


def test_importing_the_tasks_is_light() -> None:
    """A user who asks for one task does not wait for the libraries of the others."""
    program = (
        "import sys, gmip.tasks; heavy = {'sklearn', 'pooch', 'safetensors.torch', 'opacus'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
