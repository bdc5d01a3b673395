"""What the documentation shows exists: commands, options, Python names, keys of results, examples."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from gmip.cli import _PANELS, app
from tests.unit.report import sample

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(language: str) -> Iterator[tuple[str, str]]:
    """Page and code of all blocks in a language ("" for commands)."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found, code in re.findall(r"^```(\w*)[^\n]*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            if found == language:
                yield page.relative_to(ROOT).as_posix(), code


@cache
def options(command: str) -> frozenset[str]:
    group: Any = typer.main.get_command(app)
    return frozenset(name for one in group.get_command(None, command).params for name in one.opts) | {"--help", "-h"}


def test_every_command_and_option_of_the_docs_exists() -> None:
    wrong, seen = [], 0
    for page, code in [*blocks(""), *blocks("sh"), *blocks("bash")]:
        for line in code.replace("\\\n", " ").splitlines():
            if not line.startswith("gmip "):
                continue
            seen += 1
            words = shlex.split(line, comments=True)[1:]
            if words[0] not in _PANELS:
                wrong.append(f"{page}: {line}")
                continue
            given = {word.partition("=")[0] for word in words if word.startswith("--")}
            wrong += [f"{page}: {one} of {line}" for one in given - options(words[0])]
    assert wrong == []
    assert seen > 40


def test_python_of_the_docs_parses_and_its_names_exist() -> None:
    wrong, seen = [], 0
    for page, code in blocks("python"):
        seen += 1
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "gmip":
                try:
                    module = importlib.import_module(str(node.module))
                except ModuleNotFoundError as error:
                    if (error.name or "").startswith("gmip"):
                        wrong.append(f"{page}: {node.module}")
                    continue
                wrong += [f"{page}: {one.name}" for one in node.names if not hasattr(module, one.name)]
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "gmip":
                import gmip

                if not hasattr(gmip, node.attr):
                    wrong.append(f"{page}: gmip.{node.attr}")
    assert wrong == []
    assert seen > 10


def test_modules_that_the_docs_name_by_dots_are_there_after_their_imports() -> None:
    """In a process of its own: elsewhere a test may have imported `gmip.report.card`, and the page works by that."""
    chains = {
        (page, ast.unparse(node))
        for page, code in blocks("python")
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Attribute) and re.fullmatch(r"gmip(\.\w+){2,}", ast.unparse(node))
    }
    wrong = []
    for page, chain in sorted(chains):
        code = "\n".join(one for name, one in blocks("python") if name == page)
        imported = [ast.unparse(one) for one in ast.parse(code).body if isinstance(one, ast.Import)]
        ours = [one for one in imported if one.startswith("import gmip")]
        if subprocess.run(
            [sys.executable, "-c", "\n".join(["import gmip", *ours, chain])], capture_output=True
        ).returncode:
            wrong.append(f"{page}: {chain}")
    assert wrong == []


def test_lists_begin_after_an_empty_line() -> None:
    """Else the site takes their first item for a part of the sentence before."""
    wrong = []
    for page in PAGES:
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        wrong += [
            (page.name, found) for found in re.findall(r"^(?!- |  |\d+\. )[^\n]*\S\n- [^\n]{0,30}", text, re.MULTILINE)
        ]
    assert wrong == []


def test_every_example_is_in_the_tutorials() -> None:
    pages = (ROOT / "docs" / "tutorials").glob("*.md")
    text = "".join(path.read_text(encoding="utf-8") for path in [*pages, *(ROOT / "docs").glob("*.md")])
    own = {path.name for path in (ROOT / "examples").glob("*.py")} - {"demo_task.py"}  # a part of demo.py
    assert {name for name in own if f"examples/{name}" not in text} == set()


def test_notebooks_are_those_of_the_tutorials() -> None:
    made = _module("notebooks")
    pages = made.pages()
    assert len(pages) >= 6
    for page in pages:
        book = json.loads((made.OUT / f"{page.stem}.ipynb").read_text(encoding="utf-8"))
        shown = [(cell["cell_type"], "".join(cell["source"])) for cell in book["cells"]]
        assert shown == made.cells(page), f"run python docs/notebooks.py {page.stem}"
        code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
        assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
        assert [out for cell in code for out in cell["outputs"] if out["output_type"] == "error"] == []


def test_keys_of_results_and_their_schema_hold() -> None:
    jsonschema: Any = pytest.importorskip("jsonschema")
    page = (ROOT / "docs" / "result-json.md").read_text()
    keys = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert len(keys) == 10
    result = json.loads(json.dumps(sample.exposed().model_dump(mode="python"), default=str))
    for key in keys:
        value = result
        for name, place in re.findall(r"(\w+)(?:\[(\d+)\])?", key):
            value = value[name] if not place else value[name][int(place)]
            if value is None:
                break
    jsonschema.validate(result, json.loads(_site().result_schema()))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(result | {"confidence": 2}, json.loads(_site().result_schema()))


def test_tables_and_the_curve_of_the_concepts_are_computed() -> None:
    site = _site()
    for name in ("concepts.md", "glossary.md"):
        text = (ROOT / "docs" / name).read_text(encoding="utf-8")
        assert "<!-- site.py: " in text and site.filled(text) == text, f"{name}: run python docs/site.py"
    assert (ROOT / "docs/images/curve.svg").read_text(encoding="utf-8") == site.curve_picture() + "\n"


def _site() -> Any:
    pytest.importorskip("mkdocs", reason="needs gmip[docs]")
    return _module("site")


def _module(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
