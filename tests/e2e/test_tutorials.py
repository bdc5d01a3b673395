"""Tutorials, followed literally: they work, and what they show is what is printed.

Those that take more than ten CPU seconds are followed by `.ci/release --audit --tutorials` only, which follows all in
environments of their own; tests/unit/integrations has their frameworks.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from tests.e2e import follow

DEAR = {"README", "claim", "ddp", "federation", "lightning", "opacus", "pytorch", "trainer"}
PAGES = sorted(path for path in (follow.ROOT / "docs" / "tutorials").glob("*.md") if path.stem not in DEAR)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """This Python as `python`, and its `gmip` and `torchrun`."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, module in (("python", ""), ("gmip", "-m gmip"), ("torchrun", "-m torch.distributed.run")):
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {module} "$@"\n')
        (programs / name).chmod(0o755)
    where = os.pathsep.join([str(follow.ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return dict(os.environ) | {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": where}


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_is_followed(page: Path, environment: dict[str, str], tmp_path: Path) -> None:
    missing = [name for name in follow.imports(page) if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    folder = tmp_path / "empty"
    folder.mkdir()
    assert follow.follow(page, folder, environment) >= 1


def page_of(text: str, folder: Path) -> Path:
    page = folder / "page.md"
    page.write_text(text)
    return page


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("```sh\necho 1.5 of 20\n```\n\n```text\n1.5 …\n```\n", False),
        ("```sh\necho 1.5 of 20\n```\n\n```text\n1.6 …\n```\n", True),
        ("```sh\nexit 3\n```\n", True),
        ("```python\nx = 2\n```\n\n```python\nx + 1\n```\n\n```text\n3\n```\n", False),
        ("```python\nx = 2\nx\n```\n\n```text\n3\n```\n", True),
        ('```python title="a.py"\nprint(7)\n```\n\n```sh\npython a.py\n```\n\n```text\n7\n```\n', False),
    ],
)
def test_what_is_not_as_shown_is_noticed(text: str, wrong: bool, environment: dict[str, str], tmp_path: Path) -> None:
    page = page_of(text, tmp_path)
    if wrong:
        with pytest.raises(follow.NotAsShown):
            follow.follow(page, tmp_path, environment)
    else:
        assert follow.follow(page, tmp_path, environment) >= 1
