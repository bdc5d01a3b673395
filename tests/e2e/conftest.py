from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from gmip import _io
from gmip.cli import main
from gmip.errors import DataUnavailable
from tests.e2e.cli import Outcome


@pytest.fixture
def run(capsys, monkeypatch):
    """`gmip` in this process: fast."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setattr("gmip.cli.show._SOON", 600.0)  # a busy machine is no reason to speak up

    def call(*argv: str) -> Outcome:
        capsys.readouterr()
        code = main(argv)
        out, err = capsys.readouterr()
        return Outcome(code, re.sub(r"\x1b\[[0-9;]*m", "", out), err)  # typer colours its help on some CI machines

    return call


@pytest.fixture
def answer(run):
    """The JSON answer of a command that must succeed."""

    def call(*argv: str) -> dict[str, Any]:
        outcome = run(*argv, "--json")
        assert (outcome.code, outcome.err) == (0, "")

        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} is not JSON")

        result = json.loads(outcome.out, parse_constant=refuse)
        assert isinstance(result, dict)
        return result

    return call


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not on PATH: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def cifar10() -> Any:
    """The task. Its features take four CPU minutes: one process computes them, once, and GMIP_CACHE keeps them."""
    pytest.importorskip("torch", reason="training needs the extra gmip[train]")
    from gmip.tasks import cache, load

    _io.make_folder(cache.folder())
    try:
        with _io.Lock(cache.folder() / "tests.lock", wait=True):
            return load("cifar10")
    except DataUnavailable as missing:
        pytest.skip(str(missing))
