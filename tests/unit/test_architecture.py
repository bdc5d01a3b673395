"""Who may import what, where import-linter cannot say it: private modules, and the package's own top.

The paper's experiments and the study beside them, which are no part of the package, keep the rules of one.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from benchmarks import house

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
OUTSIDE = (ROOT / "reproduction", ROOT / "benchmarks" / "value")


def module_of(file: Path) -> str:
    parts = file.relative_to(SRC if file.is_relative_to(SRC) else ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_module(name: str) -> bool:
    place = SRC.joinpath(*name.split("."))
    return place.with_suffix(".py").exists() or (place / "__init__.py").exists()


def imports(tree: ast.AST) -> Iterator[str]:
    """All that is imported from gmip, in functions too: modules as `gmip.trace`, names as `gmip.trace.Trace`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "gmip")
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "gmip":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layers() -> list[set[str]]:
    """From the top; each the packages on one line."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    lines = next(c["layers"] for c in settings["contracts"] if c["type"] == "layers")
    return [{name.strip(" ()") for name in line.split("|")} for line in lines]


def private(importer: str, imported: str) -> str | None:
    """The private thing of another package that is imported, if it is one."""
    parts = imported.split(".")
    for depth in range(1, len(parts)):
        if not parts[depth].startswith("_") or parts[depth].startswith("__"):
            continue
        owner = ".".join(parts[:depth])
        if owner == "gmip":  # for all
            continue
        package = owner if (SRC.joinpath(*parts[:depth]) / "__init__.py").exists() else owner.rpartition(".")[0]
        if not f"{importer}.".startswith(f"{package}."):
            return ".".join(parts[: depth + 1])
    return None


def climbs(importer: str, imported: str) -> bool:
    """Whether gmip's own top is imported from below: it offers what is in all layers up to auditing."""
    if imported != "gmip" and (imported.count(".") > 1 or is_module(imported)):
        return False
    if importer.split(".")[0] != "gmip":
        return False
    room = importer.split(".")[1] if "." in importer else ""
    order = layers()
    height = next((i for i, line in enumerate(order) if room in line), len(order))
    return importer != "gmip" and height >= next(i for i, line in enumerate(order) if "auditing" in line)


# Modules that share their name: a command is named after what it runs, the others are known by their package.
SHARED_NAMES = {
    "__init__.py": "Python's",
    **dict.fromkeys(("account.py", "audit.py", "calibrate.py", "convert.py", "seal.py"), "a command of cli"),
    "claims.py": "what a claim is, and what the accountant claims",
    "errors.py": "gmip's errors, and how the command line words them",
    "schema.py": "what is on disk, of a trace and of a result",
}


@cache
def found() -> list[tuple[str, str]]:
    files = [file for folder in (SRC, *OUTSIDE) for file in sorted(folder.rglob("*.py"))]
    trees = [(module_of(file), ast.parse(file.read_bytes())) for file in files]
    return [(importer, imported) for importer, tree in trees for imported in imports(tree)]


def test_no_private_module_of_another_package_is_imported() -> None:
    assert {(importer, what) for importer, imported in found() if (what := private(importer, imported))} == set()


def test_modules_are_told_by_their_names() -> None:
    names = [file.name for file in SRC.rglob("*.py")]
    assert {name for name in names if names.count(name) > 1} == set(SHARED_NAMES)


def test_nobody_climbs_by_importing_gmip() -> None:
    assert [pair for pair in found() if climbs(*pair)] == []


