"""Follows a page of the documentation literally, as a reader would, in an empty folder.

    python tests/e2e/follow.py --wheel dist/gmip-0.1.0-py3-none-any.whl docs/tutorials/*.md

makes a clean environment for each page, with nothing in it but what the page installs, and prints the number of
commands and the time. Without --wheel (as the tests do) it uses the environment that it runs in, without `pip install`.

A block with a title is a file of that name. A block in `sh` is commands; one in `python` without a title is a cell of a
notebook, whose last value is shown. A block in `text` after it is what is shown: its lines are found in this order, and
a … stands for anything. `# all of FILE` is the text of a file of the repository.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_ALL_OF = re.compile(r"^# all of (\S+)$", re.MULTILINE)  # as in docs/site.py
# Runs the cells of a notebook: what the last line of a cell is worth is shown.
_CELLS = """
import ast, sys
space = {"__name__": "__main__"}
for number, code in enumerate(eval(sys.stdin.read())):
    body = ast.parse(code).body
    last = ast.Expression(body.pop().value) if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), f"<cell {number}>", "exec"), space)
    value = None if last is None else eval(compile(last, f"<cell {number}>", "eval"), space)
    print(end="" if value is None else f"{value!r}\\n")
    print(f"-- end of cell {number}", flush=True)
"""


class NotAsShown(AssertionError):
    """A command failed, or something else was shown."""


@dataclass(frozen=True)
class Block:
    language: str
    title: str  # of a file; else ""
    text: str


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of code of a page, with the files that they include."""
    for language, rest, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
        title = re.search(r'title="([^"]+)"', rest)
        whole = _ALL_OF.sub(lambda found: (ROOT / found[1]).read_text(encoding="utf-8").rstrip("\n"), text)
        yield Block(language, title[1] if title else "", whole)


def imports(page: Path) -> set[str]:
    """What a reader's environment must have, by the imports of the page's Python."""
    found = re.findall(
        r"^(?:from|import) (\w+)", "\n".join(one.text for one in blocks(page) if one.language == "python"), re.MULTILINE
    )
    return set(found)


def follow(page: Path, folder: Path, environment: dict[str, str], *, install: bool = False) -> int:
    """Does what the page says in the folder; how many commands that were."""
    done, shown, cells, promised = 0, "", [], {}
    found = list(blocks(page))
    for place, block in enumerate(found):
        if block.title:
            path = folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.language == "sh":
            lines = [line for line in _lines(block.text) if install or not line.startswith(("pip ", "python -m venv"))]
            shown = "".join(_run(["bash", "-c", line], folder, environment) for line in lines)
            done += len(lines)
        elif block.language == "python":
            cells.append(block.text)
        elif block.language == "text" and place and found[place - 1].language == "python":
            promised[len(cells) - 1] = block.text
        elif block.language == "text" and place and found[place - 1].language == "sh":
            _compare(block.text, shown, page)
    if cells:  # in one go, as a notebook keeps its state
        outputs = re.split(r"-- end of cell \d+\n", _run(["python", "-c", _CELLS], folder, environment, repr(cells)))
        for number, text in promised.items():
            _compare(text, outputs[number], page)
    return done + len(cells)


def _lines(text: str) -> list[str]:
    joined = text.replace("\\\n", " ")
    return [line for line in (re.sub(r"\s+# .*$", "", line).strip() for line in joined.splitlines()) if line]


def _run(command: list[str], folder: Path, environment: dict[str, str], given: str = "") -> str:
    done = subprocess.run(command, cwd=folder, env=environment, input=given, capture_output=True, text=True)
    wanted = (0, 1) if "--gate" in command[-1] or "verify" in command[-1] else (0,)
    if done.returncode not in wanted:
        raise NotAsShown(f"{command[-1] if command[0] == 'bash' else given}\n{done.stdout}{done.stderr}")
    return done.stdout


def _compare(expected: str, shown: str, page: Path) -> None:
    rest = [_plain(line) for line in shown.splitlines()]
    for line in filter(None, map(_plain, expected.splitlines())):
        pattern = re.compile(".*".join(re.escape(part.strip()) for part in line.split("…")))
        while rest and not pattern.fullmatch(rest[0]):
            rest.pop(0)
        if not rest:
            raise NotAsShown(f"{page.name} shows {line!r}; the program printed\n{shown}")
        rest.pop(0)


def _plain(line: str) -> str:
    return " ".join(line.split())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--wheel", type=Path, help="of gmip; the page's pip finds it as gmip")
    chosen = parser.parse_args()
    for page in chosen.pages:
        with tempfile.TemporaryDirectory() as place:
            folder, environment = Path(place) / "empty", dict(os.environ)
            folder.mkdir()
            began = time.monotonic()
            if chosen.wheel:
                subprocess.run([sys.executable, "-m", "venv", f"{place}/venv"], check=True)
                environment |= {"PATH": f"{place}/venv/bin:{environment['PATH']}", "HOME": place}
                environment |= {
                    "PIP_FIND_LINKS": f"{chosen.wheel.resolve().parent} {os.environ.get('PIP_FIND_LINKS', '')}"
                }
                environment.pop("PYTHONPATH", None)
            count = follow(page, folder, environment, install=bool(chosen.wheel))
            print(f"{page.name}: {count} commands, {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