@pytest.mark.parametrize(
    ("importer", "code", "wrong"),
    [
        ("gmip.report.html", "from gmip.trace._shards import Shard", True),
        ("gmip.report.html", "from gmip.trace import _shards", True),
        ("gmip.report.html", "import gmip.trace._shards", True),
        ("gmip.report.html", "def f():\n    from gmip.trace.reader import _cut", True),
        ("gmip.report.html", "from gmip.report._page import page", False),
        ("gmip.report.html", "from gmip import _validate as check", False),
        ("gmip.attacks.shadow", "from gmip.attacks._capture import x", False),
        ("gmip.attacks.shadow", "from gmip.attacks.glir._tails import x", True),
        ("reproduction.audit", "from gmip.trace import _shards", True),
        ("reproduction.audit", "from gmip._io import write", False),
    ],
)
def test_private_is_noticed(importer: str, code: str, wrong: bool) -> None:
    assert any(private(importer, imported) for imported in imports(ast.parse(code))) is wrong


@pytest.mark.parametrize(
    ("importer", "code", "wrong"),
    [
        ("gmip.attacks.shadow", "import gmip", True),
        ("gmip.attacks.shadow", "from gmip import account", True),
        ("gmip.auditing.run", "import gmip", True),
        ("gmip.errors", "import gmip", True),
        ("gmip.attacks.shadow", "from gmip import tasks", False),  # a module: the layers say whether it may
        ("gmip.attacks.shadow", "from gmip.errors import GmipError", False),
        ("reproduction.audit", "import gmip", False),
        ("gmip.cli", "from gmip import __version__", False),
    ],
)
def test_climbing_is_noticed(importer: str, code: str, wrong: bool) -> None:
    assert any(climbs(importer, imported) for imported in imports(ast.parse(code))) is wrong


def skips_too_late(code: str) -> bool:
    """Whether a test file needs torch on its way to the line that skips it without torch."""
    if 'importorskip("torch"' not in code:
        return False
    lines = ast.parse(code).body
    skipping = [number for number, line in enumerate(code.splitlines(), 1) if 'importorskip("torch"' in line]
    told = [i for i, line in enumerate(lines) if any(line.lineno <= n <= (line.end_lineno or 0) for n in skipping)]
    needed = [
        i
        for i, line in enumerate(lines)
        if (isinstance(line, ast.Import) and any(alias.name.split(".")[0] == "torch" for alias in line.names))
        or (isinstance(line, ast.ImportFrom) and (line.module or "").split(".")[0] == "torch")
    ]
    return bool(told and needed) and needed[0] < told[0]


def test_tests_are_skipped_before_they_need_torch() -> None:
    files = [file for file in sorted((ROOT / "tests").rglob("*.py")) if file != Path(__file__)]
    assert [file.name for file in files if skips_too_late(file.read_text(encoding="utf-8"))] == []
    assert skips_too_late('import torch\npytest.importorskip("torch")')


def test_the_walks_of_contributing_name_modules_that_exist():
    """At most ten modules each, as a reader must open them."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    walks = text.split("### Eight walks")[1].split("\n## ")[0].split("\n\n")[2].split("\n")
    numbered = "\n".join(walks)
    journeys = re.split(r"^\d\. ", numbered, flags=re.MULTILINE)[1:]
    assert len(journeys) == 8
    for journey in journeys:
        modules = re.findall(r"`([\w/]+\.py)`", journey)
        assert 1 < len(modules) <= 10
        assert [name for name in modules if not (ROOT / "src" / "gmip" / name).is_file()] == []


def test_no_function_is_above_complexity_20():
    found = [one for part in house.measured(SRC / "gmip").values() for one in part.complexities]
    assert len(found) > 1000 and [name for complexity, name in found if complexity > 20] == []


def lame_docstrings(code: str) -> list[str]:
    """Docstrings whose first sentence lacks its subject."""
    tree = ast.parse(code)
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    said = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, kinds)]
    return [text for text in said if text.split()[:1] and text.split()[0].rstrip(",:") in ("Of", "As", "Those", "Made")]


def test_docstrings_have_a_subject() -> None:
    folders = (SRC, ROOT / "reproduction", ROOT / "benchmarks", ROOT / "tests")
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    assert {file.name: lame for file in files if (lame := lame_docstrings(file.read_text(encoding="utf-8")))} == {}
    assert lame_docstrings('def f():\n    """As results have it."""')
